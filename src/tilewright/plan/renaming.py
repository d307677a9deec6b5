"""Plans of one program for another that is equal to it but for names: stages, buffers, iterators by place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Cluster, Context, Nest
from tilewright.plan.unit import UnitPlan, rewritten
from tilewright.schedule import PRIMITIVES, Schedule, Step, Trace
from tilewright.support import ArtefactError
from tilewright.tiling import Renaming

#: What the words among the arguments of steps on programs are: names of what is there, or of what is made.
ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stage": "stage",
        "reader": "stage",
        "tensor": "buffer",
        "buffer": "buffer",
        "host": "buffer",
        "rest": "new",
        "axis": "iterator",
        "axes": "iterator",
        "window": "iterator",
        "outer": "iterator",
        "inner": "iterator",
        "iterators": "iterator",
        "lines": "iterator",
        "line": "iterator",
        "name": "new",
        "weights": "new",
        "dtype": "word",
        "layout": "word",
    }
)


def renamed_plan(plan: UnitPlan, source: Program, target: Program, machine: Machine) -> UnitPlan:
    """The plan of ``source`` for ``target``, a program that is structurally equal to it.

    What rewrites make is called by what it is made of. Raises ScheduleError where a rewrite is refused,
    ArtefactError where the plan names what ``source`` does not have, or the programs are not equal.

    Of a program with the stages ``s0`` and ``s1``: ``inline_stage("s0"); s1: elementwise, …`` becomes, for
    one with ``scale`` and ``relu``, ``inline_stage("scale"); relu: elementwise, …``.
    """
    a = Schedule(source, operations=machine.on.operations)
    b = Schedule(target, operations=machine.on.operations)
    stages: dict[str, str] = {}
    steps: list[Step] = []
    for step in plan.rewrites.steps:
        names = _Names.of(a.require_program(), b.require_program())
        stages |= names.stages
        steps.append(names.step(step))
        a = a.apply(step.primitive, *step.args, **dict(step.kwargs))
        b = b.apply(step.primitive, *steps[-1].args, **dict(steps[-1].kwargs))
    names = _Names.of(a.require_program(), b.require_program())
    stages |= names.stages
    made = replace(
        plan,
        rewrites=Trace(tuple(steps), plan.rewrites.instructions),
        nests=tuple(_nest(nest, names, stages, a, b) for nest in plan.nests),
        streamed=tuple(names.buffers.get(each, each) for each in plan.streamed),
        asked=tuple(
            replace(each, root=names.stage(each.root), stages=tuple(map(names.stage, each.stages)))
            for each in plan.asked
        ),
    )
    context = rewritten(target, made, machine)[1]
    return replace(
        made,
        nests=tuple(
            replace(new, choice=_choice(old.choice, old, new, names, stages, context))
            for old, new in zip(plan.nests, made.nests, strict=True)
        ),
        asked=tuple(
            replace(new, plan=_choice(old.plan, old, new, names, stages, context))
            for old, new in zip(plan.asked, made.asked, strict=True)
        ),
    )


def _nest(nest: Nest, names: _Names, stages: Mapping[str, str], a: Schedule, b: Schedule) -> Nest:
    """A nest with its trees renamed: its own steps come after all rewrites."""
    known = names
    steps: list[Step] = []
    for step in nest.steps:
        steps.append(known.step(step))
        a = a.apply(step.primitive, *step.args, **dict(step.kwargs))
        b = b.apply(step.primitive, *steps[-1].args, **dict(steps[-1].kwargs))
        known = _Names.of(a.require_program(), b.require_program())
    renaming = Renaming({**names.stages, **known.stages}, {**names.buffers, **known.buffers}, known.iterators)
    return replace(
        nest,
        root=names.stage(nest.root),
        stages=tuple(map(names.stage, nest.stages)),
        trees=tuple(map(renaming.nest, nest.trees)),
        steps=tuple(steps),
    )


def _choice(
    choice: Any,
    old: Nest | Cluster,
    new: Nest | Cluster,
    names: _Names,
    stages: Mapping[str, str],
    context: Context,
) -> Any:
    """A choice with its words renamed.

    Iterators are those of one of the nest's stages: of the first with which it is one of the rule's space.
    """
    if choice is None:
        return None
    rule, made = RULES[new.rule], choice
    for name in (*reversed(old.stages), old.root):
        made = _renamed(choice, {**names.buffers, **stages, **names.iterators.get(name, {})})
        problem = rule.match(_with_match(context, new, made), new.root, new.stages)
        if problem is not None and rule.space(problem).has(made):
            break
    return made


def _with_match(context: Context, nest: Nest | Cluster, choice: Any) -> Context:
    """What a rule is asked with, where its choice says what it matches."""
    if nest.rule != "lanes" and not hasattr(choice, "of"):
        return context
    key = nest.root if nest.rule == "lanes" else f"{nest.root}.plan"
    return replace(context, matches={**context.matches, key: choice})


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A plan, or a part of it, with its words renamed."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, tuple):
        return tuple(_renamed(each, names) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _renamed(getattr(value, f.name), names) for f in fields(value)})
    return value


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of two programs that are equal but for them, the first one's with the second one's."""

    stages: Mapping[str, str]
    buffers: Mapping[str, str]
    iterators: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, a: Program, b: Program) -> _Names:
        sizes = (len(a.stages), len(a.inputs), len(a.outputs), len(a.temps))
        if sizes != (len(b.stages), len(b.inputs), len(b.outputs), len(b.temps)):
            raise ArtefactError("the plan is of a program with other stages", hint="is it another model's?")
        pairs = list(zip(a.stages, b.stages, strict=True))
        if any(len(x.iters) != len(y.iters) for x, y in pairs):
            raise ArtefactError("the plan is of a program with other loops", hint="is it another model's?")
        return cls(
            {x.name: y.name for x, y in pairs},
            {
                x.name: y.name
                for x, y in zip(
                    (*a.inputs, *a.outputs, *a.temps), (*b.inputs, *b.outputs, *b.temps), strict=True
                )
            },
            {x.name: {i.name: j.name for i, j in zip(x.iters, y.iters, strict=True)} for x, y in pairs},
        )

    def stage(self, name: str) -> str:
        """A stage's other name. Raises ArtefactError where there is none of this one."""
        if name not in self.stages:
            raise ArtefactError(
                f"the plan names the stage {name!r}, which the program does not have",
                hint="is it the plan of another program?",
            )
        return self.stages[name]

    def step(self, step: Step) -> Step:
        """A step on the second program that does what one on the first does."""
        primitive = PRIMITIVES[step.primitive]
        words = [p.name for p in primitive.parameters if p.kind is not p.KEYWORD_ONLY]
        given = dict(zip(words, step.args, strict=False)) | dict(step.kwargs)
        stage = given.get("stage")
        iterators = self.iterators.get(stage, {}) if isinstance(stage, str) else {}
        known = {"stage": self.stages, "buffer": self.buffers, "iterator": iterators}

        def other(word: str, value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(other(word, each) for each in value)
            if ARGUMENTS.get(word) == "new" and isinstance(value, str):
                return self._made(value)
            names = known.get(ARGUMENTS.get(word, ""), {})
            return names.get(value, value) if isinstance(value, str) else value

        return Step(
            step.primitive,
            tuple(other(word, value) for word, value in zip(words, step.args, strict=False)),
            tuple((word, other(word, value)) for word, value in step.kwargs),
        )

    def _made(self, name: str) -> str:
        """The name of what a rewrite makes: rules call it by what it is made of, ``conv_panels``."""
        known = {**self.buffers, **self.stages}
        of = [each for each in known if name.startswith(f"{each}_")]
        longest = max(of, key=len, default="")
        return known[longest] + name[len(longest) :] if longest else name
