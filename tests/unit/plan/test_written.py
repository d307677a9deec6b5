"""Trees as plans hold them: read, refused with the line, carried out, saved."""

from random import Random

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.plan import RULES, Context, Nest, UnitPlan, WrittenPlan, build_unit, plan_from_json
from tilewright.schedule import Trace
from tilewright.support import ArtefactError

TEXT = "nest Y\n  for i/8 parallel\n    for k/1\n      for i/1\n        for j/1 vector\n          do Y\n"
PROGRAM = PROGRAMS["product"]
MACHINE = Machine(STATED, 2)


def plan_of(text):
    return UnitPlan(Trace(()), (Nest("tree", "Y", (), WrittenPlan(text)),))


def test_a_tree_that_someone_writes_is_a_plan():
    read = plan_from_json(plan_of(TEXT).to_json())
    assert read == plan_of(TEXT)
    check_schedule(PROGRAM, build_unit(PROGRAM, read, MACHINE))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("i/8", "q/8"), r"no axis 'q' here.*\(axes\): `for q/8 parallel`"),
        (TEXT.replace("for k/1\n", "for k/1 parallel\n"), r"inside of another one \(threads\)"),
        (TEXT[:-20], "a level has a body|the text ends"),
        ("nest Z\n  do Z\n", "the nest 'Z' is of no stage"),
    ],
)
def test_texts_that_are_no_trees_of_the_program_are_refused(text, words):
    with pytest.raises(ArtefactError, match=f"the plan of 'Y': .*({words})"):
        build_unit(PROGRAM, plan_of(text), MACHINE)


def test_trees_of_other_stages_are_refused():
    program = PROGRAMS["softmax"]
    first, *_, last = program.stages
    problem = RULES["tree"].match(Context(program, MACHINE), last.name, ())
    other = RULES["tree"].default(RULES["tree"].match(Context(program, MACHINE), first.name, ()))
    assert "is none of the stages" in problem.refusal(other)


def test_the_default_is_each_stage_by_itself_and_what_is_drawn_differs():
    problem = RULES["tree"].match(Context(PROGRAM, MACHINE), "Y", ())
    space = RULES["tree"].space(problem)
    drawn = {space.sample(Random(seed)) for seed in range(4)}
    assert len(drawn) > 1 and all(space.has(plan) for plan in drawn)
    assert [str(edit) for edit, _ in zip(dict(space.changes(space.default)), range(2), strict=False)]
