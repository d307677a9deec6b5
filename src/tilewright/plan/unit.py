"""Plans of units: what is decided about one kernel, as a value that is then carried out."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

import msgspec

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Context, Nest
from tilewright.plan.streaming_stores import store_past_caches
from tilewright.schedule import ALGORITHMS, Schedule, Trace, load_trace
from tilewright.support import ArtefactError, known_names

FORMAT: Final = "tilewright-plan"
VERSION: Final = 2
#: The version before: without the digest of measured quantities.
WITHOUT_QUANTITIES: Final = 1
#: Longest JSON text of a plan that is read: far above one of a thousand nests.
MAX_BYTES: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """One kernel: ``rewrites`` of the program (algorithms, inlining, splits), then ``nests`` in order.

    ``streamed`` are the results that are stored past the caches. ``quantities`` is the digest of what was
    measured of the machine when this was decided: no decision, and so no part of what makes plans equal.
    """

    rewrites: Trace
    nests: tuple[Nest, ...]
    streamed: tuple[str, ...] = ()
    quantities: str = field(default="", compare=False)

    def to_json(self, indent: int | None = None) -> str:
        """The versioned JSON text that :func:`plan_from_json` reads."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "rewrites": json.loads(self.rewrites.to_json()),
                "nests": [_nest_json(nest) for nest in self.nests],
                "streamed": self.streamed,
                "quantities": self.quantities,
            },
            indent=indent,
        )

    @property
    def words(self) -> str:
        """What is decided, in a line: each nest and its rule, and algorithms."""
        methods = [step.primitive for step in self.rewrites.steps if step.primitive in ALGORITHMS]
        nests = [
            f"{nest.root}{' with ' + ', '.join(nest.stages) if nest.stages else ''} by {nest.rule}"
            for nest in self.nests
        ]
        return "; ".join((*methods, *nests))

    def __str__(self) -> str:
        lines = [f"rewrite {step}" for step in self.rewrites.steps]
        lines += [
            f"{nest.root}{' with ' + ', '.join(nest.stages) if nest.stages else ''}: {nest.rule}, {nest.plan}"
            for nest in self.nests
        ]
        lines += [f"{name} is stored past the caches" for name in self.streamed]
        return "\n".join(lines) + "\n"


def build_unit(
    program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str] = ()
) -> Schedule:
    """The schedule that a plan says. Nothing is decided here.

    Raises ArtefactError where a nest of the plan fits no stage of the program or a field has a value that is
    none of its options, ScheduleError where a step is refused.
    """
    s, context = rewritten(program, plan, machine, constants)
    for nest in plan.nests:
        rule, problem = RULES[nest.rule], matched(context, nest)
        rule.space(problem).check(nest.plan, f"the plan of {nest.root!r}")
        s = rule.build(s, problem, nest.plan)
    return store_past_caches(s, plan.streamed)


def matched(context: Context, nest: Nest) -> Any:
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
    for nest in plan.nests:
        of = getattr(nest.plan, "of", None)
        if nest.rule == "lanes":
            matches[nest.root] = nest.plan
        elif of is not None:
            matches |= {nest.root: found.get(of), f"{nest.root}.plan": nest.plan}
    return s, Context(s.require_program(), machine, frozenset(constants), matches)


def plan_from_json(text: str | bytes) -> UnitPlan:
    """Read a plan. Raises ArtefactError, naming the field, for text that is none."""
    if len(text) > MAX_BYTES:
        raise ArtefactError(f"the plan has {len(text)} bytes; at most {MAX_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"the plan is not JSON: {error}", hint="is the file complete?") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ArtefactError(f"not a plan: 'format' is not {FORMAT!r}")
    if data.get("version") == WITHOUT_QUANTITIES:
        data = {"quantities": ""} | data | {"version": VERSION}
    if data.get("version") != VERSION:
        raise ArtefactError(
            f"the plan has version {data.get('version')!r}; this Tilewright reads version {VERSION}",
            hint="make the plan again with this version",
        )
    wanted = {"format", "version", "rewrites", "nests", "streamed", "quantities"}
    if set(data) != wanted or not isinstance(data["nests"], list):
        raise ArtefactError(f"a plan has exactly {', '.join(sorted(wanted))}, and 'nests' is a list")
    streamed = data["streamed"]
    if not isinstance(streamed, list) or not all(isinstance(name, str) for name in streamed):
        raise ArtefactError("'streamed' of a plan is a list of names")
    if not isinstance(data["quantities"], str):
        raise ArtefactError("'quantities' of a plan is a digest")
    nests = tuple(_read_nest(n, entry) for n, entry in enumerate(data["nests"]))
    return UnitPlan(load_trace(json.dumps(data["rewrites"])), nests, tuple(streamed), data["quantities"])


def _nest_json(nest: Nest) -> dict[str, Any]:
    forms = {kind: name for name, kind in RULES[nest.rule].forms.items()}
    return {
        "rule": nest.rule,
        "root": nest.root,
        "stages": nest.stages,
        "form": forms[type(nest.plan)],
        "plan": msgspec.to_builtins(nest.plan),
    }


def _read_nest(number: int, data: object) -> Nest:
    where = f"nest {number} of the plan"
    if not isinstance(data, dict) or set(data) != {"rule", "root", "stages", "form", "plan"}:
        raise ArtefactError(f"{where} has exactly 'rule', 'root', 'stages', 'form' and 'plan'")
    name, root, stages, form = (data[key] for key in ("rule", "root", "stages", "form"))
    rule = RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise ArtefactError(
            f"{where}: there is no rule {name!r}", hint=known_names(str(name), RULES, "rules")
        )
    if not isinstance(root, str) or not isinstance(stages, list) or not all(type(n) is str for n in stages):
        raise ArtefactError(f"{where}: 'root' is a stage's name, 'stages' a list of them")
    kind = rule.forms.get(form) if isinstance(form, str) else None
    if kind is None:
        raise ArtefactError(
            f"{where}: the rule {name!r} has no form {form!r}",
            hint=known_names(str(form), rule.forms, "its forms"),
        )
    return Nest(name, root, tuple(stages), _read_plan(where, data["plan"], kind))


def _read_plan(where: str, data: object, kind: type) -> Any:
    try:
        plan: Any = msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{where}: {error}") from None
    extra = _unknown(data, plan)
    if extra:
        raise ArtefactError(f"{where}: there is no field {extra!r}")
    return plan


def _unknown(data: object, plan: object) -> str:
    """A field of the text that a plan does not have; empty where there is none."""
    if isinstance(data, list) and isinstance(plan, tuple):
        parts = (_unknown(each, part) for each, part in zip(data, plan, strict=True))
        return next((name for name in parts if name), "")
    if not isinstance(data, dict) or not is_dataclass(plan):
        return ""
    known = {each.name for each in fields(plan)}
    return next(
        (
            name
            for name, value in data.items()
            for name in [name if name not in known else _unknown(value, getattr(plan, name))]
            if name
        ),
        "",
    )
