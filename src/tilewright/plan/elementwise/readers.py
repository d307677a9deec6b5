"""Which threads read what a stage makes, where its readers are scheduled already.

Of the loops around a reader only the outermost parallel one is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import PARALLEL, Block, Exec, For, Index, Stage, blocks
from tilewright.schedule import Schedule


def threads_of_reader(s: Schedule, stage: Stage) -> str | None:
    """The axis of an unscheduled stage along which threads share what reads its result, ``None`` for none.

    A thread that makes what it reads itself finds it in its own caches.
    """
    if len(stage.writes) != 1:
        return None
    dims: set[int] = set()
    for loop, block, indices in _readings(s, stage.writes[0]):
        moved = {it for it, at in block.binding().items() if loop is not None and loop.var in at.vars}
        dims.update(d for d, i in enumerate(indices) if moved & i.vars)
    plain = len(s.loops(stage.name)) == len(stage.iters)
    return stage.iters[dims.pop()].name if len(dims) == 1 and plain else None


def loop_of_readers(s: Schedule, name: str) -> For | None:
    """The loop whose iterations threads share, if that is one for all that reads a buffer."""
    found = list({loop.var if loop else "": loop for loop, _, _ in _readings(s, name)}.values())
    return found[0] if len(found) == 1 else None


def shares_evenly(s: Schedule, name: str, dim: int) -> bool:
    """Whether threads take parts of a dimension of a buffer: not where their loop is fused with others."""
    for loop, block, indices in _readings(s, name):
        at = block.binding()
        own = [at[it].coefficient(loop.var) for it in indices[dim].vars if loop is not None and it in at]
        if not any(own):
            return False
    return True


def _readings(s: Schedule, name: str) -> Iterator[tuple[For | None, Block, tuple[Index, ...]]]:
    """Each reading of a buffer: the parallel loop around it, the block, and where it reads."""
    for place in blocks(s.func.body):
        loop = next((f for f in place.loops if f.kind == PARALLEL), None)
        for ld in place.node.reads:
            if ld.buffer == name:
                yield loop, place.node, ld.indices
        body = place.node.body
        for window in body.windows if isinstance(body, Exec) else ():
            if window.buffer == name and window.mode != "w":
                yield loop, place.node, window.offsets
