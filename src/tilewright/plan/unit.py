"""Plans of units: what is decided about one kernel, as a value that is then carried out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tilewright import tiling
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Cluster, Context, Nest
from tilewright.schedule import ALGORITHMS, Schedule, Trace
from tilewright.support import ArtefactError, ScheduleError
from tilewright.target import GpuTarget, TargetBase

FORMAT: Final = "tilewright-plan"
VERSION: Final = 3
#: The version before: of choices without their trees.
OF_CHOICES: Final = 2
#: The rule of trees that no rule wrote.
EDITED: Final = "tree"


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """One kernel: ``rewrites`` of the program (algorithms, inlining, splits), then ``nests`` in order.

    ``streamed`` are the results that are stored past the caches. ``asked`` are choices of an older version,
    whose trees are still to be written (:func:`written`). No decisions, and so no part of what makes plans
    equal, are ``quantities``, the digest of what was measured of the machine when this was decided, and
    ``notes``, what was refused meanwhile.
    """

    rewrites: Trace
    nests: tuple[Nest, ...]
    streamed: tuple[str, ...] = ()
    quantities: str = field(default="", compare=False)
    asked: tuple[Cluster, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def to_json(self, indent: int | None = None) -> str:
        """The versioned JSON text that :func:`plan_from_json` reads."""
        data = {
            "format": FORMAT,
            "version": OF_CHOICES if self.asked else VERSION,
            "rewrites": json.loads(self.rewrites.to_json()),
            "nests": [*map(_asked_json, self.asked), *map(_nest_json, self.nests)],
            "streamed": self.streamed,
            "quantities": self.quantities,
        }
        return json.dumps(data if self.asked else data | {"notes": self.notes}, indent=indent)

    @property
    def parts(self) -> tuple[Nest | Cluster, ...]:
        """What is decided nest by nest, trees or choices."""
        return (*self.asked, *self.nests)

    @property
    def choices(self) -> tuple[tuple[str, Any], ...]:
        """The rule of each nest, and what it chose."""
        return (*((c.rule, c.plan) for c in self.asked), *((n.rule, n.choice) for n in self.nests))

    @property
    def trees(self) -> tuple[tiling.Nest, ...]:
        """The trees of all nests, in their order."""
        return tuple(tree for nest in self.nests for tree in nest.trees)

    @property
    def words(self) -> str:
        """What is decided, in a line: each nest and its rule, and algorithms."""
        methods = [step.primitive for step in self.rewrites.steps if step.primitive in ALGORITHMS]
        return "; ".join((*methods, *(f"{_title(nest)} by {nest.rule}" for nest in self.parts)))

    def __str__(self) -> str:
        lines = [f"rewrite {step}" for step in self.rewrites.steps]
        lines += [f"{_title(nest)}: {nest.rule}, {nest.plan}" for nest in self.asked]
        for nest in self.nests:
            lines.append(f"{_title(nest)}: {nest.rule}" + ("" if nest.choice is None else f", {nest.choice}"))
            lines += [f"  rewrite {step}" for step in nest.steps]
        lines += [f"{name} is stored past the caches" for name in self.streamed]
        return "\n".join(lines) + "\n"


def _title(nest: Nest | Cluster) -> str:
    return f"{nest.root} with {', '.join(nest.stages)}" if nest.stages else nest.root


def build_unit(
    program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str] = ()
) -> Schedule:
    """The schedule that a plan says. Nothing is decided here.

    Raises ArtefactError, naming the nest and the line, where a tree is none of the program, ScheduleError
    where a step is refused.
    """
    plan = written(program, plan, machine, constants)
    s, _ = rewritten(program, plan, machine, constants)
    s = s.replay(step for nest in plan.nests for step in nest.steps)
    _check(s.require_program(), plan, machine)
    s = tiling.store_past_caches(tiling.apply(s, plan.trees), plan.streamed)
    for note in plan.notes:
        s = s.with_note(note)
    return s


def written(program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str] = ()) -> UnitPlan:
    """A plan with the trees of all choices.

    Raises ArtefactError where a choice fits no stage of the program or a field has a value that is none of
    its options, ScheduleError where the trees cannot be written down.
    """
    if not plan.asked:
        return plan
    _, context = rewritten(program, plan, machine, constants)
    nests: list[Nest] = []
    for cluster in plan.asked:
        rule, problem = RULES[cluster.rule], matched(context, cluster)
        choice = rule.default(problem) if cluster.plan is None else cluster.plan
        rule.space(problem).check(choice, f"the plan of {cluster.root!r}")
        nests = with_nest(nests, rule.write(cluster, problem, choice, trees_of(nests)))
    return replace(plan, nests=(*plan.nests, *nests), asked=())


def trees_of(nests: Iterable[Nest]) -> tuple[tiling.Nest, ...]:
    """The trees of nests, in their order."""
    return tuple(tree for nest in nests for tree in nest.trees)


def with_nest(nests: Sequence[Nest], nest: Nest) -> list[Nest]:
    """Nests with one more; a tree of it that has the root of one of these takes its place."""
    new = {tree.root: tree for tree in nest.trees}
    out = [replace(n, trees=tuple(new.pop(tree.root, tree) for tree in n.trees)) for n in nests]
    return [*out, replace(nest, trees=tuple(tree for tree in nest.trees if tree.root in new))]


def _check(program: Program, plan: UnitPlan, machine: Machine) -> None:
    """Raises ArtefactError for the first nest that is none of the program, or for another kind of machine."""
    now = plan.nests[0].root if plan.nests else ""

    def trees() -> Iterator[tiling.Nest]:
        nonlocal now
        for nest in plan.nests:
            now = nest.root
            yield from nest.trees

    on = machine.on
    for nest in plan.nests:
        bound = next((b for tree in nest.trees for b in tiling.binds(tree.body) if _is_strange(b, on)), None)
        if bound is not None:
            raise ArtefactError(
                f"the plan of {nest.root!r}: there is no {bound} on the target {on.name}",
                hint="is it the plan for another machine?",
            )
    try:
        tiling.verify(trees(), program, on.operations)
    except ScheduleError as error:
        hint = error.hint or ("is it the plan of another program?" if "of no stage" in error.what else None)
        raise ArtefactError(f"the plan of {now!r}: {error.what}", hint=hint) from None


def _is_strange(bind: str, on: TargetBase) -> bool:
    """Whether levels cannot be bound to something on a machine."""
    return bind == "parallel" if isinstance(on, GpuTarget) else "." in bind


def matched(context: Context, nest: Nest | Cluster) -> Any:
    """What a nest's rule does for its stages. Raises ArtefactError where the program has none such."""
    known = {stage.name for stage in context.program.stages}
    missing = [name for name in (nest.root, *nest.stages) if name not in known]
    if missing:
        raise ArtefactError(
            f"the plan names the stage {missing[0]!r}, which the program does not have",
            hint="is it the plan of another program?",
        )
    rule = RULES[nest.rule]
    if not isinstance(context.machine.on, rule.machines):
        raise ArtefactError(
            f"the rule {nest.rule!r} makes no nests for the target {context.machine.on.name}",
            hint="is it the plan for another machine?",
        )
    problem = rule.match(context, nest.root, nest.stages)
    if problem is None:
        raise ArtefactError(f"the rule {nest.rule!r} has no nest that ends with the stage {nest.root!r}")
    return problem


def rewritten(
    program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str] = ()
) -> tuple[Schedule, Context]:
    """The schedule after a plan's rewrites, and what its rules are asked with.

    Raises ScheduleError where a rewrite is refused.
    """
    s = Schedule(program, operations=machine.on.operations)
    found: dict[str, object] = {}
    for step in plan.rewrites.steps:
        algorithm = ALGORITHMS.get(step.primitive)
        if algorithm is not None:
            # the nest of its stages is planned by what it matched
            now = s.require_program()
            name = str(step.args[0])
            stage = next((stage for stage in now.stages if stage.name == name), None)
            found[name] = None if stage is None else algorithm.match(now, stage)
        s = s.apply(step.primitive, *step.args, **dict(step.kwargs))
    matches: dict[str, object] = {}
    for nest, (rule, choice) in zip(plan.parts, plan.choices, strict=True):
        root = nest.root
        of = getattr(choice, "of", None)
        if rule == "lanes":
            matches[root] = choice
        elif of is not None:
            matches |= {root: found.get(of), f"{root}.plan": choice}
    return s, Context(s.require_program(), machine, frozenset(constants), matches)


def _asked_json(cluster: Cluster) -> dict[str, Any]:
    """A choice as versions of choices had it."""
    form, plan = _choice_json(cluster.rule, cluster.plan)
    return {
        "rule": cluster.rule,
        "root": cluster.root,
        "stages": cluster.stages,
        "form": form,
        "plan": plan,
    }


def _nest_json(nest: Nest) -> dict[str, Any]:
    choice = None
    if nest.choice is not None:
        form, fields = _choice_json(nest.rule, nest.choice)
        choice = {"form": form, "fields": fields}
    return {
        "rule": nest.rule,
        "root": nest.root,
        "stages": nest.stages,
        "steps": json.loads(Trace(nest.steps).to_json()),
        "trees": "".join(map(tiling.show, nest.trees)).splitlines(),
        "choice": choice,
    }


def _choice_json(rule: str, choice: object) -> tuple[str, object]:
    forms = {kind: name for name, kind in RULES[rule].forms.items()}
    return forms[type(choice)], msgspec.to_builtins(choice)
