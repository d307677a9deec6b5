"""Walking trees: the levels on the way to a leaf, the places in them, the producers that are made there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.tiling.grammar import KEPT, MADE, Body, Cut, Leaf, Level, Place, Seq


@dataclass(slots=True)
class Row:
    """One axis of a level on a path, and the ``places`` right inside of it.

    ``folded`` are stages that go along with the leaf in this level: their own leaves, after it. A level that
    is ``cut`` is that of the first part of a cut.
    """

    axis: str
    size: int
    level: Level
    places: list[Place] = field(default_factory=list)
    folded: list[Leaf] = field(default_factory=list)
    cut: bool = False


def kept(b: Seq) -> Place | None:
    """The place that keeps the root's result, of those in one level."""
    return next((x for x in b.items if isinstance(x, Place) and x.how in KEPT), None)


def next_of(b: Seq) -> Body:
    """Where the root's own loops go on: in the nest of what keeps its result, or beside places."""
    place = kept(b)
    if place is not None and place.nest is not None:
        return place.nest
    return next(x for x in b.items if not isinstance(x, Place))


def leaf_of(b: Body) -> Leaf:
    """The leaf at the end of the first parts."""
    while not isinstance(b, Leaf):
        b = b.parts[0] if isinstance(b, Cut) else next_of(b) if isinstance(b, Seq) else b.body
    return b


def spine(b: Body | None) -> tuple[tuple[Place, ...], list[Row]]:
    """The levels of a block down the first parts, past storage and into the nest of a kept result.

    Returns the places ahead of the first level, then a row for each axis of each level, outermost first.
    """
    top: list[Place] = []
    rows: list[Row] = []
    cut = False
    while b is not None and not isinstance(b, Leaf):
        if isinstance(b, Cut):
            b, cut = b.parts[0], True
            continue
        if isinstance(b, Seq):
            (rows[-1].places if rows else top).extend(x for x in b.items if isinstance(x, Place))
            if rows:
                rows[-1].folded += [x for x in b.items if isinstance(x, Leaf)][1:]
            b = next_of(b)
        else:
            rows += [Row(axis, size, b, cut=cut) for axis, size in b.axes]
            b = b.body
        cut = False
    return tuple(top), rows


def made_in(b: Body | None) -> Iterator[Place]:
    """The producers that stand in a tree, in order, of cuts the first part; not those in others' nests."""
    if isinstance(b, Level):
        yield from made_in(b.body)
    elif isinstance(b, Cut):
        yield from made_in(b.parts[0])
    elif isinstance(b, Seq):
        for item in b.items:
            if isinstance(item, Place) and item.how in MADE:
                yield item
            else:
                yield from made_in(item.nest if isinstance(item, Place) else item)


def consumers_first(b: Body | None) -> Iterator[Place]:
    """All producers in a tree, each ahead of those that it reads."""
    for place in reversed(list(made_in(b))):
        yield place
        yield from consumers_first(place.nest)


def bodies(b: Body | None) -> Iterator[Body | Place]:
    """All nodes of a tree, outermost first."""
    if b is None:
        return
    yield b
    if isinstance(b, Level):
        yield from bodies(b.body)
    elif isinstance(b, Cut):
        for part in b.parts:
            yield from bodies(part)
    elif isinstance(b, Seq):
        for item in b.items:
            if isinstance(item, Place):
                yield item
                yield from bodies(item.nest)
                yield from bodies(item.drain)
            else:
                yield from bodies(item)


def binds(b: Body | None) -> Iterator[str]:
    """What the levels of a tree are bound to."""
    return (node.bind for node in bodies(b) if isinstance(node, Level))


def computed_in(b: Body | None) -> Iterator[str]:
    """The stages that are computed in a tree; not what copies and drains move, and starts of sums begin."""
    if isinstance(b, Leaf):
        yield b.stage
    elif isinstance(b, Level):
        yield from computed_in(b.body)
    elif isinstance(b, Cut):
        for part in b.parts:
            yield from computed_in(part)
    elif isinstance(b, Seq):
        for item in b.items:
            if not isinstance(item, Place):
                yield from computed_in(item)
            elif item.how in MADE or item.how in KEPT:
                yield from computed_in(item.nest)
                yield from computed_in(item.drain)
