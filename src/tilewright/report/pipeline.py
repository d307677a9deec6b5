"""Schedules of pipelines: where each stage is computed, what it takes and holds; a picture of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import prod
from typing import Final

from tilewright.ir import Alloc, Block, LoopFunction, Program, locate
from tilewright.plan import AtLoop, UnitPlan, loops_of

#: Sizes of the picture: a box's, and what is between boxes.
BOX: Final = (150, 44)
GAP: Final = (24, 40)
#: Colours of nests, in turns.
_COLOURS: Final = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fdd0a2", "#c7e9c0", "#dadaeb", "#d9d9d9")


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage: its nest and place, elements that are computed by those that there are, bytes that it holds.

    ``predicted`` and ``measured`` are seconds: the former a stage's, the latter its nest's, told at the root.
    """

    name: str
    nest: str
    place: str
    times: float
    held: int
    predicted: float | None = None
    measured: float | None = None


def stage_rows(
    program: Program,
    plan: UnitPlan,
    func: LoopFunction,
    predicted: Mapping[str, float],
    measured: Mapping[str, float],
) -> tuple[StageRow, ...]:
    """A row for each stage of a program, by its plan and its scheduled loops."""
    inlined = {str(step.args[0]) for step in plan.rewrites.steps if step.primitive == "inline_stage"}
    stages = {stage.name: stage for stage in program.stages}
    homes = {name: (nest.root, "with it") for nest in plan.parts for name in nest.stages}
    for nest, (_, choice) in zip(plan.parts, plan.choices, strict=True):
        homes[nest.root] = nest.root, "root"
        for name, place in zip(nest.stages, getattr(choice, "placements", ()), strict=False):
            at = f"{nest.root}.{place}"
            if isinstance(place, AtLoop):
                at = f"{place.member}.{loops_of(stages[place.member])[place.loop].name}"
            homes[name] = nest.root, "root" if place == "root" else at
    instances = _instances(func)
    held = {each.node.buffer.name: _bytes(each.node) for each in locate(func.body, Alloc)}
    rows = []
    for stage in program.stages:
        name = stage.name
        home, place = homes.get(name, ("", "inline" if name in inlined else ""))
        if name not in instances:
            place = "inline"
        points = prod(it.extent.as_int() for it in stage.iters if it.extent.is_const)
        rows.append(
            StageRow(
                name,
                home,
                place,
                instances.get(name, 0) / points if points else 0.0,
                held.get(stage.writes[0], 0) if place != "inline" else 0,
                predicted.get(name),
                measured.get(name),
            )
        )
    return tuple(rows)


def _instances(func: LoopFunction) -> dict[str, int]:
    """How often each stage's body may run, by the loops around it; those of open sizes are left out."""
    out: dict[str, int] = {}
    for each in locate(func.body, Block):
        extents = [loop.extent for loop in each.loops]
        reduced = each.node.init is None and any(it.kind == "red" for it in each.node.iters)
        starts = not any(it.kind == "red" for it in each.node.iters) and each.node.stage != each.node.name
        if all(e.is_const for e in extents) and not (starts and not reduced and each.node.stage in out):
            count = prod(e.as_int() for e in extents)
            out[each.node.stage] = max(out.get(each.node.stage, 0), count)
    return out


def _bytes(node: Alloc) -> int:
    shape = node.buffer.physical_shape
    return prod(n.as_int() for n in shape) * node.buffer.dtype.bytes if all(n.is_const for n in shape) else 0


def as_table(rows: Sequence[StageRow]) -> str:
    """The rows as text: milliseconds, kilobytes."""
    head = ("stage", "computed", "times", "holds KiB", "predicted ms", "nest's ms")
    body = [
        (
            r.name,
            r.place or "-",
            f"{r.times:.2f}",
            f"{r.held / 1024:.1f}",
            "" if r.predicted is None else f"{1e3 * r.predicted:.3f}",
            "" if r.measured is None else f"{1e3 * r.measured:.3f}",
        )
        for r in rows
    ]
    widths = [max(len(line[n]) for line in (head, *body)) for n in range(len(head))]

    def shown(line: Sequence[str]) -> str:
        first = [text.ljust(w) for text, w in zip(line[:2], widths[:2], strict=True)]
        rest = [text.rjust(w) for text, w in zip(line[2:], widths[2:], strict=True)]
        return "  ".join((*first, *rest)).rstrip()

    return "\n".join(shown(line) for line in (head, *body))


def pipeline_svg(program: Program, rows: Sequence[StageRow]) -> str:
    """The graph of stages, producers above what reads them; boxes of one colour share a nest."""
    depth: dict[str, int] = {}
    for stage in program.stages:
        above = [depth[p.name] for b in stage.reads for p in program.producers(b) if p.name in depth]
        depth[stage.name] = 1 + max(above, default=-1)
    (w, h), (gx, gy) = BOX, GAP
    columns: dict[int, int] = {}
    at: dict[str, tuple[int, int]] = {}
    for stage in program.stages:
        level = depth[stage.name]
        at[stage.name] = gx + columns.get(level, 0) * (w + gx), gy + level * (h + gy)
        columns[level] = columns.get(level, 0) + 1
    nests = list(dict.fromkeys(r.nest for r in rows if r.nest))
    parts = []
    for stage in program.stages:
        x, y = at[stage.name]
        for b in stage.reads:
            for p in program.producers(b):
                if p.name != stage.name and p.name in at:
                    a, c = at[p.name]
                    parts.append(
                        f'<line x1="{a + w // 2}" y1="{c + h}" x2="{x + w // 2}" y2="{y}" stroke="#888888"/>'
                    )
    for r in rows:
        x, y = at[r.name]
        colour = _COLOURS[nests.index(r.nest) % len(_COLOURS)] if r.nest in nests else "none"
        dashed = ' stroke-dasharray="4"' if r.place == "inline" else ""
        parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{colour}" stroke="#444444"{dashed}/>'
        )
        note = r.place if r.measured is None else f"{r.place}, {1e3 * r.measured:.3f} ms"
        for line, text in enumerate((r.name, note)):
            parts.append(
                f'<text x="{x + 6}" y="{y + 18 + 16 * line}" font-size="12">{escape(text[:24])}</text>'
            )
    width = gx + max(columns.values(), default=1) * (w + gx)
    height = gy + (max(depth.values(), default=0) + 1) * (h + gy)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    )
    return "\n".join((head, *parts, "</svg>\n"))
