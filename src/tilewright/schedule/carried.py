"""Which loops may carry a dependence: a conservative test on index expressions, without isl.

Two accesses to one element conflict if one of them writes. For a pair of accesses the test asks which loop
variables must be *equal* in any two conflicting instances: from ``8*o + i == 8*o' + i'`` with ``0 <= i < 8``
follows ``o == o'`` and then ``i == i'``. A loop that every pair forces to be equal carries nothing. Ranges
come from the loops, and from the conditions that guard blocks: those tell that the tiles of a tile do not
overlap where their size does not divide it. Divisions and remainders by the same number, as fused loops and
blocked layouts make them, are recombined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Final

from tilewright.ir import (
    ZERO,
    Alloc,
    Along,
    Atom,
    Block,
    Buffer,
    Env,
    Exec,
    FloorDiv,
    For,
    If,
    Index,
    Load,
    Mod,
    Pred,
    Stmt,
    Store,
    Var,
    blocks,
    floordiv,
    index,
    int_range,
    mod,
    simplify,
    stmt_children,
    stmt_writes,
    substitute_index,
    var,
    walk_index,
)

FACTS: Final = 2
"""Facts that one bound may use: one of each of the two accesses."""
REMEMBERED: Final = 4096
"""Questions about pairs of accesses whose answers are kept: some hundred a step of a kernel's schedule."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of a block below a loop: physical or logical ``indices`` over loop variables.

    ``facts`` are indices that are not negative where the access happens.
    """

    block: Block
    buffer: str
    indices: tuple[Index, ...]
    write: bool
    loops: frozenset[str]
    facts: tuple[Index, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses to ``buffer``, one or both writes, that may meet in different iterations of ``loops``."""

    buffer: str
    first: Block
    second: Block
    loops: frozenset[str]

    @property
    def blocks(self) -> str:
        """The block, or both, for a message."""
        a, b = self.first.name, self.second.name
        return repr(a) if a == b else f"{a!r} and {b!r}"


def conflicts(
    node: For,
    env: Env,
    buffers: Mapping[str, Buffer],
    candidates: frozenset[str],
    *,
    ignore_scopes: frozenset[str] = frozenset(),
    reorderable: bool = False,
) -> Iterator[Conflict]:
    """Pairs of accesses below ``node`` that may conflict in different iterations of some ``candidates``.

    ``env`` are the ranges of the loops around ``node``. Buffers allocated below it, or of a scope in
    ``ignore_scopes``, are private and left out. With ``reorderable`` so are pairs whose order does not
    matter: instances of one stage, as far as its parallel and reduction iterators say so.
    """
    memory = {name: buffer.alias or name for name, buffer in buffers.items()}
    written = {memory[name] for each in blocks(node) for name in _written(each.node) if name in memory}
    touches, ranges = touches_below(node, env, lambda name: memory.get(name) in written)
    # what runs once meets no other iteration
    candidates -= {v for v in candidates if v in ranges and _runs_once(v, ranges)}
    groups: dict[str, list[Touch]] = {}
    for t in touches:
        buffer = buffers.get(t.buffer)
        if buffer is None or buffer.scope in ignore_scopes:
            continue
        groups.setdefault(buffer.alias or t.buffer, []).append(t)
    for name, items in groups.items():
        if not any(t.write for t in items):
            continue
        free = reorderable and not any(folded(buffers[b]) for b in {t.buffer for t in items})
        for n, a in enumerate(items):
            for b in items[n:]:
                if not (a.write or b.write) or (free and _order_free(a.block, b.block)):
                    continue
                common = candidates & a.loops & b.loops
                held: frozenset[str] = frozenset()
                if a.buffer == b.buffer:
                    held = _equal_loops(a, b, buffers[a.buffer], ranges, frozenset(env), common)
                if not common <= held:
                    yield Conflict(name, a.block, b.block, common - held)


def _runs_once(v: str, ranges: Env) -> bool:
    lo, hi = ranges[v]
    return simplify(hi - lo, ranges) == ZERO


def _order_free(a: Block, b: Block) -> bool:
    """Whether the kinds of a stage's iterators allow any order of these blocks' instances."""
    kinds = {it.kind for it in (*a.iters, *b.iters)}
    return a.stage == b.stage and "ord" not in kinds and a.is_reduction == b.is_reduction


def _written(block: Block) -> Iterator[str]:
    for part in (block.init, block.body):
        if part is not None:
            yield from (name for name, _ in stmt_writes(part))


def touches_below(
    node: Stmt, env: Env, concerned: Callable[[str], bool] = lambda _: True
) -> tuple[list[Touch], dict[str, tuple[Index, Index]]]:
    """The accesses of blocks below ``node`` to what is not allocated there, and the ranges of all loops.

    Only those of buffers that are ``concerned``, by their names.
    """
    ranges = dict(env)
    out: list[Touch] = []

    def visit(s: Stmt, loops: frozenset[str], private: frozenset[str], facts: tuple[Index, ...]) -> None:
        match s:
            case For():
                ranges[s.var] = (s.lo, s.hi - 1)
                visit(s.body, loops | {s.var}, private, facts)
            case Alloc():
                visit(s.body, loops, private | {s.buffer.name}, facts)
            case If():
                visit(s.then, loops, private, facts + _facts(s.cond))
                if s.orelse is not None:
                    visit(s.orelse, loops, private, facts)
            case Block():

                def wanted(name: str) -> bool:
                    return name not in private and concerned(name)

                out.extend(_of_block(s, loops, ranges, facts + _facts(s.where), wanted))
            case _:
                for k in stmt_children(s):
                    visit(k, loops, private, facts)

    visit(node, frozenset(), frozenset(), ())
    return out, ranges


def _facts(cond: Pred) -> tuple[Index, ...]:
    """What is not negative where a condition holds; data, which may change, tells nothing."""
    out: list[Index] = []
    for c in cond:
        if c.index is not None and not any(isinstance(e, Load) for e in walk_index(c.index)):
            out += [c.index] if c.op == "ge" else [c.index, -c.index]
    return tuple(out)


def _of_block(
    block: Block,
    loops: frozenset[str],
    ranges: dict[str, tuple[Index, Index]],
    facts: tuple[Index, ...],
    wanted: Callable[[str], bool],
) -> list[Touch]:
    mapping = block.binding()
    found: dict[tuple[str, tuple[Index, ...]], bool] = {}
    for part in (block.init, block.body):
        if part is not None:
            _inner_loops(part, mapping, ranges)
    for ld in block.reads:
        found.setdefault((ld.buffer, ld.indices), False)
    for part in (block.init, block.body):
        if part is not None:
            for name, indices, write in _accesses(part, mapping, ranges):
                found[name, indices] = write or found.get((name, indices), False)
    return [
        Touch(
            block,
            name,
            tuple(simplify(substitute_index(i, mapping), ranges) for i in idx),
            write,
            loops,
            facts,
        )
        for (name, idx), write in found.items()
        if wanted(name)
    ]


def _inner_loops(s: Stmt, mapping: dict[str, Index], ranges: dict[str, tuple[Index, Index]]) -> None:
    """Give loops inside an opaque body variables of their own, which no equation can force."""
    if isinstance(s, For):
        inner = "@" + s.var
        ranges[inner] = (substitute_index(s.lo, mapping), substitute_index(s.hi, mapping) - 1)
        mapping[s.var] = var(inner)
    for k in stmt_children(s):
        _inner_loops(k, mapping, ranges)


def _accesses(
    s: Stmt, mapping: dict[str, Index], ranges: dict[str, tuple[Index, Index]]
) -> Iterator[tuple[str, tuple[Index, ...], bool]]:
    """Stored elements, and the windows of instructions with a variable of its own for each dimension."""
    match s:
        case Store():
            for w in s.writes:
                yield w.buffer, w.indices, True
        case Exec():
            for win in s.windows:
                # where not all of the box is passed, the elements that are
                along = win.axes or tuple(Along(d, n) for d, n in enumerate(win.extents))
                indices = list(win.offsets)
                for axis in along:
                    name = f"@w{len(ranges)}"
                    ranges[name] = (Index(0), Index(axis.count - 1))
                    mapping[name] = var(name)
                    indices[axis.dim] = indices[axis.dim] + var(name) * axis.step
                yield win.buffer, tuple(indices), win.mode != "r"
        case _:
            for k in stmt_children(s):
                yield from _accesses(k, mapping, ranges)


def folded(buffer: Buffer) -> bool:
    """Whether two logical elements of a buffer may share a place, as in rolled buffers."""
    layout = buffer.layout
    if layout is None or not any(isinstance(a, Mod) for e in layout.exprs for a, _ in e.terms):
        return False
    ranges = {d: (Index(0), n - 1) for d, n in zip(layout.dims, buffer.shape, strict=True)}
    return not frozenset(layout.dims) <= forced(
        [(e, e) for e in layout.exprs], ranges, frozenset(layout.vars), frozenset(layout.dims)
    )


def _equal_loops(
    a: Touch, b: Touch, buffer: Buffer, ranges: Env, shared: frozenset[str], wanted: frozenset[str]
) -> frozenset[str]:
    """Loops whose variables are equal wherever the two accesses meet."""
    if len(a.indices) != len(b.indices):
        return frozenset()
    first, second = a.indices, b.indices
    wrapped = folded(buffer)
    if wrapped:
        places = [buffer.physical(indices) for indices in (first, second)]
        first, second = (tuple(simplify(i, ranges) for i in place) for place in places)
    pairs = list(zip(first, second, strict=True))
    if a.block.stage == b.block.stage and not wrapped:
        # one stage writes an element for one value of its parallel iterators only
        other = b.block.binding()
        kinds = {it.kind for it in (*a.block.iters, *b.block.iters)}
        if "ord" not in kinds and a.write and b.write:
            pairs += [
                (x, other[it.name])
                for it, x in zip(a.block.iters, a.block.bind, strict=True)
                if it.kind == "par" and it.name in other
            ]
    return forced(pairs, ranges, shared, wanted, (a.facts, b.facts))


def forced(
    pairs: list[tuple[Index, Index]],
    ranges: Env,
    shared: frozenset[str],
    wanted: frozenset[str],
    facts: tuple[tuple[Index, ...], tuple[Index, ...]] = ((), ()),
) -> frozenset[str]:
    """Variables ``v`` that ``x(v...) == y(v'...)`` for all pairs forces to ``v == v'``.

    Variables in ``shared`` have no second instance. ``facts`` are indices over ``v...``, and others over
    ``v'...`` (written without the prime), that are not negative. The search ends where all of ``wanted`` are
    forced.
    """
    used = frozenset[str]().union(*(x.vars | y.vars for x, y in pairs))
    kept: list[tuple[str, Index, Index]] = []
    for v in reversed(list(ranges)):
        if v in used:
            kept.append((v, *ranges[v]))
            used |= ranges[v][0].vars | ranges[v][1].vars
    names = {v for v, _, _ in kept}
    own, others = (tuple(f for f in some if f.vars <= names) for some in facts)
    return _forced(tuple(dict.fromkeys(pairs)), tuple(reversed(kept)), shared & names, wanted, own, others)


@lru_cache(maxsize=REMEMBERED)
def _forced(
    pairs: tuple[tuple[Index, Index], ...],
    ranges: tuple[tuple[str, Index, Index], ...],
    shared: frozenset[str],
    wanted: frozenset[str],
    own: tuple[Index, ...],
    others: tuple[Index, ...],
) -> frozenset[str]:
    """:func:`forced` of what matters alone. Steps of a schedule, checked one by one, ask the same again."""
    primes = {v: var(v + "'") for v, _, _ in ranges if v not in shared}
    both: dict[str, tuple[Index, Index]] = {}
    for v, lo, hi in ranges:
        both[v] = (lo, hi)
        if v in primes:
            both[v + "'"] = (substitute_index(lo, primes), substitute_index(hi, primes))
    known = dict.fromkeys((*own, *(substitute_index(f, primes) for f in others)))
    system = _System(primes, both, list(known))
    for x, y in pairs:
        system.add(x, substitute_index(y, primes))
    system.solve(wanted)
    return frozenset(system.equal)


class _System:
    """Equations between indices over variables and their primed twins, solved by ranges."""

    __slots__ = ("_atoms", "_back", "_facts", "_primes", "_ranges", "_todo", "equal")

    def __init__(self, primes: Mapping[str, Index], ranges: Env, facts: Sequence[Index] = ()) -> None:
        self._facts = facts
        self._primes = primes
        self._ranges = ranges
        self._back: dict[str, Index] = {}
        self._atoms: dict[Atom, Atom] = {}
        self._todo: list[Index] = []
        self.equal: set[str] = set()

    def add(self, x: Index, primed: Index) -> None:
        """Demand ``x == primed``."""
        self._todo.append(x - primed)

    def solve(self, wanted: frozenset[str]) -> None:
        """Force what can be forced, until nothing changes or all of ``wanted`` are."""
        progress = True
        while progress and not wanted <= self.equal:
            progress = False
            left: list[Index] = []
            pending, self._todo = self._todo, []
            for eq in pending:
                eq = self._reduced(eq)
                parts = self._parts(eq)
                if parts:
                    left.extend(parts)
                    progress = True
                    continue
                step = self._force_one(eq)
                progress = progress or step
                if step or eq.terms:
                    left.append(eq)
            self._todo.extend(left)

    def _reduced(self, eq: Index) -> Index:
        eq = substitute_index(eq, self._back)
        if self._atoms and any(a in self._atoms for a, _ in eq.terms):
            out = Index(eq.const)
            for a, c in eq.terms:
                out = out + index(self._atoms.get(a, a)) * c
            return out
        return eq

    def _twin(self, atom: Atom) -> Atom:
        moved = substitute_index(substitute_index(index(atom), self._primes), self._back)
        return moved.terms[0][0] if len(moved.terms) == 1 and moved.terms[0][1] == 1 else atom

    def _parts(self, eq: Index) -> tuple[Index, ...]:
        """The two equations that one is, where its small terms cannot make up for a step of the large."""
        for limit in sorted({abs(c) for _, c in eq.terms})[1:]:
            large = tuple(t for t in eq.terms if abs(t[1]) >= limit)
            step = gcd(*(c for _, c in large))
            # what of the constant is less than a step is with the small terms, above or below
            for const in {eq.const % step, eq.const % step - step} if eq.const % step else {0}:
                small = Index(const, tuple(t for t in eq.terms if abs(t[1]) < limit))
                if self._below(small, step) and self._below(-small, step):
                    return small, eq - small
        return ()

    def _force_one(self, eq: Index) -> bool:
        coefficients = dict(eq.terms)
        # the largest coefficient is the first that can dominate the rest
        for atom, c in sorted(eq.terms, key=lambda t: -abs(t[1])):
            twin = self._twin(atom)
            if twin == atom or coefficients.get(twin) != -c:
                continue
            rest = eq - index(atom) * c + index(twin) * c
            if self._below(rest, abs(c)) and self._below(-rest, abs(c)):
                self._learn(atom, twin)
                return True
        return False

    def _below(self, x: Index, limit: int, steps: int = FACTS) -> bool:
        """Whether ``x < limit``: by the ranges, or with multiples of up to ``steps`` facts added to ``x``."""
        high = int_range(x, self._ranges)[1]
        if high is not None and high < limit:
            return True
        if not steps:
            return False
        for fact in map(self._reduced, self._facts):
            tried: set[int] = set()
            for atom, c in x.terms:
                have = next((k for a, k in fact.terms if a == atom), 0)
                times = -c // have if have and c % have == 0 else 0
                if times > 0 and times not in tried:
                    tried.add(times)
                    if self._below(x + fact * times, limit, steps - 1):
                        return True
        return False

    def _learn(self, atom: Atom, twin: Atom) -> None:
        if isinstance(atom, Var):
            self.equal.add(atom.name)
            assert isinstance(twin, Var)
            self._back[twin.name] = var(atom.name)
            return
        self._atoms[twin] = atom
        known = list(self._atoms.values())
        for m in known:
            if isinstance(m, Mod):
                # x // d and x % d both equal make x equal, x % d alone where the two are less than d apart
                quotient = simplify(floordiv(m.arg, m.divisor), self._ranges)
                apart = self._reduced(m.arg - substitute_index(m.arg, self._primes))
                near = self._below(apart, m.divisor) and self._below(-apart, m.divisor)
                if near or not self._reduced(quotient - substitute_index(quotient, self._primes)).terms:
                    self._demand(m.arg)
                for f in known:
                    # ... also where the remainder was taken of x reduced modulo d, x being a quotient itself
                    if isinstance(f, FloorDiv) and f.divisor % m.divisor == 0:
                        x = floordiv(f.arg, f.divisor // m.divisor)
                        if mod(x, m.divisor) == index(m):
                            self._demand(x)

    def _demand(self, x: Index) -> None:
        self.add(x, substitute_index(x, self._primes))


def name_list(names: Iterable[str]) -> str:
    """Names for a message: ``'i', 'j'``, sorted."""
    return ", ".join(repr(n) for n in sorted(names))
