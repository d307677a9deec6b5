"""Which stages read another stage's result element by element: those that can share its nest."""

from __future__ import annotations

from tilewright.analysis.contraction import flat_index
from tilewright.ir import Index, Program, Stage, Store, stmt_loads, var


def pointwise_reader(program: Program, stage: Stage) -> Stage | None:
    """The one stage that reads a stage's result, if it does so element by element and in any order."""
    for name in stage.writes:
        if program.buffer(name).layout is not None and name in {b.name for b in program.temps}:
            # a layout of its own: it is stored, and read after that
            continue
        readers = program.consumers(name)
        if len(readers) != 1 or any(it.kind != "par" for it in readers[0].iters):
            continue
        if reads_in_place(readers[0], name):
            return readers[0]
    return None


def lies_in_order(program: Program, stage: Stage) -> bool:
    """Whether a stage fills a buffer with an element an instance, row by row in the order of its own axes.

    Two axes of the buffer may be one of the stage: ``out[y, x_c//3, x_c%3]``.
    """
    own = [it for it in stage.iters if it.kind == "par"]
    if not own or not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
        return False
    (write,) = stage.body.writes
    if [i.as_var() for i in write.indices] == [it.name for it in own]:
        return True
    place, stride = flat_index(program, write.buffer, write.indices), 1
    for it in reversed(own):
        if place is None or not it.extent.is_const:
            return False
        place, stride = place - var(it.name) * stride, stride * it.extent.as_int()
    return place == Index(0)


def reads_in_place(stage: Stage, name: str) -> bool:
    """Whether a stage reads a buffer only at its own iterators, in order."""
    here = [(var(it.name), it.extent == Index(1)) for it in stage.iters]
    reads = [ld.indices for ld in stmt_loads(stage.body) if ld.buffer == name]
    return all(len(idx) == len(here) and all(map(_is_here, idx, here)) for idx in reads)


def _is_here(i: Index, own: tuple[Index, bool]) -> bool:
    """Whether an index is the stage's own iterator (of one iteration: its only value will do)."""
    at, single = own
    return i == at or (single and i == Index(0))
