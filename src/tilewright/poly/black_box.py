"""Black boxes: blocks whose loops data decide, which are one statement each (Zhao & Di, Sec. 6: equake)."""

from __future__ import annotations

from tilewright.ir import Block, For, Index, locate
from tilewright.poly.values import is_opaque


def is_black_box(block: Block) -> bool:
    """Whether data decide how often some loop of the block's body runs."""
    return any(is_opaque(p.node.lo) or is_opaque(p.node.hi) for p in locate(block.body, For))


def known_indices(block: Block, indices: tuple[Index, ...]) -> tuple[Index | None, ...]:
    """Indices over the block's iterators; ``None`` where loops of its body, or data, move them."""
    inner = {p.node.var for p in locate(block.body, For)}
    return tuple(None if is_opaque(x) or x.vars & inner else x for x in indices)
