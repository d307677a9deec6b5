"""vectorize: run the iterations of a loop as vector lanes."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import VECTOR, For, LoopFunction, Stmt, buffers_of, replace_at, stmt_children
from tilewright.schedule.carried import conflicts
from tilewright.schedule.common import env_at, find_loop, refusal
from tilewright.schedule.nests import fed
from tilewright.schedule.registry import primitive


@primitive("vectorize", phase="loop")
def vectorize(func: LoopFunction, loop: str) -> LoopFunction:
    """Run ``loop`` in vector lanes; those of a last vector that is not full are masked.

    Reduction loops are allowed once decomposed (lanes are summed at the end). Refused for ordered loops, for
    those whose iterations pass values from one block to another, and those that hold loops run in parallel.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> Y = lang.compute((10,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> s = s.split("i", 4, tail="mask")
    >>> print(s)
    func main:
        for i_o in 0:3:
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o) where -i_i - 4*i_o + 9 >= 0:
                    Y[i] = (X[i] * f32(2.0))
    >>> print(s.vectorize("i_i"))
    func main:
        for i_o in 0:3:
            for i_i in 0:4 vector:
                block Y(par i=i_i + 4*i_o) where -i_i - 4*i_o + 9 >= 0:
                    Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    if node.kind.name not in ("serial", "unroll"):
        raise refusal(func, f"{loop!r} is already a {node.kind} loop", at=[loop])
    for other in (*place.loops, *_loops_below(node.body)):
        inside = other.var in node.body.names
        if other.kind.name == "vector" or (inside and other.kind.name in ("parallel", "thread")):
            where = "inside of" if inside else "around"
            raise refusal(
                func,
                f"{loop!r} cannot be a vector loop: the {other.kind} loop {other.var!r} is {where} it",
                hint="one loop of a nest is a vector loop, and parallel ones are around it",
                at=[loop, other.var],
            )
    for block, it, _ in fed(node.body, loop):
        if it.kind == "ord":
            raise refusal(
                func,
                f"{loop!r} runs the ordered iterator {it.name!r} of block {block.name!r}: no vector loop",
                hint="vectorize a loop of a parallel iterator",
                at=[loop, block.name],
            )
        if it.kind == "red" and block.init is not None:
            raise refusal(
                func,
                f"{loop!r} runs the reduction iterator {it.name!r} of block {block.name!r}, which still has "
                "its initialisation",
                hint=f"decompose_init({block.name!r}, ...) first",
                at=[loop, block.name],
            )
    # lanes of a reduction have partial sums of their own
    sums = any(it.kind == "red" for _, it, _ in fed(node.body, loop))
    lane = frozenset((loop,))
    for c in conflicts(node, env_at(place), buffers_of(func), lane, reorderable=sums):
        raise refusal(
            func,
            f"lanes of {loop!r} may touch the same elements of {c.buffer!r} in {c.blocks}",
            hint="vectorize a loop around one of the blocks only, whose iterations do not overlap",
            at=[loop, c.first.name, c.second.name],
        )
    return func.with_body(replace_at(func.body, place.path, replace(node, kind=VECTOR)))


def _loops_below(s: Stmt) -> list[For]:
    own = [s] if isinstance(s, For) else []
    return own + [f for k in stmt_children(s) for f in _loops_below(k)]
