"""The loops over register tiles of a contraction: how axes are split, in which order, what is cut."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tilewright.analysis import Contraction, footprint, row_axis
from tilewright.cost import BLOCK_SHARE, second_cache
from tilewright.plan.contraction.nest import TilePlan, TileProblem
from tilewright.plan.contraction.register_tiling import vector_width
from tilewright.plan.threads import is_balanced
from tilewright.support import ScheduleError
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Level, Place, Seq, Step, items_of, sequence, together


@dataclass(slots=True, eq=False)
class TileLoops:
    """Loops of the tiled result, outermost first within each group.

    The body of the last of ``outer`` is the micro-kernel, ``inner`` are the expanded loops inside of it, the
    vector's last. Of ``ragged`` loops the last iteration is partial; ``guarded`` ones meet padding at their
    first and last. Each iteration of ``panels`` uses one panel of the operand b, ``columns`` are the loops
    over the panels of one result; ``parts`` make parts that lie together in the result; each iteration of
    ``rows`` uses rows of a that one thread's caches keep. ``share``: the outermost loop has an iteration a
    thread. ``uneven`` are the loops over blocks of rows and over tiles in them, where the last is smaller.
    """

    outer: list[Step]
    inner: list[Step]
    ragged: list[Step]
    guarded: list[Step]
    panels: Step | None
    columns: list[Step]
    share: bool
    parts: list[Step]
    rows: Step | None
    uneven: tuple[Step, Step] | None

    @property
    def around(self) -> Step:
        """The loop whose body is the micro-kernel."""
        return self.outer[-1]


@dataclass(slots=True, eq=False)
class _Splitting:
    """The result's loops while they are split, and those of the parts that matter later.

    ``extents`` are those of the loops, the last stage's: a contraction may make less than that reads.
    """

    c: Contraction
    plan: TilePlan
    extents: Mapping[str, int]
    ragged: list[Step] = field(default_factory=list)
    inner: list[Step] = field(default_factory=list)
    share: list[Step] = field(default_factory=list)
    uneven: tuple[Step, Step] | None = None

    def split(self, axis: str, *factors: int) -> list[Step]:
        """The parts of an axis' loop, the outermost one first."""
        around, out = self.extents[axis], list[Step]()
        for n in range(len(factors) + 1):
            size = math.prod(factors[n:])
            out.append(Step(axis, size, count=-(-around // size)))
            around = size
        if self.c.extent(axis) % math.prod(factors):
            self.ragged.append(out[0])
        return out

    def shared(self, axis: str, sizes: list[int]) -> list[int]:
        """The sizes with a thread's part before them, where threads share the axis."""
        if axis != self.plan.shared:
            return sizes
        return [self.c.extent(axis) // (self.plan.threads * math.prod(sizes)), *sizes]

    def blocks(self, axis: str) -> int:
        """Elements of a block of an axis; 0 where it has none."""
        return self.plan.block[1] if self.plan.block is not None and self.plan.block[0] == axis else 0

    def note_uneven(self, axis: str, front: list[Step], inside: Step) -> None:
        """Remember the last block of an axis, where that is smaller."""
        block = self.blocks(axis)
        if block and front and self.c.extent(axis) % block:
            self.ragged.remove(front[-1])
            self.uneven = front[-1], inside

    def rows(self, row: str) -> tuple[Step, list[Step]]:
        """Parts of threads, blocks and tiles, all even but perhaps the tiles: these, and those around."""
        sizes, block = [self.plan.rows], self.blocks(row)
        if block:
            sizes.insert(0, block // self.plan.rows)
        *front, around, rows = self.split(row, *self.shared(row, sizes))
        self.note_uneven(row, front, around)
        if row == self.plan.shared:
            self.share.append(front.pop(0))
        self.inner.append(rows)
        return around, front

    def vectors(self, width: int) -> tuple[Step, list[Step]]:
        """The loop over a vector's lanes, and the one over the vectors of tiles, if there are several."""
        c, vectors = self.c, self.plan.vectors
        if c.run is not None:
            # vectors of one run each: the runs of a tile lie apart in memory
            outermost, group, vector = self.split(c.vector, vectors, width)
            self.inner.append(group)
            return vector, [outermost]
        if c.extent(c.vector) > vectors * width:
            outermost, vector = self.split(c.vector, vectors * width)
            return vector, [outermost]
        return self.split(c.vector)[0], []

    def other(self, axis: str) -> list[Step]:
        """The parts of another m axis that are around tiles."""
        lines, block = self.plan.lines, self.blocks(axis)
        fits = 0 < block < self.c.extent(axis)
        sizes = [block] if fits else []
        if lines is not None and lines[0] == axis:
            sizes = [*(size // lines[1] for size in sizes), lines[1]]
        parts = self.split(axis, *self.shared(axis, sizes))
        if fits and lines is None:
            self.note_uneven(axis, parts[:-1], parts[-1])
        if lines is not None and lines[0] == axis:
            self.inner.insert(0, parts.pop())
        if axis == self.plan.shared:
            self.share.append(parts.pop(0))
        return parts


def tile_loops(
    p: TileProblem,
    plan: TilePlan,
    extents: Mapping[str, int],
    target: Target,
    there: Collection[str] | None = None,
) -> TileLoops:
    """Split and order the loops of the result, of these ``extents``.

    ``there`` are the axes that have loops at all: by default all.
    Raises ScheduleError where phases of a row read more than the caches hold.
    """
    c, width, row = p.c, vector_width(p.c, target), row_axis(p.c)
    names = {i.as_var() for i in c.write.indices}
    made = _Splitting(c, plan, extents)

    def has(axis: str) -> bool:
        return axis in names and (there is None or axis in there)

    around, in_blocks = (None, []) if row is None else made.rows(row)
    vector, n_outer = made.vectors(width)
    batch = [made.split(a)[0] for a in c.axes("batch") if a != c.vector and has(a)]
    other_n = [made.split(a)[0] for a in c.axes("n") if a != c.vector and has(a)]
    other_m: list[Step] = []
    outside: list[Step] = []
    for a in c.axes("m"):
        if a in (row, c.vector) or not has(a):
            continue
        if c.extent(a) == 1:
            # between no two loops that matter
            batch.append(made.split(a)[0])
            continue
        parts = made.other(a)
        if made.blocks(a):
            # the axes before and the blocks of this one: outside of the panels
            outside += [*other_m, *parts[:-1]]
            other_m = []
        other_m.append(parts[-1])
    if row is not None and made.blocks(row):
        outside, other_m = [*other_m, *in_blocks], []
    share = made.share
    columns, bands = n_outer[0] if n_outer and c.run is None else None, around
    outer = [*share, *batch, *outside, *other_n, *n_outer, *other_m]
    making = outer
    if p.in_order is not None and p.in_order.phases:
        # all phases of a row, so that a part is whole rows of the result
        inside = {it.name: it.extent.as_int() for it in c.stage.iters} | {c.vector: plan.vectors * width}
        if c.b is None or footprint(c.b, inside) > BLOCK_SHARE * second_cache(target):
            raise ScheduleError(f"{p.last.name} reads too much for the phases of a row to share the caches")
        making = [*share, *batch, *outside, *n_outer, *other_m]
        outer = [*making, *other_n]
    if c.vector in c.axes("batch") and not outside:
        # nothing is shared but by neighbouring rows: in the order in which results lie in memory
        axes = [it.name for it in c.stage.iters]
        outer = [*share, *sorted((*batch, *other_n, *n_outer, *other_m), key=lambda s: axes.index(s.axis))]
    if around is not None and outer and outer[-1] is columns and plan.columns_inside:
        outer[-1], around = around, columns
    if around is None:
        around = outer.pop() if outer else Step(c.vector, c.extent(c.vector))
    for s in made.inner:
        s.bind = "unroll"
    vector.bind = "vector"
    met = {v for cond in c.guard for v in cond.vars}
    tiles = ((columns, c.vector), (bands, row))
    owns = p.rows is not None and (plan.shared is not None or plan.threads == 1)
    return TileLoops(
        outer=[*outer, around],
        inner=[*made.inner, vector],
        ragged=made.ragged,
        guarded=[s for s, axis in tiles if s is not None and axis in met],
        panels=next(iter([*n_outer[::-1], *other_n[::-1], *batch[::-1]]), None),
        columns=n_outer,
        share=bool(share),
        parts=[s for s in making if s in outer],
        rows=next(iter([*outside[::-1], *share[::-1]]), None) if owns else None,
        uneven=made.uneven,
    )


#: What stands in a loop: places ahead of its body, or one that holds the body.
Inside = Mapping[Step, "tuple[Place, ...] | Holder"]


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A place that keeps what the body of a loop makes: all but its nest is known."""

    place: Place

    def around(self, body: Body) -> Body:
        """The body inside of the place."""
        p = self.place
        return Seq((Place(p.value, p.how, p.scope, body, p.drain, p.layout, p.hints),))


def assemble(
    t: TileLoops,
    extents: Mapping[str, int],
    core: Body,
    names: Mapping[str, str],
    inside: Inside | None = None,
) -> Body:
    """The tree of the loops around a micro-kernel: with cuts, and with places right inside of some of them.

    ``extents`` are those of the loops, ``names`` what axes are called in the stage that ends the nest.
    """
    order = list(dict.fromkeys((t.around, *t.ragged, *t.guarded)))
    if t.uneven is not None and t.uneven[1] not in order:
        order.append(t.uneven[1])
    cut = set(order) - ({t.uneven[1]} - {t.around, *t.ragged, *t.guarded} if t.uneven is not None else set())

    def level(step: Step, rest: list[Step], left: dict[str, int], later: frozenset[Step], last: bool) -> Body:
        body = build(rest, {**left, step.axis: min(step.size, left[step.axis])}, later, last)
        stands = (inside or {}).get(step)
        if isinstance(stands, Holder):
            body = stands.around(body)
        elif stands is not None:
            body = sequence(*stands, body)
        return Level(((names[step.axis], step.size),), body, "serial", tuple(step.hints.items()))

    def ends(step: Step, extent: int, later: frozenset[Step], last: bool) -> list[int]:
        size = step.size
        count, tail = divmod(extent, size)
        tiles = count + (tail > 0)
        blocks, within = t.uneven or (None, None)
        if step is blocks:
            return [(tiles - 1) * size]
        if last and step is within:
            # tiles that the last block does not have are no code
            return [n * size for n in (count - (step in t.guarded and not tail), count)]
        # what is cut after a loop of whose parts this is not the first one is whole here
        if step not in cut or any(order.index(x) < order.index(step) for x in later):
            return []
        if step in t.guarded and tiles > 1:
            return [size, (tiles - 1) * size]
        return [count * size] if step in t.ragged else []

    def build(steps: list[Step], left: dict[str, int], later: frozenset[Step], last: bool) -> Body:
        if not steps:
            return core
        step, rest = steps[0], steps[1:]
        extent, blocks = left[step.axis], t.uneven[0] if t.uneven is not None else None
        at = sorted({n for n in ends(step, extent, later, last) if 0 < n < extent})
        if not at:
            return level(step, rest, left, later, last)
        parts = []
        for n, (a, b) in enumerate(zip([0, *at], [*at, extent], strict=True)):
            here = later | {step} if n and step is not blocks else later
            is_last = last or (step is blocks and n == 1)
            parts.append(level(step, rest, {**left, step.axis: b - a}, here, is_last))
        return Cut(names[step.axis], tuple(at), tuple(parts))

    return build(t.outer, dict(extents), frozenset(), False)


def share_tiles(
    body: Body,
    left: Mapping[str, int],
    tiles: list[tuple[str, int]],
    threads: int,
    *,
    first: bool = False,
    innermost: tuple[str, int] | None = None,
) -> Body:
    """Bind the outer levels of each part to threads: all but the innermost of ``tiles``, as one loop.

    Only the ``first`` one where that has an iteration a thread, or those up to ``innermost``; more while
    threads would have unequal parts. ``left`` are the elements of each axis.
    """
    if isinstance(body, Cut):
        bounds = [0, *body.at, left[body.axis]]
        parts = []
        for part, lo, hi in zip(body.parts, bounds, bounds[1:], strict=False):
            own = {**left, body.axis: hi - lo}
            parts.append(share_tiles(part, own, tiles, threads, first=first, innermost=innermost))
        return Cut(body.axis, body.at, tuple(parts))
    assert isinstance(body, Level)
    levels, counts, here, now = [body], list[int](), dict(left), body.body
    while True:
        axis, size = levels[-1].axes[0]
        counts.append(-(-here[axis] // size))
        here[axis] = min(size, here[axis])
        if not isinstance(now, Level) or len(levels) == len(tiles):
            break
        levels.append(now)
        now = now.body
    if counts[0] == 1 and len(levels) == 1 and len(tiles) > 1:
        # a loop of one iteration around several copies of tiles is no work for threads to share
        inner = [x for x in items_of(now) if isinstance(x, Cut | Level)]
        if inner:
            changed = [
                share_tiles(x, here, tiles[1:], threads, first=first, innermost=innermost)
                if isinstance(x, Cut | Level)
                else x
                for x in items_of(now)
            ]
            return Level(body.axes, sequence(*changed), body.bind, body.hints, body.tail)
    wanted = 1 if first else len(tiles) - 1
    if innermost is not None and innermost in tiles[:wanted]:
        wanted = tiles.index(innermost) + 1
    total, n = counts[0], 1
    while n < len(levels) and not (n >= wanted and is_balanced(total, threads)):
        total *= counts[n]
        n += 1
    steps = [Step(*level.axes[0], hints=dict(level.hints)) for level in levels[:n]]
    return together(steps, levels[n - 1].body)
