"""The rule of rows on GPUs: a block, or a few warps of one, computes a row from reductions to results.

Reductions and scans are taken apart before (``gpu/reductions.py``, ``gpu/scans.py``): lanes reduce or scan
parts of a row, and the parts are joined. What flows between the stages of a row stays in shared memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright.analysis import reduction_of
from tilewright.cost import buffer_bytes, nest_seconds
from tilewright.ir import Index, Load, Program, Stage, condition_of, stmt_loads, stmt_writes, var
from tilewright.plan.gpu.elements import alone
from tilewright.plan.gpu.reductions import is_warp_reduction
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget
from tilewright.tiling import Body, Leaf, Level, Nest, Place, Step, chain, sequence

#: Bytes of a row's values in shared memory, at most: with more, few blocks fit a multiprocessor.
MOST_SHARED: Final = 32 << 10
#: Results that one block computes, at most, after a reduction over all of a tensor.
MOST_ALONE: Final = 4096
#: Threads of a block that are aimed at where a row has fewer.
AIM: Final = 128


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """``rows`` that a block computes side by side, by ``threads`` each."""

    rows: int
    threads: int


@dataclass(frozen=True, slots=True, eq=False)
class RowsProblem:
    """The stages of a row: ``members`` and the ``root`` after them; the first ``depth`` axes count rows.

    ``lanes`` are the parts that reductions and scans are taken apart into, ``kept_bytes`` shared memory
    of a row.
    """

    context: Context
    root: Stage
    members: tuple[str, ...]
    depth: int
    lanes: int
    kept_bytes: int


class GpuRowsRule(Rule[RowsProblem, RowsPlan]):
    """Softmax, normalisations, reductions and scans along rows."""

    name = "gpu_rows"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"rows": RowsPlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """Each row that ends with a stage, the last ones first, with all that is made for it alone."""
        program = asked.program
        free = {stage.name for stage in asked.roots}
        for stage in reversed(program.stages):
            depth = row_depth(program, stage) if stage.name in free else None
            if depth is None:
                continue
            members = row_members(program, stage, depth, free - asked.ends)
            if self.match(asked.context, stage.name, members) is not None:
                yield Cluster(self.name, stage.name, members, alone(program, [*members, stage.name]))
                free -= {stage.name, *members}

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> RowsProblem | None:
        """The row that ends with ``root``."""
        program = context.program
        last = program.stage(root)
        depth = row_depth(program, last)
        members = [program.stage(name) for name in stages]
        if depth is None or not any(_lanes(stage, depth) for stage in (*members, last)):
            return None
        for stage in members:
            if not _joins(program, stage, depth, last, {*stages, root}):
                return None
        lanes = max(_lanes(stage, depth) or 1 for stage in (*members, last))
        if lanes > context.machine.gpu.threads_per_block:
            return None
        kept = sum(_bytes(program, stage, depth) for stage in members)
        return RowsProblem(context, last, stages, depth, lanes, kept)

    def default(self, problem: RowsProblem) -> RowsPlan:
        """Whole warps for the parts of a reduction; rows side by side until a block has four warps."""
        target = problem.context.machine.gpu
        threads = min(-(-problem.lanes // target.warp) * target.warp, target.threads_per_block)
        fitting = [n for n in _row_counts(problem) if not _refusal(problem, RowsPlan(n, threads))]
        blocks = prod(it.extent.as_int() for it in problem.root.iters[: problem.depth])
        wanted = max(1, min(AIM // threads, blocks // target.units))
        return RowsPlan(max((n for n in fitting if n <= wanted), default=1), threads)

    def space(self, problem: RowsProblem) -> Space[RowsPlan]:
        """Rows side by side, and blocks of more threads than parts where columns are many."""
        default = self.default(problem)
        options: dict[str, tuple[object, ...]] = {
            "rows": tuple(dict.fromkeys((default.rows, *_row_counts(problem)))),
            "threads": tuple(dict.fromkeys((default.threads, 32, 64, 128, 256))),
        }
        return Space(default, options, lambda plan: _refusal(problem, plan))

    def seconds(self, problem: RowsProblem, plan: RowsPlan) -> float | None:
        """By the bytes that are moved, and the threads that wait for them and for each other."""
        program = problem.context.program
        stages = [*map(program.stage, problem.members), problem.root]
        inside = {name for stage in stages[:-1] for name in stage.writes}
        moved = {name for stage in stages for name in (*stage.reads, *stage.writes)} - inside
        blocks = prod(it.extent.as_int() for it in problem.root.iters[: problem.depth]) // plan.rows
        turns = 0
        for stage in stages:
            columns, terms = (
                prod(
                    it.extent.as_int() for it in stage.iters[problem.depth :] if (it.kind != "par") == summed
                )
                for summed in (False, True)
            )
            turns += -(-columns // plan.threads) * terms
        return nest_seconds(
            problem.context.machine.gpu,
            blocks=blocks,
            threads=plan.rows * plan.threads,
            turns=turns,
            access_bytes=program.buffer(problem.root.writes[0]).dtype.bytes,
            nbytes=sum(buffer_bytes(program.buffer(name)) for name in sorted(moved)),
            shared_bytes=plan.rows * problem.kept_bytes,
            barriers=len(stages),
        )

    def trees(self, problem: RowsProblem, plan: RowsPlan) -> tuple[Nest, ...]:
        """Rows of a block side by side, what flows between their stages in shared memory."""
        program, root = problem.context.program, problem.root
        if not root.iters:
            raise ScheduleError(f"{root.name} is one element, which no block has a loop for")
        counted = root.iters[: problem.depth] or root.iters[:1]
        # the one row of a program without rows: all of the first axis
        tile = plan.rows if problem.depth else counted[0].extent.as_int()
        blocks = "*".join([*(it.name for it in counted[:-1]), f"{counted[-1].name}/{tile}"])
        members = [program.stage(name) for name in problem.members]
        stages = (*members, root)
        widest = max(min(_columns(stage, problem.depth), plan.threads) for stage in stages)
        warps = widest % problem.context.machine.gpu.warp == 0
        places = [
            Place(stage.name, "make", "shared", _of_row(problem, stage, plan, warps=warps))
            for stage in members
        ]
        body = sequence(*places, _of_row(problem, root, plan, warps=warps))
        return (Nest(root.name, Level(((blocks, 1),), body, "block.x", (), "guard")),)


def _refusal(problem: RowsProblem, plan: RowsPlan) -> str:
    target = problem.context.machine.gpu
    if plan.rows * plan.threads > target.threads_per_block:
        return f"{plan.rows * plan.threads} threads a block"
    if plan.threads < problem.lanes:
        return f"fewer threads than the {problem.lanes} parts of a reduction"
    if plan.rows > 1 and plan.rows * problem.kept_bytes > MOST_SHARED:
        return f"{plan.rows * problem.kept_bytes} bytes of shared memory"
    return ""


def _row_counts(problem: RowsProblem) -> list[int]:
    """Rows that can be side by side: divisors of the last axis of rows."""
    if not problem.depth:
        return [1]
    last = problem.root.iters[problem.depth - 1].extent.as_int()
    return [n for n in (1, 2, 4, 8, 16) if last % n == 0]


def row_depth(program: Program, root: Stage) -> int | None:
    """How many axes of ``root`` count rows, where it is or follows from one in order along the others."""
    if any(it.kind == "ord" or not it.extent.is_const for it in root.iters):
        return None
    own = [it.extent for it in root.iters if it.kind == "par"]
    found: list[int] = []
    for stage in (root, *_before(program, root)):
        if not _in_order(stage):
            continue
        pars = [it.extent for it in stage.iters if it.kind == "par"]
        while len(pars) > 1 and pars[-1] == Index(1):
            pars.pop()
        # without rows there is one, as long as a block may compute all of it
        few = len(pars) or prod(extent.as_int() for extent in own) <= MOST_ALONE
        if few and own[: len(pars)] == pars:
            found.append(len(pars))
    return min(found, default=None)


def _before(program: Program, root: Stage) -> list[Stage]:
    """The stages whose results reach ``root`` through intermediate tensors of one producer each."""
    temps = {b.name for b in program.temps}
    found: list[Stage] = []
    todo = [root]
    while todo:
        for name in todo.pop().reads:
            made = program.producers(name) if name in temps else ()
            if len(made) == 1 and made[0] not in found:
                found.append(made[0])
                todo.append(made[0])
    return found


def row_members(program: Program, root: Stage, depth: int, free: Collection[str]) -> tuple[str, ...]:
    """The stages that are computed for a row only where ``root`` is, as far as shared memory goes."""
    members: list[str] = []
    total = 0
    for stage in reversed(program.stages[: program.stages.index(root)]):
        if stage.name not in free:
            continue
        if _joins(program, stage, depth, root, {*members, root.name}):
            nbytes = _bytes(program, stage, depth)
            if total + nbytes <= MOST_SHARED:
                total += nbytes
                members.insert(0, stage.name)
    return tuple(members)


def _joins(program: Program, stage: Stage, depth: int, root: Stage, inside: Collection[str]) -> bool:
    """Whether a stage computes for each row of ``root`` what stages ``inside`` alone read of it."""
    readers = {reader.name: reader for name in stage.writes for reader in program.consumers(name)}
    readers.pop(stage.name, None)  # a scan reads itself
    results = {b.name for b in program.outputs}
    if not readers or any(len(program.producers(name)) != 1 or name in results for name in stage.writes):
        return False
    if not all(it.extent.is_const for it in stage.iters):
        return False
    if any(reader not in inside for reader in readers):
        return False
    pars = [it for it in stage.iters if it.kind == "par"]
    rows = [it.extent for it in root.iters[:depth]]
    if [it.extent for it in pars[:depth]] != rows:
        return False
    own = [var(it.name) for it in stage.iters if it.kind != "red"]
    _, body = condition_of(stage.body)
    if any([*indices] != own for _, indices in stmt_writes(body)):
        return False
    for reader in readers.values():
        here = [var(it.name) for it in reader.iters if it.kind == "par"][:depth]
        own_loads = [ld for ld in stmt_loads(reader.body) if ld.buffer in stage.writes]
        if any([*ld.indices[:depth]] != here for ld in own_loads):
            return False
    return True


def _lanes(stage: Stage, depth: int) -> int | None:
    """The parts that a reduction or scan was taken apart into: its parallel iterations within a row."""
    if not _in_order(stage):
        return None
    count = prod(it.extent.as_int() for it in [it for it in stage.iters if it.kind == "par"][depth:])
    return count if count > 1 else None


def _in_order(stage: Stage) -> bool:
    """Whether a stage has iterations that follow each other: of a reduction or a scan."""
    return stage.is_reduction or any(it.kind == "ord" for it in stage.iters)


def _bytes(program: Program, stage: Stage, depth: int) -> int:
    held = [program.buffer(name) for name in stage.writes]
    return sum(prod(e.as_int() for e in b.shape[depth:]) * b.dtype.bytes for b in held)


def _columns(stage: Stage, depth: int) -> int:
    """Elements of a row that a stage computes side by side; 1 where it computes one at a time."""
    return prod(it.extent.as_int() for it in [it for it in stage.iters if it.kind == "par"][depth:])


def _of_row(problem: RowsProblem, stage: Stage, plan: RowsPlan, *, warps: bool) -> Body:
    """A stage's rows for groups of threads, and what it computes of a row for the threads of a group."""
    pars = [it.name for it in stage.iters if it.kind == "par"]
    rows, columns = pars[: problem.depth], pars[problem.depth :]
    steps: list[Step] = []
    if plan.rows > 1:
        steps.append(Step(rows[-1], 1, "thread.y", tail="guard"))
    if columns:
        axes = "*".join(columns)
        if _columns(stage, problem.depth) > plan.threads:
            steps.append(Step(axes, plan.threads, tail="guard"))
        steps.append(Step(axes, 1, "thread.x", tail="guard"))
    rest = [Step(it.name, 1, tail="guard") for it in stage.iters if it.kind != "par"]
    unit = _warp_reduction(problem, stage) if warps and not columns else ""
    return chain([*steps, *rest], Leaf(stage.name, unit))


def _warp_reduction(problem: RowsProblem, stage: Stage) -> str:
    """The instruction by which a warp reduces one value of each of its threads; empty where it has none."""
    target, update = problem.context.machine.gpu, reduction_of(stage)
    last = stage.iters[-1]
    if update is None or not isinstance(update.term, Load) or last.extent != Index(target.warp):
        return ""
    if any(last.name in condition.vars for condition in update.guard):
        return ""
    for row in filter(is_warp_reduction, target.instructions):
        known = reduction_of(row.stage)
        if known is not None and (known.op, known.term.dtype) == (update.op, update.term.dtype):
            return row.name
    return ""
