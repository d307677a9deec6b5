"""Edits of tilings: one decision changed, everything else as it was. What searches and people do to trees.

An edit names a level by its stage, its axis and the elements of an iteration, as the text of a tree has them,
and changes it in all parts of cuts alike. It makes no promise: :func:`tilewright.tiling.verify` says whether
what comes out is a tree of the program.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tilewright.support import Catalog, InternalError, ScheduleError
from tilewright.tiling.grammar import (
    EXPANDED,
    KEPT,
    MADE,
    Bind,
    Body,
    Cut,
    Leaf,
    Level,
    Nest,
    Place,
    Seq,
    items_of,
    sequence,
)
from tilewright.tiling.walk import Row, bodies, next_of, spine

Change = Callable[[Level], Body]
#: Iterations that are worth being written out, at most: of one level, and of all that are inside of it.
MOST_EXPANDED: Final = 32
MOST_COPIES: Final = 256
#: Sizes that a level is split by: multiples of its own.
MULTIPLES: Final = (2, 4, 8, 16, 64)


class LevelAt(msgspec.Struct, frozen=True):
    """A level as edits see it: ``whole`` are the elements around it, 0 where that is not known.

    ``is_last`` says that no level of its stage is inside of it. ``copies`` are those of what is written out
    inside; 0 where a loop is inside, or another stage's.
    """

    stage: str
    axis: str
    size: int
    whole: int
    bind: Bind
    is_last: bool
    copies: int

    @property
    def place(self) -> tuple[str, str, int]:
        """How edits name it."""
        return self.stage, self.axis, self.size

    @property
    def count(self) -> int:
        """Its iterations; 0 where they are not known."""
        return -(-self.whole // self.size)


class Around(msgspec.Struct, frozen=True):
    """A nest that is to be edited, and its levels."""

    nest: Nest
    levels: tuple[LevelAt, ...]

    @classmethod
    def of(cls, nest: Nest, extents: dict[str, dict[str, int]]) -> Around:
        """The levels of all stages, each stage's from the outermost on."""
        found: list[LevelAt] = []
        for stage, body in _stages(nest):
            left, rows = dict(extents.get(stage, {})), spine(body)[1]
            for n, row in enumerate(rows):
                whole, last = left.get(row.axis, 0), n == len(rows) - 1
                left[row.axis] = min(row.size, whole) if whole else row.size
                copies = _copies(rows, n, left)
                found.append(LevelAt(stage, row.axis, row.size, whole, row.level.bind, last, copies))
        return cls(nest, tuple(found))


class Edit(msgspec.Struct, frozen=True, tag=True):
    """One change of a nest. A new kind is a subclass in a file of its own."""

    @classmethod
    def around(cls, at: Around) -> Iterable[Edit]:
        """The edits of this kind that a search tries; none of kinds that need knowledge of a machine."""
        return ()

    @abstractmethod
    def of(self, nest: Nest) -> Nest:
        """The nest with the change. Raises ScheduleError where it has nothing that could be changed so."""

    def __str__(self) -> str:
        fields = [getattr(self, name) for name in self.__struct_fields__]
        return " ".join([type(self).__name__.lower(), *(str(x) for x in fields if x not in ("", None))])


class _OfLevel(Edit, frozen=True):
    """An edit of the level of ``stage`` whose iterations have ``size`` elements of ``axis``."""

    stage: str
    axis: str
    size: int

    @abstractmethod
    def _change(self, level: Level) -> Body:
        """What stands in the place of the level."""

    def of(self, nest: Nest) -> Nest:
        """The nest with the change, as :meth:`Edit.of` says."""
        found: list[Level] = []

        def changed(level: Level) -> Body:
            if (self.axis, self.size) not in level.axes:
                return level
            found.append(level)
            return self._change(level)

        made = _within(nest, self.stage, lambda body: _over(body, changed))
        if not found:
            raise ScheduleError(
                f"{self}: {self.stage} has no level of {self.axis}/{self.size}",
                hint=f"its levels are {', '.join(_levels(nest, self.stage)) or 'none'}",
            )
        return made

    def _resized(self, level: Level, to: int) -> Level:
        """The level with other iterations along the axis."""
        return replace(
            level, axes=tuple((a, to if (a, n) == (self.axis, self.size) else n) for a, n in level.axes)
        )


class Resize(_OfLevel, frozen=True):
    """Give the iterations of a level another number of elements, ``to``."""

    to: int

    @classmethod
    def around(cls, at: Around) -> Iterator[Edit]:
        """Twice the elements, and half of them."""
        for level in at.levels:
            both = (level.size * 2, level.size // 2) if level.size > 1 else ()
            yield from (cls(*level.place, to) for to in both if 1 < to < (level.whole or to + 1))

    def _change(self, level: Level) -> Body:
        return self._resized(level, self.to)


class Split(_OfLevel, frozen=True):
    """Put a level of ``by`` elements around a level, which has what it ran on unless that is expanded."""

    by: int

    @classmethod
    def around(cls, at: Around) -> Iterator[Edit]:
        """By multiples of its size."""
        for level in at.levels:
            sizes = (level.size * by for by in MULTIPLES)
            yield from (cls(*level.place, by) for by in sizes if by < level.whole)

    def _change(self, level: Level) -> Body:
        if level.bind in EXPANDED:
            return Level(((self.axis, self.by),), level, "serial", (), level.tail)
        # threads stay outside
        inner = Level(((self.axis, self.size),), level.body, "serial", (), level.tail)
        return replace(self._resized(level, self.by), body=inner)


class Merge(_OfLevel, frozen=True):
    """Take a level away: the next one along its axis has its iterations."""

    @classmethod
    def around(cls, at: Around) -> Iterator[Edit]:
        """Each level of more than single elements."""
        return (cls(*level.place) for level in at.levels if level.size > 1)

    def _change(self, level: Level) -> Body:
        left = tuple(each for each in level.axes if each != (self.axis, self.size))
        return replace(level, axes=left) if left else level.body


class Swap(_OfLevel, frozen=True):
    """Exchange a level with the one right inside of it."""

    @classmethod
    def around(cls, at: Around) -> Iterator[Edit]:
        """Each level."""
        return (cls(*level.place) for level in at.levels)

    def _change(self, level: Level) -> Body:
        inner = level.body
        if not isinstance(inner, Level):
            raise ScheduleError(f"{self}: something stands between this level and the next one")
        return replace(inner, body=replace(level, body=inner.body))


class Bound(_OfLevel, frozen=True):
    """Run the iterations of a level on something else."""

    to: Bind

    @classmethod
    def around(cls, at: Around) -> Iterator[Edit]:
        """What one thread does: in order, written out where no loop is inside, in lanes at the end."""
        for level in at.levels:
            binds: list[Bind] = ["serial"]
            most = min(MOST_EXPANDED, MOST_COPIES // level.copies) if level.copies else 0
            binds += ["unroll"] if 1 < level.count <= most else []
            binds += ["vector"] if level.is_last and level.count > 1 else []
            if not level.bind.startswith(("block", "thread", "parallel")):
                yield from (cls(*level.place, to) for to in binds if to != level.bind)

    def _change(self, level: Level) -> Body:
        return replace(level, bind=self.to)


class Fuse(_OfLevel, frozen=True):
    """Make one loop of a level and the one right inside of it."""

    def _change(self, level: Level) -> Body:
        inner = level.body
        if not isinstance(inner, Level):
            raise ScheduleError(f"{self}: something stands between this level and the next one")
        return Level((*level.axes, *inner.axes), inner.body, level.bind, level.hints, level.tail)


class Hinted(_OfLevel, frozen=True):
    """Give a level a hint; with ``value`` ``None`` take it away."""

    key: str
    value: str | None = ""

    def _change(self, level: Level) -> Body:
        hints = dict(level.hints)
        hints.pop(self.key, None)
        if self.value is not None:
            hints[self.key] = self.value
        return replace(level, hints=tuple(hints.items()))


class Parted(_OfLevel, frozen=True):
    """Cut the range of a level at some elements, into parts that are the same at first."""

    at: tuple[int, ...]

    def _change(self, level: Level) -> Body:
        if len(level.axes) > 1:
            raise ScheduleError(f"{self}: the level is one loop over several axes")
        return Cut(self.axis, self.at, (level,) * (len(self.at) + 1))


class Joined(Edit, frozen=True):
    """Take a cut of an axis away: the first part is for the whole range."""

    stage: str
    axis: str

    def of(self, nest: Nest) -> Nest:
        """The nest with the change, as :meth:`Edit.of` says."""
        return _within(nest, self.stage, self._without)

    def _without(self, b: Body) -> Body:
        if isinstance(b, Cut) and b.axis == self.axis:
            return self._without(b.parts[0])
        return _inside(b, self._without)


class Moved(Edit, frozen=True):
    """Make a producer in another level of the stage that it is made for; ahead of all without an axis."""

    value: str
    axis: str = ""
    size: int = 0

    @classmethod
    def around(cls, at: Around) -> Iterator[Edit]:
        """Each producer into each other level of the stage that it is made for."""
        for _, body in _stages(at.nest):
            rows = spine(body)[1]
            for place in [p for row in rows for p in row.places if p.how == "make"]:
                yield from (cls(place.value, row.axis, row.size) for row in rows if place not in row.places)

    def of(self, nest: Nest) -> Nest:
        """The nest with the change, as :meth:`Edit.of` says."""
        taken: list[Place] = []

        def without(place: Place) -> Place | None:
            if place.how not in MADE or place.value != self.value:
                return place
            taken.append(place)
            return None

        body = _each_place(nest.body, without)
        if not taken:
            raise ScheduleError(f"{self}: {self.value} is made nowhere in this nest")
        stage = _reader_of(nest, self.value)
        if not self.axis:
            return _within(replace(nest, body=body), stage, lambda b: _beside(taken[0], b))
        found: list[Level] = []

        def placed(level: Level) -> Body:
            if (self.axis, self.size) not in level.axes:
                return level
            found.append(level)
            return replace(level, body=_beside(taken[0], level.body))

        made = _within(replace(nest, body=body), stage, lambda b: _over(b, placed))
        if not found:
            raise ScheduleError(f"{self}: {stage} has no level of {self.axis}/{self.size}")
        return made


class Scoped(Edit, frozen=True):
    """Keep what a place holds in another kind of storage, with another layout."""

    value: str
    scope: str
    layout: tuple[str, ...] = ()

    def of(self, nest: Nest) -> Nest:
        """The nest with the change, as :meth:`Edit.of` says."""

        def placed(place: Place) -> Place:
            own = place.value == self.value
            return replace(place, scope=self.scope, layout=self.layout) if own else place

        return replace(nest, body=_each_place(nest.body, placed))


class Relaid(Edit, frozen=True):
    """Lay out a constant otherwise; without expressions as the program has it."""

    value: str
    layout: tuple[str, ...] = ()

    def of(self, nest: Nest) -> Nest:
        """The nest with the change, as :meth:`Edit.of` says."""
        others = tuple(each for each in nest.layouts if each[0] != self.value)
        return replace(nest, layouts=(*others, (self.value, self.layout)) if self.layout else others)


class Instructed(Edit, frozen=True):
    """Do a stage by an instruction of the target, or by none."""

    stage: str
    instruction: str = ""

    def of(self, nest: Nest) -> Nest:
        """The nest with the change, as :meth:`Edit.of` says."""

        def changed(b: Body) -> Body:
            if isinstance(b, Leaf) and b.stage == self.stage:
                return replace(b, instruction=self.instruction)
            return _inside(b, changed)

        return _within(nest, self.stage, changed)


def _kind(edit: type[Edit]) -> type[Edit]:
    return edit


def neighbours(nest: Nest, extents: dict[str, dict[str, int]]) -> Iterator[Edit]:
    """Edits that may help, of all kinds that need no knowledge of a machine; some give no tree.

    ``extents`` are those of the axes of each stage.
    """
    around = Around.of(nest, extents)
    for kind in EDITS.values():
        yield from kind.around(around)


#: Kinds of edits by name, in the order in which they are tried; a new one is a class in a file of its own,
#: listed here or by a package's entry point in the group ``tilewright.edits``.
EDITS: Final[Catalog[str, type[Edit]]] = Catalog(
    "edits",
    (Resize, Split, Merge, Swap, Bound, Fuse, Hinted, Parted, Joined, Moved, Scoped, Relaid, Instructed),
    of=_kind,
    key=attrgetter("__name__"),
)


# trees


def _over(b: Body, change: Change) -> Body:
    """The own levels of a block, innermost first, each changed; those of what stands in places are not."""
    if isinstance(b, Level):
        return change(replace(b, body=_over(b.body, change)))
    return _inside(b, lambda x: _over(x, change))


def _inside(b: Body, change: Callable[[Body], Body]) -> Body:
    """A node with what the block's own loops go on with changed."""
    if isinstance(b, Level):
        return replace(b, body=change(b.body))
    if isinstance(b, Cut):
        return replace(b, parts=tuple(map(change, b.parts)))
    if isinstance(b, Seq):
        on = next_of(b)
        out: list[Any] = []
        for item in b.items:
            if isinstance(item, Place) and item.how in KEPT and item.nest is on:
                out.append(replace(item, nest=change(on)))
            elif item is on:
                out += items_of(change(on))
            else:
                out.append(item)
        return sequence(*out)
    return b


def _within(nest: Nest, stage: str, change: Callable[[Body], Body]) -> Nest:
    """The nest with the own body of a stage changed: of the root, or one that is made inside."""
    if stage == nest.root:
        return replace(nest, body=change(nest.body))
    found: list[str] = []

    def walk(b: Body) -> Body:
        if isinstance(b, Seq):
            items = [place(x) if isinstance(x, Place) else walk(x) for x in b.items]
            return sequence(*items)
        return _inside(b, walk)

    def place(p: Place) -> Place:
        if p.nest is None:
            return p
        if p.how in MADE and p.value == stage:
            found.append(stage)
            return replace(p, nest=change(p.nest))
        return replace(p, nest=walk(p.nest))

    made = replace(nest, body=walk(nest.body))
    if not found:
        raise ScheduleError(f"{stage} is not made in the nest of {nest.root}")
    return made


def _stages(nest: Nest) -> Iterator[tuple[str, Body]]:
    """The stages of a nest, each with its own body."""
    yield nest.root, nest.body
    for b in bodies(nest.body):
        if isinstance(b, Place) and b.how in MADE and b.nest is not None and not isinstance(b.nest, Leaf):
            yield b.value, b.nest


def _copies(rows: list[Row], n: int, left: dict[str, int]) -> int:
    """The copies of what is written out inside of a row; 0 where a loop or another stage is inside."""
    if any(place.how not in KEPT for row in rows[n:] for place in row.places):
        return 0
    copies, left = 1, dict(left)
    for row in rows[n + 1 :]:
        if row.level.bind not in EXPANDED:
            return 0
        whole = left.get(row.axis, 0)
        copies *= -(-whole // row.size) if row.level.bind == "unroll" and whole else 1
        left[row.axis] = row.size
    return copies


def _reader_of(nest: Nest, value: str) -> str:
    """The stage in whose own levels a producer is made."""
    for stage, body in _stages(nest):
        top, rows = spine(body)
        if any(p.value == value for p in (*top, *(p for row in rows for p in row.places))):
            return stage
    raise InternalError(f"{value} is made in no levels of {nest.root}")


def _levels(nest: Nest, stage: str) -> list[str]:
    for name, body in _stages(nest):
        if name == stage:
            return [f"{row.axis}/{row.size}" for row in spine(body)[1]]
    return []


def _beside(place: Place, b: Body) -> Body:
    """A body with a place right before what is computed: after all other producers."""
    items = list(items_of(b))
    first = next((n for n, x in enumerate(items) if not isinstance(x, Place) or x.how in KEPT), 0)
    return sequence(*items[:first], place, *items[first:])


def _each_place(b: Body, change: Callable[[Place], Place | None]) -> Body:
    """A tree with all of its places changed, those in others' nests as well; ``None`` takes one away."""
    if isinstance(b, Level):
        return replace(b, body=_each_place(b.body, change))
    if isinstance(b, Cut):
        return replace(b, parts=tuple(_each_place(part, change) for part in b.parts))
    if isinstance(b, Seq):
        items: list[Place | Body] = []
        for item in b.items:
            if not isinstance(item, Place):
                items.append(_each_place(item, change))
            elif (made := change(item)) is not None:
                nest = None if made.nest is None else _each_place(made.nest, change)
                items.append(replace(made, nest=nest))
        return sequence(*items)
    return b
