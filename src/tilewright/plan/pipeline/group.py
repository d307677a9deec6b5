"""Groups: stages that share one nest, that of their root; what may be computed at which of its loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from tilewright.analysis import AccessTable, lies_in_order, table_of
from tilewright.ir import Index, Iter, Load, Program, Stage, Store, Var, stmt_loads


@dataclass(frozen=True, slots=True)
class AtLoop:
    """A place inside of another producer's loop number ``loop``, outermost first: anew in each iteration.

    Loops of a producer are those of :func:`loops_of`.
    """

    member: str
    loop: int

    def __str__(self) -> str:
        return f"{self.member}.{self.loop}"


#: Where a producer is computed: in its readers' expressions; ahead of the nest, in full; at the innermost
#: loop over tiles; at the outermost loop inside of a tile, anew in each iteration or only what is new in it;
#: inside of a loop of another producer.
Placement: TypeAlias = Literal["inline", "root", "tile", "row", "slide"] | AtLoop
PLACEMENTS: Final[tuple[Placement, ...]] = ("tile", "root", "inline", "row", "slide")
#: A loop of a nest: the stage that it is of (the root: none), and its number.
Level: TypeAlias = tuple[str, int]
_TILE: Final[Level] = ("", 0)
_ROW: Final[Level] = ("", 1)
#: The loops around each placement; a producer's are around all that reads it.
_LEVELS: Final[Mapping[Placement, tuple[Level, ...]]] = MappingProxyType(
    {"root": (), "tile": (_TILE,), "row": (_TILE, _ROW), "slide": (_TILE, _ROW)}
)


@dataclass(frozen=True, slots=True)
class Window:
    """Rows that are read of a producer: along its axis ``axis``, from ``first`` to ``last`` for row 0."""

    axis: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A root and the producers that only it and they read, in the program's order.

    ``reads`` are the loads of each stage that read a producer of the group, ``table`` has all accesses.
    """

    root: Stage
    members: tuple[Stage, ...]
    reads: Mapping[str, tuple[Load, ...]]
    table: AccessTable

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The members and the root."""
        return (*self.members, self.root)

    @property
    def makers(self) -> dict[str, str]:
        """The producer that makes each buffer of the group."""
        return {m.writes[0]: m.name for m in self.members}

    @property
    def axes(self) -> tuple[int, ...]:
        """Extents of the root's axes that its result has."""
        return axes_of(self.root)


def axes_of(stage: Stage) -> tuple[int, ...]:
    """Extents of the axes along which a stage's result lies."""
    return tuple(it.extent.as_int() for it in stage.iters if it.kind == "par")


def loops_of(stage: Stage) -> tuple[Iter, ...]:
    """The loops of a producer inside of which others may be computed: axes but the last, then its sums.

    The last axis is in lanes.
    """
    pars = [it for it in stage.iters if it.kind == "par"]
    return (*pars[:-1], *(it for it in stage.iters if it.kind == "red"))


def is_plain(program: Program, stage: Stage) -> bool:
    """Whether a stage alone defines one buffer, an element an instance or a sum, at known sizes."""
    body = stage.body
    if not isinstance(body, Store) or len(body.writes) != 1:
        return False
    if any(it.kind == "ord" or not (it.extent.is_const and it.lo.is_const) for it in stage.iters):
        return False
    if any(it.lo.const for it in stage.iters if it.kind == "par"):
        return False
    if not lies_in_order(program, stage):
        return False
    if any(it.kind == "red" for it in stage.iters) != (stage.init is not None):
        return False
    (made,) = stage.writes
    return len(program.producers(made)) == 1 and program.buffer(made).layout is None


def find_group(program: Program, root: str, members: Collection[str]) -> Group | None:
    """The group of a root and these members; ``None`` where one of them is none.

    Every reader of a member is in the group, and the members write no results.
    """
    last, names = program.stage(root), {root, *members}
    found = tuple(stage for stage in program.stages if stage.name in names and stage.name != root)
    if len(found) != len(names) - 1 or not all(is_plain(program, s) for s in (*found, last)):
        return None
    temps = {b.name for b in program.temps}
    place = {stage.name: n for n, stage in enumerate(program.stages)}
    for stage in found:
        readers = {reader.name for reader in program.consumers(stage.writes[0])}
        if stage.writes[0] not in temps or not readers or not readers <= names:
            return None
        if place[stage.name] > place[root]:
            return None
    made = {stage.writes[0] for stage in found}
    reads = {
        stage.name: tuple(ld for ld in dict.fromkeys(stmt_loads(stage.body)) if ld.buffer in made)
        for stage in (*found, last)
    }
    return Group(last, found, MappingProxyType(reads), table_of(program, names))


def misplaced(g: Group, places: Mapping[str, Placement], row: int, step: int) -> str:
    """Why producers cannot be placed so, empty where they can.

    ``row`` is the root's axis of the outermost loop inside of a tile, which takes ``step`` rows a turn.
    """
    around = _loops_around(g, places)
    if isinstance(around, str):
        return around
    readers = _readers(g, places)
    for m in g.members:
        place = places[m.name]
        if place == "inline":
            if m.is_reduction:
                return f"{m.name} is a sum, which no expression holds"
            continue
        own = around[m.name]
        home = place.member if isinstance(place, AtLoop) else ""
        for reader in readers[m.name]:
            if reader != home and around[reader][: len(own)] != own:
                return f"{m.name} is read outside of the loop where it is computed, by {reader}"
            if place == "row" and reader != g.root.name and places[reader] == "slide":
                return f"{reader} keeps rows, and {m.name}, which it reads, would not"
    sliding = [m.name for m in g.members if places[m.name] == "slide"]
    if sliding:
        found = windows(g, places, row, step)
        for m in g.members:
            window = found.get(m.name)
            if places[m.name] != "slide":
                continue
            if m.is_reduction or window is None or window.rows <= step:
                return f"{m.name} has no window that slides along the rows of {g.root.name}"
            for name in _at_other_rates(g, m, places):
                return f"{m.name} reads {name} at another rate: tiles hold too little for its new rows"
    return ""


def _loops_around(g: Group, places: Mapping[str, Placement]) -> dict[str, tuple[Level, ...]] | str:
    """The loops around what is computed of each producer, outermost first; why one's place has none.

    Of the root those around an instance, up to the loop over rows.
    """
    later = dict[str, Stage]()
    out: dict[str, tuple[Level, ...]] = {g.root.name: (_TILE, _ROW)}
    for m in reversed(g.members):
        place = places[m.name]
        if isinstance(place, AtLoop):
            home = place.member
            if home not in later or places[home] in ("inline", "root", "slide"):
                return (
                    f"{m.name} cannot be computed inside of {home}, which has no loops of its own in a tile"
                )
            count = len(loops_of(later[home]))
            if not 0 <= place.loop < count:
                return (
                    f"{m.name} is at the loop number {place.loop} of {home}, which has {count} around lanes"
                )
            out[m.name] = (*out[home], *((home, n) for n in range(place.loop + 1)))
        elif place != "inline":
            out[m.name] = _LEVELS[place]
        later[m.name] = m
    return out


def outermost(name: str, places: Mapping[str, Placement]) -> Placement:
    """The place in the root's nest of a producer, or of that inside of whose loops it is computed."""
    place = places[name]
    return outermost(place.member, places) if isinstance(place, AtLoop) else place


def _at_other_rates(g: Group, stage: Stage, places: Mapping[str, Placement]) -> Iterator[str]:
    """Producers in tiles of which a stage reads elements that do not move one by one with its own.

    Boxes of new rows err on the large side there, and the tile's was made for all rows together.
    """
    for ld in g.reads[stage.name]:
        name = g.makers[ld.buffer]
        if places[name] == "inline":
            yield from _at_other_rates(g, g.members[[m.name for m in g.members].index(name)], places)
        elif places[name] == "tile" and not all(i.is_const or _moves_by_ones(i) for i in ld.indices):
            yield name


def _moves_by_ones(i: Index) -> bool:
    return len(i.terms) == 1 and isinstance(i.terms[0][0], Var) and i.terms[0][1] == 1


def windows(
    g: Group, places: Mapping[str, Placement], row: int, step: int, *, ahead: bool = False
) -> dict[str, Window]:
    """What one turn of the loop over rows reads of each producer that it reads by windows of rows.

    Of a producer that keeps its rows only what is new is computed, and only for that is anything read; but
    ``ahead`` of the loop all of its rows are.
    """
    found: dict[str, Window | None] = {g.root.name: Window(row, 0, step - 1)}
    by_buffer = {m.writes[0]: m for m in g.members}
    for stage in reversed(g.stages):
        window = found.get(stage.name)
        if stage.name in found and stage is not g.root and window is not None:
            if places[stage.name] == "slide" and not ahead:
                window = Window(window.axis, window.last - step + 1, window.last)
            elif outermost(stage.name, places) in ("tile", "root"):
                continue
        for ld in g.reads[stage.name]:
            member = by_buffer[ld.buffer]
            read = None if window is None else _window(stage, window, ld)
            known = found.get(member.name, read)
            if read is None or known is None or known.axis != read.axis:
                found[member.name] = None
            else:
                first, last = min(known.first, read.first), max(known.last, read.last)
                found[member.name] = Window(read.axis, first, last)
    return {name: w for name, w in found.items() if w is not None and name != g.root.name}


def _window(reader: Stage, window: Window, ld: Load) -> Window | None:
    """The rows that a load reads for a window of its reader; ``None`` where they do not move one by one."""
    row = [it.name for it in reader.iters if it.kind == "par"][window.axis]
    along = [n for n, i in enumerate(ld.indices) if row in i.vars]
    if len(along) != 1 or ld.indices[along[0]].terms != ((Var(row), 1),):
        return None
    offset = ld.indices[along[0]].const
    return Window(along[0], window.first + offset, window.last + offset)


def _readers(g: Group, places: Mapping[str, Placement]) -> dict[str, set[str]]:
    """The stages that read each producer, directly or through what is inlined."""
    makers = g.makers
    out: dict[str, set[str]] = {m.name: set() for m in g.members}
    for stage in reversed(g.stages):
        inlined = stage is not g.root and places[stage.name] == "inline"
        for ld in g.reads[stage.name]:
            out[makers[ld.buffer]] |= out[stage.name] if inlined else {stage.name}
    return out


def placements_of(g: Group, stage: Stage) -> tuple[Placement, ...]:
    """The placements that a producer may have; inside of loops of those that need it, directly or not."""
    needing = {stage.name}
    loops: list[Placement] = []
    for m in g.members[g.members.index(stage) + 1 :]:
        if any(g.makers[ld.buffer] in needing for ld in g.reads[m.name]):
            needing.add(m.name)
            loops += [AtLoop(m.name, n) for n in range(len(loops_of(m)))]
    known = (p for p in PLACEMENTS if not (stage.is_reduction and p in ("inline", "slide")))
    return (*known, *loops)
