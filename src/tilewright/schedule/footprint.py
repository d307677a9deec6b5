"""Box footprints: which elements of a buffer a part of a function touches.

A :class:`Box` has one :class:`~tilewright.ir.Span` a dimension: ``lo`` is an expression of the loops *around*
the part, the extent a constant or, for whole symbolic dimensions, an expression of parameters. So a box can
become an allocation. Boxes err on the large side: they hold every element that may be touched, clipped to the
buffer where that leaves extents constant. Tiles at a ragged edge may therefore reach past the buffer; whoever
fills a box guards that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.ir import (
    ONE,
    ZERO,
    Atom,
    Block,
    Buffer,
    Env,
    Exec,
    For,
    If,
    Index,
    IndexMap,
    Load,
    Param,
    Pred,
    Span,
    Stmt,
    Store,
    Var,
    iter_env,
    loads,
    prove_ge0,
    span,
    stmt_children,
    stmt_loads,
    substitute_index,
    union_span,
    var,
    walk_index,
)
from tilewright.support import InternalError

Mode = Literal["r", "w", "rw"]
Bounds = tuple[Index, Index]


@dataclass(frozen=True, slots=True)
class Box:
    """A box of elements: per dimension the first index and the number of elements."""

    spans: tuple[Span, ...]

    @property
    def lo(self) -> tuple[Index, ...]:
        """First index of every dimension, over the loops around."""
        return tuple(s.lo for s in self.spans)

    @property
    def extents(self) -> tuple[Index, ...]:
        """Number of elements of every dimension."""
        return tuple(s.extent for s in self.spans)

    def holds(self, other: Box, env: Env, shape: Sequence[Index] | None = None) -> bool:
        """Whether ``other`` is shown to lie inside this box for all values in ``env``.

        Boxes err on the large side: of a buffer of the given ``shape`` only the elements that it has count.
        """
        sizes = (None,) * len(self.spans) if shape is None else shape

        def inside(a: Span, b: Span, size: Index | None) -> bool:
            low = prove_ge0(b.lo - a.lo, env) or (size is not None and prove_ge0(-a.lo, env))
            end = a.lo + a.extent
            past = size is not None and prove_ge0(end - size, env)
            return low and (past or prove_ge0(end - b.lo - b.extent, env))

        return all(inside(a, b, size) for a, b, size in zip(self.spans, other.spans, sizes, strict=True))

    def layout(self) -> IndexMap:
        """The layout of a buffer that stores just this box: ``(d) -> d - lo``, row by row."""
        dims = map_dims(len(self.spans))
        return IndexMap(
            dims, tuple(var(d) - s.lo for d, s in zip(dims, self.spans, strict=True)), self.extents
        )

    def __str__(self) -> str:
        return " x ".join(f"[{s.lo}, +{s.extent})" for s in self.spans)


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of a block: ``buffer[indices]``, over the block's iterators and the loops of its body.

    ``extents`` are those of an instruction's window (``None``: a single element); ``local`` bounds the loops
    inside the body.
    """

    buffer: str
    indices: tuple[Index, ...]
    write: bool
    extents: tuple[int, ...] | None = None
    local: tuple[tuple[str, Bounds], ...] = ()


def map_dims(rank: int) -> tuple[str, ...]:
    """Names for the dimensions of an index map, apart from those of loops (which it may mention too)."""
    return tuple(f"__{n}" for n in range(rank))


def touches(block: Block, mode: Mode = "rw") -> Iterator[Touch]:
    """The accesses of a block's init and body."""
    if isinstance(block.body, Store) and (block.init is None or isinstance(block.init, Store)):
        if "w" in mode:
            for name, indices in block.writes:
                yield Touch(name, indices, True)
        if "r" in mode:
            for ld in block.reads:
                yield Touch(ld.buffer, ld.indices, False)
        return
    for part in (block.init, block.body):
        if part is not None:
            yield from _body_touches(part, mode, {}, ())


def _body_touches(
    s: Stmt, mode: Mode, renamed: Mapping[str, Index], local: tuple[tuple[str, Bounds], ...]
) -> Iterator[Touch]:
    def place(indices: Iterable[Index]) -> tuple[Index, ...]:
        return tuple(substitute_index(i, renamed) for i in indices)

    if "r" in mode:
        for ld in control_loads(s) if stmt_children(s) or isinstance(s, Block) else stmt_loads(s):
            yield Touch(ld.buffer, place(ld.indices), False, None, local)
    match s:
        case For():
            # the loops of a body are a scope of their own: rename them apart from the loops around the block
            name = f"{s.var}@{len(local)}"
            lo, hi = place((s.lo, s.hi))
            yield from _body_touches(
                s.body, mode, {**renamed, s.var: var(name)}, (*local, (name, (lo, hi - 1)))
            )
        case Block():
            bound = dict(zip((it.name for it in s.iters), place(s.bind), strict=True))
            for part in (s.init, s.body):
                if part is not None:
                    yield from _body_touches(part, mode, bound, local)
        case Exec():
            for w in s.windows:
                if "r" in mode and "r" in w.mode:
                    yield Touch(w.buffer, place(w.offsets), False, w.extents, local)
                if "w" in mode and "w" in w.mode:
                    yield Touch(w.buffer, place(w.offsets), True, w.extents, local)
        case Store():
            if "w" in mode:
                for a in s.writes:
                    yield Touch(a.buffer, place(a.indices), True, None, local)
        case _:
            for k in stmt_children(s):
                yield from _body_touches(k, mode, renamed, local)


def control_loads(s: Stmt) -> list[Load]:
    """Loads in a statement's own bounds, conditions and bindings (over loop variables), not in its parts."""
    match s:
        case For():
            return _loads_in((s.lo, s.hi))
        case If():
            return _pred_loads(s.cond)
        case Block():
            return _loads_in(s.bind) + _pred_loads(s.where) if s.where else _loads_in(s.bind)
        case _:
            return []


def _loads_in(indices: Iterable[Index]) -> list[Load]:
    out: list[Load] = []
    for x in indices:
        for atom, _ in x.terms:
            if not isinstance(atom, Var | Param):
                out += [e for e in walk_index(Index(0, ((atom, 1),))) if isinstance(e, Load)]
    return out


def _pred_loads(p: Pred) -> list[Load]:
    out: list[Load] = []
    for c in p:
        if c.index is not None:
            out += _loads_in((c.index,))
        if c.expr is not None:
            out += loads(c.expr)
    return out


def footprint(part: Stmt, env: Env, buffer: Buffer, mode: Mode = "rw") -> Box | None:
    """The box of ``buffer`` that one execution of ``part`` touches; ``None`` where it does not.

    ``env`` bounds the loops around ``part``, outermost first; ``lo`` mentions only those. ``mode`` selects
    reads, writes or both. A dimension with no known bound (data-dependent, or extents that would not be
    constant) counts as touched as a whole.
    """
    per_dim: list[dict[Span | None, None]] = [{} for _ in buffer.shape]
    found_any = False

    def add(touch: Touch, scope: _Scope) -> None:
        nonlocal found_any
        found_any = True
        for d, x in enumerate(touch.indices):
            s = scope.span(x, touch.local)
            if s is not None and touch.extents is not None:
                s = Span(s.lo, s.extent + (touch.extents[d] - 1))
            per_dim[d][s] = None

    def visit(s: Stmt, inner: dict[str, Bounds]) -> None:
        if "r" in mode:
            for ld in control_loads(s):
                if ld.buffer == buffer.name:
                    add(Touch(ld.buffer, ld.indices, False), _Scope({}, {}, env, inner))
        match s:
            case Block():
                scope: _Scope | None = None
                for t in touches(s, mode):
                    if t.buffer == buffer.name:
                        if scope is None:
                            scope = _Scope(s.binding(), _domain(s), env, inner)
                        add(t, scope)
            case For():
                visit(s.body, {**inner, s.var: (s.lo, s.hi - 1)})
            case Store() | Exec():
                raise InternalError("footprints are taken of scheduled functions, not of lowered code")
            case _:
                for k in stmt_children(s):
                    visit(k, inner)

    visit(part, {})
    if not found_any:
        return None
    return Box(tuple(_clip(_union(s, env), n) for s, n in zip(per_dim, buffer.shape, strict=True)))


def _domain(block: Block) -> Env:
    """The ranges of a block's iterators, up to constants beyond which its conditions do not let it run."""
    domain = dict(iter_env(block.iters))
    for it, bound in zip(block.iters, block.bind, strict=True):
        for c in block.where:
            most = c.index + bound if c.op == "ge" and c.index is not None else None
            lo, hi = domain[it.name]
            if most is not None and most.is_const and hi.is_const and most.const < hi.const:
                domain[it.name] = lo, most
    return domain


class _Scope:
    """Spans of the indices of one block while the loops ``inner`` run.

    A span follows from the ranges of the loops, clipped to the iterators' domains: past those a block does
    not run, whatever the loops do.
    """

    __slots__ = ("binding", "domain", "env", "inner", "iterators", "known")

    def __init__(
        self, binding: Mapping[str, Index], domain: Env, env: Env, inner: Mapping[str, Bounds]
    ) -> None:
        self.binding = binding
        self.domain = domain
        self.env = env
        self.inner = inner
        self.known: dict[Index, Span | None] = {}
        self.iterators: dict[str, Span | None] = {}

    def span(self, x: Index, local: tuple[tuple[str, Bounds], ...]) -> Span | None:
        """The span of an index over iterators and the loops ``local`` of the block's body."""
        if local:
            inner = dict(self.inner)
            for name, (lo, hi) in local:
                inner[name] = (substitute_index(lo, self.binding), substitute_index(hi, self.binding))
            return _Scope(self.binding, {**self.domain, **dict(local)}, self.env, inner).span(x, ())
        if x not in self.known:
            found = self._of(x)
            # a box must not depend on data, whatever loop it is taken at
            self.known[x] = None if found is None or _loads_in((found.lo,)) else found
        return self.known[x]

    def _of(self, x: Index) -> Span | None:
        sums = self._sum(x)
        if sums is not None and (len(x.terms) <= 1 or sums.extent == ONE):
            return sums
        bound = substitute_index(x, self.binding)
        s = _plain_span(bound, self.inner)
        if s is None:
            s = span(bound, {**self.env, **self.inner}, self.inner)
        s = _smaller(s, sums)
        if s is not None and s.extent == ONE:
            return s
        whole = _plain_span(x, self.domain)
        if whole is None:
            whole = span(x, self.domain, self.domain)
        return s if whole is None or whole.lo.vars else _smaller(s, whole)

    def _sum(self, x: Index) -> Span | None:
        """The sum of the iterators' spans, where the index is affine in them."""
        lo, width = Index(x.const), 0
        for atom, c in x.terms:
            if isinstance(atom, Param):
                lo = lo + Index(0, ((atom, c),))
                continue
            if not isinstance(atom, Var) or atom.name not in self.binding:
                return None
            s = self._iterator(atom.name)
            if s is None or not s.extent.is_const:
                return None
            lo = lo + (s.lo if c > 0 else s.lo + (s.extent.const - 1)) * c
            width += abs(c) * (s.extent.const - 1)
        return Span(lo, Index(width + 1))

    def _iterator(self, name: str) -> Span | None:
        if name not in self.iterators:
            bound = self.binding[name]
            s = _plain_span(bound, self.inner)
            if s is None:
                s = span(bound, {**self.env, **self.inner}, self.inner)
            lo, hi = self.domain[name]
            if not (lo.vars or hi.vars):
                s = _smaller(s, Span(lo, hi - lo + 1))
            self.iterators[name] = s
        return self.iterators[name]


def _smaller(a: Span | None, b: Span | None) -> Span | None:
    """The one with the smaller constant extent, ``a`` where that is not known."""
    if a is None or b is None:
        return b if a is None else a
    if b.extent.is_const and (not a.extent.is_const or b.extent.const < a.extent.const):
        return b
    return a


def _plain_span(x: Index, inner: Mapping[str, Bounds]) -> Span | None:
    """The exact span of an affine index over loops of constant bounds; ``None`` for any other."""
    const, width = x.const, 0
    kept: list[tuple[Atom, int]] = []
    for atom, c in x.terms:
        if isinstance(atom, Var):
            bounds = inner.get(atom.name)
            if bounds is None:
                kept.append((atom, c))
                continue
            lo, hi = bounds
            if lo.terms or hi.terms:
                return None
            const += c * (lo.const if c > 0 else hi.const)
            width += abs(c) * (hi.const - lo.const)
        elif isinstance(atom, Param):
            kept.append((atom, c))
        else:
            return None
    return Span(Index(const, tuple(kept)), Index(width + 1))


def _union(spans: Iterable[Span | None], env: Env) -> Span | None:
    items = list(spans)
    known = [s for s in items if s is not None]
    if len(known) < len(items):
        return None
    return known[0] if len(known) == 1 else union_span(known, env)


def _clip(s: Span | None, size: Index) -> Span:
    """The whole dimension where the span is unknown or no smaller."""
    if s is None or (s.extent.is_const == size.is_const and prove_ge0(s.extent - size, {})):
        return Span(ZERO, size)
    return s
