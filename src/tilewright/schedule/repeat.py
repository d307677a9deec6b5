"""When iterations of a loop may run again: what the ``shift`` tail needs."""

from __future__ import annotations

from tilewright.ir import For
from tilewright.schedule.nests import allocated_below, blocks_below, fed


def why_not_repeatable(node: For) -> str | None:
    """Why running an iteration of ``node`` a second time later could change a result; ``None`` if it cannot.

    Accepted: loops that feed only parallel iterators, over blocks that store what does not depend on earlier
    contents. Reductions are fine where they write buffers allocated inside.
    """
    for block, it, _ in fed(node.body, node.var):
        if it.kind != "par":
            kind = "reduction" if it.kind == "red" else "ordered"
            return f"it feeds the {kind} iterator {it.name!r} of block {block.name!r}"
    fresh = allocated_below(node)
    writer: dict[str, str] = {}
    readers: list[tuple[str, str, str]] = []
    for block in blocks_below(node.body):
        if any(it.kind == "ord" for it in block.iters):
            return f"block {block.name!r} has ordered iterators"
        written = {b for b, _ in block.writes} - fresh
        read = {ld.buffer for ld in block.reads} - fresh
        if written & read or (written and block.is_reduction):
            return f"block {block.name!r} accumulates into {sorted(written)[0]!r}"
        for name in written:
            if writer.setdefault(name, block.stage) != block.stage:
                return f"{name!r} is written by {writer[name]!r} and {block.stage!r}"
        readers.extend((name, block.stage, block.name) for name in read)
    for name, stage, reader in readers:
        if writer.get(name, stage) != stage:
            return f"block {reader!r} reads {name!r}, which {writer[name]!r} writes in the same loop"
    return None
