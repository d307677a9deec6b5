"""The rule of groups on GPUs: a block of threads computes a tile of a root, with what it needs of producers.

The kernel of a tile of 8 rows and 64 columns, of which each thread computes two rows::

    for tiles of the result, on blocks:
        gray[10, 66] = …                  # in shared memory, elements in turns by all threads of the block
        for 4 x 64, on threads:
            ix[4, 3] = …                  # what one thread needs for itself, in registers
            for two rows, written out:
                result[row, column] = …

Loops over tiles and over threads are fused to one each, so that results may have any number of axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from types import MappingProxyType
from typing import Any, ClassVar, Final

from tilewright.analysis import Box
from tilewright.cost import buffer_bytes, nest_seconds
from tilewright.ir import Program, Stage
from tilewright.plan.gpu.loops import fused_loops
from tilewright.plan.pipeline.boxes import boxes, middle, points
from tilewright.plan.pipeline.group import Group, Placement, find_group, misplaced
from tilewright.plan.pipeline.nest import everywhere
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Combinations, Space
from tilewright.schedule import Schedule
from tilewright.target import GpuTarget

#: Elements of one thread that are written out: fewer (Anderson et al., Section 4).
MOST_SERIAL: Final = 16
#: Elements of a producer that one thread keeps for itself.
MOST_KEPT: Final = 64
#: Elements of a tile along an axis, at most.
MOST_TILE: Final = 512
#: Elements of a thread along an axis, and of a tile: those of a power of two of threads.
SERIAL: Final = (1, 2, 3, 4, 5, 7, 8)
TILES: Final = tuple(sorted({each << n for each in SERIAL for n in range(10) if each << n <= MOST_TILE}))
#: Threads of a block that the default has along the last axis, and in all.
ACROSS: Final = 32
THREADS: Final = 128


@dataclass(frozen=True, slots=True)
class GpuGroupPlan:
    """One kernel, by the axes of the root's result.

    ``tile`` are elements of a block along each axis, ``serial`` those of a thread: a block has as many
    threads along an axis as the one has times the other. Neighbouring threads are neighbours along the axis
    ``lanes``. ``placements`` say where each producer is computed, in the program's order: ``inline``,
    ``tile`` (shared memory of the block) or ``row`` (registers of the thread).
    """

    tile: tuple[int, ...]
    serial: tuple[int, ...]
    lanes: int
    placements: tuple[Placement, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(t // e for t, e in zip(self.tile, self.serial, strict=True))

    def places(self, g: Group) -> dict[str, Placement]:
        """The place of each producer by its name."""
        return {m.name: place for m, place in zip(g.members, self.placements, strict=True)}


def no_kernel(g: Group, plan: GpuGroupPlan) -> str:
    """Why a plan is none of a group's, by its structure alone; empty where it is one."""
    extents, rank = g.axes, len(g.axes)
    if not rank == len(plan.tile) == len(plan.serial) or not 0 <= plan.lanes < rank:
        return f"the result has {rank} axes"
    if len(plan.placements) != len(g.members) or not {*plan.placements} <= {"inline", "tile", "row"}:
        return f"the kernel has {len(g.members)} producers, inlined, at blocks or at threads"
    for axis, (n, t, e) in enumerate(zip(extents, plan.tile, plan.serial, strict=True)):
        if not 1 <= e <= t or t % e or (t > e and t >= 2 * n):
            return f"a tile of {t} elements along axis {axis}, of {n}, has no parts of {e}"
        if e not in SERIAL or t not in TILES:
            return f"{e} elements a thread and {t} a block along axis {axis} are no sizes of kernels"
    if prod(plan.serial) >= MOST_SERIAL:
        return f"{prod(plan.serial)} elements a thread are not written out: fewer than {MOST_SERIAL}"
    return misplaced(g, plan.places(g), 0, 1)


def kernel_boxes(g: Group, plan: GpuGroupPlan) -> tuple[Mapping[str, Box], Mapping[str, Box]]:
    """What a block amid the result needs of each stage, and what one thread of it needs."""
    tile = middle(g.axes, plan.tile)
    thread = tuple((lo, lo + (e - 1)) for (lo, _), e in zip(tile, plan.serial, strict=True))
    return boxes(g, tile), boxes(g, thread)


def kept_elements(g: Group, plan: GpuGroupPlan) -> dict[str, int]:
    """Elements of each producer that a block keeps in shared memory, or a thread in registers."""
    tile, thread = kernel_boxes(g, plan)
    at = {"tile": tile, "row": thread}
    return {
        m.name: int(points(at[place][m.name])[0])
        for m, place in zip(g.members, plan.placements, strict=True)
        if place in at and m.name in tile
    }


def too_large(g: Group, program: Program, plan: GpuGroupPlan, target: GpuTarget) -> str:
    """Which limit of a device a plan is over; empty where it is within all."""
    if plan.threads > target.threads_per_block:
        return f"{plan.threads} threads a block are more than {target.threads_per_block}"
    kept, where = kept_elements(g, plan), plan.places(g)
    thread = max((n for name, n in kept.items() if where[name] == "row"), default=0)
    if thread > MOST_KEPT:
        return f"a thread would keep {thread} elements, more than {MOST_KEPT}"
    shared = shared_bytes(g, program, plan)
    if shared > target.shared_per_block:
        return f"a block would keep {shared} bytes, more than {target.shared_per_block}"
    return ""


def shared_bytes(g: Group, program: Program, plan: GpuGroupPlan) -> int:
    """Bytes of shared memory of a block."""
    kept, where = kept_elements(g, plan), plan.places(g)
    made = {m.name: program.buffer(m.writes[0]).dtype.bytes for m in g.members}
    return sum(n * made[name] for name, n in kept.items() if where[name] == "tile")


@dataclass(frozen=True, slots=True, eq=False)
class GpuGroupProblem:
    """A group on a device."""

    context: Context
    group: Group


class GpuGroupRule(Rule[GpuGroupProblem, GpuGroupPlan]):
    """Stages that only each other read, in one kernel."""

    name = "gpu_group"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"kernel": GpuGroupPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> GpuGroupProblem | None:
        """The group of these stages."""
        g = find_group(context.program, root, stages)
        return None if g is None or not g.axes else GpuGroupProblem(context, g)

    def default(self, problem: GpuGroupProblem) -> GpuGroupPlan:
        """Rows of threads; every producer that shared memory holds at the block."""
        g, context = problem.group, problem.context
        last = len(g.axes) - 1
        across = min(ACROSS, _power(g.axes[last]))
        rows = min(THREADS // across, _power(g.axes[last - 1])) if last else 1
        tile = tuple(across if n == last else rows if n == last - 1 else 1 for n in range(last + 1))
        plan = GpuGroupPlan(tile, (1,) * (last + 1), last, everywhere("tile", len(g.members)))
        if too_large(g, context.program, plan, context.machine.gpu):
            # a row at least fits: what one element needs
            return GpuGroupPlan((1,) * (last + 1), plan.serial, last, plan.placements)
        return plan

    def space(self, problem: GpuGroupProblem) -> Space[GpuGroupPlan]:
        """All tiles, with every placement of the producers."""
        g, default = problem.group, self.default(problem)
        program, target = problem.context.program, problem.context.machine.gpu
        options: dict[str, Any] = {
            "tile": Combinations([[t for t in TILES if t < 2 * n] for n in g.axes]),
            "serial": Combinations([SERIAL for _ in g.axes]),
            "lanes": tuple(range(len(g.axes) - 1, -1, -1)),
            "placements": Combinations([_placements(m) for m in g.members]),
        }
        return Space(default, options, lambda p: no_kernel(g, p) or too_large(g, program, p, target))

    def seconds(self, problem: GpuGroupProblem, plan: GpuGroupPlan) -> float:
        """By what is read and written, and the threads that wait for it."""
        g, program, target = problem.group, problem.context.program, problem.context.machine.gpu
        inside = {m.writes[0] for m in g.members}
        moved = {name for stage in g.stages for name in (*stage.reads, *stage.writes)} - inside
        turns = sum(len([*stage.operands]) for stage in g.stages) * prod(plan.serial)
        return nest_seconds(
            target,
            blocks=prod(ceil(n / t) for n, t in zip(g.axes, plan.tile, strict=True)),
            threads=plan.threads,
            turns=turns,
            access_bytes=program.buffer(g.root.writes[0]).dtype.bytes,
            nbytes=sum(buffer_bytes(program.buffer(name)) for name in sorted(moved)),
            shared_bytes=shared_bytes(g, program, plan),
            barriers=2 * sum(place == "tile" for place in plan.placements),
        )

    def build(self, s: Schedule, problem: GpuGroupProblem, plan: GpuGroupPlan) -> Schedule:
        """Carry out the kernel."""
        return schedule_kernel(s, problem.group, plan)


def _placements(stage: Stage) -> tuple[Placement, ...]:
    return ("tile", "row") if stage.is_reduction else ("tile", "row", "inline")


def _power(n: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (n - 1).bit_length() if n > 1 else 1


def schedule_kernel(s: Schedule, g: Group, plan: GpuGroupPlan) -> Schedule:
    """Schedule a group as one kernel. Raises ScheduleError where a step is refused."""
    places = list(zip(g.members, plan.placements, strict=True))
    for m, place in places:
        if place == "inline":
            s = s.inline(m.name)
    s, block, thread, written_out = _root_loops(s, g.root, plan)
    for m, place in reversed(places):
        if place != "inline":
            s = s.compute_at(m.name, block if place == "tile" else thread)
    for m, place in places:
        if place == "tile":
            s = _by_all_threads(s, m, plan.threads)
        elif place == "row":
            s = s.set_scope(m.writes[0], "local")
            written_out += [loop for loop in _own_loops(s, m) if s.loop(loop).extent.is_const]
    for loop in written_out:
        s = s.unroll(loop)
    return s.bind(block, "block.x").bind(thread, "thread.x")


def _root_loops(s: Schedule, root: Stage, plan: GpuGroupPlan) -> tuple[Schedule, str, str, list[str]]:
    """Cut the loops of the root: one over blocks, one over threads, and those of a thread's elements."""
    loops = dict(zip((it.name for it in root.iters), s.loops(root.name), strict=True))
    own = [loops[it.name] for it in root.iters if it.kind == "par"]
    sums = [loops[it.name] for it in root.iters if it.kind == "red"]
    blocks, threads, elements = list[str](), list[str](), list[str]()
    for loop, tile, each in zip(own, plan.tile, plan.serial, strict=True):
        s = s.split(loop, tile, names=[f"{loop}_block", f"{loop}_in"])
        blocks.append(f"{loop}_block")
        if each > 1:
            s = s.split(f"{loop}_in", each, names=[f"{loop}_thread", f"{loop}_each"])
            elements.append(f"{loop}_each")
        threads.append(f"{loop}_thread" if each > 1 else f"{loop}_in")
    last = threads.pop(plan.lanes)
    s = s.reorder(*blocks, *threads, last, *sums, *elements)
    s, block = fused_loops(s, blocks, f"{root.name}_block_")
    s, thread = fused_loops(s, [*threads, last], f"{root.name}_thread_")
    return s, block, thread, elements


def _own_loops(s: Schedule, stage: Stage) -> list[str]:
    """The loops of a producer's own iterators, where it is computed."""
    node = s.block(stage.name)
    feeds = {v for it, at in zip(node.iters, node.bind, strict=True) if it.kind == "par" for v in at.vars}
    return [loop for loop in s.loops(stage.name) if loop in feeds and loop.startswith(f"{stage.name}_")]


def _by_all_threads(s: Schedule, stage: Stage, threads: int) -> Schedule:
    """The elements of a producer in turns by the threads of a block, in shared memory."""
    s = s.set_scope(stage.writes[0], "shared")
    own = _own_loops(s, stage)
    if not own:
        return s
    s, loop = fused_loops(s, own, f"{stage.name}_element_")
    s = s.split(loop, threads, names=[f"{stage.name}_turn", f"{stage.name}_of_block"])
    return s.bind(f"{stage.name}_of_block", "thread.x")
