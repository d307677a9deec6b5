"""Programs to loaded kernels: schedule, lower, emit, compile; equal programs once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from tilewright.build import Array, Kernel, UnitKernel, build, emit, flops
from tilewright.codegen import CompilePool, CompileRequest, KernelText, compile_request, load_object
from tilewright.cost import Machine
from tilewright.driver.plans import ModelPlan
from tilewright.driver.progress import Progress
from tilewright.driver.units import Unit
from tilewright.ir import LoopFunction, Program
from tilewright.plan import EXACT, Accuracy, Planned, UnitPlan, Version, build_unit, plan_versions, written
from tilewright.schedule import DerivedConstant, Schedule, derived_constants
from tilewright.strategies import Strategy, Task, best_by_model
from tilewright.support import InternalError, ScheduleError, Settings, TargetError, counted, get_logger
from tilewright.target import Target
from tilewright.tune import Records

_log = get_logger(__name__)

_FEW = 3
"""Up to so many kernels are compiled in this process: starting a worker takes longer."""


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What decides how kernels compute: the threads of a run, and how exact sums of products must be.

    Kernels that ``plan`` has are made as it says, others by the best candidate of ``strategy``; without one
    by the fastest of ``records`` that is exact enough for their weights, or by the default plan.
    """

    threads: int
    accuracy: Accuracy = field(default_factory=Accuracy)
    strategy: Strategy | None = None
    plan: ModelPlan | None = None
    records: Records | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """A kernel on its way through the compiler."""

    schedule: Schedule
    plan: UnitPlan | None
    text: KernelText
    request: CompileRequest

    @property
    def func(self) -> LoopFunction:
        """The scheduled function."""
        return self.schedule.func


def build_kernels(
    units: Sequence[Unit],
    target: Target,
    options: KernelOptions,
    constants: Callable[[str], Array | None],
    settings: Settings,
    progress: Progress,
) -> tuple[tuple[Unit, ...], tuple[UnitKernel, ...]]:
    """Units with their kernels; units with equal programs and equal algorithms share one.

    They are the given ones, but that those of open sizes may become two versions.
    Kernels of parts of a batch are for one thread each: threads take different parts.
    ``constants`` gives the arrays of values that are known when compiling: with the mode ``auto`` they decide
    which algorithms are exact enough. This process schedules and emits while workers compile. Raises what
    scheduling and compiling raise, naming the unit.
    """
    chooser = _Chooser(target, options, constants)
    keys: list[_Key] = []
    first: dict[_Key, Unit] = {}
    expected = len({unit.program for unit in units})
    if options.plan is not None:
        options.plan.require((unit.program, chooser.threads(unit)) for unit in units)
    with CompilePool.of_settings(settings) as pool:
        drafts: list[_Draft] = []
        running: list[Future[bytes]] = []
        found = [version for unit in units for version in chooser.versions(unit)]
        for unit, choice in found:
            progress("schedule", len(drafts), max(expected, len(drafts)), unit.label)
            keys.append((unit.program, choice, chooser.threads(unit)))
            if keys[-1] in first:
                continue
            first[keys[-1]] = unit
            with naming_unit(unit):
                schedule, plan = chooser.scheduled(*keys[-1])
            if plan is not None:
                _log.info("%s: %s", unit.label, plan.words)
            given = options.plan is not None and plan == options.plan.find(unit.program, keys[-1][2])
            drafts.append(_draft(unit, schedule, plan, given, target))
            if expected > _FEW:
                running.append(pool.submit(drafts[-1].request))
        progress("schedule", len(first), len(first), "")
        if expected <= _FEW:
            objects = pool.compile_many([draft.request for draft in drafts])
        else:
            objects = []
            for future, unit in zip(running, first.values(), strict=True):
                progress("compile", len(objects), len(first), unit.label)
                objects.append(future.result())
        progress("compile", len(first), len(first), "")
    if options.strategy is not None:
        plans = (draft.plan for draft in drafts)
        _tell_defaults(options, target, zip(first, plans, strict=True))
    kernels = {
        key: UnitKernel(
            name=f"{draft.text.symbol}_{at}",
            program=key[0],
            schedule=draft.schedule,
            plan=draft.plan,
            threads=key[2],
            target=target,
            buffers=draft.func.buffers,
            flops=flops(key[0]),
            code=Kernel(
                draft.func, target, key[2], draft.text.symbol, draft.text.memory, load_object(content)
            ),
        )
        for at, (key, draft, content) in enumerate(zip(first, drafts, objects, strict=True))
    }
    return tuple(unit for unit, _ in found), tuple(kernels[key] for key in keys)


def planner_of(strategy: Strategy | None) -> Callable[[Program, Machine], Planned] | None:
    """What plans a program of open sizes at typical ones, where that is a strategy."""
    if strategy is None:
        return None
    return lambda program, machine: best_by_model(strategy, Task(program, machine, accuracy=EXACT))


def scheduled_kernel(
    unit: Unit, schedule: Schedule, target: Target, threads: int, settings: Settings
) -> UnitKernel:
    """The kernel of a unit by a schedule that was made by hand, as it stands."""
    code = build(schedule, target=target, threads=threads, settings=settings)
    return UnitKernel(
        name=code.symbol,
        program=unit.program,
        schedule=schedule,
        plan=None,
        threads=threads,
        target=target,
        buffers=schedule.func.buffers,
        flops=flops(unit.program),
        code=code,
    )


_Choice: TypeAlias = "int | frozenset[str]"
"""Which plan of a program: one that is known, by number; or the default's, without some algorithms."""
_Key: TypeAlias = tuple[Program, _Choice, int]
"""What decides a schedule: the program, the choice among its plans, and the threads."""


def _tell_defaults(
    options: KernelOptions, target: Target, made: Iterable[tuple[_Key, UnitPlan | None]]
) -> None:
    """Say where a strategy that was asked for found nothing other than the default."""
    count = same = 0
    for (program, choice, threads), plan in made:
        if plan is not None and not isinstance(choice, int):
            count += 1
            same += plan == _task(options, target, program, threads, choice).default().plan
    if same and options.strategy is not None:
        _log.warning(
            "the strategy %s finds nothing other than the default for %d of %s",
            options.strategy.name,
            same,
            counted(count, "kernel"),
        )


def _task(
    options: KernelOptions,
    target: Target,
    program: Program,
    threads: int,
    without: frozenset[str] = frozenset(),
) -> Task:
    """The search for a kernel's plan, without some algorithms."""
    return Task(program, Machine(target, threads), accuracy=options.accuracy.but(without))


class _Chooser:
    """Plans by program: what is given or was found, then the default's, each carried out once."""

    def __init__(
        self, target: Target, options: KernelOptions, constants: Callable[[str], Array | None]
    ) -> None:
        self._target, self._options, self._constants = target, options, constants
        self._known: dict[tuple[Program, int], list[Planned]] = {}
        self._more: dict[tuple[Program, int], Iterator[Planned]] = {}
        self._made: dict[_Key, Planned] = {}
        self._derived: dict[_Key, tuple[DerivedConstant, ...]] = {}

    def threads(self, unit: Unit) -> int:
        """The threads that run one call of a unit's kernel."""
        return self._options.threads if unit.parts == 1 else 1

    def scheduled(self, program: Program, choice: _Choice, threads: int) -> tuple[Schedule, UnitPlan | None]:
        """The schedule of a program, and its plan; what has symbolic sizes follows that of a typical one."""
        if program.params:
            assert isinstance(choice, int)  # the number of a version
            return self._open(program, threads)[choice].planned.schedule, None
        planned = self._planned(program, choice, threads)
        assert planned is not None  # it was chosen
        return planned.schedule, planned.plan

    def versions(self, unit: Unit) -> list[tuple[Unit, _Choice]]:
        """A unit, or its versions, each with the choice of its plan."""
        if not unit.program.params:
            return [(unit, self.choice(unit))]
        with naming_unit(unit):
            found = self._open(unit.program, self.threads(unit))
        if unit.repeat is not None or len(found) == 1:
            # of steps of a loop the version for many elements
            return [(unit, len(found) - 1)]
        return [
            (replace(unit, elements=(v.above, v.until), ranges=() if at else unit.ranges), at)
            for at, v in enumerate(found)
        ]

    def _open(self, program: Program, threads: int) -> tuple[Version, ...]:
        with refusals_are_ours():
            return plan_versions(program, Machine(self._target, threads), self._typical)

    @cached_property
    def _typical(self) -> Callable[[Program, Machine], Planned] | None:
        return planner_of(self._options.strategy)

    def choice(self, unit: Unit) -> _Choice:
        """The first plan that is exact enough for a unit's own weights.

        An algorithm that is not is left out, and those of its variants that are stay.
        """
        without, threads = self._options.accuracy.without, self.threads(unit)
        with naming_unit(unit):
            number = 0
            while (planned := self._planned(unit.program, number, threads)) is not None:
                inexact = self._inexact(unit, number, planned)
                if not inexact:
                    return number
                without, number = without | inexact, number + 1
            while True:
                planned = self._planned(unit.program, without, threads)
                assert planned is not None
                inexact = self._inexact(unit, without, planned)
                if not inexact:
                    return without
                if inexact <= without:
                    raise InternalError(f"a plan takes {', '.join(sorted(inexact))}, which were left out")
                without |= inexact

    def _planned(self, program: Program, choice: _Choice, threads: int) -> Planned | None:
        """A plan of a program, carried out; ``None`` after the last one that is known."""
        if isinstance(choice, int):
            at = (program, threads)
            if at not in self._known:
                self._known[at], self._more[at] = [], self._given(program, threads)
            while len(self._known[at]) <= choice:
                planned = next(self._more[at], None)
                if planned is None:
                    return None
                self._known[at].append(planned)
            return self._known[at][choice]
        key = (program, choice, threads)
        if key not in self._made:
            task = _task(self._options, self._target, program, threads, choice)
            if self._options.strategy is not None:
                self._made[key] = best_by_model(self._options.strategy, task)
            else:
                with refusals_are_ours():
                    self._made[key] = task.default()
        return self._made[key]

    def _given(self, program: Program, threads: int) -> Iterator[Planned]:
        """The plan that the user gave, or those that were found by tuning, the fastest first."""
        options, task = self._options, _task(self._options, self._target, program, threads)
        known = None if options.plan is None else options.plan.find(program, threads)
        if known is not None:
            known = written(program, known, task.machine)
            yield Planned(known, build_unit(program, known, task.machine))
        elif options.records is not None and options.strategy is None:
            yield from options.records.plans(task)

    def _inexact(self, unit: Unit, choice: _Choice, planned: Planned) -> frozenset[str]:
        """The variants of other algorithms in a plan that are not exact enough with a unit's own weights.

        None where an algorithm was asked for.
        """
        if self._options.accuracy.mode != "auto":
            return frozenset()
        key = (unit.program, choice, self.threads(unit))
        if key not in self._derived:
            self._derived[key] = tuple(derived_constants(planned.schedule).values())
        found = set()
        for made in self._derived[key]:
            error = made.error(*(self._array(unit, name) for name in made.sources))
            # not "is larger": an error that is no number is none to accept
            if not error <= self._options.accuracy.most_error:
                _log.info("%s: the algorithm %s errs by %.2g", unit.label, made.variant, error)
                found.add(made.variant)
        return frozenset(found)

    def _array(self, unit: Unit, name: str) -> Array:
        """The constant that an argument of a unit's program holds."""
        array = unit.tables.get(name)
        if array is None:
            array = self._constants(unit.inputs[name])
        if array is None:
            raise InternalError(f"the argument {name} of {unit.label} is no constant")
        return array


@contextmanager
def refusals_are_ours() -> Iterator[None]:
    """What a primitive or the emitter refuses inside is a fault of our own rules, not the user's."""
    try:
        yield
    except (ScheduleError, TargetError) as error:
        raise InternalError(
            f"a plan of our own is refused: {error.what}", hint="please report it with the model"
        ) from error


@contextmanager
def naming_unit(unit: Unit) -> Iterator[None]:
    """Errors inside get the place of the unit in the user's model."""
    try:
        yield
    except InternalError as error:
        if error.where is None:
            error.where = unit.nodes[0].location
        raise


def _draft(unit: Unit, schedule: Schedule, plan: UnitPlan | None, given: bool, target: Target) -> _Draft:
    """Lowered and emitted; what is refused of a plan that the user has ``given`` is the user's."""
    with naming_unit(unit), nullcontext() if given else refusals_are_ours():
        text = emit(schedule.func, target)
    return _Draft(schedule, plan, text, compile_request(text.text, target))
