"""Trees for sizes that only a run knows, from trees that were written at one typical size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from msgspec.structs import replace

from tilewright.ir import REGISTER
from tilewright.tiling.grammar import EXPANDED, KEPT, MADE, Bind, Body, Cut, Level, Nest, Place, Seq, sequence
from tilewright.tiling.walk import spine


def symbolic(
    tree: Nest,
    extents: Mapping[str, Mapping[str, int]],
    symbols: Mapping[str, frozenset[str]],
    threads: int,
    lanes: int,
) -> Nest:
    """A tree for all sizes, from the one at a typical size.

    ``extents`` are those of each stage's axes at that size, ``symbols`` the axes whose extents are symbols.
    Along these nothing may follow from the one size:

    * Levels with one iteration go, where what is inside is no register tile: at other sizes they would be
      tiles of half a thousand elements. A register tile that is all of its axis gets a level around it, in
      ``lanes`` of whole vectors.
    * Of cuts those near the beginning stay: ends of loops are taken apart where they begin at each size.
    * Levels over several axes, and products of axes, are levels of each: a quotient by a symbol is no index.
      ``threads`` share the outermost one that has an iteration for each at the typical size.
    """
    at = _At(
        extents, symbols, threads, lanes, extents.get(tree.root, {}), symbols.get(tree.root, frozenset())
    )
    return replace(tree, body=_with_tiles(at.body(_apart(tree.body, at.open), {}), at))


@dataclass(frozen=True, slots=True)
class _At:
    """A stage whose nest is changed: its extents at the typical size, and which axes are open."""

    every: Mapping[str, Mapping[str, int]]
    symbols: Mapping[str, frozenset[str]]
    threads: int
    lanes: int
    extents: Mapping[str, int]
    open: frozenset[str]
    #: Whether readers say which elements there are.
    inner: bool = field(default=False)

    def body(self, b: Body, left: Mapping[str, int]) -> Body:
        """A node and what is below; ``left`` are the elements of axes that levels around leave."""
        if isinstance(b, Level):
            return self._level(b, left)
        if isinstance(b, Cut):
            # the borders of a picture begin where it begins, and other parts where it ends
            first = [n for n in b.at if b.axis not in self.open or 2 * n <= self.extents[b.axis]]
            parts = tuple(self.body(part, left) for part in b.parts[: len(first) + 1])
            lanes = isinstance(parts[0], Level) and parts[0].bind == "vector"
            return parts[0] if lanes and not first else replace(b, at=tuple(first), parts=parts)
        if isinstance(b, Seq):
            return sequence(*(self._item(x, left) for x in b.items))
        return b

    def _item(self, item: Place | Body, left: Mapping[str, int]) -> Place | Body:
        if not isinstance(item, Place):
            return self.body(item, left)
        if item.nest is None or item.how not in (*MADE, *KEPT):
            return item
        if item.how in KEPT:
            return replace(item, nest=self.body(item.nest, left))
        own = self.symbols.get(item.value, frozenset())
        every = self.every.get(item.value, {})
        made = _At(self.every, self.symbols, self.threads, self.lanes, every, own, inner=True)
        return replace(item, nest=_with_tiles(made.body(_apart(item.nest, own), {}), made))

    def _level(self, b: Level, left: Mapping[str, int]) -> Body:
        here, axes, counts = dict(left), list[tuple[str, int]](), list[int]()
        for axis, size in b.axes:
            now = left.get(axis, self.extents.get(axis, size))
            if axis in self.open and axis not in left and not self.inner and 1 < now <= size:
                below = next((row for row in spine(b.body)[1] if row.axis == axis), None)
                if below is None or below.level.bind not in EXPANDED:
                    continue
            here[axis] = min(size, now)
            axes.append((axis, size))
            counts.append(-(-now // size))
        inner = self.body(b.body, here)
        if not axes:
            return inner
        # one loop of each symbol and what follows it
        starts = [0, *(n for n in range(1, len(axes)) if axes[n][0] in self.open)]
        parts = [range(a, b) for a, b in pairwise([*starts, len(axes)])]
        many = [prod(counts[n] for n in part) for part in parts]
        enough = (n for n, count in enumerate(many) if count >= self.threads)
        shared = next(enough, max(range(len(parts)), key=many.__getitem__))
        for n, part in reversed([*enumerate(parts)]):
            own = n == shared or b.bind != "parallel"
            hints = b.hints if n == len(parts) - 1 else ()
            bind = b.bind if own else "serial"
            inner = Level(tuple(axes[part.start : part.stop]), inner, bind, hints, b.tail)
        return inner


def _with_tiles(b: Body, at: _At) -> Body:
    """A tree with levels around register tiles that were all of their axes, inside of what threads share."""
    if isinstance(b, Level) and b.bind == "parallel":
        return replace(b, body=_with_tiles(b.body, at))
    outermost: dict[str, Level] = {}
    top, rows = spine(b)
    for row in rows:
        outermost.setdefault(row.axis, row.level)
    whole = {axis: level for axis, level in outermost.items() if axis in at.open and level.bind in EXPANDED}
    if not any(p.scope == REGISTER for p in (*top, *(p for row in rows for p in row.places))):
        return b if at.inner else _serial(b, frozenset(whole))
    for axis, level in reversed(whole.items()):
        size = at.extents[axis]
        if level.bind == "vector":
            size = 1 << (size - 1).bit_length() if size < at.lanes else -(-size // at.lanes) * at.lanes
        elif at.inner:
            # its readers say how many there are
            continue
        b = Level(((axis, size),), b)
    return b


def _serial(b: Body, axes: frozenset[str]) -> Body:
    """A tree whose levels of some axes are not expanded: nothing in registers needs that."""
    if isinstance(b, Level):
        bind: Bind = "serial" if b.bind == "unroll" and b.axes[0][0] in axes else b.bind
        return replace(b, body=_serial(b.body, axes), bind=bind)
    if isinstance(b, Cut):
        return replace(b, parts=tuple(_serial(part, axes) for part in b.parts))
    if isinstance(b, Seq):
        return sequence(*(x if isinstance(x, Place) else _serial(x, axes) for x in b.items))
    return b


def _apart(b: Body, symbols: frozenset[str]) -> Body:
    """A tree with levels of each axis instead of products that have a symbol among their factors."""
    products = {row.axis for row in spine(b)[1] if {"*", "/"} & {*row.axis}}
    for product in products:
        parts = [(name, int(tile or 1)) for name, _, tile in (p.partition("/") for p in product.split("*"))]
        if not symbols.isdisjoint(name for name, _ in parts):
            b = _parted(b, product, parts, first=True)
    return b


def _parted(b: Body, product: str, parts: list[tuple[str, int]], *, first: bool) -> Body:
    """Levels of a product as those of its last factor, the ``first`` one inside of levels of the others."""
    name, tile = parts[-1]
    if isinstance(b, Level):
        own = any(axis == product for axis, _ in b.axes)
        axes = tuple((name, size * tile) if axis == product else (axis, size) for axis, size in b.axes)
        outer = tuple(parts[:-1]) if own and first else ()
        at = next((n for n, (axis, _) in enumerate(b.axes) if axis == product), 0)
        body = _parted(b.body, product, parts, first=first and not own)
        return replace(b, axes=(*axes[:at], *outer, *axes[at:]), body=body)
    if isinstance(b, Cut):
        if b.axis == product:
            # its parts begin in the middle of rows
            return _parted(b.parts[0], product, parts, first=first)
        return replace(b, parts=tuple(_parted(part, product, parts, first=first) for part in b.parts))
    if isinstance(b, Seq):
        return sequence(*(_parted_item(x, product, parts, first=first) for x in b.items))
    return b


def _parted_item(
    item: Place | Body, product: str, parts: list[tuple[str, int]], *, first: bool
) -> Place | Body:
    if not isinstance(item, Place):
        return _parted(item, product, parts, first=first)
    if item.nest is None or item.how not in KEPT:
        return item
    return replace(item, nest=_parted(item.nest, product, parts, first=first))
