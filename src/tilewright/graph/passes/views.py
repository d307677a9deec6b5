"""Views (reshapes of row-major buffers): merged, found in transpositions, moved out of the way of fusion.

A view costs nothing: the executor lets its output be its input's buffer. But it stands between a
contraction and the element-wise chain that wants to be its epilogue:

    before                                     after
    g = Gemm(a, w, b)          [128, 768]      g = Gemm(a, w, b)
    v = Reshape(g)          [1, 128, 768]      q = Reshape(r)             [128, 768]
    y = Add(v, r)           [1, 128, 768]      s = Add(g, q)              [128, 768]
                                               y = Reshape(s)          [1, 128, 768]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.graph.dependence import Ancestors
from tilewright.graph.model import Graph, Node, TensorType
from tilewright.graph.passes.nodes import reshape_node
from tilewright.graph.registry import Kind, find_operator
from tilewright.graph.rewrite import Rewriter


def is_view(node: Node) -> bool:
    """Whether the node's output is its first input's buffer."""
    entry = find_operator(node)
    return entry is not None and entry.kind is Kind.VIEW


@dataclass(frozen=True, slots=True)
class SimplifyViews:
    """Merge views of views, and turn transpositions that move only sizes of one into views."""

    name: ClassVar[str] = "simplify-views"

    def __call__(self, graph: Graph) -> Graph:
        """Walk once, rewriting each view to read the first value of its chain."""
        rewriter = Rewriter(graph)
        source: dict[str, str] = {}
        changed = False
        for old in graph.nodes:
            node = rewriter.current(old)
            composed = _composed_transpose(rewriter, node)
            if composed is not None:
                changed, node = True, composed
            if not (is_view(node) or _moves_nothing(rewriter, node)):
                rewriter.keep(node)
                continue
            first = source.get(node.inputs[0], node.inputs[0])
            output = node.outputs[0]
            source[output] = first
            shape = rewriter.types[output].sizes
            if rewriter.types[first].shape == shape:
                changed = True
                rewriter.alias(output, first)
            elif first != node.inputs[0] or not is_view(node):
                changed = True
                rewriter.keep(reshape_node(rewriter, first, shape, output, node.name))
            else:
                rewriter.keep(node)
        return rewriter.finish() if changed else graph


def _moves_nothing(rewriter: Rewriter, node: Node) -> bool:
    """Whether a transposition keeps the order of the axes longer than one."""
    if node.op != "Transpose" or node.domain:
        return False
    shape = rewriter.types[node.inputs[0]].sizes
    perm = node.attributes.get("perm", tuple(range(len(shape) - 1, -1, -1)))
    assert isinstance(perm, tuple)
    long = [axis for axis in perm if isinstance(axis, int) and shape[axis] != 1]
    return long == sorted(long)


def _composed_transpose(rewriter: Rewriter, node: Node) -> Node | None:
    """A transposition of a transposition as one."""
    if node.op != "Transpose" or node.domain:
        return None
    inner = next((n for n in reversed(rewriter.nodes) if node.inputs[0] in n.outputs), None)
    if inner is None or inner.op != "Transpose":
        return None
    rank = rewriter.types[node.outputs[0]].rank
    backwards = tuple(range(rank - 1, -1, -1))
    outer_perm = node.attributes.get("perm", backwards)
    inner_perm = inner.attributes.get("perm", backwards)
    assert isinstance(outer_perm, tuple)
    assert isinstance(inner_perm, tuple)
    perm = tuple(int(inner_perm[int(axis)]) for axis in outer_perm)
    return replace(node, inputs=inner.inputs, attributes={"perm": perm})


@dataclass(frozen=True, slots=True)
class SinkViews:
    """Move views below element-wise operations: these then work in the shape of what made their operands.

    Not past an operation that combines the view with a statistic of it, ``x - mean(x)``: the reduction keeps
    the view's shape, and a chain in two shapes would be several kernels.
    """

    name: ClassVar[str] = "sink-views"

    def __call__(self, graph: Graph) -> Graph:
        """Walk once, in order: a view moves past any number of element-wise nodes."""
        rewriter = Rewriter(graph)
        ancestors = Ancestors.of(graph)
        views: dict[str, str] = {}
        changed = False
        for old in graph.nodes:
            node = rewriter.current(old)
            if is_view(node):
                views[node.outputs[0]] = views.get(node.inputs[0], node.inputs[0])
                rewriter.keep(node)
                continue
            sunk = None if _has_statistic(graph, ancestors, old) else self._sink(rewriter, node, views)
            if sunk is None:
                rewriter.keep(node)
            else:
                changed = True
        return rewriter.finish() if changed else graph

    def _sink(self, rewriter: Rewriter, node: Node, views: dict[str, str]) -> Node | None:
        """Emit the node in the shape under a view among its inputs, and a view of its result."""
        entry = find_operator(node)
        if entry is None or entry.kind is not Kind.ELEMENTWISE or len(node.used_outputs) != 1:
            return None
        # Operators that read an axis of their own, such as batch normalisation, do not commute with views.
        if any(name in node.attributes for name in ("axis", "block_size")) or node.op in _AXIS_BOUND:
            return None
        output = rewriter.types[node.outputs[0]]
        for value in node.used_inputs:
            source = views.get(value)
            if source is None or source in rewriter.constants or rewriter.types[value].shape != output.shape:
                continue
            inner = rewriter.types[source].sizes
            inputs = _inputs_under(rewriter, node, output.sizes, inner, views)
            if inputs is not None:
                made = rewriter.fresh(f"{node.outputs[0]}.flat")
                moved = replace(node, inputs=inputs, outputs=(made,))
                rewriter.emit(moved, [TensorType(output.dtype, inner)])
                rewriter.keep(reshape_node(rewriter, made, output.sizes, node.outputs[0], node.name))
                views[node.outputs[0]] = made
                return moved
        return None


def _has_statistic(graph: Graph, ancestors: Ancestors, node: Node) -> bool:
    """Whether an input is computed from another one and broadcast to its shape."""
    if not node.outputs[0]:
        # an output that nobody wants
        return False
    shape = graph.types[node.outputs[0]].shape
    whole = [ancestors.makers.get(v) for v in node.used_inputs if graph.types[v].shape == shape]
    for value in node.used_inputs:
        maker = ancestors.makers.get(value)
        if maker is None or graph.types[value].shape == shape:
            continue
        if any(at is not None and ancestors.masks[maker] >> at & 1 for at in whole):
            return True
    return False


#: Element-wise operators whose parameters belong to one axis.
_AXIS_BOUND = frozenset({"BatchNormalization", "PRelu", "QuantizeLinear", "DequantizeLinear"})


def _inputs_under(
    rewriter: Rewriter, node: Node, outer: tuple[int, ...], inner: tuple[int, ...], views: dict[str, str]
) -> tuple[str, ...] | None:
    """The node's inputs for the shape `inner` in place of `outer`; None if one of them cannot be had."""
    shared = 0
    while shared < min(len(outer), len(inner)) and outer[-1 - shared] == inner[-1 - shared]:
        shared += 1
    plan: list[tuple[str, tuple[int, ...] | None]] = []
    for value in node.inputs:
        if not value:
            plan.append((value, None))
            continue
        shape = rewriter.types[value].sizes
        source = views.get(value, value)
        if rewriter.types[source].shape == inner:
            plan.append((source, None))
        elif shape == outer:
            plan.append((value, inner))
        else:
            # What varies along common last axes only broadcasts the same way under both shapes.
            kept = shape[len(shape) - shared :] if shared < len(shape) else shape
            if any(size != 1 for size in shape[: len(shape) - len(kept)]):
                return None
            plan.append((value, None if kept == shape else kept))
    return tuple(value if shape is None else _reshaped(rewriter, value, shape) for value, shape in plan)


def _reshaped(rewriter: Rewriter, value: str, shape: tuple[int, ...]) -> str:
    constant = rewriter.constants.get(value)
    if constant is not None:
        return rewriter.constant(constant.reshape(shape), f"{value}.flat")
    output = rewriter.fresh(f"{value}.flat")
    node = reshape_node(rewriter, value, shape, output)
    rewriter.emit(node, [TensorType(rewriter.types[value].dtype, shape)])
    return output
