"""Updates that threads may do to one element at once: of integers, in no order.

A block that combines an element with a value by an operation of :data:`ATOMIC` updates it atomically where a
loop over threads or blocks runs one of its reduction iterators: the result is the same in any order. Sums of
floating-point numbers are not among them, as their results would differ from run to run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tilewright.ir.expr import Binary, Expr, Load, loads
from tilewright.ir.rewrite import blocks
from tilewright.ir.stmt import Block, For, Stmt, Store, condition_of, stmt_exprs

#: Operations of atomic updates, and the types of the elements.
ATOMIC: Final = ("add", "max", "min")
ATOMIC_TYPES: Final = ("i32", "u32", "i64", "u64")


@dataclass(frozen=True, slots=True)
class AtomicUpdate:
    """``buffer[…] = op(buffer[…], value)``, and nothing else is read of the buffer."""

    buffer: str
    op: str
    value: Expr


def update_at_once(s: Stmt) -> AtomicUpdate | None:
    """The update that a store is, if it can be atomic; ``None`` of all other statements."""
    if not isinstance(s, Store) or len(s.writes) != 1:
        return None
    (w,) = s.writes
    value = w.value
    if not isinstance(value, Binary) or value.op not in ATOMIC or value.dtype.name not in ATOMIC_TYPES:
        return None
    old = Load(w.buffer, w.indices, value.dtype)
    if (value.a == old) == (value.b == old):
        return None
    others = [ld for e in stmt_exprs(s) for ld in loads(e) if ld.buffer == w.buffer and ld != old]
    term = value.b if value.a == old else value.a
    if others or old in set(loads(term)):
        return None
    return AtomicUpdate(w.buffer, value.op, term)


def atomic_update(s: Stmt, kinds: Collection[str]) -> AtomicUpdate | None:
    """The atomic update of an instance with iterators of these ``kinds``; ``None`` where it is none."""
    return update_at_once(s) if "red" in kinds and "ord" not in kinds else None


def block_update(block: Block) -> AtomicUpdate | None:
    """The atomic update that a block does; ``None`` where it does something else, or begins with a value."""
    _, body = condition_of(block.body)
    return None if block.init is not None else atomic_update(body, [it.kind for it in block.iters])


def spread_updates(loop: For) -> frozenset[str]:
    """The buffers that a loop over threads or blocks updates atomically."""
    found: set[str] = set()
    for place in blocks(loop.body):
        update = block_update(place.node)
        if update is not None and any(
            it.kind == "red" and loop.var in bound.vars
            for it, bound in zip(place.node.iters, place.node.bind, strict=True)
        ):
            found.add(update.buffer)
    return frozenset(found)
