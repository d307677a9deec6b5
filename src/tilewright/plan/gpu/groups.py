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
from tilewright.plan.pipeline.boxes import boxes, middle, points
from tilewright.plan.pipeline.group import Group, Placement, find_group, misplaced
from tilewright.plan.pipeline.nest import everywhere
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Combinations, Space
from tilewright.schedule import Step as Rewrite
from tilewright.target import GpuTarget
from tilewright.tiling import Bind, Body, Leaf, Nest, Place, Step, chain, sequence

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

    def trees(self, problem: GpuGroupProblem, plan: GpuGroupPlan) -> tuple[Nest, ...]:
        """The kernel, of a program without what is inlined."""
        return (kernel_tree(problem.group, plan),)

    def steps(self, problem: GpuGroupProblem, plan: GpuGroupPlan) -> tuple[Rewrite, ...]:
        """What is inlined becomes part of its readers."""
        places = plan.places(problem.group).items()
        return tuple(Rewrite("inline_stage", (name,)) for name, place in places if place == "inline")


def _placements(stage: Stage) -> tuple[Placement, ...]:
    return ("tile", "row") if stage.is_reduction else ("tile", "row", "inline")


def _power(n: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (n - 1).bit_length() if n > 1 else 1


def kernel_tree(g: Group, plan: GpuGroupPlan) -> Nest:
    """A tile of the root a block, with what it needs of its producers.

    Loops over tiles and over threads are one each, so that results may have any number of axes.
    """
    root = g.root
    axes = [it.name for it in root.iters if it.kind == "par"]
    sizes = list(zip(axes, plan.tile, plan.serial, strict=True))
    blocks = "*".join(f"{axis}/{tile}" for axis, tile, _ in sizes)
    threads = [f"{axis}/{each}" if each > 1 else axis for axis, _, each in sizes]
    threads.append(threads.pop(plan.lanes))
    places = plan.places(g)
    sums = [Step(it.name, 1, tail="guard") for it in root.iters if it.kind == "red"]
    own = [Step(axis, 1, "unroll", tail="guard") for axis, _, each in sizes if each > 1]
    kept = [Place(m.name, "make", "local", _by_one(m)) for m in g.members if places[m.name] == "row"]
    shared = [
        Place(m.name, "make", "shared", _by_all(m, plan.threads))
        for m in g.members
        if places[m.name] == "tile"
    ]
    inner = sequence(*kept, chain([*sums, *own], Leaf(root.name)))
    body = chain([Step("*".join(threads), 1, "thread.x", tail="guard")], inner)
    return Nest(root.name, chain([Step(blocks, 1, "block.x", tail="guard")], sequence(*shared, body)))


def _by_one(stage: Stage) -> Body:
    """What a thread needs of a producer, written out."""
    binds: list[Bind] = ["unroll" if it.kind == "par" else "serial" for it in stage.iters]
    steps = zip(stage.iters, binds, strict=True)
    return chain([Step(it.name, 1, bind, tail="guard") for it, bind in steps], Leaf(stage.name))


def _by_all(stage: Stage, threads: int) -> Body:
    """The elements of a producer in turns by the threads of a block."""
    axes = "*".join(it.name for it in stage.iters if it.kind == "par")
    steps = [Step(axes, threads, tail="guard"), Step(axes, 1, "thread.x", tail="guard")]
    steps += [Step(it.name, 1, tail="guard") for it in stage.iters if it.kind == "red"]
    return chain(steps, Leaf(stage.name))
