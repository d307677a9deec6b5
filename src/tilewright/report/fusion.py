"""Fusion after tiling, told and drawn: groups, what a tile needs of producers, storage, trees.

The picture is that of Zhao & Di (MICRO 2020, Figs. 3 and 4): of each statement of a group its instances, and
those of a tile and of the next along each loop; where they overlap, producers run more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args
from xml.sax.saxutils import escape

from tilewright.ir import LoopFunction
from tilewright.poly import (
    Dependences,
    Fusion,
    Group,
    Model,
    Space,
    bounded,
    compose,
    conservative_fusion,
    extract_model,
    fuse,
    infer_kinds,
    isl_fusion,
    spaces_as_written,
    tile_instances,
    tree_lines,
)
from tilewright.support import ScheduleError, format_bytes

PANEL: Final = 220
"""Pixels of a panel of the picture, at most, in both directions."""
GAP: Final = 40
"""Pixels around panels: for their titles."""
_HINT: Final = "give smaller sizes, or parts of it"
_COLOURS: Final = ("#4477aa", "#cc6677", "#228833")

Beginning = Literal["conservative", "written"] | Fusion
"""Which nests share loops before tiling: Zhao & Di's rule, as they are written, or one of isl's ways."""
BEGINNINGS: Final = ("conservative", "written", *get_args(Fusion))

Box = tuple[tuple[int, int], ...]
"""Least and largest value of each loop."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What tiles run of one statement: boxes of all instances, of a tile's, of its neighbours'.

    ``again`` is how often an instance runs in the inside of the space: instances of a tile over those by
    which tiles lie apart.
    """

    name: str
    every: Box
    tiles: tuple[Box, ...]
    again: float


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """One live-out space: its statements, tile, what tiles need, bytes of a tile's storage by buffer."""

    live: tuple[str, ...]
    sizes: tuple[int, ...]
    parallel: bool
    statements: tuple[Needed, ...]
    storage: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class FusionReport:
    """All groups of a program, in order, and the schedule tree that runs them."""

    groups: tuple[FusedGroup, ...]
    tree: str


def of_fusion(func: LoopFunction, sizes: Sequence[int], begin: Beginning = "conservative") -> FusionReport:
    """The groups of a function of fixed sizes by Algorithms 1 to 3, in tiles of ``sizes``.

    ``begin`` is the fusion that the groups are made of. Raises ScheduleError for open sizes, ResourceError
    where isl needs too long.
    """
    if func.params:
        names = ", ".join(p.name for p in func.params)
        raise ScheduleError(f"the sizes {names} are open", hint="settle them: --shape NAME=SIZE")
    func = infer_kinds(func)
    what = f"the groups of {func.name} are too much for isl"

    def begun() -> tuple[Dependences, list[Space]]:
        dependences = Dependences(extract_model(func))
        dependences.among()
        if begin == "conservative":
            return dependences, conservative_fusion(dependences)
        return dependences, spaces_as_written(dependences)

    def report() -> FusionReport:
        groups = compose(dependences, spaces, sizes)
        tree = tree_lines(fuse(dependences.model, groups))
        return FusionReport(tuple(_group(dependences.model, g) for g in groups), tree)

    dependences, spaces = bounded(begun, what, _HINT)
    if begin != "conservative" and begin != "written":
        spaces = isl_fusion(dependences, begin)
    return bounded(report, what, _HINT)


def _group(model: Model, group: Group) -> FusedGroup:
    boxes = tile_instances(model, group)
    statements = tuple(Needed(name, every, tiles, again) for name, every, tiles, again in boxes)
    storage: list[tuple[str, int]] = []
    for buffer in group.storage:
        count = 0
        for name, _, tiles, _ in boxes:
            if tiles and any(w.buffer == buffer for w in model.statement(name).writes):
                count = max(count, _points(tiles[0]))
        storage.append((buffer, count * model.buffers[buffer].dtype.bytes))
    return FusedGroup(group.live.names, group.sizes, group.parallel, statements, tuple(storage))


def _points(box: Box) -> int:
    out = 1
    for low, high in box:
        out *= high - low + 1
    return out


def as_text(report: FusionReport) -> str:
    """The groups as lines."""
    out: list[str] = []
    for n, g in enumerate(report.groups):
        tile = " x ".join(map(str, g.sizes)) or "not tiled"
        threads = ", tiles on threads" if g.parallel else ""
        out.append(f"group {n}: {', '.join(g.live)} in tiles of {tile}{threads}")
        for s in g.statements:
            role = "live-out" if s.name in g.live else "producer"
            shown = ", ".join(f"{low}..{high}" for low, high in s.tiles[0]) if s.tiles else "all, before"
            again = f", each {s.again:.2f} times" if s.again > 1 else ""
            out.append(f"  {role}  {s.name}: a tile runs {shown}{again}")
        for buffer, count in g.storage:
            out.append(f"  storage   {buffer}: {format_bytes(count)} a tile")
    return "\n".join((*out, "", "tree", report.tree.rstrip()))


def as_svg(report: FusionReport) -> str:
    """The picture: a row a group, a panel a statement, a tile and its neighbours."""
    parts: list[str] = []
    width, y = 0, GAP
    for n, g in enumerate(report.groups):
        x = GAP
        for s in g.statements:
            parts.append(_panel(s, f"{n}: {s.name}", x, y))
            x += PANEL + GAP
        width = max(width, x)
        y += PANEL + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" font-family="sans-serif">'
    return "\n".join((head, *parts, "</svg>\n"))


def _panel(s: Needed, title: str, x: int, y: int) -> str:
    """The last two loops of a statement: rows downwards, columns to the right."""
    (top, bottom), (left, right) = _plane(s.every)
    scale = PANEL / max(bottom - top + 1, right - left + 1)

    def rect(box: Box, style: str) -> str:
        (t, b), (lo, hi) = _plane(box)
        at = f'x="{x + (lo - left) * scale:.1f}" y="{y + (t - top) * scale:.1f}"'
        size = f'width="{(hi - lo + 1) * scale:.1f}" height="{(b - t + 1) * scale:.1f}"'
        return f"<rect {at} {size} {style}/>"

    out = [f'<text x="{x}" y="{y - 8}" font-size="12">{escape(title)}</text>']
    out.append(rect(s.every, 'fill="none" stroke="#888888"'))
    for tile, colour in zip(s.tiles, _COLOURS, strict=False):
        out.append(rect(tile, f'fill="{colour}" fill-opacity="0.4" stroke="{colour}"'))
    return "\n".join(out)


def _plane(box: Box) -> tuple[tuple[int, int], tuple[int, int]]:
    padded = ((0, 0), (0, 0), *box)
    return padded[-2], padded[-1]
