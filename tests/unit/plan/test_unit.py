"""Plans of units: all of a space are carried out and right, texts round-trip, bad ones are refused."""

import json
import random
from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.plans import asked, chosen, drawn as drawn_plan
from tests.unit.plan.general.test_rule import CASES as GENERAL
from tests.unit.plan.pipeline.test_rule import CASES as PIPELINES
from tests.unit.strategies.test_default import blocked, check_schedule, constant, conv_program, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import PARALLEL, structural_hash
from tilewright.lang import ops
from tilewright.plan import (
    EXACT,
    Space,
    Variants,
    build_unit,
    plan_from_json,
    plan_unit,
    written,
)
from tilewright.plan.fused.rule import BandPlan, RowChainPlan
from tilewright.plan.pipeline import nest as strips
from tilewright.support import ArtefactError, ScheduleError
from tilewright.target import find_target

MACHINE = Machine(STATED, 2)


def product(m, n, k, weight=False):
    a, b = t(m, k, name="A"), t(k, n, name="B")
    program = lang.program([a, b], [ops.matmul(a, b, name="Y")])
    return constant(program, "B") if weight else program


def softmax(rows, columns):
    x = t(rows, columns, name="X")
    return lang.program([x], [ops.softmax(x, axis=-1, name="Y")])


PROGRAMS = {
    "product": product(45, 70, 33),
    "product with weights": product(64, 96, 40, weight=True),
    "skinny product": product(2, 512, 300),
    "convolution": blocked(conv_program(1, 32, 32, (9, 9), (3, 3), pad=1)),
    "strided convolution": blocked(conv_program(1, 16, 32, (14, 14), (3, 3), stride=2, pad=1)),
    "pooling": lang.program(
        [x := t(1, 16, 12, 12, name="X")], [ops.max_pool(x, (2, 2), strides=(2, 2), name="Y")]
    ),
    "depthwise": blocked(conv_program(1, 32, 32, (13, 13), (3, 3), pad=1, groups=32)),
    "softmax": softmax(67, 100),
    "rows in chunks": product(128, 4, 1536),
    "element-wise": lang.program(
        [z := t(64, 48, name="Z")], [lang.compute((48, 64), lambda i, j: z[j, i] * 2.0, name="Y")]
    ),
    "general": GENERAL["three factors, ragged"],
    "min-plus": GENERAL["min-plus, ragged"],
    "pipeline": PIPELINES["harris"],
}


@pytest.fixture(autouse=True)
def strips_however_small(monkeypatch):
    monkeypatch.setattr(strips, "LARGE", 0.0)
    monkeypatch.setattr(strips, "MOST_REPEATED", 100.0)


def spaces(program, plan):
    """The space of each nest."""
    return [varied.space for varied in Variants(program, plan, MACHINE).nests]


def drawn(program, plan, rng):
    """The same unit with a plan drawn for each nest."""
    return drawn_plan(program, plan, MACHINE, rng)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_from_its_text_gives_the_same_function(name):
    planned = plan_unit(PROGRAMS[name], Machine(STATED, 2))
    again = plan_from_json(planned.plan.to_json())
    assert again == planned.plan
    assert hash(again) == hash(planned.plan)
    built = build_unit(PROGRAMS[name], again, MACHINE)
    assert structural_hash(built.func) == structural_hash(planned.schedule.func)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_choices_of_the_version_before_are_written_as_the_default_is(name):
    planned = plan_unit(PROGRAMS[name], MACHINE)
    read = plan_from_json(of_choices(planned.plan.to_json()))
    assert read.choices == planned.plan.choices and not read.nests
    assert plan_from_json(read.to_json()) == read
    built = build_unit(PROGRAMS[name], read, MACHINE)
    assert structural_hash(built.func) == structural_hash(planned.schedule.func)


def test_a_tree_that_is_edited_in_the_text_is_what_is_carried_out(text):
    def change(data):
        lines = data["nests"][0]["trees"]
        assert any(" parallel" in line for line in lines)
        data["nests"][0]["trees"] = [line.replace(" parallel", "") for line in lines]

    program = PROGRAMS["product"]
    plan = plan_from_json(edited(text, change))
    s = build_unit(program, plan, MACHINE)
    assert not any(loop.kind == PARALLEL for loop in map(s.loop, s.loops()))
    check_schedule(program, s)
    unread = plan_from_json(edited(text, lambda d: d["nests"][0].update(rule="tree", choice=None)))
    assert unread.nests[0].trees == plan_from_json(text).nests[0].trees
    assert structural_hash(build_unit(program, unread, MACHINE).func) == structural_hash(
        build_unit(program, plan_from_json(text), MACHINE).func
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_plan_that_is_drawn_is_carried_out_and_right(name):
    program, rng = PROGRAMS[name], random.Random(name)
    plan = plan_unit(program, Machine(STATED, 2)).plan
    seen = set()
    for _ in range(4):
        other = drawn(program, plan, rng)
        seen.add(other)
        s = build_unit(program, other, MACHINE)
        assert plan_from_json(other.to_json()) == other
        check_schedule(program, s)
    assert len(seen) > 1 or all(space.size < 4 for space in spaces(program, plan))


def test_a_default_is_a_point_of_its_space():
    for program in PROGRAMS.values():
        plan = plan_unit(program, Machine(STATED, 2)).plan
        for nest, space in zip(plan.nests, spaces(program, plan), strict=True):
            space.check(nest.choice)
            assert nest.choice == space.default or nest.choice in space.others


def test_a_convolution_has_many_plans():
    plan = plan_unit(PROGRAMS["convolution"], Machine(STATED, 2), accuracy=EXACT).plan
    (space,) = spaces(PROGRAMS["convolution"], plan)
    assert len(set(space)) > 100
    neighbours = list(space.neighbours(space.default))
    assert neighbours
    assert space.default not in neighbours


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("product", {"rows": 6, "block": ("i", 24)}),
        ("product", {"rows": 7, "block": ("i", 28)}),
        ("product", {"rows": 4, "block": ("i", 8), "columns_inside": True}),
        ("padded", {"rows": 5, "vectors": 1, "block": ("oh", 8)}),
        ("padded", {"rows": 4, "vectors": 2, "block": ("oh", 12), "columns_inside": True}),
        ("1x1", {"rows": 3, "vectors": 2, "lines": ("oh", 4)}),
        ("1x1", {"rows": 2, "vectors": 1, "lines": ("oh", 3), "shared": None}),
        ("depthwise", {"rows": 5}),
    ],
)
def test_tiles_and_blocks_need_not_divide(name, changes):
    one = blocked(conv_program(1, 32, 64, (9, 11), (1, 1)))
    padded = blocked(conv_program(1, 16, 32, (19, 18), (3, 3), pad=1))
    program = {**PROGRAMS, "1x1": one, "padded": padded}[name]
    plan = plan_unit(program, Machine(STATED, 2), accuracy=EXACT).plan
    at = next(n for n, nest in enumerate(plan.nests) if nest.rule == "contraction")
    changes = {"shared": None, "block": None, "lines": None, **changes}
    other = replace(plan.nests[at].choice, **changes)
    spaces(program, plan)[at].check(other)
    check_schedule(program, build_unit(program, chosen(program, plan, MACHINE, other, at), MACHINE))


def test_chunks_of_rows_are_a_choice():
    program = PROGRAMS["rows in chunks"]
    plan = plan_unit(program, Machine(STATED, 2)).plan
    at, space = next(
        (n, space) for n, space in enumerate(spaces(program, plan)) if plan.nests[n].rule == "lanes"
    )
    chunked = [other for other in space if other.chunk]
    assert len({other.chunk for other in chunked}) > 3
    for other in chunked[:: max(1, len(chunked) // 3)]:
        check_schedule(program, build_unit(program, chosen(program, plan, MACHINE, other, at), MACHINE))


@pytest.fixture
def text():
    return plan_unit(PROGRAMS["product"], Machine(STATED, 2)).plan.to_json()


def edited(text, change):
    data = json.loads(text)
    change(data)
    return json.dumps(data)


def set_choice(name, value):
    def change(data):
        data["nests"][0]["choice"]["fields"][name] = value

    return change


def set_line(n, line):
    def change(data):
        data["nests"][0]["trees"][n] = line

    return change


def of_choices(text):
    """The text of a plan as the version before wrote it: choices, without trees."""
    data = json.loads(text)
    nests = [
        {key: nest[key] for key in ("rule", "root", "stages")}
        | {"form": nest["choice"]["form"], "plan": nest["choice"]["fields"]}
        for nest in data["nests"]
    ]
    del data["notes"]
    return json.dumps(data | {"version": 2, "nests": nests})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_choice("rows", "many"), r"nest 0 of the plan: Expected `int`, got `str` - at `\$.rows`"),
        (set_choice("colour", 1), "nest 0 of the plan: there is no field 'colour'"),
        (lambda d: d["nests"][0].update(rule="magic"), "nest 0 of the plan: there is no rule 'magic'"),
        (lambda d: d["nests"][0].update(rule=3), "'rule' is a name"),
        (lambda d: d["nests"][0].update(choice=3), "'choice' has exactly 'form' and 'fields'"),
        (lambda d: d["nests"][0]["choice"].update(form="magic"), "has no form 'magic'"),
        (lambda d: d["nests"][0].update(root=3), "'root' is a stage's name"),
        (lambda d: d["nests"][0].update(trees="nest Y"), "'trees' is a list of lines"),
        (lambda d: d["nests"][0].update(steps={}), "not a trace"),
        (set_line(1, "  fro i/4"), "nest 0 of the plan: tiling:2: `fro i/4`: there is nothing called 'fro'"),
        (lambda d: d["nests"][0].pop("root"), "has exactly 'rule', 'root', 'stages', 'steps', 'trees' and"),
        (lambda d: d.update(notes=3), "'notes' of a plan is a list of names"),
        (lambda d: d.update(version=99), "the plan has version 99"),
        (lambda d: d.update(format="trace"), "not a plan"),
        (lambda d: d.update(more=1), "a plan has exactly"),
        (lambda d: d.pop("quantities"), "a plan has exactly"),
        (lambda d: d.update(quantities=3), "'quantities' of a plan is a digest"),
        (lambda d: d.update(streamed=[1]), "'streamed' of a plan is a list of names"),
        (lambda d: d["rewrites"].update(steps=[{"primitive": "magic", "args": [], "kwargs": {}}]), "magic"),
    ],
)
def test_edited_texts_are_refused(text, change, message):
    with pytest.raises(ArtefactError, match=message):
        plan_from_json(edited(text, change))


def test_plans_hold_the_digest_of_what_was_measured(text):
    known = plan_from_json(text)
    assert known.quantities == STATED.quantities.digest == STATED.measured
    slower = replace(STATED, fork_seconds=STATED.fork_seconds * 100)
    other = plan_unit(PROGRAMS["softmax"], Machine(slower, 1)).plan
    here = plan_unit(PROGRAMS["softmax"], Machine(STATED, 1)).plan
    # where it was decided is no decision
    assert other.quantities != here.quantities and other == here
    assert plan_unit(PROGRAMS["product"], Machine(find_target("a100"), 1)).plan.quantities == ""

    def older(data):
        data.update(version=1)
        data.pop("quantities")

    read = plan_from_json(edited(of_choices(text), older))
    assert written(PROGRAMS["product"], read, MACHINE) == known and read.quantities == ""


def test_truncated_and_enormous_texts_are_refused(text):
    with pytest.raises(ArtefactError, match="the plan is not JSON"):
        plan_from_json(text[:-9])
    with pytest.raises(ArtefactError, match="at most"):
        plan_from_json(" " * (1 << 25))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rows", 1000, "the plan of 'Y': rows is 1000, and not one of"),
        ("shared", "i", "the plan of 'Y': "),
        ("vectors", 7, "the plan of 'Y': vectors is 7"),
    ],
)
def test_values_outside_the_space_are_refused(text, name, value, message):
    def change(data):
        data["nests"][0]["plan"][name] = value

    plan = plan_from_json(edited(of_choices(text), change))
    with pytest.raises(ArtefactError, match=message):
        build_unit(PROGRAMS["product"], plan, MACHINE)


def test_the_plan_of_another_program_is_refused(text):
    plan = plan_from_json(text)
    x = t(8, 8, name="X")
    other = lang.program([x], [lang.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="Q")])
    choices = plan_from_json(of_choices(text))
    with pytest.raises(ArtefactError, match="the nest 'Y' is of no stage of the program"):
        build_unit(other, plan, MACHINE)
    with pytest.raises(ArtefactError, match="names the stage 'Y', which the program does not have"):
        build_unit(other, choices, MACHINE)
    renamed = lang.program([x], [lang.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="Y")])
    with pytest.raises(ArtefactError, match=r"the plan of 'Y': .*: `"):
        build_unit(renamed, plan, MACHINE)
    with pytest.raises(ArtefactError, match="has no nest that ends with the stage 'Y'"):
        build_unit(renamed, choices, MACHINE)


def test_a_program_that_is_no_chain_is_not_fused():
    rows = asked("fused", "Y", (), RowChainPlan())
    with pytest.raises(ScheduleError, match="is no chain of contractions over rows"):
        build_unit(PROGRAMS["product"], rows, MACHINE)
    bands = asked("fused", "Y", (), BandPlan(2))
    with pytest.raises(ArtefactError, match="BandPlan is no form of plan for this nest"):
        build_unit(PROGRAMS["product"], bands, MACHINE)


def test_a_space_says_which_combination_is_none():
    (nest,) = plan_unit(GENERAL["min-plus"], Machine(STATED, 1)).plan.nests
    plan = replace(nest.choice, vectors=1)
    space = Space(plan, {"vectors": (1, 9)}, lambda p: "no" if p.vectors > 1 else "")
    with pytest.raises(ArtefactError, match="here: no"):
        space.check(replace(plan, vectors=9), "here")
    with pytest.raises(ArtefactError, match="str is no form of plan"):
        space.check("tiles")
    assert list(space) == [plan]
    assert space.sample(random.Random(0)) == plan


def test_the_plan_of_a_cpu_is_none_of_a_device():
    plan = plan_unit(product(64, 64, 64), MACHINE).plan
    program, device = product(64, 64, 64), Machine(find_target("a100"), 2)
    with pytest.raises(ArtefactError, match="there is no parallel on the target a100") as caught:
        build_unit(program, plan, device)
    assert "another machine" in caught.value.hint
    with pytest.raises(ArtefactError, match=r"there is no block\.y on the target"):
        build_unit(program, plan_unit(program, device).plan, MACHINE)
    choices = plan_from_json(of_choices(plan.to_json()))
    with pytest.raises(ArtefactError, match="rule 'contraction' makes no nests for the target"):
        build_unit(program, choices, device)
