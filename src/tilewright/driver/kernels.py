"""Programs to loaded kernels: schedule, lower, emit, compile; equal programs once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tilewright.build import Array, Kernel, UnitKernel, build, emit, flops
from tilewright.codegen import CompilePool, CompileRequest, KernelText, compile_request, load_object
from tilewright.cost import Machine
from tilewright.driver.plans import ModelPlan
from tilewright.driver.progress import Progress
from tilewright.driver.units import Unit
from tilewright.ir import LoopFunction, Program
from tilewright.plan import WINOGRAD_SIZES, Accuracy, Planned, UnitPlan, build_unit, schedule_open
from tilewright.schedule import DerivedConstant, Schedule, derived_constants
from tilewright.strategies import Strategy, Task, best_by_model
from tilewright.support import InternalError, ScheduleError, Settings, TargetError, get_logger
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
) -> tuple[UnitKernel, ...]:
    """The kernel of each unit; units with equal programs and equal algorithms share one.

    Kernels of parts of a batch are for one thread each: threads take different parts.
    ``constants`` gives the arrays of values that are known when compiling: with the mode ``auto`` they decide
    which algorithms are exact enough. This process schedules and emits while workers compile. Raises what
    scheduling and compiling raise, naming the unit.
    """
    chooser = _Chooser(target, options, constants)
    keys: list[_Key] = []
    first: dict[_Key, Unit] = {}
    expected = len({unit.program for unit in units})
    with CompilePool.of_settings(settings) as pool:
        drafts: list[_Draft] = []
        running: list[Future[bytes]] = []
        for unit in units:
            progress("schedule", len(drafts), max(expected, len(drafts)), unit.label)
            keys.append((unit.program, chooser.choice(unit), chooser.threads(unit)))
            if keys[-1] in first:
                continue
            first[keys[-1]] = unit
            with naming_unit(unit):
                schedule, plan = chooser.scheduled(*keys[-1])
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
    return tuple(kernels[key] for key in keys)


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


_Key: TypeAlias = tuple[Program, int, int]
"""What decides a schedule: the program, the number of the choice among its plans, and the threads."""


class _Chooser:
    """Plans by program, the one that is wanted most first, each carried out once."""

    def __init__(
        self, target: Target, options: KernelOptions, constants: Callable[[str], Array | None]
    ) -> None:
        self._target, self._options, self._constants = target, options, constants
        self._made: dict[tuple[Program, int], list[Planned]] = {}
        self._more: dict[tuple[Program, int], Iterator[Planned]] = {}
        self._derived: dict[_Key, tuple[DerivedConstant, ...]] = {}

    def threads(self, unit: Unit) -> int:
        """The threads that run one call of a unit's kernel."""
        return self._options.threads if unit.parts == 1 else 1

    def scheduled(self, program: Program, choice: int, threads: int) -> tuple[Schedule, UnitPlan | None]:
        """The schedule of a program, and its plan; what has symbolic sizes follows that of a typical one."""
        if program.params:
            with refusals_are_ours():
                return schedule_open(program, Machine(self._target, threads), self._typical(threads)), None
        planned = self._planned(program, choice, threads)
        assert planned is not None  # it was chosen
        return planned.schedule, planned.plan

    def _typical(self, threads: int) -> Callable[[Program], Planned] | None:
        """What plans a program of open sizes at a typical one, where that is a strategy."""
        strategy, machine = self._options.strategy, Machine(self._target, threads)
        if strategy is None:
            return None
        return lambda program: best_by_model(strategy, Task(program, machine, winograd="off"))

    def choice(self, unit: Unit) -> int:
        """The number of the first plan that is exact enough for a unit's own weights."""
        if unit.program.params:
            return 0
        with naming_unit(unit):
            choice, threads = 0, self.threads(unit)
            planned = self._planned(unit.program, 0, threads)
            while planned is not None and not self._exact_enough(unit, choice, planned):
                choice += 1
                planned = self._planned(unit.program, choice, threads)
        # the last one is the direct method
        return choice if planned is not None else choice - 1

    def _planned(self, program: Program, choice: int, threads: int) -> Planned | None:
        """A plan of a program, carried out; ``None`` after the last one."""
        key = (program, threads)
        if key not in self._made:
            self._made[key], self._more[key] = [], self._plans(program, threads)
        made = self._made[key]
        while len(made) <= choice:
            planned = next(self._more[key], None)
            if planned is None:
                return None
            made.append(planned)
        return made[choice]

    def _plans(self, program: Program, threads: int) -> Iterator[Planned]:
        """What is given first, then what was found, then what is planned: with ever smaller tiles."""
        options, machine = self._options, Machine(self._target, threads)
        known = None if options.plan is None else options.plan.find(program, threads)
        task = Task(program, machine, winograd=options.accuracy.method)
        if known is not None:
            yield Planned(known, build_unit(program, known, machine))
        elif options.records is not None and options.strategy is None:
            yield from options.records.plans(task)
        for count in range(len(WINOGRAD_SIZES), -1, -1):
            if known is not None and count == len(WINOGRAD_SIZES):
                continue
            limited = replace(task, sizes=WINOGRAD_SIZES[:count])
            strategy = options.strategy
            if strategy is not None:
                yield best_by_model(strategy, limited)
                continue
            with refusals_are_ours():
                planned = limited.default()
            yield planned

    def _exact_enough(self, unit: Unit, choice: int, planned: Planned) -> bool:
        """Whether a plan's other algorithms are, with a unit's own weights, where that is asked."""
        if self._options.accuracy.method != "auto":
            return True
        key = (unit.program, choice, self.threads(unit))
        if key not in self._derived:
            self._derived[key] = tuple(derived_constants(planned.schedule).values())
        errors = [
            made.error(*(self._array(unit, name) for name in made.sources)) for made in self._derived[key]
        ]
        # not "any is larger": an error that is no number is none to accept
        if all(error <= self._options.accuracy.most_error for error in errors):
            return True
        _log.info("%s: an algorithm other than the direct one errs by %.2g", unit.label, max(errors))
        return False

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
