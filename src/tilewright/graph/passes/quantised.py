"""Contractions of quantised operands, in integers.

    before                                          after
    x = DequantizeLinear(q, sx, zx)                 t = ConvInteger(q, r)               sums in i32
    w = DequantizeLinear(r, sw)                     u = t - zx * (sums of r inside)     a constant
    y = Conv(x, w, b)                               y = Cast(u) * (sx * sw) + b

Models quantised with pairs of QuantizeLinear and DequantizeLinear compute this in floats as they stand. Sums
in integers are exact; machines with instructions for products of bytes are faster at them, too. Those
multiply unsigned with signed bytes, so that signed activations are made unsigned, 128 larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node, TensorType
from tilewright.graph.ops.convolution import sums_inside, window_of
from tilewright.graph.passes.taps import by_taps, grouped_taps
from tilewright.graph.program import context_of, nodes_program
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import I8, U8, dtype_of

#: Neighbours along the reduction that instructions for products of bytes take together.
GROUP: Final = 4
#: Channels of the longest blocks of layouts, and how many times as many products zeros after them may make.
BLOCK: Final = 16
MOST_FILLED: Final = 1.3
#: Sums of more products than this could exceed 31 bits.
MOST_PRODUCTS: Final = (1 << 31) // (255 * 128) - 1
_SIGNED_TO_UNSIGNED: Final = 128


@dataclass(frozen=True, slots=True)
class FoldDequantised:
    """Evaluate what dequantises constants: inference leaves it, so that others see the integers."""

    name: ClassVar[str] = "fold-dequantised"

    def __call__(self, graph: Graph) -> Graph:
        """Fold every DequantizeLinear of constants."""
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes:
            if node.op != "DequantizeLinear" or node.domain or not _known(graph, node):
                rewriter.keep(node)
                continue
            changed = True
            (output,) = node.outputs
            made = nodes_program([node], graph.types, graph.constants, [output]).evaluate(graph.constants)
            rewriter.alias(output, rewriter.constant(made[output], output))
        return rewriter.finish() if changed else graph


def _known(graph: Graph, node: Node) -> bool:
    return all(value in graph.constants for value in node.used_inputs)


@dataclass(frozen=True, slots=True)
class UnsignedActivations:
    """Activations quantised to i8, to u8 with a zero point 128 larger: the same numbers, no step apart."""

    name: ClassVar[str] = "unsigned-activations"

    def __call__(self, graph: Graph) -> Graph:
        """Change those that are only dequantised again."""
        wanted = {node.outputs[0] for node in graph.nodes if _signed(graph, node)}
        if not wanted:
            return graph
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            quantised = node.outputs[0] in wanted
            if not quantised and not (node.op == "DequantizeLinear" and node.inputs[0] in wanted):
                rewriter.keep(node)
                continue
            zero = graph.constants[node.inputs[2]].astype(np.int32) + _SIGNED_TO_UNSIGNED
            name = rewriter.constant(zero.astype(np.uint8), f"{node.inputs[2]}.unsigned")
            changed = replace(rewriter.current(node), inputs=(*rewriter.current(node).inputs[:2], name))
            type_ = graph.types[node.outputs[0]]
            if quantised:
                # other numbers than those of the model have another name
                type_ = replace(type_, dtype="u8")
                changed = replace(changed, outputs=(rewriter.fresh(f"{node.outputs[0]}.unsigned"),))
                rewriter.alias(node.outputs[0], changed.outputs[0])
            rewriter.emit(changed, [type_])
        return rewriter.finish()


def _signed(graph: Graph, node: Node) -> bool:
    """Whether a node quantises to i8 and nothing but dequantisation by the same zero point reads it."""
    if node.op != "QuantizeLinear" or node.domain or len(node.used_inputs) != 3:
        return False
    (output,) = node.outputs
    zero = graph.constant(node.inputs[2])
    if graph.types[output].dtype != "i8" or zero is None or graph.is_output(output):
        return False
    return all(
        reader.op == "DequantizeLinear"
        and not reader.domain
        and reader.inputs[0] == output
        and len(reader.used_inputs) == 3
        and (known := graph.constant(reader.inputs[2])) is not None
        and np.array_equal(known, zero)
        for reader in graph.consumers(output)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """A quantised tensor: ``(value - zero) * scale``."""

    value: str
    scale: Array
    zero: Array
    axis: int


@dataclass(frozen=True, slots=True)
class IntegerProducts:
    """Do convolutions and matrix products of dequantised u8 with constant dequantised bytes in integers.

    Of the constants, what is left without their zero points must fit i8, as that of u8 around 128 does.
    """

    name: ClassVar[str] = "integer-products"

    def __call__(self, graph: Graph) -> Graph:
        """Change those whose products instructions can take in groups."""
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes:
            found = _operands(graph, node)
            if found is None:
                rewriter.keep(node)
                continue
            changed = True
            _emit(rewriter, rewriter.current(node), *found)
        return rewriter.finish() if changed else graph


def _operands(graph: Graph, node: Node) -> tuple[_Operand, _Operand, Array] | None:
    """The quantised activation and weights of a contraction, and these as i8 without their zero point.

    None where it is not one of these.
    """
    if node.op not in ("Conv", "MatMul", "Gemm") or node.domain:
        return None
    x, w = (_dequantised(graph, value) for value in node.inputs[:2])
    if x is None or w is None or x.value in graph.constants or w.value not in graph.constants:
        return None
    weights, kind = graph.constants[w.value], dtype_of(graph.types[w.value].dtype)
    if kind.small:
        weights = weights.astype(kind.held.numpy)
    if graph.types[x.value].dtype != "u8" or kind.is_float or kind.held not in (I8, U8):
        return None
    along = _output_axis(node, weights.shape)
    if along is None or x.scale.size != 1 or x.zero.size != 1:
        return None
    if w.scale.size not in (1, weights.shape[along]) or (w.scale.size > 1 and w.axis % weights.ndim != along):
        return None
    summed = weights.size // max(1, weights.shape[along])
    if not _in_groups(node, weights.shape) or summed > MOST_PRODUCTS or graph.types[x.value].rank < 2:
        return None
    bias = graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1)
    if bias is None or bias.ndim > 1:
        return None
    numbers = _without_zero(weights, w.zero, along)
    return None if numbers is None else (x, w, numbers)


def _without_zero(weights: Array, zero: Array, along: int) -> Array | None:
    """The weights less their zero points (one, or one each ``along`` an axis) as i8; None beyond that."""
    if zero.size not in (1, weights.shape[along]):
        return None
    if weights.dtype == np.int8 and not zero.any():
        return weights
    apart = [-1 if axis == along else 1 for axis in range(weights.ndim)] if zero.size > 1 else []
    numbers = weights.astype(np.int16) - zero.astype(np.int16).reshape(apart)
    limits = np.iinfo(np.int8)
    fits = numbers.size > 0 and limits.min <= numbers.min() and numbers.max() <= limits.max
    return numbers.astype(np.int8) if fits else None


def _in_groups(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether instructions can take the products in groups: along the depth, or along the last taps."""
    if node.op != "Conv":
        return shape[_output_axis(node, shape) == 0] % GROUP == 0
    return _along_channels(node, shape) or grouped_taps(node, shape, GROUP) is not None


def _along_channels(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a convolution's products are taken in groups along channels, if these get zeros after them.

    They do where that, up to blocks of a layout, makes fewer products than zeros after the taps.
    """
    if _is_depthwise(node, shape) or shape[1] % GROUP == 0:
        return True
    taps = grouped_taps(node, shape, GROUP)
    most = MOST_FILLED if taps is None else taps / shape[-1]
    return -(-shape[1] // BLOCK) * BLOCK < most * shape[1]


def _is_depthwise(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether each channel has a convolution of its own: lanes are channels, nothing is summed in groups."""
    return shape[1] == 1 and node.attributes.get("group", 1) == shape[0]


def _output_axis(node: Node, shape: tuple[int, ...]) -> int | None:
    """The axis of the weights along which results differ; None for forms that stay in floats."""
    attributes = node.attributes
    if node.op == "Conv":
        return 0 if attributes.get("group", 1) == 1 or _is_depthwise(node, shape) else None
    if len(shape) != 2:
        return None
    if node.op == "MatMul":
        return 1
    if (
        attributes.get("transA", 0)
        or attributes.get("alpha", 1.0) != 1.0
        or attributes.get("beta", 1.0) != 1.0
    ):
        return None
    return 0 if attributes.get("transB", 0) else 1


def _dequantised(graph: Graph, value: str) -> _Operand | None:
    maker = graph.producer(value)
    if maker is None or maker.op != "DequantizeLinear" or maker.domain:
        return None
    scale = graph.constant(maker.inputs[1])
    has_zero = len(maker.inputs) > 2 and bool(maker.inputs[2])
    zero = graph.constant(maker.inputs[2]) if has_zero else np.zeros(1, np.int32)
    if scale is None or zero is None or scale.ndim > 1 or scale.dtype != np.float32:
        return None
    axis = maker.attributes.get("axis", 1)
    return _Operand(maker.inputs[0], scale.reshape(-1), zero.astype(np.int32).reshape(-1), int(str(axis)))


def _emit(rewriter: Rewriter, node: Node, x: _Operand, w: _Operand, weights: Array) -> None:
    """The nodes that compute a contraction in integers, of ``weights`` without a zero point."""
    graph = rewriter.graph
    (output,) = node.outputs
    type_ = graph.types[output]
    activation = rewriter.resolve(x.value)
    spatial = type_.rank - 2 if node.op == "Conv" else 0

    def spread(array: Array) -> Array:
        return array.reshape(-1, *(1,) * spatial) if array.size > 1 else array.reshape(())

    def step(op: str, inputs: tuple[str, ...], dtype: str, **attributes: str) -> str:
        name = rewriter.fresh(f"{output}.{op.lower()}")
        made = replace(node, op=op, inputs=inputs, outputs=(name,), attributes=attributes)
        rewriter.emit(made, [TensorType(dtype, type_.shape)])
        return name

    def constant() -> str:
        return w.value if weights is graph.constants[w.value] else rewriter.constant(weights, w.value)

    total = rewriter.fresh(f"{output}.integers")
    if node.op == "Conv" and not _along_channels(node, weights.shape):
        fill = np.array(int(x.zero[0]), np.uint8)
        product = by_taps(
            rewriter, node, (activation, TensorType("u8", graph.types[x.value].shape)), weights, fill, GROUP
        )
        product = replace(product, op="ConvInteger", outputs=(total,), version=10)
        sums = weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int64)
        sums = sums.reshape(-1, *(1,) * spatial)
    elif node.op == "Conv":
        product = replace(node, op="ConvInteger", inputs=(activation, constant()), outputs=(total,))
        sums = _inside(graph, node, weights)
    else:
        if node.op == "Gemm" and node.attributes.get("transB", 0):
            weights = np.ascontiguousarray(weights.T)
        product = replace(
            node, op="MatMulInteger", inputs=(activation, constant()), outputs=(total,), attributes={}
        )
        sums = weights.sum(axis=0, dtype=np.int64)
    rewriter.emit(product, [TensorType("i32", type_.shape)])
    correction = (sums * int(x.zero[0])).astype(np.int32)
    if correction.any():
        total = step("Sub", (total, rewriter.constant(correction, f"{output}.correction")), "i32")
    value = step("Cast", (total,), "f32", to="f32")
    factor = (x.scale.astype(np.float64) * w.scale.astype(np.float64)).astype(np.float32)
    names = (value, rewriter.constant(spread(factor), f"{output}.scale"))
    bias = graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if bias is None:
        rewriter.emit(replace(node, op="Mul", inputs=names, outputs=node.outputs, attributes={}), [type_])
        return
    scaled = step("Mul", names, "f32")
    names = (scaled, rewriter.constant(spread(bias.astype(np.float32)), f"{output}.bias"))
    rewriter.emit(replace(node, op="Add", inputs=names, outputs=node.outputs, attributes={}), [type_])


def _inside(graph: Graph, node: Node, weights: Array) -> Array:
    """What the zero point of a convolution's input is multiplied with."""
    context = context_of(node, graph.types, graph.constants)
    sizes = graph.types[node.inputs[0]].sizes[2:]
    window = window_of(context, weights.shape[2:], sizes)
    return sums_inside(weights, window, sizes, graph.types[node.outputs[0]].sizes[2:])
