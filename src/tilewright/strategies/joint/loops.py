"""Spaces of loops under given layouts: the plans of a unit as points over the options of its nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2
from random import Random
from typing import Any, Final, TypeAlias

from tilewright.plan import Accuracy, Combinations, UnitPlan, Variants, plan_unit
from tilewright.schedule import Schedule, Step, Trace
from tilewright.strategies.search import History, Task
from tilewright.support import ScheduleError

#: Plans of other tasks that a search begins with, at most.
ADOPTED: Final = 4

LoopPoint: TypeAlias = tuple[int, ...]
"""For each parameter the number of its option."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of a nest's plan and its options; ``field`` is empty for the choice of another form.

    Of a field that is a combination each ``place`` is a parameter of its own.
    """

    name: str
    nest: int
    field: str
    options: tuple[Any, ...]
    place: int | None = None

    def of(self, plan: Any) -> Any:
        """What a plan has there."""
        value = getattr(plan, self.field)
        return value if self.place is None else value[self.place]


@dataclass(frozen=True, slots=True, eq=False)
class LoopSpace:
    """The plans of a unit whose tensors ``layouts`` lay out: the ``base``, varied by ``parameters``.

    ``fields`` are the choices that points vary, nest by nest: the base's, or the default of another form.
    """

    layouts: tuple[Step, ...]
    variants: Variants
    fields: tuple[Any, ...]
    parameters: tuple[Parameter, ...]
    default: LoopPoint

    @property
    def base(self) -> UnitPlan:
        """The plan at the default point."""
        return self.variants.plan

    def plan(self, point: LoopPoint) -> UnitPlan | None:
        """The plan at a point; ``None`` where its fields do not go together."""
        if point == self.default:
            return self.base
        fields: list[dict[str, Any]] = [{} for _ in self.fields]
        choices: dict[int, Any] = {}
        for parameter, at in zip(self.parameters, point, strict=True):
            value, nest = parameter.options[at], parameter.nest
            if not parameter.field:
                if value is not None:
                    choices[nest] = value
            elif parameter.place is None:
                fields[nest][parameter.field] = value
            else:
                now = fields[nest].get(parameter.field, getattr(self.fields[nest], parameter.field))
                place = parameter.place
                fields[nest][parameter.field] = (*now[:place], value, *now[place + 1 :])
        for n, (variant, own) in enumerate(zip(self.variants.nests, fields, strict=True)):
            if variant is None or n in choices:
                continue
            choice = replace(self.fields[n], **own)
            if choice != variant.nest.choice and variant.space.refusal(choice):
                return None
            choices[n] = choice
        base = self.variants.plan.nests
        try:
            return self.variants.chosen({n: new for n, new in choices.items() if new != base[n].choice})
        except ScheduleError:
            return None

    def sample(self, rng: Random) -> LoopPoint:
        """A point drawn at random; it may be none of a plan."""
        return tuple(rng.randrange(len(p.options)) for p in self.parameters)

    def nearest(self, plan: UnitPlan) -> LoopPoint | None:
        """The point with what a plan has, of this task or of another one; else with the default's.

        ``None`` where its nests are made by other rules.
        """
        if [rule for rule, _ in plan.choices] != [nest.rule for nest in self.base.nests]:
            return None
        point = list(self.default)
        for n, parameter in enumerate(self.parameters):
            theirs = plan.choices[parameter.nest][1]
            if not parameter.field:
                value = theirs if theirs in parameter.options else None
            elif type(theirs) is not type(self.fields[parameter.nest]):
                continue
            else:
                whole = getattr(theirs, parameter.field)
                short = isinstance(whole, tuple) and parameter.place is not None
                if short and len(whole) != len(getattr(self.fields[parameter.nest], parameter.field)):
                    continue
                value = parameter.of(theirs)
            if value in parameter.options:
                point[n] = parameter.options.index(value)
        return tuple(point)

    def moved(self, point: LoopPoint, directions: Sequence[int]) -> LoopPoint:
        """The point one step further in each parameter, within its options."""
        return tuple(
            min(max(at + step, 0), len(p.options) - 1)
            for p, at, step in zip(self.parameters, point, directions, strict=True)
        )

    def features(self, point: LoopPoint) -> dict[str, float]:
        """Numbers of a point that a cost model can learn from, by name."""
        found: dict[str, float] = {}
        for parameter, at in zip(self.parameters, point, strict=True):
            found[parameter.name] = float(at)
            value = parameter.options[at]
            for n, number in enumerate(_numbers(value)):
                found[f"{parameter.name}.{n}"] = log2(1.0 + abs(number))
        return found


def loop_space(task: Task, layouts: tuple[Step, ...] = (), accuracy: Accuracy | None = None) -> LoopSpace:
    """The space around the default plan of a task under layouts. Raises ScheduleError for refused ones."""
    machine = task.machine
    laid = Schedule(task.program, operations=machine.on.operations).replay(layouts)
    planned = plan_unit(
        laid.require_program(),
        machine,
        task.constants,
        accuracy=task.accuracy if accuracy is None else accuracy,
    ).plan
    rewrites = Trace((*laid.trace.steps, *planned.rewrites.steps), planned.rewrites.instructions)
    base = replace(planned, rewrites=rewrites)
    variants = Variants(task.program, base, machine, task.constants)
    parameters: list[Parameter] = []
    default: list[int] = []
    varied: list[Any] = []
    for n, variant in enumerate(variants.nests):
        if variant is None:
            varied.append(None)
            continue
        nest, space = variant.nest, variant.space
        prefix = f"{n}.{nest.rule}"
        forms = (None, *space.others)
        if len(forms) > 1:
            parameters.append(Parameter(f"{prefix}.form", n, "", forms))
            default.append(forms.index(nest.choice) if nest.choice in forms else 0)
        own = nest.choice if type(nest.choice) is type(space.default) else space.default
        varied.append(own)
        for name, values in space.options.items():
            made = (
                [Parameter(f"{prefix}.{name}", n, name, _ordered(values))]
                if not isinstance(values, Combinations)
                else [
                    Parameter(f"{prefix}.{name}.{at}", n, name, _ordered(part), at)
                    for at, part in enumerate(values.parts)
                ]
            )
            for parameter in made:
                if len(parameter.options) > 1:
                    parameters.append(parameter)
                    default.append(parameter.options.index(parameter.of(own)))
    return LoopSpace(layouts, variants, tuple(varied), tuple(parameters), tuple(default))


def adopted(space: LoopSpace, history: History) -> list[LoopPoint]:
    """The best points of a history in a space, best first: its plans, as far as they fit."""
    found: dict[LoopPoint, None] = {}
    ok = [trial for trial in history.trials if trial.status == "ok"]
    for trial in sorted(ok, key=lambda trial: trial.best):
        plan = trial.candidate.plan
        point = space.nearest(plan) if isinstance(plan, UnitPlan) else None
        if point is not None and point != space.default:
            found[point] = None
        if len(found) == ADOPTED:
            break
    return list(found)


def _ordered(values: Sequence[Any]) -> tuple[Any, ...]:
    """Options in an order in which a step is a small change: numbers by size, others as they come."""
    if all(isinstance(v, int) for v in values):
        return tuple(sorted(values))
    return tuple(values)


def _numbers(value: Any) -> list[float]:
    """The numbers in an option: of a block its size, of a turn its steps."""
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, tuple | list):
        return [x for each in value for x in _numbers(each)]
    fields = getattr(value, "__dataclass_fields__", None)
    return [] if fields is None else [x for name in fields for x in _numbers(getattr(value, name))]
