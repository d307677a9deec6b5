"""Whether the iterations of a loop may run at the same time."""

from __future__ import annotations

from tilewright.ir import (
    GLOBAL,
    ONE,
    PRIVATE,
    SHARED,
    For,
    Location,
    LoopFunction,
    block_update,
    buffers_of,
    simplify,
)
from tilewright.schedule.carried import Conflict, conflicts
from tilewright.schedule.common import env_at, refusal
from tilewright.schedule.nests import allocated_below, blocks_below, fed


def check_independent(func: LoopFunction, place: Location, node: For, wanted: str) -> None:
    """Refuse unless no two iterations of ``node`` touch one element, one of them writing.

    A loop of one iteration has none to meet, whatever it runs.

    ``wanted`` is ``parallel`` or a hardware axis; threads of a block may share buffers of ``shared``
    scope, and who owns the elements of private ones is not asked here
    (:func:`~tilewright.schedule.scopes.check_threads`).
    """
    loop = node.var
    if node.kind.name not in ("serial", "unroll"):
        raise refusal(func, f"{loop!r} is already a {node.kind} loop", at=[loop])
    for other in place.loops:
        if other.kind.name == "vector" or (wanted == "parallel" and other.kind.name == "parallel"):
            raise refusal(
                func,
                f"{loop!r} is inside of the {other.kind} loop {other.var!r}",
                hint="fuse two parallel loops into one; vector loops hold serial ones only",
                at=[other.var, loop],
            )
    once = simplify(node.extent, env_at(place)) == ONE
    buffers = buffers_of(func)
    spread = wanted.startswith(("block", "thread"))
    for block, it, _ in fed(node.body, loop):
        update = block_update(block) if spread and it.kind == "red" else None
        if update is not None and buffers[update.buffer].scope in (GLOBAL, SHARED):
            continue  # threads update elements at once
        if it.kind != "par" and not once:
            what = "reduction" if it.kind == "red" else "ordered"
            raise refusal(
                func,
                f"{loop!r} runs the {what} iterator {it.name!r} of block {block.name!r}: "
                "its iterations depend on each other",
                hint="choose a loop of a parallel iterator, or give each its own sum with rfactor"
                + ("; integers that start before (decompose_init) are updated at once" if spread else ""),
                at=[loop, block.name],
            )
    private = allocated_below(node)
    threads = wanted.startswith("thread")
    for block in () if threads else blocks_below(node.body):
        for name, _ in block.writes:
            if name not in private and buffers[name].scope in PRIVATE:
                raise refusal(
                    func,
                    f"block {block.name!r} writes {name!r}, of scope {buffers[name].scope}, "
                    f"allocated outside of {loop!r}",
                    hint="such buffers belong to one thread: allocate inside of the loop",
                    at=[loop, block.name, name],
                )
    scopes = PRIVATE if threads else frozenset[str]()
    for c in conflicts(node, env_at(place), buffers, frozenset((loop,)), ignore_scopes=scopes):
        if spread and _update_at_once(c, loop):
            continue
        if threads and buffers[c.buffer].scope == SHARED and c.first is not c.second:
            continue  # barriers order what follows one another; a block meets itself wherever they stand
        raise refusal(
            func,
            f"iterations of {loop!r} may touch the same elements of {c.buffer!r} in {c.blocks}",
            hint="allocate the buffer inside of the loop, or choose another loop",
            at=[loop, c.first.name, c.second.name],
        )


def _update_at_once(c: Conflict, loop: str) -> bool:
    """Whether what conflicts are updates of integers in no order, of which ``loop`` runs the iterations."""
    one, two = block_update(c.first), block_update(c.second)
    if one is None or two is None or one.op != two.op or not c.buffer == one.buffer == two.buffer:
        return False
    return all(
        any(it.kind == "red" and loop in bound.vars for it, bound in zip(b.iters, b.bind, strict=True))
        for b in (c.first, c.second)
    )
