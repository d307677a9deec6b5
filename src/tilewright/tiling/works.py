"""Stages for cost models: what an instance accesses, placed over the loops that a tree says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tilewright.cost import Access, Place, Term, Work, access, operations_of, terms_of
from tilewright.ir import Buffer, Index, Program, Stage, Store, condition_of, loads, stmt_loads, var
from tilewright.schedule import with_layout


class Touched(NamedTuple):
    """What an instance accesses of one buffer: places over the stage's iterators."""

    buffer: str
    places: tuple[Place, ...]
    width: int
    writes: bool


class Instance(NamedTuple):
    """A stage for cost models: its accesses, operations an instance, bytes of an element of its result.

    ``start`` is the operations of an instance of its sums' start.
    """

    name: str
    touched: tuple[Touched, ...]
    operations: int
    element: int
    start: int = 1

    @property
    def writes(self) -> tuple[Touched, ...]:
        """The accesses that write."""
        return tuple(t for t in self.touched if t.writes)


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer's own storage inside of the loops ``outside``: in registers or in memory, perhaps laid out."""

    outside: frozenset[str]
    registers: bool = False
    layout: tuple[str, ...] = ()
    copied: bool = False


Stored: TypeAlias = Mapping[str, Storage]
NOTHING: Final[Stored] = MappingProxyType({})


class Instances:
    """The stages of a program as instances, each made once for each layout of what it accesses."""

    def __init__(self, program: Program) -> None:
        self._buffers = {b.name: b for b in program.buffers}
        self._copied: dict[tuple[str, tuple[str, ...], bool], Touched] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._known: dict[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], Instance | None] = {}

    def copied(self, name: str, layout: tuple[str, ...], writes: bool) -> Touched:
        """An element of a buffer, perhaps laid out otherwise, at ``d0``, ``d1`` …"""
        key = (name, layout, writes)
        if key not in self._copied:
            b = self._laid(name, layout)
            self._copied[key] = touched(b, [var(f"d{n}") for n in range(len(b.shape))], writes)
        return self._copied[key]

    def _laid(self, name: str, layout: tuple[str, ...]) -> Buffer:
        b = self._buffers[name]
        return with_layout(b, layout) if layout else b

    def of(self, stage: Stage, stored: Stored = NOTHING) -> Instance | None:
        """A stage's instance; ``None`` for one that is no plain definition of one buffer."""
        names = self._names.get(stage.name)
        if names is None:
            names = self._names[stage.name] = tuple(dict.fromkeys((*stage.reads, *stage.writes)))
        laid = [(n, s.layout) for n in names if (s := stored.get(n)) is not None and s.layout]
        key = (stage.name, tuple(laid))
        if key not in self._known:
            self._known[key] = self._made(stage, dict(laid))
        return self._known[key]

    def _made(self, stage: Stage, laid: Mapping[str, tuple[str, ...]]) -> Instance | None:
        _, body = condition_of(stage.body)
        if not isinstance(body, Store):
            return None
        found: dict[Touched, None] = {}
        operations, element = 0, 4
        for w in body.writes:
            operations += operations_of(w.value)
            element = w.value.dtype.bytes
            found[touched(self._laid(w.buffer, laid.get(w.buffer, ())), w.indices, True)] = None
        for ld in stmt_loads(stage.body):
            found[touched(self._laid(ld.buffer, laid.get(ld.buffer, ())), ld.indices, False)] = None
        start = 1
        if isinstance(stage.init, Store):
            start = max(1, sum(operations_of(w.value) for w in stage.init.writes))
            if any(ld for w in stage.init.writes for ld in loads(w.value)):
                return None
        return Instance(stage.name, tuple(found), max(1, operations), element, start)


def touched(b: Buffer, indices: Sequence[Index], writes: bool) -> Touched:
    """An access of a buffer; dimensions of one element have no place."""
    physical = zip(b.physical(tuple(indices)), b.physical_shape, strict=True)
    return Touched(b.name, tuple(terms_of(i) for i, n in physical if n != Index(1)), b.dtype.bytes, writes)


def placed(
    instance: Instance, binding: Mapping[str, Place], extents: Mapping[str, int], stored: Stored = NOTHING
) -> Work:
    """A stage's work where its iterators are these sums of loops."""
    found = tuple({accessed(t, binding, extents, stored): None for t in instance.touched})
    return Work(instance.name, found, instance.operations, instance.element)


def started(
    instance: Instance, binding: Mapping[str, Place], extents: Mapping[str, int], stored: Stored = NOTHING
) -> Work:
    """The start of a stage's sums."""
    found = tuple({accessed(t, binding, extents, stored): None for t in instance.writes})
    return Work(f"{instance.name}_init", found, instance.start, instance.element)


def moved(
    instance: Instance,
    binding: Mapping[str, Place],
    extents: Mapping[str, int],
    stored: Stored,
    kept: Stored,
    *,
    back: bool = False,
) -> Work:
    """The copy of a kept result to where it was ``stored`` before, or ``back`` from there."""
    (w,) = instance.writes
    there, here = accessed(w, binding, extents, stored), accessed(w, binding, extents, kept)
    if back:
        return Work(instance.name, (here, there._replace(writes=False)), 1, instance.element)
    return Work(f"{instance.name}_out", (there, here._replace(writes=False)), 1, instance.element)


def accessed(
    t: Touched, binding: Mapping[str, Place], extents: Mapping[str, int], stored: Stored = NOTHING
) -> Access:
    """An access over loops. Storage of its own begins where the loops around it are."""
    places: list[Place] = []
    storage = stored.get(t.buffer)
    for place in t.places:
        found: list[Term] = []
        for term in place:
            stride, inner, quotient, modulus = term
            if quotient > 1 or modulus:
                found += divided(term, binding, extents)
                continue
            for c, name in inner:
                at, by = binding.get(name, ()), stride * c
                if by == 1:
                    found += at
                else:
                    found += [Term(by * s, loops, q, m) for s, loops, q, m in at]
        if storage is not None:
            found = [x for x in found if any(name not in storage.outside for _, name in x.inner)]
            if not found:
                continue
        places.append(tuple(found))
    name = f"{t.buffer}_copy" if storage is not None and storage.copied else t.buffer
    return access(name, places, t.width, t.writes, storage is not None and storage.registers)


def divided(term: Term, binding: Mapping[str, Place], extents: Mapping[str, int]) -> list[Term]:
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


def composed(terms: Place, binding: Mapping[str, Place]) -> Place:
    """Where an index of these terms lies while its iterators are sums of loops."""
    return tuple(
        Term(t.stride * c * b.stride, b.inner, b.quotient, b.modulus)
        for t in terms
        for c, name in t.inner
        for b in binding.get(name, ())
    )
