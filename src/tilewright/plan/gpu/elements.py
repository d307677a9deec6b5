"""The rule of elements on GPUs: each thread computes one of the result, or a few that lie together.

It is right for every stage: iterators whose order matters stay in their thread, and where not even one loop
can be shared the whole stage is one thread's. Updates of integers in no order, at places that data say, get a
thread each: they are atomic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright.cost import buffer_bytes, nest_seconds
from tilewright.ir import (
    ONE,
    Program,
    Stage,
    fresh_name,
)
from tilewright.plan.fallback import fell_back
from tilewright.plan.gpu.lanes import widest
from tilewright.plan.gpu.updates import are_atomic
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget

#: Threads of a block that are tried: whole warps, of which a multiprocessor holds enough blocks.
BLOCKS: Final = (32, 64, 128, 256, 512)
#: Threads of a block by default: four warps, one for each scheduler of a multiprocessor.
DEFAULT_BLOCK: Final = 128
#: Iterations of one thread of which notes tell.
MANY: Final = 64


@dataclass(frozen=True, slots=True)
class ElementsPlan:
    """``threads`` of a block, and the elements that each stores in one access (``vector``)."""

    threads: int
    vector: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class ElementsProblem:
    """A stage, and those whose results its threads compute for themselves."""

    context: Context
    stage: Stage
    members: tuple[str, ...]
    vectors: tuple[int, ...]


class GpuElementsRule(Rule[ElementsProblem, ElementsPlan]):
    """Any stage: all parallel iterations to threads."""

    name = "gpu_elements"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"threads": ElementsPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> ElementsProblem | None:
        """Every stage can be done so."""
        stage = context.program.stage(root)
        most = (
            1
            if stages or not stage.iters or are_atomic(stage, context.machine.gpu)
            else widest(context.program, stage, stage.iters[-1].name, reads=False)
        )
        vectors = tuple(n for n in (8, 4, 2, 1) if n <= most)
        return ElementsProblem(context, stage, stages, vectors)

    def default(self, problem: ElementsProblem) -> ElementsPlan:
        """Accesses of 128 bits where there are enough of them for all threads of the device."""
        target = problem.context.machine.gpu
        count = _instances(problem.stage, target) or 0
        enough = target.units * target.threads_per_unit // 2
        vector = next((n for n in problem.vectors if count >= n * enough), 1)
        threads = min(DEFAULT_BLOCK, target.threads_per_block)
        while threads > target.warp and count <= vector * threads * target.units // 2:
            # few elements: more blocks, so that all multiprocessors have some
            threads //= 2
        return ElementsPlan(threads, vector)

    def space(self, problem: ElementsProblem) -> Space[ElementsPlan]:
        """Blocks of all sizes, accesses of all widths."""
        default, most = self.default(problem), problem.context.machine.gpu.threads_per_block
        threads = tuple(dict.fromkeys((default.threads, *(n for n in BLOCKS if n <= most))))
        return Space(default, {"threads": threads, "vector": problem.vectors})

    def seconds(self, problem: ElementsProblem, plan: ElementsPlan) -> float | None:
        """By the bytes that are moved, and the threads that wait for them."""
        program, stage = problem.context.program, problem.stage
        target = problem.context.machine.gpu
        count = _instances(stage, target) or 1
        moved = {*stage.writes, *stage.reads}
        turns = sum(1 for _ in stage.operands) * (1 if are_atomic(stage, target) else _each(stage))
        return nest_seconds(
            target,
            blocks=-(-count // (plan.threads * plan.vector)),
            threads=plan.threads,
            turns=turns,
            access_bytes=plan.vector * program.buffer(stage.writes[0]).dtype.bytes,
            nbytes=sum(buffer_bytes(program.buffer(name)) for name in sorted(moved)),
        )

    def build(self, s: Schedule, problem: ElementsProblem, plan: ElementsPlan) -> Schedule:
        """Carry it out; what cannot be placed in the threads of its reader gets threads of its own."""
        target = problem.context.machine.gpu
        s, home = spread(s, problem.stage.name, plan, atomic=are_atomic(problem.stage, target))
        for name in reversed(problem.members):
            stage = problem.context.program.stage(name)
            placed = None if home is None else _place(s, stage, home)
            s = spread(s, name, plan, atomic=are_atomic(stage, target))[0] if placed is None else placed
        return s


def element_homes(program: Program, names: list[str]) -> dict[str, list[str]]:
    """Those of the stages ``names`` that end a nest of elements, each with what its threads compute as well.

    A stage goes to the threads of its readers, if these are those of one nest and compute as many elements.
    """
    homes: dict[str, str] = {}
    out: dict[str, list[str]] = {}
    results = {b.name for b in program.outputs}
    for stage in reversed(program.stages):
        if stage.name not in names:
            continue
        (written, *others) = stage.writes
        readers = program.consumers(written)
        found = {homes.get(reader.name) for reader in readers}
        counts = {elements(reader) for reader in readers} | {elements(stage)}
        home = found.pop() if len(found) == 1 else None
        if others or written in results or home is None or len(counts) != 1 or None in counts:
            homes[stage.name] = stage.name
            out[stage.name] = []
        else:
            homes[stage.name] = home
            out[home].insert(0, stage.name)
    return out


def elements(stage: Stage) -> int | None:
    """Elements that a stage computes; ``None`` where they are no constant."""
    count = 1
    for it in stage.iters:
        if it.kind == "ord" or not it.extent.is_const:
            return None
        count *= it.extent.const if it.kind == "par" else 1
    return count


def _instances(stage: Stage, target: GpuTarget) -> int | None:
    """What threads may share of a stage: its elements, or all of its updates; ``None`` where unknown."""
    count = elements(stage)
    return count if count is None or not are_atomic(stage, target) else count * _each(stage)


def _each(stage: Stage) -> int:
    """Iterations that one element of a stage takes."""
    return prod(it.extent.as_int() for it in stage.iters if it.kind != "par" and it.extent.is_const)


def _place(s: Schedule, stage: Stage, home: str) -> Schedule | None:
    """The stage in a thread's loop, its results in a buffer of the thread; ``None`` where that is refused."""
    try:
        placed = s.compute_at(stage.name, home)
        buffer = placed.buffers()[stage.writes[0]]
        one = all(extent == ONE for extent in buffer.physical_shape)
        return placed.set_scope(buffer.name, "local") if one else None
    except ScheduleError:
        return None


def spread(
    s: Schedule, name: str, plan: ElementsPlan, *, atomic: bool = False
) -> tuple[Schedule, str | None]:
    """Give the parallel iterations of one block to threads, all of them or those of one loop.

    Of ``atomic`` updates all iterations are. Returns the loop over the threads of a block as well, if there
    is one now.
    """
    s = _parallel_outside(s, name)
    outer = _parallel_loops(s, name)
    if atomic:
        outer = list(s.loops(name))
    refused: ScheduleError | None = None
    if not outer:
        kinds, turns = _loop_kinds(s, name), [s.loop(loop).extent for loop in s.loops(name)]
        few = all(n.is_const for n in turns) and prod(n.as_int() for n in turns) < MANY
        ordered = not few and any("ord" in found for found in kinds.values())
        why = ScheduleError(f"the iterations of {name} follow each other")
        return (fell_back(s, f"{name} runs in one thread", why) if ordered else s), None
    for loops in (outer, *([loop] for loop in outer if len(outer) > 1)):
        try:
            return _bind(s, loops, plan, wide=loops is outer)
        except ScheduleError as error:
            refused = refused or error
    assert refused is not None  # without loops there was nothing to refuse
    return fell_back(s, f"{name} runs in one thread", refused), None


def _parallel_outside(s: Schedule, name: str) -> Schedule:
    """The loops of parallel iterators around those of ordered ones, where these do not mind.

    Results that updates in order never share are then computed side by side.
    """
    kinds = _loop_kinds(s, name)
    loops = s.loops(name)
    shared = [loop for loop in loops if kinds.get(loop) == {"par"}]
    if not any("ord" in found for found in kinds.values()) or list(loops[: len(shared)]) == shared:
        return s
    try:
        return s.reorder(*shared, *(loop for loop in loops if loop not in shared))
    except ScheduleError as error:
        return fell_back(s, f"the loops of {name} stay in order", error)


def _loop_kinds(s: Schedule, name: str) -> dict[str, set[str]]:
    """The kinds of iterators that each loop around a block feeds."""
    block = s.block(name)
    kinds: dict[str, set[str]] = {}
    for it, bound in zip(block.iters, block.bind, strict=True):
        for var in bound.vars:
            kinds.setdefault(var, set()).add(it.kind)
    return kinds


def _parallel_loops(s: Schedule, name: str) -> list[str]:
    """The outermost loops around a block, as far as they feed parallel iterators alone."""
    kinds = _loop_kinds(s, name)
    found: list[str] = []
    for loop in s.loops(name):
        if kinds.get(loop, {"par"}) != {"par"}:
            break
        found.append(loop)
    return found


def _bind(s: Schedule, loops: list[str], plan: ElementsPlan, *, wide: bool) -> tuple[Schedule, str]:
    taken = set(s.func.body.names)

    def name(base: str) -> str:
        found = fresh_name(base, taken)
        taken.add(found)
        return found

    first, *rest = loops
    lanes = ""
    if plan.vector > 1 and wide:
        last, lanes = name("vectors"), name("lanes")
        s = s.split(loops[-1], plan.vector, names=[last, lanes]).vectorize(lanes)
        first, *rest = (*loops[:-1], last)
    for loop in rest:
        fused = name("element")
        s = s.fuse(first, loop, names=[fused])
        first = fused
    block, thread = name("block"), name("thread")
    s = s.split(first, plan.threads, names=[block, thread]).bind(block, "block.x").bind(thread, "thread.x")
    return s, thread
