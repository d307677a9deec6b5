"""The rule of elements on GPUs: each thread computes one of the result, or a few that lie together.

It is right for every stage: iterators whose order matters stay in their thread, and where not even one loop
can be shared the whole stage is one thread's. Updates of integers in no order, at places that data say, get a
thread each: they are atomic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright.cost import buffer_bytes, nest_seconds
from tilewright.ir import (
    Index,
    Program,
    Stage,
    Store,
    condition_of,
    stmt_loads,
    stmt_writes,
    substitute_index,
    var,
)
from tilewright.plan.gpu.lanes import widest
from tilewright.plan.gpu.updates import are_atomic
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.target import GpuTarget
from tilewright.tiling import Body, Leaf, Nest, Place, Step, chain, sequence

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

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """All stages, those that compute the same elements together."""
        return alone(asked.program, [stage.name for stage in asked.roots])

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

    def trees(self, problem: ElementsProblem, plan: ElementsPlan) -> tuple[Nest, ...]:
        """The stage with what its threads make for themselves; what they cannot make has its own threads."""
        target, stage = problem.context.machine.gpu, problem.stage
        first, *_ = _forms(stage, plan, target)
        inside = _made_alone(problem) if first.threads else ()
        apart = [m for m in _members(problem) if m not in inside]
        return (
            _nest(stage, first, inside),
            *(_nest(m, next(_forms(m, plan, target))) for m in reversed(apart)),
        )

    def otherwise(
        self, problem: ElementsProblem, plan: ElementsPlan, nest: Nest
    ) -> Iterator[tuple[str, tuple[Nest, ...]]]:
        """Fewer loops for threads; at last one thread, and other threads for what it would have made."""
        target, stage = problem.context.machine.gpu, problem.context.program.stage(nest.root)
        inside = _made_alone(problem) if stage is problem.stage else ()
        for form in islice(_forms(stage, plan, target), 1, None):
            if form.threads:
                yield form.note, (_nest(stage, form, inside),)
            else:
                alone = [_nest(m, next(_forms(m, plan, target))) for m in reversed(inside)]
                yield form.note, (_nest(stage, form), *alone)

    def remarks(self, problem: ElementsProblem, plan: ElementsPlan) -> Iterator[tuple[str, str]]:
        """Where one thread has much to do."""
        for stage in (problem.stage, *_members(problem)):
            first, *_ = _forms(stage, plan, problem.context.machine.gpu)
            count = prod(it.extent.as_int() if it.extent.is_const else MANY for it in stage.iters)
            if not first.threads and count >= MANY and any(it.kind == "ord" for it in stage.iters):
                yield f"{stage.name} runs in one thread", f"the iterations of {stage.name} follow each other"


@dataclass(frozen=True, slots=True)
class _Form:
    """Loops of a stage in order, of which neighbouring ones are shared by threads, and what notes say."""

    order: tuple[str, ...]
    threads: tuple[str, ...]
    block: int
    vector: int
    note: str


def _forms(stage: Stage, plan: ElementsPlan, target: GpuTarget) -> Iterator[_Form]:
    """How the iterations of a stage are given to threads, what is best first, one thread at last."""
    axes = tuple(it.name for it in stage.iters)
    pars = tuple(it.name for it in stage.iters if it.kind == "par")
    leading = tuple(it.name for it in takewhile(lambda it: it.kind == "par", stage.iters))
    order, shared = axes, leading
    if are_atomic(stage, target):
        shared = axes
    elif any(it.kind == "ord" for it in stage.iters) and pars != leading:
        # results that updates in order never share are computed side by side
        order, shared = (*pars, *(a for a in axes if a not in pars)), pars
    if shared:
        yield _Form(order, shared, plan.threads, plan.vector, "")
    if order != axes and leading:
        yield _Form(axes, leading, plan.threads, plan.vector, f"the loops of {stage.name} stay in order")
    for axis in shared if len(shared) > 1 else ():
        yield _Form(order, (axis,), plan.threads, 1, f"{axis} alone of {stage.name} is shared by threads")
    yield _Form(axes, (), 0, 1, f"{stage.name} runs in one thread")


def _nest(stage: Stage, form: _Form, inside: Sequence[Stage] = ()) -> Nest:
    """A stage in one of its forms, with what its threads make for themselves in registers."""
    at = form.order.index(form.threads[0]) if form.threads else 0
    around, behind = form.order[:at], form.order[at + len(form.threads) :]
    steps = [Step(axis, 1, tail="guard") for axis in behind]
    if form.vector > 1:
        steps.insert(0, Step(form.threads[-1], 1, "vector", tail="guard"))
    made = [Place(m.name, "make", "local", _alone(m)) for m in inside]
    body = sequence(*made, chain(steps, Leaf(stage.name)))
    if form.threads:
        last = form.threads[-1] if form.vector == 1 else f"{form.threads[-1]}/{form.vector}"
        spread = "*".join((*form.threads[:-1], last))
        threads = Step(spread, form.block, "block.x", tail="guard"), Step(spread, 1, "thread.x", tail="guard")
        body = chain(threads, body)
    return Nest(stage.name, chain([Step(axis, 1, tail="guard") for axis in around], body))


def _alone(stage: Stage) -> Body:
    """One element of a stage."""
    return chain([Step(it.name, 1, tail="guard") for it in stage.iters if it.kind != "par"], Leaf(stage.name))


def _members(problem: ElementsProblem) -> tuple[Stage, ...]:
    return tuple(problem.context.program.stage(name) for name in problem.members)


def _made_alone(problem: ElementsProblem) -> tuple[Stage, ...]:
    """The members of which a thread needs one element: all that read them read the same place."""
    program, root = problem.context.program, problem.stage
    own: dict[str, Mapping[str, Index]] = {root.name: {it.name: var(it.name) for it in root.iters}}
    pars = {it.name for it in root.iters if it.kind == "par"}
    for stage in reversed(_members(problem)):
        (buffer,) = stage.writes
        readers = program.consumers(buffer)
        if len(program.producers(buffer)) != 1 or any(reader.name not in own for reader in readers):
            continue
        _, body = condition_of(stage.body)
        places = {
            tuple(substitute_index(i, own[reader.name]) for i in ld.indices)
            for reader in readers
            for ld in stmt_loads(reader.body)
            if ld.buffer == buffer
        }
        written = [i.as_var() for _, indices in stmt_writes(body) for i in indices]
        if len(places) != 1 or None in written or not isinstance(body, Store):
            continue
        (place,) = places
        if any(not index.vars <= pars for index in place):
            continue
        own[stage.name] = {
            name: index for name, index in zip(written, place, strict=True) if name is not None
        }
    return tuple(stage for stage in _members(problem) if stage.name in own)


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


def alone(program: Program, names: list[str]) -> tuple[Cluster, ...]:
    """Stages by threads that compute elements, with no other rule."""
    homes = element_homes(program, names)
    return tuple(Cluster(GpuElementsRule.name, root, tuple(inside)) for root, inside in homes.items())


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
