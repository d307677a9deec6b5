"""Differences of plans: of the graph, of kernels, of nests; nothing where plans are equal."""

from dataclasses import replace

from tests.plans import chosen

from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver import plan_differences
from tilewright.driver.plans import plan_of_kernels
from tilewright.lang import ops
from tilewright.plan import GraphPlan, plan_unit
from tilewright.target import find_target

TARGET = find_target("x86_avx512")


def softmax(columns):
    return lang.program([x := lang.placeholder((64, columns), name="X")], [ops.softmax(x)])


def plan(*columns, change=None, graph=None):
    kernels = []
    for n in columns:
        program = softmax(n)
        unit = plan_unit(program, Machine(TARGET, 1)).plan
        if change is not None:
            choice = replace(unit.nests[0].choice, **change)
            unit = chosen(program, unit, Machine(TARGET, 1), choice)
        kernels.append((program, 1, unit))
    return plan_of_kernels(TARGET, kernels, graph)


def test_equal_plans_have_no_difference():
    assert plan_differences(plan(100, 200), plan(100, 200)) == ()


def test_fields_of_nests_are_told():
    found, *loops = plan_differences(plan(100), plan(100, change={"rows": 7}))
    assert found.place == "kernel softmax (1 threads), nest softmax: rows" and found.second == "7"
    # and the lines of its loops that are others
    assert {each.place for each in loops} == {"kernel softmax (1 threads), nest softmax: loops"}
    assert any("/7" in each.second and "/7" not in each.first for each in loops)


def test_kernels_of_one_plan_alone_are_told():
    (found,) = plan_differences(plan(100, 200), plan(100))
    assert found.place == "kernel softmax (1 threads)" and (found.first, found.second) == ("there", "")


def test_decisions_about_graphs_are_told():
    one, other = GraphPlan(), GraphPlan(precision="bf16", parts={"y": 2})
    found = plan_differences(plan(100, graph=one), plan(100, graph=other))
    assert {(d.place, d.first, d.second) for d in found} == {
        ("graph: precision", "f32", "bf16"),
        ("graph: parts: y", "", "2"),
    }
