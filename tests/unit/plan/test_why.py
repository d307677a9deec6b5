"""Why nests are made as they are: prices of what was taken and of the other ways, reasons against some."""

from dataclasses import replace

import pytest

from replay import corpus
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import CONST
from tilewright.lang import ops
from tilewright.plan import AUTO, EXACT, plan_unit, why
from tilewright.support import ArtefactError
from tilewright.target import find_target
from tilewright.tiling import parse

MACHINE = Machine(find_target("x86_avx512"), 2)


def product(m=100, n=90, k=40):
    a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    return lang.program([a, b], [ops.matmul(a, b)])


def softmax():
    return lang.program([x := lang.placeholder((64, 300), name="X")], [ops.softmax(x)])


def reasons(program, machine=MACHINE):
    return why(program, plan_unit(program, machine).plan, machine)


def test_others_are_priced_and_the_cheapest_come_first():
    (found,) = reasons(product())
    assert found.taken.rule == "contraction" and found.taken.seconds > 0
    prices = [each.seconds for each in found.others if each.seconds is not None]
    assert len(prices) >= 5 and prices == sorted(prices)
    assert found.margin == prices[0] / found.taken.seconds
    assert any("rows" in each.change and " -> " in each.change for each in found.others)


def test_terms_are_those_of_the_price():
    (found,) = reasons(product())
    terms = found.taken.terms
    assert terms["issue"] > 0 and max(terms.values()) <= found.taken.seconds <= sum(terms.values()) * 1.001


def test_what_is_refused_has_a_reason():
    refused = [each for found in reasons(product()) for each in found.others if each.refused]
    assert refused and all(each.seconds is None for each in refused)


def test_loops_are_shown_as_a_tree_that_can_be_read():
    (found,) = reasons(softmax())
    (nest,) = parse(found.tree)
    assert nest.root == found.root and set(found.stages) < {
        line.split()[-1] for line in found.tree.splitlines()
    }


def test_stages_apart_and_other_rules_are_among_the_others():
    (found,) = reasons(softmax())
    changes = {each.change: each for each in found.others}
    apart = changes["each stage in a nest of its own"]
    assert apart.seconds > found.taken.seconds
    assert "by the rule pipeline" in changes


CASES = (
    ("small:resnet18", "avx2"),
    ("small:bert_base", "avx512"),
    ("narrow:100x200x300 u8s8", "graniterapids"),
    ("small:resnet18", "h200"),
)


@pytest.mark.few(2)
@pytest.mark.parametrize(("source", "target"), CASES)
def test_every_kernel_of_models_has_reasons(source, target):
    count = 0
    for program, threads, constants in corpus.programs(corpus.Case(source, target, 2)):
        machine = Machine(corpus.TARGETS[target], threads)
        plan = plan_unit(program, machine, constants).plan
        for found, nest in zip(why(program, plan, machine, constants), plan.nests, strict=True):
            assert (found.root, found.taken.rule, found.plan) == (nest.root, nest.rule, str(nest.choice))
            count += found.taken.seconds is not None
    assert count


def test_a_plan_of_another_program_is_refused():
    plan = plan_unit(softmax(), MACHINE).plan
    with pytest.raises(ArtefactError, match="names the stage 'softmax"):
        why(product(), plan, MACHINE)


def convolution():
    x = lang.placeholder((1, 32, 28, 28), name="X")
    w = lang.placeholder((32, 32, 3, 3), name="W")
    program = lang.program([x, w], [ops.conv(x, w, padding=1, name="conv")])
    inputs = tuple(b.with_(scope=CONST) if b.name == "W" else b for b in program.inputs)
    return replace(program, inputs=inputs)


@pytest.mark.parametrize(
    ("accuracy", "other"), [(AUTO, "by the direct method"), (EXACT, "by the algorithm f4")]
)
def test_other_methods_are_priced_for_the_whole_kernel(accuracy, other):
    program = convolution()
    plan = plan_unit(program, MACHINE, ("W",), accuracy=accuracy).plan
    assert ("winograd" in plan.words) == (accuracy == AUTO)
    longest = max(why(program, plan, MACHINE, ("W",)), key=lambda each: each.taken.seconds)
    (found,) = [each for each in longest.others if each.change == f"{other}, the whole kernel"]
    assert (found.seconds > longest.taken.seconds) == (accuracy == AUTO)
    assert [each for each in longest.others if each.rule == "bf16x3" and each.refused]


def test_trees_as_they_are_written_are_no_other_way():
    assert all(each.rule != "tree" for found in reasons(softmax()) for each in found.others)
