"""Scalars stored in the elements that they end in: what a scalar serialises, or keeps out of trees, is gone.

Before and after, of LU decomposition::

    w = A[i, j]
    for k in range(j):                          for k in range(j):
        w = w - A[i, k] * A[k, j]      ->           A[i, j] = A[i, j] - A[i, k] * A[k, j]
    A[i, j] = w / A[j, j]                       A[i, j] = A[i, j] / A[j, j]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tilewright.ir import (
    Access,
    Alloc,
    Block,
    Index,
    Load,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    blocks,
    buffers_of,
    locate,
    map_loads,
    map_stmt,
    replace_at,
    seq,
    stmt_loads,
    stmt_writes,
    substitute_index,
    var,
)
from tilewright.poly.black_box import is_black_box
from tilewright.poly.budget import bounded
from tilewright.poly.extract import PolyAccess, extract_model
from tilewright.poly.spaces import DIM


def scalars_in_results(func: LoopFunction) -> LoopFunction:
    """The function without those scalars whose last value goes to an element that nothing touches meanwhile.

    Their allocations are in sequences that begin with their definition; which elements others touch exact
    sets say. Raises ResourceError where isl needs too long.
    """
    return bounded(lambda: _moved(func), f"the accesses of {func.name} are too many")


def _moved(func: LoopFunction) -> LoopFunction:
    kept: set[str] = set()
    while True:
        places = (p for p in locate(func.body, Alloc) if p.node.buffer.name not in kept)
        place = next(places, None)
        if place is None:
            return func
        kept.add(place.node.buffer.name)
        found = _life(place.node, func)
        loops = [loop.var for loop in place.loops]
        if found is None or not found.element_vars <= set(loops) or found.touched(func, len(loops)):
            continue
        parts = found.parts()
        if parts is not None:
            func = func.with_body(replace_at(func.body, place.path, seq(*parts)))


@dataclass(frozen=True, slots=True)
class _Life:
    """A scalar's life: statements from its definition to ``last``, which stores it to its element."""

    name: str
    stmts: tuple[Stmt, ...]
    end: int
    last: Block
    target: Access

    @property
    def inside(self) -> list[Block]:
        """The blocks between the definition, that one excluded, and the last, that one included."""
        return [b.node for s in self.stmts[1 : self.end + 1] for b in blocks(s)]

    @property
    def element(self) -> tuple[Index, ...]:
        """Where it ends, over loops around."""
        bound = dict(zip((it.name for it in self.last.iters), self.last.bind, strict=True))
        return tuple(substitute_index(x, bound) for x in self.target.indices)

    @property
    def element_vars(self) -> set[str]:
        return {v for x in self.element for v in x.vars}

    def touched(self, func: LoopFunction, depth: int) -> bool:
        """Whether another access may touch the element before the last has written it."""
        model = extract_model(func)
        names = {b.name for b in self.inside}
        mine = next(s for s in model.statements if s.block.name == self.last.name)
        element = mine.writes[0].relation.reverse()

        def meets(a: PolyAccess) -> bool:
            pairs = a.relation.apply_range(element)
            for n in range(depth):
                pairs = pairs.equate(DIM.in_, n, DIM.out, n)
            return not pairs.is_empty()

        for s in model.statements:
            if s.block.name in names:
                others: Iterable[PolyAccess] = (*s.reads, *(() if s is mine else s.writes))
                if any(a.buffer == self.target.buffer and meets(a) for a in others):
                    return True
        return False

    def parts(self) -> list[Stmt] | None:
        """The statements with the element in place of the scalar; ``None`` where one cannot name it."""
        out: list[Stmt] = []
        for s in self.stmts:
            if any(self._named(b.node) is None for b in blocks(s) if self._uses(b.node)):
                return None
            s = map_stmt(s, self._renamed)
            if not (isinstance(s, Block) and _keeps_all(s)):
                out.append(s)
        return out

    def _uses(self, b: Block) -> bool:
        return any(r.buffer == self.name for r in b.reads) or any(n == self.name for n, _ in b.writes)

    def _named(self, b: Block) -> tuple[Index, ...] | None:
        """The element over a block's iterators."""
        known: Mapping[str, Index] = {
            next(iter(x.vars)): var(it.name)
            for it, x in zip(b.iters, b.bind, strict=True)
            if len(x.vars) == 1 and x == var(next(iter(x.vars)))
        }
        if not self.element_vars <= known.keys():
            return None
        return tuple(substitute_index(x, known) for x in self.element)

    def _renamed(self, s: Stmt) -> Stmt:
        if not isinstance(s, Block) or not self._uses(s):
            return s
        at = self._named(s)
        assert at is not None and isinstance(s.body, Store)

        def load(ld: Load) -> Load:
            return Load(self.target.buffer, at, ld.dtype) if ld.buffer == self.name else ld

        body = map_loads(s.body, load)
        assert isinstance(body, Store)
        writes = tuple(
            replace(w, buffer=self.target.buffer, indices=at) if w.buffer == self.name else w
            for w in body.writes
        )
        return replace(s, body=Store(writes))


def _life(alloc: Alloc, func: LoopFunction) -> _Life | None:
    b = alloc.buffer
    stmts = alloc.body.stmts if isinstance(alloc.body, Seq) else (alloc.body,)
    using = [n for n, s in enumerate(stmts) if _touches(s, b.name)]
    if b.shape or len(using) < 2 or using[0] != 0:
        return None
    if not all(_is_plain(x.node) for s in stmts for x in blocks(s) if _touches(x.node, b.name)):
        return None
    first, last = stmts[0], stmts[using[-1]]
    if not isinstance(first, Block) or not isinstance(last, Block):
        return None
    if _touches_only_by_writing(first, b.name) and isinstance(last.body, Store):
        target = last.body.writes[0]
        known = buffers_of(func)[target.buffer]
        if target.buffer != b.name and known.dtype == b.dtype and not last.where:
            return _Life(b.name, tuple(stmts), using[-1], last, target)
    return None


def _is_plain(b: Block) -> bool:
    """Whether a block is one assignment."""
    return b.init is None and isinstance(b.body, Store) and len(b.body.writes) == 1 and not is_black_box(b)


def _touches_only_by_writing(b: Block, name: str) -> bool:
    return not b.where and not any(r.buffer == name for r in b.reads)


def _touches(s: Stmt, name: str) -> bool:
    return any(ld.buffer == name for ld in stmt_loads(s)) or any(n == name for n, _ in stmt_writes(s))


def _keeps_all(b: Block) -> bool:
    """Whether a block stores an element to itself."""
    if not isinstance(b.body, Store):
        return False
    (w, *others) = b.body.writes
    return not others and w.value == Load(w.buffer, w.indices, w.value.dtype)
