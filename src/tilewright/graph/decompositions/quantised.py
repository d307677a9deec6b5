"""Operators on quantised tensors: numbers from integers, the operator on numbers, integers from numbers.

    before                                      after
    y = QLinearConv(x, sx, zx, w, sw, zw,       a = DequantizeLinear(x, sx, zx)
                    sy, zy, b)                  c = DequantizeLinear(w, sw, zw)
                                                d = DequantizeLinear(b, sx sw)
                                                y = QuantizeLinear(Conv(a, c, d), sy, zy)

The two forms say the same; that with pairs of conversions is the one that passes know.

Sources: the ONNX standard (QLinearConv, QLinearMatMul), `ContribOperators.md` of onnxruntime (the others);
Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
arXiv:1712.05877, equation 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.graph.decompositions.convolutions import channels_first, channels_last
from tilewright.graph.model import Attribute
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT


def _numbers(p: Parts, at: int, axis: int) -> str | None:
    """The numbers of the quantised input `at`, whose scale and zero point follow; None for forms without a
    pair.

    A list of scales is one for each place of `axis`.
    """
    inputs = p.ctx.node.inputs
    x, scale = p.type(at), p.type(at + 1)
    zero = inputs[at + 2] if len(inputs) > at + 2 else ""
    one = scale.elements == 1
    if not one and scale.rank != 1:
        return None
    names = [inputs[at], inputs[at + 1], zero]
    if one and scale.rank:
        names[1] = p.reshape(names[1], ())
    if zero and one and p.type(at + 2).rank:
        if p.type(at + 2).elements > 1:
            return None
        names[2] = p.reshape(zero, ())
    return p.add("DequantizeLinear", names, axis=axis % max(x.rank, 1))


def _integers(p: Parts, value: str, at: int, dtype: str) -> str:
    """The value quantised by the scale `at` and the zero point behind it, in `dtype` where there is none."""
    inputs = p.ctx.node.inputs
    zero = inputs[at + 1] if len(inputs) > at + 1 else ""
    names = [
        p.reshape(name, ()) if name and p.type(at + k).rank else name
        for k, name in enumerate((inputs[at], zero))
    ]
    kept: dict[str, Attribute] = {} if zero else {"output_dtype": dtype}
    return p.add("QuantizeLinear", (value, *names), attributes=kept)


@decomposition("QLinearConv")
def qlinear_conv(
    p: Parts,
    x: str,
    x_scale: str,
    x_zero: str,
    w: str,
    w_scale: str,
    w_zero: str,
    scale: str,
    zero: str,
    bias: str = "",
) -> bool:
    """A convolution. The bias is an integer of the scale that the products have."""
    if p.type(6).elements != 1 or p.type(1).elements != 1:
        return False
    image, weights = _numbers(p, 0, 1), _numbers(p, 3, 0)
    if image is None or weights is None:
        return False
    names = [image, weights]
    if bias:
        factor = p.add("Mul", (p.reshape(x_scale, ()), w_scale))
        if p.type(4).elements == 1:
            factor = p.reshape(factor, ())
        names.append(p.add("DequantizeLinear", (bias, factor), axis=0))
    p.give(_integers(p, p.add("Conv", names, attributes=p.ctx.node.attributes), 6, p.type(7).dtype))
    return True


@decomposition("QLinearMatMul")
@decomposition("QLinearMatMul", domain=MICROSOFT)
def qlinear_matmul(
    p: Parts, a: str, a_scale: str, a_zero: str, b: str, b_scale: str, b_zero: str, scale: str, zero: str
) -> bool:
    """A matrix product; scales of `a` by row, of `b` by column."""
    left, right = _numbers(p, 0, -2), _numbers(p, 3, -1)
    if left is None or right is None or p.type(6).elements != 1:
        return False
    p.give(_integers(p, p.add("MatMul", (left, right)), 6, p.type(7).dtype))
    return True


@decomposition("QGemm", domain=MICROSOFT)
def qgemm(
    p: Parts,
    a: str,
    a_scale: str,
    a_zero: str,
    b: str,
    b_scale: str,
    b_zero: str,
    c: str = "",
    scale: str = "",
    zero: str = "",
) -> bool:
    """`alpha op(a) op(b) + c`, c in integers of the products' scale; numbers where no scale is given."""
    flip = bool(p.ctx.integer("transB", 0))
    left, right = _numbers(p, 0, 0), _numbers(p, 3, 0 if flip else 1)
    if left is None or right is None:
        raise p.ctx.unsupported("scales that are neither one number nor one a column")
    alpha, names = p.ctx.real("alpha", 1.0), [left, right]
    if c:
        factor = p.add("Mul", (p.add("Mul", (a_scale, b_scale)), p.number(alpha, "f32")))
        names.append(p.add("Mul", (p.add("Cast", (c,), to="f32"), factor)))
    flags = {name: p.ctx.integer(name, 0) for name in ("transA", "transB")}
    total = p.add("Gemm", names, attributes={"alpha": alpha, **flags})
    p.give(_integers(p, total, 7, p.type(0).dtype) if scale else total)
    return True


def _apply(p: Parts, at: int, between: Callable[[str], str]) -> None:
    """Quantise what `between` makes of the numbers of the first input by the scale `at`."""
    value = _numbers(p, 0, 0)
    if value is None:
        raise p.ctx.unsupported("scales that are not one number")
    p.give(_integers(p, between(value), at, p.type(0).dtype))


@decomposition("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_arithmetic(
    p: Parts, a: str, a_scale: str, a_zero: str, b: str, b_scale: str, b_zero: str, scale: str, zero: str = ""
) -> None:
    """A sum or a product, element by element."""
    other = _numbers(p, 3, 0)
    if other is None:
        raise p.ctx.unsupported("scales that are not one number")
    _apply(p, 6, lambda value: p.add(p.ctx.node.op.removeprefix("QLinear"), (value, other)))


@decomposition("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    p: Parts, condition: str, x: str, xs: str, xz: str, y: str, ys: str, yz: str, scale: str, zero: str
) -> None:
    """One or the other, by a condition."""
    first, second = _numbers(p, 1, 0), _numbers(p, 4, 0)
    if first is None or second is None:
        raise p.ctx.unsupported("scales that are not one number")
    p.give(_integers(p, p.add("Where", (condition, first, second)), 7, p.type(1).dtype))


@decomposition("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_function(p: Parts, x: str, x_scale: str, x_zero: str, scale: str, zero: str = "") -> None:
    """A function, element by element."""
    _apply(
        p,
        3,
        lambda value: p.add(
            p.ctx.node.op.removeprefix("QLinear"), (value,), attributes=p.ctx.node.attributes
        ),
    )


@decomposition("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(p: Parts, x: str, x_scale: str, x_zero: str, scale: str, zero: str) -> None:
    """Softmax as the operator set in the attribute `opset` says: before 13, over all axes from `axis` on."""
    shape, old = p.shape(0), p.ctx.integer("opset") < 13
    axis = p.ctx.axis("axis", len(shape), -1)

    def softmax(value: str) -> str:
        if not old:
            return p.add("Softmax", (value,), axis=axis)
        rows = int(np.prod(shape[:axis]))
        return p.reshape(p.add("Softmax", (p.reshape(value, (rows, -1)),), axis=1), shape)

    _apply(p, 3, softmax)


@decomposition("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(p: Parts, x: str, x_scale: str, x_zero: str, scale: str, zero: str = "") -> None:
    """The means of windows; channels last where the attribute says so."""
    attributes = {name: value for name, value in p.ctx.node.attributes.items() if name != "channels_last"}
    _pooled(p, lambda value: p.add("AveragePool", (value,), attributes=attributes))


@decomposition("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(p: Parts, x: str, x_scale: str, x_zero: str, scale: str, zero: str) -> None:
    """The means of channels."""
    _pooled(p, lambda value: p.add("GlobalAveragePool", (value,)))


def _pooled(p: Parts, pool: Callable[[str], str]) -> None:
    rank = len(p.shape(0))
    if p.ctx.integer("channels_last", 0):
        _apply(p, 3, lambda value: channels_last(p, pool(channels_first(p, value, rank)), rank))
    else:
        _apply(p, 3, pool)


@decomposition("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(p: Parts, x: str, x_scale: str, x_zero: str, scale: str, zero: str = "") -> None:
    """Means along axes."""
    axes = p.ints(p.ctx.integers("axes"))
    _apply(p, 3, lambda v: p.add("ReduceMean", (v, axes), keepdims=p.ctx.integer("keepdims", 1)))


@decomposition("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(p: Parts, scale: str, zero: str, *parts: str) -> None:
    """Tensors one after another, by one scale afterwards. Each comes with its scale and zero point."""
    p.ctx.require(
        len(parts) % 3 == 0, "its inputs after the second are not tensors, scales and zero points in turn"
    )
    values = [_numbers(p, at, 0) for at in range(2, 2 + len(parts), 3)]
    if None in values:
        raise p.ctx.unsupported("scales that are not one number")
    joined = p.add("Concat", [value for value in values if value], axis=p.ctx.integer("axis"))
    p.give(_integers(p, joined, 0, p.type(1).dtype))


@decomposition("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def standard_conversion(p: Parts, x: str, scale: str, zero: str = "") -> None:
    """The operator of the standard, for element types that it did not have in the model's operator set."""
    p.give(p.add(p.ctx.node.op, (x, scale, zero), attributes=p.ctx.node.attributes))


#: The largest of the integers that numbers are quantised to.
_MOST: Final = 255.0


@decomposition("DynamicQuantizeLinear")
def dynamic_quantize_linear(p: Parts, x: str) -> None:
    """Numbers as u8, the scale and the zero point such that all of them and 0 are in range.

    scale = (max(x, 0) - min(x, 0)) / 255, 1 where that is 0;  zero point = round(-min(x, 0) / scale)
    """
    nothing, most = p.number(0.0, "f32"), p.number(_MOST, "f32")
    low = p.add("Min", (p.add("ReduceMin", (x,), keepdims=0), nothing))
    high = p.add("Max", (p.add("ReduceMax", (x,), keepdims=0), nothing))
    reach = p.add("Div", (p.add("Sub", (high, low)), most))
    scale = p.add("Where", (p.add("Equal", (reach, nothing)), p.number(1.0, "f32"), reach))
    place = p.add("Round", (p.add("Div", (p.add("Neg", (low,)), scale)),))
    zero = p.add("Cast", (p.add("Clip", (place, nothing, most)),), to="u8")
    p.give(p.add("QuantizeLinear", (x, scale, zero)))
    p.give(scale, 1)
    p.give(zero, 2)


@decomposition("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(p: Parts, a: str, b: str, b_scale: str, b_zero: str = "", bias: str = "") -> None:
    """A matrix quantised as its range asks, times a quantised one, in numbers."""
    left, left_scale, left_zero = p.several("DynamicQuantizeLinear", (a,), 3)
    total = p.add("Cast", (p.add("MatMulInteger", (left, b, left_zero, b_zero)),), to="f32")
    _scaled(p, total, p.add("Mul", (left_scale, b_scale)), bias)


@decomposition("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    p: Parts, a: str, b: str, a_scale: str, b_scale: str, a_zero: str = "", b_zero: str = "", bias: str = ""
) -> None:
    """A product of quantised matrices, in numbers."""
    total = p.add("Cast", (p.add("MatMulInteger", (a, b, a_zero, b_zero)),), to=p.type(2).dtype)
    _scaled(p, total, p.add("Mul", (a_scale, b_scale)), bias)


def _scaled(p: Parts, total: str, factor: str, bias: str) -> None:
    made = p.add("Mul", (total, factor))
    p.give(p.add("Add", (made, bias)) if bias else made)
