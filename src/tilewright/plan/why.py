"""Why a nest is made as it is: the other ways that were open, their prices, and reasons against some."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, Final, get_args

from tilewright import tiling
from tilewright.cost import Cost, LoopTree, Machine, cost_of
from tilewright.ir import Program
from tilewright.plan.algorithms.accuracy import EXACT, Accuracy, AccuracyMode
from tilewright.plan.algorithms.methods import METHODS
from tilewright.plan.assembly import plan_unit
from tilewright.plan.catalog import RULES
from tilewright.plan.edits import edited
from tilewright.plan.inlining import inline_stages
from tilewright.plan.rule import Cluster, Context, Nest, Rule
from tilewright.plan.space import Combinations, Space, difference
from tilewright.plan.unit import UnitPlan, matched, rewritten
from tilewright.plan.varied import Variants
from tilewright.schedule import ALGORITHMS, Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target

#: Plans that differ from the one that was taken in one decision, of which prices are made.
MOST_NEIGHBOURS: Final = 200
#: Refused ones that are told of a decision.
MOST_REFUSED: Final = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way of making a nest: ``rule`` and ``change``, what is decided otherwise than was taken.

    ``seconds`` are by the model that all rules have in common, ``terms`` what they are spent for, in parts at
    the same time; on devices they are the rule's own, without terms. Both are missing where only a
    schedule would tell, or the plan is ``refused``.
    """

    rule: str
    change: str
    seconds: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Reasons:
    """One nest of a kernel: what was taken, and the others, the cheapest first, those without price last.

    ``plan`` are the decisions as the rule has them, ``tree`` the loops that they mean.
    """

    root: str
    stages: tuple[str, ...]
    taken: Candidate
    plan: str
    tree: str
    others: tuple[Candidate, ...]

    @property
    def margin(self) -> float | None:
        """The price of the cheapest other way by that of the taken one; ``None`` where one is not known."""
        found = [each.seconds for each in self.others if each.seconds is not None]
        return min(found) / self.taken.seconds if found and self.taken.seconds else None


def why(
    program: Program,
    plan: UnitPlan,
    machine: Machine,
    constants: Collection[str] = (),
    others: Iterable[Candidate] = (),
) -> tuple[Reasons, ...]:
    """The reasons for each nest of a kernel; ``others`` are more ways to make the whole of it.

    Raises ArtefactError for the plan of another program.
    """
    variants = Variants(program, plan, machine, constants)
    plan = variants.plan
    found = [_reasons(variants, n) for n in range(len(plan.nests))]
    # another method makes the whole kernel otherwise: told of its longest nest, less what the others take
    at = max(range(len(found)), key=lambda n: found[n].taken.seconds or 0.0, default=None)
    if at is not None:
        rest = sum(each.taken.seconds or 0.0 for n, each in enumerate(found) if n != at)
        others = (*_by_other_methods(program, plan, machine, constants), *others)
        found[at] = _with(found[at], others, rest)
    return tuple(found)


def _reasons(variants: Variants, n: int) -> Reasons:
    context, nest, variant = variants.context, variants.plan.nests[n], variants.nests[n]
    # fields that this nest does not follow change nothing
    others = [
        _priced(context, other, change)
        for change, other in islice(_changes(variants, n), MOST_NEIGHBOURS)
        if other.trees != nest.trees or other.steps != nest.steps
    ]
    others += _by_other_rules(context, nest)
    others.sort(key=lambda each: (each.seconds is None, each.seconds or 0.0, bool(each.refused)))
    shown = "".join(map(tiling.show, nest.trees))
    refused = () if variant is None else _refused(variant.rule, variant.space, nest.choice)
    plan = "as written" if variant is None else str(nest.choice)
    return Reasons(nest.root, nest.stages, _priced(context, nest, ""), plan, shown, (*others, *refused))


def _changes(variants: Variants, n: int) -> Iterator[tuple[str, Nest]]:
    """What differs from a nest in one decision: of its rule, or by an edit where no rule wrote it."""
    nest, variant = variants.plan.nests[n], variants.nests[n]
    if variant is None:
        for edit, other in edited(variants.context.after(nest.steps), nest):
            yield str(edit), other
        return
    for change, choice in variant.space.changes(nest.choice):
        try:
            yield change, variant.rule.write(variant.cluster, variant.problem, choice)
        except ScheduleError:
            continue


def _with(reasons: Reasons, others: Iterable[Candidate], rest: float) -> Reasons:
    """The reasons with more candidates for a whole kernel, of which other nests take ``rest`` seconds."""
    less = (each if each.seconds is None else replace(each, seconds=each.seconds - rest) for each in others)
    both = sorted(
        (*reasons.others, *less),
        key=lambda each: (bool(each.refused), each.seconds is None, each.seconds or 0.0),
    )
    return replace(reasons, others=tuple(both))


def _by_other_methods(
    program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str]
) -> Iterator[Candidate]:
    """A kernel of one nest by each algorithm that fits a stage of it, and directly."""
    taken = {step.primitive for step in plan.rewrites.steps if step.primitive in ALGORITHMS}
    if not isinstance(machine.on, Target):
        return
    if taken:
        yield _planned_otherwise(program, machine, constants, EXACT, "direct")
    inlined = inline_stages(Schedule(program, operations=machine.target.operations)).require_program()
    for method in METHODS.values():
        fits = any(method.algorithm.match(inlined, stage) is not None for stage in inlined.stages)
        if not fits or method.algorithm.name in taken:
            continue
        for variant in method.algorithm.variants:
            mode = next((mode for mode in get_args(AccuracyMode) if mode == variant), None)
            if mode is not None:
                yield _planned_otherwise(program, machine, constants, Accuracy(mode), variant)
            else:
                refused = "its own model of this machine promises too little"
                yield Candidate(variant, f"by the algorithm {variant}", refused=refused)


def _planned_otherwise(
    program: Program, machine: Machine, constants: Collection[str], accuracy: Accuracy, name: str
) -> Candidate:
    """The whole kernel under another ``accuracy``."""
    change = "by the direct method" if accuracy == EXACT else f"by the algorithm {name}"
    change += ", the whole kernel"
    plan = plan_unit(program, machine, constants, accuracy=accuracy).plan
    _, context = rewritten(program, plan, machine, constants)
    loops = context.loops(plan.nests)
    return Candidate(name, change) if loops is None else of_loops(machine, name, change, loops)


def _priced(context: Context, nest: Nest, change: str) -> Candidate:
    """A nest by the model that all rules have in common; on devices by its own rule's."""
    try:
        loops = context.loops([nest])
    except ScheduleError:
        return Candidate(nest.rule, change)
    if loops is not None:
        return of_loops(context.machine, nest.rule, change, loops)
    own = None if nest.choice is None else RULES[nest.rule].seconds(matched(context, nest), nest.choice)
    return Candidate(nest.rule, change, own)


def of_loops(machine: Machine, rule: str, change: str, loops: LoopTree) -> Candidate:
    """Loops that a rule makes, with their price."""
    clock = machine.clock_hz
    found = [cost_of(LoopTree((nest,)), machine) for nest in loops.nests]
    whole = sum(found, Cost())
    terms = {term.name: getattr(whole, term.name) / clock for term in fields(Cost)}
    return Candidate(rule, change, sum(cost.cycles for cost in found) / clock, terms)


def _by_other_rules(context: Context, nest: Nest) -> Iterator[Candidate]:
    """The same stages by each other rule that makes trees of all of them, as it does by default."""
    names, on = {*nest.stages, nest.root}, context.machine.on
    for rule in RULES.values():
        if rule.name != nest.rule and isinstance(on, rule.machines):
            other = _by_default(context, Cluster(rule.name, nest.root, nest.stages))
            loops = None if other is None else context.loops([other])
            if other is not None and (loops is None or names <= {work.name for _, work in loops.works()}):
                yield _priced(context, other, f"by the rule {rule.name}")
    if nest.stages and isinstance(on, Target):
        stages = [stage.name for stage in context.program.stages if stage.name in names]
        apart = [_by_default(context, Cluster("elementwise", name)) for name in stages]
        loops = context.loops(each for each in apart if each is not None)
        if None not in apart and loops is not None:
            yield of_loops(context.machine, "elementwise", "each stage in a nest of its own", loops)


def _by_default(context: Context, cluster: Cluster) -> Nest | None:
    """The nest that a rule makes of some stages by default; ``None`` where it makes none."""
    rule = RULES[cluster.rule]
    problem = rule.match(context, cluster.root, cluster.stages)
    try:
        return None if problem is None else rule.write(cluster, problem, rule.default(problem))
    except ScheduleError:
        return None


def _refused(rule: Rule[Any, Any], space: Space[Any], plan: Any) -> Iterator[Candidate]:
    """Some of the plans beside the taken one that are none, with the reasons."""
    if type(plan) is not type(space.default):
        return
    for name, values in space.options.items():
        now = getattr(plan, name)
        near = values.near(now) if isinstance(values, Combinations) else values
        others = (replace(plan, **{name: value}) for value in islice(near, MOST_NEIGHBOURS) if value != now)
        found = ((other, reason) for other in others if (reason := space.refusal(other)))
        for other, reason in islice(found, MOST_REFUSED):
            yield Candidate(rule.name, difference(plan, other), refused=reason)
