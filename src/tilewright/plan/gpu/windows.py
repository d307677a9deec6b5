"""The rule of windows on GPUs: each thread computes a tile of results whose windows overlap.

Depthwise convolutions, pooling, stencils: a thread reads the elements under its tile's windows once, with the
border filled up, and keeps them and its results in registers; all loops are written out. Neighbours along the
last axis are neighbouring threads, as the caches serve whole lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.analysis import flat_index, pointwise_reader
from tilewright.cost import OTHER_REGISTERS, buffer_bytes, nest_seconds
from tilewright.ir import Load, Program, Stage, stmt_loads
from tilewright.plan.gpu.elements import alone
from tilewright.plan.gpu.lanes import widest
from tilewright.plan.gpu.products import matrices_of
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.target import GpuTarget
from tilewright.tiling import Body, Leaf, Place, Step, chain, sequence

#: Results of a thread along each of two axes.
TILES: Final = (1, 2, 4, 7, 8)
#: Threads of a block that are tried.
BLOCKS: Final = (64, 128, 256)
#: Places of a window that are written out, at most; compilers take time for each.
MOST_TAPS: Final = 64
#: Products of places and results that are written out, at most.
MOST_WRITTEN: Final = 256
#: Elements under the windows of a tile that a thread keeps, at most.
MOST_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class WindowsPlan:
    """A tile of ``down`` x ``across`` results a thread, ``threads`` a block."""

    down: int
    across: int
    threads: int


@dataclass(frozen=True, slots=True)
class Window:
    """A stage whose reduction axes move the places that its result's axes ``tiled`` read.

    ``steps`` are those of a window from one result to the next along each tiled axis, ``spans`` the elements
    that it covers there, ``taps`` its places.
    """

    tiled: tuple[str, ...]
    steps: tuple[int, ...]
    spans: tuple[int, ...]
    taps: int

    def kept(self, tile: Sequence[int]) -> int:
        """Elements under the windows of a tile of results."""
        return prod((n - 1) * step + span for n, step, span in zip(tile, self.steps, self.spans, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class WindowsProblem:
    """The stage ``reduced`` over windows, ``root`` that takes its result, and the borders filled before."""

    context: Context
    root: Stage
    reduced: Stage
    borders: tuple[str, ...]
    window: Window
    axes: tuple[str, ...]
    """Axes of the root that are tiled: one or two, the last as ``across``."""
    store: int
    """Elements along the last of them that are stored in one access."""
    line_step: int
    """Elements between the first places of two neighbouring results along it; 0 where these do not lie so."""


class GpuWindowsRule(Rule[WindowsProblem, WindowsPlan]):
    """Depthwise convolutions, pooling, stencils: ``stages`` are borders, and a sum that ``root`` reads."""

    name = "gpu_windows"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"windows": WindowsPlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """Reductions over windows, each with the borders before it and what alone takes its result."""
        program, taken = asked.program, {*asked.taken, *asked.decided}
        found: set[str] = set()
        free = {stage.name for stage in asked.roots} - taken
        for stage in program.stages:
            # what rewrites made is none, though it may look like one
            if stage.name not in free or not isinstance(asked.context.matches.get(stage.name), Window):
                continue
            inside = [
                st.name for st in program.stages if st.name in free and window_border(program, st) is stage
            ]
            reader, root = pointwise_reader(program, stage), stage
            results = {b.name for b in program.outputs}
            if reader is not None and reader.name in free and not results & set(stage.writes):
                inside.append(stage.name)
                root = reader
            if root.name in found or self.match(asked.context, root.name, tuple(inside)) is None:
                continue
            found.add(root.name)
            yield Cluster(self.name, root.name, tuple(inside), alone(program, [*inside, root.name]))

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> WindowsProblem | None:
        """A reduction over windows that ends in ``root``."""
        program = context.program
        last = program.stage(root)
        inner = [program.stage(name) for name in stages]
        reduced = last if last.is_reduction else next((st for st in inner if st.is_reduction), None)
        window = None if reduced is None else window_of(program, reduced)
        if reduced is None or window is None:
            return None
        borders = tuple(st.name for st in inner if st is not reduced)
        if any(window_border(program, program.stage(name)) is None for name in borders):
            return None
        axes = [it.name for it in reduced.iters if it.kind == "par"]
        if reduced is not last:
            if pointwise_reader(program, reduced) is not last or len(last.iters) != len(axes):
                return None
            names = dict(zip(axes, (it.name for it in last.iters), strict=True))
            store = widest(program, last, names[window.tiled[-1]], reads=False)
        else:
            names, store = {name: name for name in axes}, 1
        found = tuple(names[name] for name in window.tiled)
        return WindowsProblem(
            context,
            last,
            reduced,
            borders,
            window,
            found,
            min(4, store),
            _line_step(program, reduced, window),
        )

    def default(self, problem: WindowsProblem) -> WindowsPlan:
        """The tile with the fewest seconds by the model."""
        plans = [
            WindowsPlan(down, across, threads)
            for down in TILES
            for across in TILES
            for threads in BLOCKS
            if not _refusal(problem, WindowsPlan(down, across, threads))
        ]
        return min(plans, key=lambda plan: (self.seconds(problem, plan), plan.down * plan.across, str(plan)))

    def space(self, problem: WindowsProblem) -> Space[WindowsPlan]:
        """All tiles that stay in registers."""
        options: dict[str, tuple[object, ...]] = {"down": TILES, "across": TILES, "threads": BLOCKS}
        return Space(self.default(problem), options, lambda plan: _refusal(problem, plan))

    def seconds(self, problem: WindowsProblem, plan: WindowsPlan) -> float:
        """By what threads read through the first cache, the threads that are there, and bytes of memory."""
        program, target = problem.context.program, problem.context.machine.gpu
        root, window = problem.root, problem.window
        tile = _tile(problem, plan)
        extents = {it.name: it.extent.as_int() for it in root.iters if it.kind == "par"}
        tiles = prod(extents.values())
        for axis, n in zip(problem.axes, tile, strict=True):
            tiles = tiles // extents[axis] * ceil(extents[axis] / n)
        blocks = ceil(tiles / plan.threads)
        element = program.buffer(root.writes[0]).dtype.bytes
        cache = next((level for level in target.memory if level.name == "l1"), target.level("shared"))
        # threads side by side read places a tile apart: each access of a warp touches as many lines
        apart = max(1, problem.line_step * tile[-1]) * element
        lines = max(1, min(target.warp, ceil(target.warp * apart / cache.line)))
        kept, results = window.kept(tile), prod(tile)
        masked = any(extents[axis] % n for axis, n in zip(problem.axes, tile, strict=True))
        reads = kept * lines * cache.line / cache.bandwidth
        stores = ceil(results / _store(problem, plan)) * lines * cache.line / cache.bandwidth
        issue = (kept + (1 + masked) * results * window.taps) * target.warp / target.fma_per_cycle
        warps = ceil(plan.threads / target.warp)
        moved = {*root.writes, *problem.reduced.reads, *root.reads} - {b.name for b in program.temps}
        for name in problem.borders:
            moved |= set(program.stage(name).reads)
        return nest_seconds(
            target,
            blocks=blocks,
            threads=plan.threads,
            turns=kept,
            access_bytes=element,
            nbytes=sum(buffer_bytes(program.buffer(name)) for name in sorted(moved)),
            registers=OTHER_REGISTERS + kept + results,
            busy=warps * max(reads + stores, issue),
        )

    def trees(self, problem: WindowsProblem, plan: WindowsPlan) -> tuple[tiling.Nest, ...]:
        """A tile of results a thread, all of whose loops are written out."""
        root, reduced = problem.root, problem.reduced
        tiles = dict(zip(problem.axes, _tile(problem, plan), strict=True))
        spread = "*".join(
            f"{it.name}/{tiles[it.name]}" if it.name in tiles else it.name
            for it in root.iters
            if it.kind == "par"
        )
        results = [Step(axis, 1, "unroll", tail="mask") for axis in tiles]
        body: Body
        if reduced is root:
            terms = [Step(it.name, 1, "unroll") for it in root.iters if it.kind != "par"]
            body = chain([*terms, *results], Leaf(root.name))
            drain = chain(results, Leaf(root.name))
            body = sequence(Place(root.writes[0], "keep", "register", body, drain))
        else:
            if _store(problem, plan) > 1:
                results[-1] = Step(problem.axes[-1], 1, "vector", tail="mask")
            made = [problem.context.program.stage(name) for name in problem.borders]
            places = [Place(st.name, "make", "register", _written_out(st)) for st in (*made, reduced)]
            body = sequence(*places, chain(results, Leaf(root.name)))
        threads = Step(spread, plan.threads, "block.x", tail="mask"), Step(spread, 1, "thread.x", tail="mask")
        return (tiling.Nest(root.name, chain(threads, body)),)


def _written_out(stage: Stage) -> Body:
    """All loops of a stage, sums around those of their results: what several results read is read once."""
    order = sorted(stage.iters, key=lambda it: it.kind == "par")
    return chain([Step(it.name, 1, "unroll", tail="guard") for it in order], Leaf(stage.name))


def window_of(program: Program, stage: Stage) -> Window | None:
    """The window that a stage reduces over; ``None`` where there is none, or it is too large to write out."""
    if not stage.is_reduction or any(it.kind == "ord" or not it.extent.is_const for it in stage.iters):
        return None
    if matrices_of(program, stage) is not None:
        return None
    pars = {it.name: it.extent.as_int() for it in stage.iters if it.kind == "par"}
    reds = {it.name: it.extent.as_int() for it in stage.iters if it.kind == "red"}
    taps = prod(reds.values())
    if not 1 < taps <= MOST_TAPS:
        return None
    moved: dict[str, tuple[int, int]] = {}
    for ld in stmt_loads(stage.body):
        for index in ld.indices if ld.buffer not in stage.writes else ():
            own = [name for name in pars if name in index.vars]
            by = [name for name in reds if name in index.vars]
            if own and by:
                if len(own) != 1:
                    return None
                span = 1 + sum((reds[name] - 1) * abs(index.coefficient(name)) for name in by)
                found = (abs(index.coefficient(own[0])), span)
                if not found[0] or moved.setdefault(own[0], found) != found:
                    return None
    tiled = [name for name in pars if name in moved and pars[name] > 1][-2:]
    if not tiled:
        return None
    steps, spans = zip(*(moved[name] for name in tiled), strict=True)
    return Window(tuple(tiled), steps, spans, taps)


def window_border(program: Program, stage: Stage) -> Stage | None:
    """The reduction over windows that alone reads a stage, whose window then need not look at borders."""
    if stage.is_reduction or len(stage.writes) != 1 or any(it.kind != "par" for it in stage.iters):
        return None
    (name,) = stage.writes
    readers = program.consumers(name)
    if name in {b.name for b in program.outputs} or len(readers) != 1 or len(program.producers(name)) != 1:
        return None
    return None if window_of(program, readers[0]) is None else readers[0]


def _refusal(problem: WindowsProblem, plan: WindowsPlan) -> str:
    tile, window = _tile(problem, plan), problem.window
    if len(tile) == 1 and plan.down > 1:
        return "there is one axis only"
    extents = {it.name: it.extent.as_int() for it in problem.root.iters}
    if any(n > 1 and n >= 2 * extents[axis] for axis, n in zip(problem.axes, tile, strict=True)):
        return "the tile is larger than the result"
    if plan.threads > problem.context.machine.gpu.threads_per_block:
        return f"{plan.threads} threads a block"
    if prod(tile) > 1 and (window.kept(tile) > MOST_KEPT or prod(tile) * window.taps > MOST_WRITTEN):
        return f"{window.kept(tile)} elements and {prod(tile) * window.taps} terms a thread"
    return ""


def _tile(problem: WindowsProblem, plan: WindowsPlan) -> tuple[int, ...]:
    return (plan.down, plan.across)[-len(problem.axes) :]


def _store(problem: WindowsProblem, plan: WindowsPlan) -> int:
    """Elements that a thread stores in one access."""
    return next(n for n in (problem.store, 2, 1) if n <= problem.store and plan.across % n == 0)


def _line_step(program: Program, reduced: Stage, window: Window) -> int:
    """Elements between what neighbouring results along the last tiled axis read."""
    loads = [ld for ld in stmt_loads(reduced.body) if window.tiled[-1] in ld.vars]
    steps = [_flat_step(program, ld, window.tiled[-1]) for ld in loads if ld.buffer not in reduced.writes]
    return max(steps, default=0)


def _flat_step(program: Program, ld: Load, axis: str) -> int:
    flat = flat_index(program, ld.buffer, ld.indices)
    return 0 if flat is None else abs(flat.coefficient(axis))
