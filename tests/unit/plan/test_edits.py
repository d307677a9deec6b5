"""Trees that somebody wrote or edited: read, refused with the line, carried out, and what is an edit away."""

import json

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.plan import Context, Nest, UnitPlan, build_unit, edited, plan_from_json, plan_unit
from tilewright.schedule import Trace
from tilewright.support import ArtefactError
from tilewright.tiling import parse

TEXT = "nest Y\n  for i/8 parallel\n    for k/1\n      for i/1\n        for j/1 vector\n          do Y\n"
PROGRAM = PROGRAMS["product"]
MACHINE = Machine(STATED, 2)


def plan_of(text):
    return UnitPlan(Trace(()), (Nest("tree", "Y", (), parse(text)),))


def test_a_tree_that_someone_writes_is_a_plan():
    read = plan_from_json(plan_of(TEXT).to_json())
    assert read == plan_of(TEXT)
    check_schedule(PROGRAM, build_unit(PROGRAM, read, MACHINE))


def test_trees_of_the_version_before_are_read():
    data = json.loads(plan_of(TEXT).to_json())
    del data["notes"]
    nest = {"rule": "tree", "root": "Y", "stages": [], "form": "text", "plan": {"text": TEXT}}
    assert plan_from_json(json.dumps(data | {"version": 2, "nests": [nest]})) == plan_of(TEXT)
    with pytest.raises(ArtefactError, match="its trees are text"):
        plan_from_json(json.dumps(data | {"version": 2, "nests": [nest | {"plan": 3}]}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("i/8", "q/8"), r"no axis 'q' here.*\(axes\): `for q/8 parallel`"),
        (TEXT.replace("for k/1\n", "for k/1 parallel\n"), r"inside of another one \(threads\)"),
        ("nest Z\n  do Z\n", "the nest 'Z' is of no stage"),
    ],
)
def test_texts_that_are_no_trees_of_the_program_are_refused(text, words):
    with pytest.raises(ArtefactError, match=f"the plan of 'Y': .*({words})"):
        build_unit(PROGRAM, plan_of(text), MACHINE)


def test_edits_of_the_default_are_plans_and_none_is_made_twice():
    plan = plan_unit(PROGRAM, MACHINE).plan
    found = list(edited(Context(PROGRAM, MACHINE), plan.nests[0]))
    assert len({nest.trees for _, nest in found}) == len(found) > 10
    assert all(nest.choice is None and nest.rule == "tree" and nest.trees != plan.trees for _, nest in found)
    for _, nest in found[:: len(found) // 5]:
        check_schedule(PROGRAM, build_unit(PROGRAM, UnitPlan(plan.rewrites, (nest,)), MACHINE))
