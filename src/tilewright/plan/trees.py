"""Loop trees of plans without scheduling: what stages access, placed over the loops that a plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tilewright.cost import Access, Node, Place, Term, Work, access, loop, operations_of, terms_of
from tilewright.ir import Atom, Index, Program, Stage, Store, condition_of, loads, stmt_loads
from tilewright.plan.threads import is_balanced

_NOTHING: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


class Touched(NamedTuple):
    """What an instance accesses of one buffer: places over the stage's iterators."""

    buffer: str
    places: tuple[Place, ...]
    width: int
    writes: bool


class Body(NamedTuple):
    """A stage for cost models: its accesses, operations an instance, bytes of an element of its result.

    ``start`` is the same of the start of its reduction.
    """

    name: str
    touched: tuple[Touched, ...]
    operations: int
    element: int
    start_operations: int = 1

    @property
    def writes(self) -> tuple[Touched, ...]:
        """The accesses that write."""
        return tuple(t for t in self.touched if t.writes)


class Bodies:
    """The bodies of a program's stages, each made once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[str, Body | None] = {}

    def of(self, stage: Stage) -> Body | None:
        """A stage's body; ``None`` for one that is no plain definition of one buffer."""
        if stage.name not in self._known:
            self._known[stage.name] = body_of(self._program, stage)
        return self._known[stage.name]


def body_of(program: Program, stage: Stage) -> Body | None:
    """A stage's body; ``None`` for one that is no plain definition of one buffer."""
    _, body = condition_of(stage.body)
    if not isinstance(body, Store):
        return None
    found: dict[Touched, None] = {}
    operations, element = 0, 4
    for w in body.writes:
        operations += operations_of(w.value)
        element = w.value.dtype.bytes
        found[_touched(program, w.buffer, w.indices, True)] = None
    for ld in stmt_loads(stage.body):
        found[_touched(program, ld.buffer, ld.indices, False)] = None
    start = 1
    if isinstance(stage.init, Store):
        start = max(1, sum(operations_of(w.value) for w in stage.init.writes))
        if any(ld for w in stage.init.writes for ld in loads(w.value)):
            return None
    return Body(stage.name, tuple(found), max(1, operations), element, start)


def _touched(program: Program, name: str, indices: Sequence[Index], writes: bool) -> Touched:
    b = program.buffer(name)
    physical = zip(b.physical(tuple(indices)), b.physical_shape, strict=True)
    return Touched(name, tuple(terms_of(i) for i, n in physical if n != Index(1)), b.dtype.bytes, writes)


def placed(
    body: Body,
    binding: Mapping[str, Place],
    extents: Mapping[str, int],
    *,
    kept: Mapping[str, frozenset[str]] = _NOTHING,
    inside: Mapping[str, frozenset[str]] = _NOTHING,
) -> Work:
    """A stage's work where its iterators are these sums of loops.

    Of buffers in registers ``kept`` has the loops below the one at which they are kept, of other buffers that
    are stored below a loop ``inside`` has those.
    """
    return Work(
        body.name,
        tuple({_access(t, binding, extents, kept, inside): None for t in body.touched}),
        body.operations,
        body.element,
    )


def started(
    body: Body,
    binding: Mapping[str, Place],
    extents: Mapping[str, int],
    *,
    kept: Mapping[str, frozenset[str]] = _NOTHING,
    inside: Mapping[str, frozenset[str]] = _NOTHING,
) -> Work:
    """The start of a stage's reduction."""
    found = tuple({_access(t, binding, extents, kept, inside): None for t in body.writes})
    return Work(f"{body.name}_init", found, body.start_operations, body.element)


def stored(
    body: Body,
    binding: Mapping[str, Place],
    extents: Mapping[str, int],
    kept: Mapping[str, frozenset[str]],
) -> Work:
    """The copy of a tile of a stage's result from registers to memory."""
    (w,) = body.writes
    out = _access(w, binding, extents, _NOTHING, _NOTHING)
    held = _access(w, binding, extents, kept, _NOTHING)
    read = Access(held.buffer, held.places, held.width, False, True, held.loops, held.together)
    return Work(f"{body.name}_out", (out, read), 1, body.element)


def _access(
    t: Touched,
    binding: Mapping[str, Place],
    extents: Mapping[str, int],
    kept: Mapping[str, frozenset[str]],
    inside: Mapping[str, frozenset[str]],
) -> Access:
    places: list[Place] = []
    below = kept.get(t.buffer, inside.get(t.buffer))
    for place in t.places:
        found: list[Term] = []
        for term in place:
            stride, inner, quotient, modulus = term
            if quotient > 1 or modulus:
                found += _divided(term, binding, extents)
                continue
            for c, name in inner:
                moved, by = binding.get(name, ()), stride * c
                if by == 1:
                    found += moved
                else:
                    found += [Term(by * s, loops, q, m) for s, loops, q, m in moved]
        if below is not None:
            # storage of its own: it begins where the loops around it are
            found = _moved_by(found, below)
            if not found:
                continue
        places.append(tuple(found))
    return access(t.buffer, places, t.width, t.writes, t.buffer in kept)


def _moved_by(terms: Sequence[Term], loops: frozenset[str]) -> list[Term]:
    out: list[Term] = []
    for term in terms:
        for _, name in term[1]:
            if name in loops:
                out.append(term)
                break
    return out


def _divided(term: Term, binding: Mapping[str, Place], extents: Mapping[str, int]) -> list[Term]:
    """A quotient, a remainder or both of a sum of loops, taken apart where their extents allow."""
    parts: list[tuple[int, Term]] = []
    for c, name in term.inner:
        for b in binding.get(name, ()):
            if b.quotient == 1 and not b.modulus:
                parts += [(c * b.stride * k, Term(1, ((1, n),))) for k, n in b.inner]
            else:
                parts.append((c * b.stride, Term(1, b.inner, b.quotient, b.modulus)))

    def reach(some: Sequence[tuple[int, Term]]) -> int:
        return sum(abs(c) * t.span(extents) for c, t in some)

    def together(quotient: int) -> list[Term]:
        inner = tuple((c * k, n) for c, t in parts for k, n in t.inner)
        return [Term(term.stride, inner, quotient, term.modulus)]

    if term.quotient > 1:
        if reach([(c, t) for c, t in parts if c % term.quotient]) >= term.quotient:
            return together(term.quotient)
        parts = [(c // term.quotient, t) for c, t in parts if c % term.quotient == 0]
    if term.modulus:
        parts = [(c, t) for c, t in parts if c % term.modulus]
        if reach(parts) >= term.modulus:
            return together(1)
    return [Term(term.stride * c, t.inner, t.quotient, t.modulus) for c, t in parts]


def composed(terms: Sequence[tuple[Atom, int]], binding: Mapping[str, Place]) -> Place:
    """Where an index lies while its iterators are sums of loops. Clamps count as what they limit."""
    return tuple(
        Term(t.stride * c * b.stride, b.inner, b.quotient, b.modulus)
        for t in terms_of(Index(0, tuple(terms)))
        for c, name in t.inner
        for b in binding.get(name, ())
    )


def one(name: str, stride: int = 1) -> Place:
    """The place that a loop moves by ``stride``."""
    return (Term(stride, ((1, name),)),)


@dataclass(frozen=True, slots=True)
class Step:
    """A loop over parts of ``axis``, each ``size`` long, of which the last may be a partial one."""

    name: str
    axis: str
    size: int
    ragged: bool = False


#: What is inside of all tiles: nodes from where axes are, what is left of each, and the loops' extents.
Leaf: TypeAlias = Callable[[Mapping[str, Place], Mapping[str, int], dict[str, int]], Sequence[Node]]


@dataclass(frozen=True, slots=True)
class _Tiles:
    """A loop of a tiled nest: its step, iterations, what is left of the axes, and the loops inside."""

    step: Step
    count: int
    left: Mapping[str, int]
    inside: tuple[_Tiles, ...]


def tiled(
    steps: Sequence[Step],
    extents: Mapping[str, int],
    leaf: Leaf,
    threads: int,
    wanted: int | None = None,
) -> tuple[Node, ...]:
    """Loops over tiles, outermost first; partial tiles in copies of their own, with exact extents.

    Several ``threads`` share the first loops, fused as far as they nest perfectly: ``wanted`` of them, by
    default all but the innermost, more while threads would have unequal parts.
    """
    cut = _cut(tuple(steps), dict(extents))
    out: list[Node] = []
    for nest in cut:
        out += _shared(nest, {}, {}, leaf, threads, len(steps) if wanted is None else wanted, wanted is None)
    return tuple(out)


def _cut(steps: tuple[Step, ...], left: Mapping[str, int]) -> tuple[_Tiles, ...]:
    if not steps:
        return ()
    step, rest = steps[0], steps[1:]
    extent = left[step.axis]
    count, tail = divmod(extent, step.size)
    parts = [(count, step.size)] if count else []
    if tail:
        parts = [*parts, (1, tail)] if step.ragged or not count else [(count + 1, step.size)]
    found = []
    for n, size in parts:
        inside = {**left, step.axis: size}
        found.append(_Tiles(step, n, inside, _cut(rest, inside)))
    return tuple(found)


def _shared(
    nest: _Tiles,
    binding: Mapping[str, Place],
    extents: Mapping[str, int],
    leaf: Leaf,
    threads: int,
    wanted: int,
    but_last: bool,
) -> tuple[Node, ...]:
    """A nest with its first loops fused and shared."""
    if threads == 1:
        return _loops(nest, binding, dict(extents), leaf)
    chain = [nest]
    while chain[-1].inside:
        chain.append(chain[-1].inside[0])
    if len(chain) > 1 and nest.count == 1 and len(nest.inside) > 1:
        # a loop of one iteration around several copies of tiles is no work for threads to share
        out: list[Node] = []
        for each in nest.inside:
            out += _shared(
                each, binding, extents, leaf, threads, max(1, wanted - 1) if but_last else wanted, but_last
            )
        return tuple(out)
    most = len(chain) - 1 if but_last else wanted
    total, n = chain[0].count, 1
    while n < len(chain) and len(chain[n - 1].inside) == 1:
        if n >= most and is_balanced(total, threads):
            break
        total *= chain[n].count
        n += 1
    # parts of one axis beside each other are one again
    together: list[tuple[_Tiles, int]] = []
    for t in chain[:n]:
        outer = together[-1] if together else None
        if (
            outer is not None
            and outer[0].step.axis == t.step.axis
            and t.step.size * t.count == outer[0].step.size
        ):
            together[-1] = (t, outer[1] * t.count)
        else:
            together.append((t, t.count))
    name = chain[0].step.name if n == 1 else "fused"
    now, below = dict(binding), total
    for t, count in together:
        first = below == total
        below //= count
        now = _moved(now, t, (Term(1, ((1, name),), below, 0 if first else count),), count)
    return loop(name, total, "parallel", _inside(chain[n - 1], now, {**extents, name: total}, leaf))


def _moved(binding: Mapping[str, Place], t: _Tiles, place: Place, count: int) -> dict[str, Place]:
    if count == 1:
        return dict(binding)
    scaled = tuple(Term(term.stride * t.step.size, term.inner, term.quotient, term.modulus) for term in place)
    return {**binding, t.step.axis: (*binding.get(t.step.axis, ()), *scaled)}


def _loops(
    nest: _Tiles, binding: Mapping[str, Place], extents: dict[str, int], leaf: Leaf
) -> tuple[Node, ...]:
    name = nest.step.name
    now = _moved(binding, nest, one(name), nest.count)
    return loop(name, nest.count, "serial", _inside(nest, now, {**extents, name: nest.count}, leaf))


def _inside(
    nest: _Tiles, binding: Mapping[str, Place], extents: dict[str, int], leaf: Leaf
) -> Sequence[Node]:
    if not nest.inside:
        return leaf(binding, nest.left, extents)
    return [node for each in nest.inside for node in _loops(each, binding, extents, leaf)]


def around(loops: Sequence[tuple[str, int, str]], body: Sequence[Node]) -> tuple[Node, ...]:
    """Loops (name, iterations, kind), outermost first, around nodes."""
    out = tuple(body)
    for name, extent, kind in reversed(loops):
        out = loop(name, extent, kind, out)
    return out
