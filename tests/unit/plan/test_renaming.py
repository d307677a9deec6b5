"""Plans of programs that are equal but for names: the same function, whatever stages are called."""

import random
from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import MACHINE, PROGRAMS, drawn, product, softmax

from tilewright.cost import Machine
from tilewright.ir import canonical_program, parse_program, print_program, structural_hash
from tilewright.plan import build_unit, plan_unit, renamed_plan
from tilewright.plan.renaming import ARGUMENTS
from tilewright.schedule import PRIMITIVES, Step, Trace
from tilewright.support import ArtefactError


@pytest.mark.few(7)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_goes_to_canonical_names_and_back(name):
    """The default plan and others of its space; the function stays the same but for names."""
    program, rng = PROGRAMS[name], random.Random(name)
    canonical = canonical_program(program)
    plan = plan_unit(program, Machine(STATED, 2)).plan
    for own in (plan, *(drawn(program, plan, rng) for _ in range(3))):
        there = renamed_plan(own, program, canonical, MACHINE)
        wanted = structural_hash(build_unit(program, own, MACHINE).func)
        assert structural_hash(build_unit(canonical, there, MACHINE).func) == wanted
        assert renamed_plan(there, canonical, program, MACHINE) == own


def test_the_default_plan_does_not_depend_on_names():
    for program in PROGRAMS.values():
        canonical = canonical_program(program)
        made, own = plan_unit(canonical, Machine(STATED, 2)), plan_unit(program, Machine(STATED, 2))
        assert structural_hash(made.schedule.func) == structural_hash(own.schedule.func)


def test_programs_with_each_others_names():
    """Names that mean one thing here and another there."""
    program = canonical_program(PROGRAMS["convolution"])
    text = print_program(program)
    swapped = text
    for old, new in (("s0", "s9"), ("s1", "s0"), ("s9", "s1"), ("a0", "a9"), ("a1", "a0"), ("a9", "a1")):
        swapped = swapped.replace(old, new)
    other = parse_program(swapped)
    assert swapped != text
    assert structural_hash(other) == structural_hash(program)
    plan = plan_unit(program, Machine(STATED, 2)).plan
    made = renamed_plan(plan, program, other, MACHINE)
    assert made != plan
    assert structural_hash(build_unit(other, made, MACHINE).func) == structural_hash(
        build_unit(program, plan, MACHINE).func
    )


def test_plans_of_other_programs_are_refused():
    one, two = product(8, 8, 8), softmax(8, 16)
    plan = plan_unit(one, Machine(STATED, 1)).plan
    with pytest.raises(ArtefactError, match="of a program with other stages"):
        renamed_plan(plan, one, two, MACHINE)
    three = replace(one, stages=(replace(one.stages[0], iters=one.stages[0].iters[:2]),))
    with pytest.raises(ArtefactError, match="of a program with other loops"):
        renamed_plan(plan, one, three, MACHINE)
    strange = replace(plan, nests=tuple(replace(nest, root="nobody") for nest in plan.nests))
    with pytest.raises(ArtefactError, match="names the stage 'nobody'"):
        renamed_plan(strange, one, one, MACHINE)


def test_steps_that_lay_out_arguments_are_renamed():
    program = PROGRAMS["convolution"]
    canonical = canonical_program(program)
    step = Step("layout_place", (program.outputs[0].name, ("d0", "d1//8", "d2", "d3", "d1%8")))
    plan = plan_unit(program, Machine(STATED, 2)).plan
    plan = replace(plan, rewrites=Trace((step,)), nests=())
    (made,) = renamed_plan(plan, program, canonical, MACHINE).rewrites.steps
    assert made.args == (canonical.outputs[0].name, step.args[1])


def test_every_word_that_a_step_takes_is_known():
    """A new primitive on programs says here what its words are."""
    for primitive in PRIMITIVES.values():
        for p in primitive.parameters if primitive.phase == "program" else ():
            assert "str" not in str(primitive.types[p.name]) or p.name in ARGUMENTS, (primitive.name, p.name)
