"""Boxes: what one iteration of a level needs of producers and buffers, from what the stages in it read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tilewright.cost import Place as At, terms_of
from tilewright.ir import Load, Program, Stage, Store, condition_of, stmt_loads
from tilewright.tiling.grammar import Body, Place, Seq
from tilewright.tiling.walk import made_in
from tilewright.tiling.works import composed


class UnknownError(Exception):
    """What a stage accesses is not known without a schedule."""


class Here(NamedTuple):
    """Where a walk is: whose axes, where these are over the loops around, what is left of each.

    ``fresh``: the sums have not begun yet; ``borders``: loops over taps are cut where tiles meet padding;
    ``plain``: no leaf is done by an instruction.
    """

    stage: str
    at: Mapping[str, At]
    left: Mapping[str, int]
    loops: Mapping[str, int]
    fresh: bool = True
    borders: bool = False
    plain: bool = False


class Boxes:
    """The boxes of one program; what is asked of its stages is asked once."""

    def __init__(self, program: Program) -> None:
        self._stages = program.stages
        self._bodies = {stage.name: stage.body for stage in program.stages}
        self._shapes = {
            b.name: tuple(e.as_int() if e.is_const else 0 for e in b.shape) for b in program.buffers
        }
        self._terms: dict[tuple[str, str], tuple[tuple[tuple[int, At], ...], ...]] = {}
        self._loads: dict[tuple[str, str], tuple[Load, ...]] = {}

    def made(self, level: Seq, here: Here) -> Mapping[str, Here]:
        """The stage of a walk and all producers below a level, by name, with what one iteration has of each.

        ``here`` has the stage's own iterators. Raises UnknownError.
        """
        inside = {place.value for place in _producers(level)}
        found = {here.stage: here}
        for stage in reversed(self._stages) if inside else ():
            if stage.name in inside and (there := self._made(stage, found, here)) is not None:
                found[stage.name] = there
        if not inside <= found.keys():
            raise UnknownError
        return found

    def read(self, buffer: str, readers: Mapping[str, Here]) -> list[tuple[At, int]] | None:
        """Where the box begins that is read of a buffer, and its elements, by dimension; ``None``: no box."""
        reads = [(each, there) for name, there in readers.items() for each in self._reads(name, buffer)]
        out: list[tuple[At, int]] = []
        for n, whole in enumerate(self._shapes[buffer] if reads else ()):
            ends = [_span(*each[n], there.left) for each, there in reads]
            size = max(last for _, last in ends) - min(first for first, _ in ends) + 1
            place: At = ()
            if size < whole:
                place, *others = [composed(each[n][1], there.at) for each, there in reads]
                if any(other != place for other in others):
                    place, size = (), whole
            out.append((place, min(size, whole)))
        return out if reads else None

    def _reads(self, stage: str, buffer: str) -> tuple[tuple[tuple[int, At], ...], ...]:
        """What a stage reads of a buffer: of each access, by dimension, a number and terms to add to it."""
        key = (stage, buffer)
        if key not in self._terms:
            found = self.loads(stage, buffer)
            self._terms[key] = tuple(tuple((i.const, terms_of(i)) for i in ld.indices) for ld in found)
        return self._terms[key]

    def loads(self, stage: str, buffer: str) -> tuple[Load, ...]:
        """What a stage reads of a buffer."""
        key = (stage, buffer)
        if key not in self._loads:
            found = stmt_loads(self._bodies[stage]) if stage in self._bodies else ()
            self._loads[key] = tuple(dict.fromkeys(ld for ld in found if ld.buffer == buffer))
        return self._loads[key]

    def _made(self, stage: Stage, readers: Mapping[str, Here], here: Here) -> Here | None:
        """The box of a stage's result that readers need, over its iterators."""
        _, body = condition_of(stage.body)
        if not isinstance(body, Store) or not all(it.extent.is_const for it in stage.iters):
            raise UnknownError
        dims = self.read(body.writes[0].buffer, readers)
        if dims is None:
            return None
        at, left = dict[str, At](), {it.name: it.extent.as_int() for it in stage.iters}
        for i, (place, n) in zip(body.writes[0].indices, dims, strict=True):
            name = i.as_var()
            if name is not None and n < left[name]:
                at[name], left[name] = place, n
        return Here(stage.name, at, left, here.loops, plain=here.plain)


def _producers(b: Body) -> Iterable[Place]:
    """All producers in a tree, and in the nests of these."""
    for place in made_in(b):
        yield place
        if place.nest is not None:
            yield from _producers(place.nest)


def _span(const: int, terms: At, left: Mapping[str, int]) -> tuple[int, int]:
    """The least and the largest value of an index in one iteration, from where it begins."""
    first = last = const
    for term in terms:
        reach = term.span(left)
        falls = term.stride * sum(c for c, _ in term.inner) < 0
        first, last = (first - reach, last) if falls else (first, last + reach)
    return first, last
