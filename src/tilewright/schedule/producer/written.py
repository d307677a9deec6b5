"""What the blocks below a loop write: is every element of a box written, and before it is read?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import (
    ONE,
    Block,
    Buffer,
    Condition,
    Env,
    For,
    If,
    Index,
    Location,
    Span,
    Stmt,
    Store,
    blocks,
    ge0,
    iter_env,
    lower,
    prove_ge0,
    seq,
    substitute_index,
    union_span,
    upper,
    var,
)
from tilewright.schedule.footprint import Box, footprint, touches
from tilewright.schedule.regions import uncovered


@dataclass(frozen=True, slots=True)
class Writer:
    """A block that writes the buffer, with the loops around it inside the part and the box it writes."""

    place: Location
    block: Block
    loops: tuple[For, ...]
    indices: tuple[Index, ...]
    reads: bool
    box: Box

    @property
    def starts(self) -> bool:
        """Whether the block starts its running values itself: init, with all of its red loops in the part."""
        inner = {f.var for f in self.loops}
        return self.block.init is not None and all(
            b.vars <= inner
            for it, b in zip(self.block.iters, self.block.bind, strict=True)
            if it.kind == "red"
        )


def writers(part: Sequence[Stmt], buffer: Buffer, env: Env) -> list[Writer] | None:
    """The blocks of ``part`` that write ``buffer``; ``None`` where one writes it in several places."""
    out: list[Writer] = []
    for place in blocks(seq(*part)):
        block = place.node
        found = list(dict.fromkeys(t for t in touches(block) if t.buffer == buffer.name))
        mine = [t for t in found if t.write]
        if not mine:
            continue
        if len({t.indices for t in mine}) != 1 or any(t.local or t.extents for t in mine):
            return None
        loops = place.loops
        nest: Stmt = block
        for f in reversed(loops):
            nest = For(f.var, f.lo, f.hi, nest, f.kind, f.step, f.hints)
        box = footprint(nest, env, buffer, "w")
        assert box is not None
        reads = any(not t.write for t in found)
        out.append(Writer(place, block, loops, mine[0].indices, reads, box))
    return out


def domain_of(found: Sequence[Writer]) -> list[tuple[Index, Index]] | None:
    """Per dimension ``[lo, hi)`` of what the writers' stages define; ``None`` where that is no box."""
    out: list[tuple[Index, Index]] = []
    for d in range(len(found[0].indices)):
        spans = []
        for w in found:
            env = iter_env(w.block.iters)
            lo, hi = lower(w.indices[d], env), upper(w.indices[d], env)
            if lo is None or hi is None or lo.vars or hi.vars:
                return None
            spans.append(Span(lo, hi - lo + 1))
        s = union_span(spans, {})
        if s is None:
            return None
        out.append((s.lo, s.lo + s.extent))
    return out


def guard_of(found: Sequence[Writer], names: Sequence[str]) -> tuple[Condition, ...] | None:
    """What decides, besides the domain, which elements of their box the writers write.

    Conditions on the elements' indices ``names``, the same for all writers; ``None`` where there is no such.
    """
    guards = [_guard(w, names) for w in found]
    first = guards[0]
    if first is None or any(g is None or set(g) != set(first) for g in guards[1:]):
        return None
    return first


def _guard(w: Writer, names: Sequence[str]) -> tuple[Condition, ...] | None:
    inner = {f.var for f in w.loops}
    binding = w.block.binding()
    solved: dict[str, Index] = {}
    for name, x in zip(names, w.indices, strict=True):
        place = substitute_index(x, binding)
        mine = sorted(place.vars & inner)
        if len(mine) == 1 and place.coefficient(mine[0]) == 1 and mine[0] not in (place - var(mine[0])).vars:
            solved[mine[0]] = var(name) - (place - var(mine[0]))
    out: list[Condition] = []
    for c in w.block.where:
        if c in _domain(w.block):
            continue
        if c.index is None or c.op != "ge" or not c.index.vars & inner <= solved.keys():
            return None
        out.append(ge0(substitute_index(c.index, solved)))
    return tuple(out)


def _domain(block: Block) -> frozenset[Condition]:
    """The conditions that a block's iterators are in their ranges."""
    binding = block.binding()
    return frozenset(
        ge0(c)
        for it in block.iters
        for c in (
            binding[it.name] - substitute_index(it.lo, binding),
            substitute_index(it.hi, binding) - 1 - binding[it.name],
        )
    )


def writes_all(w: Writer, env: Env, *, guarded: bool = False) -> bool:
    """Whether the writer writes every element of its box that lies in its stage's domain.

    With ``guarded``, every one for which its own conditions hold.
    """
    its = {it.name: it for it in w.block.iters}
    binding = w.block.binding()
    for x in w.indices:
        names = [n for n in x.vars if n in its]
        if len(names) > 1 or (names and x.coefficient(names[0]) not in (1, -1)):
            return False
    if any(isinstance(a, If) for a in w.place.ancestors):
        return False
    if not (w.starts or isinstance(w.block.body, Store)):
        return False
    if not guarded and not _domain(w.block).issuperset(w.block.where):
        return False
    points = [Span(substitute_index(x, binding), ONE) for x in w.indices]
    around = [(s.lo, s.lo + s.extent) for s in w.box.spans]
    return uncovered(points, around, w.loops, env) is None


def defined(found: Sequence[Writer], box: Box, env: Env, *, guarded: bool = False) -> bool:
    """Whether the writers define every element of ``box`` (in the domain) before one of them reads it.

    With ``guarded``, every one for which their conditions hold, which must be the same (:func:`guard_of`).
    """
    parts: list[Box] = []
    reading = False
    for w in found:
        if w.reads and not w.starts:
            reading = True
            continue
        if reading or not writes_all(w, env, guarded=guarded):
            return False
        parts.append(w.box)
    return _joined(parts, box, env)


def _joined(parts: list[Box], box: Box, env: Env) -> bool:
    """Whether boxes together hold ``box``: neighbours that agree in all dimensions but one are merged."""
    parts = list(parts)
    while True:
        if any(p.holds(box, env) for p in parts):
            return True
        for n, a in enumerate(parts):
            merged = next((m for b in parts[n + 1 :] if (m := _merge(a, b, env)) is not None), None)
            if merged is not None:
                parts = [merged[0], *(p for p in parts if p is not a and p is not merged[1])]
                break
        else:
            return False


def _merge(a: Box, b: Box, env: Env) -> tuple[Box, Box] | None:
    """The union of two boxes that differ in one dimension where they touch or overlap, and ``b``."""
    differ = [d for d, (s, t) in enumerate(zip(a.spans, b.spans, strict=True)) if s != t]
    if len(differ) != 1:
        return None
    d = differ[0]
    for s, t in ((a.spans[d], b.spans[d]), (b.spans[d], a.spans[d])):
        s_end, t_end = s.lo + s.extent, t.lo + t.extent
        if all(prove_ge0(x, env) for x in (t.lo - s.lo, s_end - t.lo, t_end - s_end)):
            spans = list(a.spans)
            spans[d] = Span(s.lo, t_end - s.lo)
            return Box(tuple(spans)), b
    return None
