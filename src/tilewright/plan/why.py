"""Why a nest is made as it is: the other ways that were open, their prices, and reasons against some."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, Final

from tilewright import tiling
from tilewright.cost import Cost, LoopTree, Machine, Node, cost_of
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Context, Nest, Rule
from tilewright.plan.space import Combinations, Space, difference
from tilewright.plan.unit import UnitPlan, matched, rewritten
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
    program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str] = ()
) -> tuple[Reasons, ...]:
    """The reasons for each nest of a kernel. Raises ArtefactError for the plan of another program."""
    _, context = rewritten(program, plan, machine, constants)
    return tuple(_reasons(context, nest) for nest in plan.nests)


def _reasons(context: Context, nest: Nest) -> Reasons:
    rule, problem = RULES[nest.rule], matched(context, nest)
    space: Space[Any] = rule.space(problem)
    trees = _trees(rule, problem, nest.plan)
    others = [
        _priced(context, rule, problem, plan, change)
        for change, plan in islice(space.changes(nest.plan), MOST_NEIGHBOURS)
        # fields that this nest does not follow change nothing
        if not trees or _trees(rule, problem, plan) != trees
    ]
    others += _by_other_rules(context, nest)
    others.sort(key=lambda each: (each.seconds is None, each.seconds or 0.0, bool(each.refused)))
    taken = _priced(context, rule, problem, nest.plan, "")
    shown = "".join(map(tiling.show, trees))
    refused = _refused(rule, space, nest.plan)
    return Reasons(nest.root, nest.stages, taken, str(nest.plan), shown, (*others, *refused))


def _trees(rule: Rule[Any, Any], problem: Any, plan: Any) -> tuple[tiling.Nest, ...]:
    """The trees of a plan; none where it has none or only steps are known."""
    try:
        return rule.trees(problem, plan)
    except ScheduleError:
        return ()


def _priced(context: Context, rule: Rule[Any, Any], problem: Any, plan: Any, change: str) -> Candidate:
    own = rule.seconds(problem, plan)
    loops = rule.loops(context, problem, plan)
    if loops is not None:
        return _of_loops(context, rule.name, change, loops)
    return Candidate(rule.name, change, own)


def _of_loops(context: Context, rule: str, change: str, loops: LoopTree) -> Candidate:
    clock = context.machine.clock_hz
    found = [cost_of(LoopTree((nest,)), context.machine) for nest in loops.nests]
    whole = sum(found, Cost())
    terms = {term.name: getattr(whole, term.name) / clock for term in fields(Cost)}
    return Candidate(rule, change, sum(cost.cycles for cost in found) / clock, terms)


def _by_other_rules(context: Context, nest: Nest) -> Iterator[Candidate]:
    """The same stages by each other rule that makes trees of all of them, as it does by default."""
    names, on = {*nest.stages, nest.root}, context.machine.on
    for rule in RULES.values():
        fits = rule.name != nest.rule and isinstance(on, rule.machines)
        problem = rule.match(context, nest.root, nest.stages) if fits else None
        if problem is None:
            continue
        plan = rule.default(problem)
        loops = rule.loops(context, problem, plan)
        if loops is not None and names <= {work.name for _, work in loops.works()}:
            yield _of_loops(context, rule.name, f"by the rule {rule.name}", loops)
        elif loops is None and (seconds := rule.seconds(problem, plan)) is not None:
            yield Candidate(rule.name, f"by the rule {rule.name}", seconds)
    if nest.stages and isinstance(on, Target):
        yield from _apart(context, [stage.name for stage in context.program.stages if stage.name in names])


def _apart(context: Context, stages: Sequence[str]) -> Iterator[Candidate]:
    """Each stage in a nest of its own."""
    rule, nodes = RULES["elementwise"], list[Node]()
    for name in stages:
        problem = rule.match(context, name, ())
        loops = None if problem is None else rule.loops(context, problem, rule.default(problem))
        if loops is None:
            return
        nodes += loops.nests
    yield _of_loops(context, rule.name, "each stage in a nest of its own", LoopTree(tuple(nodes)))


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
