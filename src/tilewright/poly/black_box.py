"""Black boxes: blocks whose loops data decide, which are one statement each (Zhao & Di, Sec. 6: equake)."""

from __future__ import annotations

from tilewright.ir import Block, For, Index, LoopFunction, is_opaque, locate, stmt_loads, stmt_writes


def is_black_box(block: Block) -> bool:
    """Whether data decide how often some loop of the block's body runs."""
    return any(is_opaque(p.node.lo) or is_opaque(p.node.hi) for p in locate(block.body, For))


def data_decides(func: LoopFunction) -> bool:
    """Whether data decide about bounds of loops or about indices, anywhere in a function."""
    indices = [
        *(x for p in locate(func.body, For) for x in (p.node.lo, p.node.hi)),
        *(x for p in locate(func.body, Block) for x in p.node.bind),
        *(x for ld in stmt_loads(func.body) for x in ld.indices),
        *(x for _, write in stmt_writes(func.body) for x in write),
    ]
    inner = (p.node for p in locate(func.body, Block))
    return any(map(is_opaque, indices)) or any(map(is_black_box, inner))


def known_indices(block: Block, indices: tuple[Index, ...]) -> tuple[Index | None, ...]:
    """Indices over the block's iterators; ``None`` where loops of its body, or data, move them."""
    inner = {p.node.var for p in locate(block.body, For)}
    return tuple(None if is_opaque(x) or x.vars & inner else x for x in indices)
