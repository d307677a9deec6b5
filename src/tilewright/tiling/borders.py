"""Border tiles: loops over taps cut where copies of the tile's rows begin or cease to meet the padding.

In a tile at the border, whether row ``r`` of the tile reads padding at tap ``k`` depends on these two numbers
alone. Between two values of ``k`` at which some row changes sides all taps run the same code: the loop over
them is cut there and nowhere else, and tiles that meet no padding keep it whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tilewright.ir import (
    Block,
    Condition,
    For,
    If,
    Index,
    base_symbols,
    blocks,
    evaluate_index,
    substitute_index,
    var,
)
from tilewright.schedule import Schedule


def cut_borders(s: Schedule, stage: str) -> Schedule:
    """Cut the serial loops around the blocks of a stage so that each copy of their expanded loops is decided.

    The innermost one stays whole: there conditions cost less than the copies of the micro-kernel's body would
    (measured on the first layers of image models). Conditions that also depend on other loops stay as well.
    """
    for place in blocks(s.func.body):
        block, loops = place.node, place.loops
        if block.stage != stage or not isinstance(block.body, If):
            continue
        serial = [f for f in loops if f.kind.name == "serial" and f.lo.is_const and f.extent.is_const]
        serial = [f for f in serial if f.extent.const > 1][:-1]
        for loop, found in _turns(block, serial, loops, block.body.cond).items():
            cuts = sorted(n for n in found if loop.lo.const < n < loop.hi.const)
            if len(cuts) < loop.extent.const - 1:
                s = s.partition(loop.var, cuts) if cuts else s
            elif cuts:
                s = s.unroll(loop.var)
    return s


def _turns(
    block: Block, serial: Sequence[For], loops: Sequence[For], conditions: Sequence[Condition]
) -> dict[For, set[int]]:
    """The values of each loop at which a condition begins or ceases to hold in some copy that runs at all."""
    bind = block.binding()
    where = [c.index for c in block.where if c.index is not None and c.op == "ge"]
    expanded = {f.var: f for f in loops if _is_expanded(f)}
    out: dict[For, set[int]] = {f: set() for f in serial}
    for c in conditions:
        x = substitute_index(c.index, bind) if c.index is not None and c.op == "ge" else Index(0)
        cut = [f for f in serial if f.var in x.vars]
        if len(cut) != 1 or not x.vars <= expanded.keys() | {cut[0].var}:
            continue
        step = x.coefficient(cut[0].var)
        rest = x - var(cut[0].var) * step
        if step == 0 or cut[0].var in rest.vars or base_symbols(rest):
            continue
        limits = [w for w in where if w.vars <= rest.vars and not base_symbols(w)]
        for copy in _copies([expanded[name] for name in sorted(rest.vars)]):
            if all(evaluate_index(w, copy) >= 0 for w in limits):
                r = evaluate_index(rest, copy)
                # step*n + r >= 0: from this n on, or up to the one before it
                out[cut[0]].add(-(r // step) if step > 0 else r // -step + 1)
    return out


def _is_expanded(loop: For) -> bool:
    """Whether each iteration of a loop is code of its own."""
    if not (loop.lo.is_const and loop.hi.is_const) or loop.kind.name == "vector":
        return False
    return loop.kind.name == "unroll" or loop.extent.const == 1


def _copies(loops: Sequence[For]) -> Iterator[dict[str, int]]:
    for values in product(*[range(f.lo.const, f.hi.const, f.step) for f in loops]):
        yield {f.var: n for f, n in zip(loops, values, strict=True)}
