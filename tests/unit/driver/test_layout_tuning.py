"""Layouts of values: groups and kernels of small models, the best sum, made-up and measured seconds."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models as tiny
from tests.native_kernel import HOST

import tilewright
from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, ModelPlan
from tilewright.driver.graph_plan import graph_units
from tilewright.driver.layout_tuning import (
    KernelPrices,
    independent_layouts,
    timed_in_turns,
    tune_layouts,
    value_layouts,
    with_tuned_layouts,
)
from tilewright.driver.plans import model_plan_from_json, unit_key
from tilewright.driver.units import UnitMaker
from tilewright.frontend import import_onnx
from tilewright.graph import fuse, simplify
from tilewright.ir import CONST
from tilewright.plan import VARIANTS
from tilewright.schedule import Step
from tilewright.strategies import Task, Trial
from tilewright.strategies.joint.loops import loop_space
from tilewright.support import ArtefactError


def convolution(source, output, weights, rng, channels=32):
    weights[f"W{output}"] = (rng.standard_normal((channels, channels, 3, 3)) / 17).astype(np.float32)
    return [
        helper.make_node(
            "Conv", [source, f"W{output}"], [f"{output}_sum"], pads=[1, 1, 1, 1], name=f"c{output}"
        ),
        helper.make_node("Relu", [f"{output}_sum"], [output], name=f"r{output}"),
    ]


@pytest.fixture(scope="module")
def model():
    """Three convolutions, the second's input added to its result, and a pooling."""
    rng, weights = np.random.default_rng(0), {}
    nodes = [*convolution("x", "a", weights, rng), *convolution("a", "b", weights, rng)]
    nodes += [
        helper.make_node("Add", ["a", "b"], ["s"], name="add"),
        helper.make_node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        *convolution("p", "y", weights, rng),
    ]
    shapes = [tiny.tensor("x", (1, 32, 10, 10))], [tiny.tensor("y", (1, 32, 5, 5))]
    return tiny.model(nodes, *shapes, weights)


@pytest.fixture(scope="module")
def made(model):
    graph = import_onnx(model)
    plan = graph_units(graph, HOST, 1).plan
    return UnitMaker(fuse(simplify(graph, plan.passes.passes()), plan.fusion)), plan


class Made:
    """Seconds made up from programs."""

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, 0

    def measure(self, task, candidates):
        self.asked += 1
        return [Trial(c, "ok", (self.seconds(task.program),)) for c in candidates]


def laid(program):
    return sum(b.layout is not None for b in (*program.inputs, *program.outputs))


def last_channels(program):
    ends = [b.layout for b in (*program.inputs, *program.outputs) if b.layout is not None]
    return sum(len(x.exprs) == 4 for x in ends)


def test_the_best_sum_is_taken_and_compiles(model, made):
    """Where channels last are fastest all values that may are; the model computes what it did."""
    maker, plan = made
    prices = Made(lambda p: 1e-3 / (1 + last_channels(p)))
    found = tune_layouts(maker, plan, Machine(HOST, 1), prices)
    assert found.best < found.untuned and found.measured == prices.asked > 8
    assert found.changed
    assert {len(found.plan.layouts.values[v]) for v in found.changed} == {4}
    compiled = tilewright.compile(model, threads=1, accuracy="exact")
    other = tilewright.compile(
        model, threads=1, accuracy="exact", plan=ModelPlan(HOST.fingerprint, {}, found.plan)
    )
    feeds = compiled.sample_feeds()
    for mine, theirs in zip(other(*feeds.values()), compiled(*feeds.values()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def converts(program):
    return any(stage.name.endswith("_converts") for stage in program.stages)


def test_a_kernel_converts_what_it_reads_where_that_is_faster(model, made):
    """Also what callers give, which stays as it is; the model computes what it did, and so does its file."""
    maker, plan = made
    prices = Made(lambda p: 1e-4 if converts(p) and last_channels(p) == 0 else 1e-3)
    found = tune_layouts(maker, plan, Machine(HOST, 1), prices)
    converted = found.plan.layouts.converted
    assert {"x"} <= {value for read in converted.values() for value in read} <= {"x", "a", "b", "s", "p"}
    assert set(found.changed) >= {"x"} and found.best < found.untuned
    whole = ModelPlan(HOST.fingerprint, {}, found.plan)
    assert model_plan_from_json(whole.to_json()) == whole
    compiled = tilewright.compile(model, threads=1, accuracy="exact")
    other = tilewright.compile(model, threads=1, accuracy="exact", plan=whole)
    names = [s.name for group in other.groups() for s in group.kernel.program.stages]
    assert sum(name.endswith("_converts") for name in names) == len(converted)
    feeds = compiled.sample_feeds()
    for mine, theirs in zip(other(*feeds.values()), compiled(*feeds.values()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_conversions_that_do_not_save_are_not_made(made):
    maker, plan = made
    found = tune_layouts(maker, plan, Machine(HOST, 1), Made(lambda p: 1e-3 * (1 + converts(p))))
    assert found.plan is plan


@pytest.mark.parametrize(
    ("converted", "message"),
    [
        ({"nobody": {"x": ("d0", "d1", "d2", "d3")}}, "the plan converts 'x' for the kernel that makes"),
        ({"a": {"p": ("d0", "d1", "d2", "d3")}}, "which does not read them"),
        ({"a": {"x": ("d0", "d1", "d2", "d2")}}, "a layout of the plan does not fit"),
    ],
)
def test_plans_that_convert_what_is_not_there_are_refused(model, made, converted, message):
    _, plan = made
    other = replace(plan, layouts=replace(plan.layouts, converted=converted))
    with pytest.raises(ArtefactError, match=message):
        tilewright.compile(model, threads=1, plan=ModelPlan(HOST.fingerprint, {}, other))


def test_the_default_stays_where_nothing_is_faster(made):
    maker, plan = made
    for seconds in (lambda p: 1e-3, lambda p: inf):
        found = tune_layouts(maker, plan, Machine(HOST, 1), Made(seconds))
        assert found.plan is plan and found.changed == ()


def test_without_time_nothing_changes(made):
    maker, plan = made
    found = tune_layouts(maker, plan, Machine(HOST, 1), Made(lambda p: 1e-3 / (1 + laid(p))), until=0.0)
    assert (found.measured, found.changed) == (0, ())


def test_an_interruption_decides_by_what_was_measured(made):
    """Ctrl-C at the first kernel that is priced under another layout: nothing changes, and it is said."""
    maker, plan = made

    class Interrupted(Made):
        def measure(self, task, candidates):
            if self.asked == len(maker.units(plan.joins)):
                raise KeyboardInterrupt
            return super().measure(task, candidates)

    found = tune_layouts(maker, plan, Machine(HOST, 1), Interrupted(lambda program: 1.0))
    assert found.interrupted and found.changed == ()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("way", ["", "forwards", "backwards"])
def test_operators_on_their_own(made, variant, way):
    """ALT, -WP, -FP, -BP: the layouts that operators like best, propagated or not."""
    maker, plan = made
    prices = Made(lambda p: 1e-3 / (1 + last_channels(p)))
    found = independent_layouts(
        maker,
        plan,
        Machine(HOST, 1),
        prices,
        variant,
        forwards=way == "forwards",
        backwards=way == "backwards",
    )
    assert set(map(len, found.layouts.values.values())) == {4}
    assert not set(found.layouts.values) & maker.fixed()


def test_prices_are_asked_once_a_program(made):
    maker, _ = made
    prices = Made(lambda p: 1.0)
    known = KernelPrices(prices, Machine(HOST, 1))
    program = maker.units()[0].program
    assert known.of(program, 1) == known.of(program, 1) == 1.0
    assert (prices.asked, known.measured) == (1, 1)


def test_layouts_of_values_by_shape():
    assert value_layouts((16,), 16) == [()]
    assert value_layouts((4, 48), 16)[1:] == [("d0", "d1//16", "d1%16")]
    assert value_layouts((1, 4, 9, 9), 16) == [(), ("d0", "d2", "d3", "d1")]


def test_runs_take_turns():
    order = []
    times = timed_in_turns([lambda n=n: order.append(n) for n in range(2)], rounds=3, seconds=0.0)
    assert len(times) == 2
    assert order[:2] == [0, 1]


def test_a_model_is_kept_or_replaced_as_a_whole(model):
    compiled = tilewright.compile(model, threads=1)
    plans = []

    def recompile(plan):
        plans.append(plan)
        return tilewright.compile(model, threads=1, plan=plan)

    prices = Made(lambda p: 1e-3 / (1 + last_channels(p)))
    made, found = with_tuned_layouts(compiled, model, recompile, prices, inf)
    assert len(plans) == 1 and found.measured
    assert (made is compiled) == (not found.changed)
    kept, found = with_tuned_layouts(compiled, model, recompile, Made(lambda p: 1e-3), inf)
    assert kept is compiled and len(plans) == 1


def test_kernels_that_lay_out_weights_and_follow_layouts(model, tmp_path):
    """Plans of the joint search in a model: weights as they say, results re-indexed; saved and loaded."""
    compiled = tilewright.compile(model, threads=1)
    units = {}
    for group in compiled.groups():
        program = group.kernel.program
        task = Task(program, Machine(HOST, 1))
        found = [loop_space(task, steps).base for steps in _layouts(program)]
        units |= {unit_key(program, 1): plan for plan in found[-1:]}
    named = {step.primitive for plan in units.values() for step in plan.rewrites.steps}
    assert {"layout_place", "layout_adopt"} <= named
    other = tilewright.compile(
        model, threads=1, plan=ModelPlan(HOST.fingerprint, units, compiled.plan().graph)
    )
    feeds = compiled.sample_feeds()
    path = tmp_path / "model.tw"
    other.save(path)
    expected = compiled(*feeds.values())
    for results in (other(*feeds.values()), tilewright.load(path)(*feeds.values())):
        for mine, theirs in zip(results, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def _layouts(program):
    """Layouts of a kernel's weights, and its results' own map as their shape."""
    adopt = [Step("layout_adopt", (b.name,)) for b in program.outputs if b.layout is not None]
    weights = [b.name for b in program.inputs if b.scope == CONST and len(b.shape) == 4]
    place = [
        Step("layout_place", (name, ("d0//16", "d1//8", "d2", "d3", "d1%8", "d0%16"))) for name in weights
    ]
    return [(*place, *adopt)] if place else []


@pytest.mark.slow
def test_measured(made):
    maker, plan = made
    with LocalMeasurer() as measurer:
        found = tune_layouts(maker, plan, Machine(HOST, 1), measurer)
    assert 0 < found.best <= found.untuned < 1
