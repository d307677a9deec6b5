"""Ensembles of decision trees: rows of features walk down all trees at once, a level of all trees at a time.

Trees arrive as tables over the nodes of all of them (:mod:`tilewright.graph.decompositions.trees`). A leaf is
its own child, so that all walks are equally long and a step has no branch.
"""

from __future__ import annotations

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, clamped, compute
from tilewright.graph.ops.common import Scalar, number, stem
from tilewright.graph.registry import OWN, Context, Kind, operator


@operator("TreeStep", kind=Kind.OPAQUE, domain=OWN)
def tree_step(
    ctx: Context,
    x: Operand,
    at: Operand,
    features: Operand,
    limits: Operand,
    children: Operand,
    missing: Operand | None = None,
) -> Operand:
    """Where rows `x` [rows, features] are a level further down: one node each tree, from `at` [trees].

    `at` may be [rows, trees] as well. Of each node: the feature it asks for; the limit up to which that goes
    to its first child; both children, one after the other; and whether what is no number goes to the first.
    Steps are not fused: a node is read five times, and expressions of expressions of it would explode.
    """
    nodes, width = features.shape[0], x.shape[1]

    def of(n: Ix, t: Ix) -> Scalar:
        place = at[(t,)] if len(at.shape) == 1 else at[(n, t)]
        node = clamped(place, nodes)
        value = x[(n, clamped(features[(node,)], width))]
        first = value <= limits[(node,)]
        if missing is not None:
            first = lang.select(value != value, missing[(node,)] != number(0, "u8"), first)
        turn = lang.select(first, number(0, "i32"), number(1, "i32"))
        return children[(clamped(place + place + turn, 2 * nodes),)]

    return compute((x.shape[0], at.shape[-1]), of, name=stem(ctx))
