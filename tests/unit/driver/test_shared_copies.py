"""Copies of values that several kernels read in another layout: priced, compiled, refused."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models as tiny
from tests.native_kernel import HOST

import tilewright
from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, ModelPlan
from tilewright.driver.graph_plan import graph_units
from tilewright.driver.plans import model_plan_from_json
from tilewright.driver.shared_copies import tune_copies
from tilewright.frontend import import_onnx
from tilewright.graph import ValueCopy
from tilewright.strategies import Trial
from tilewright.support import ArtefactError


@pytest.fixture(scope="module")
def model():
    """Three branches that read one image, of 3x3 and 1x1 windows."""
    rng, weights, nodes = np.random.default_rng(3), {}, []
    for name, size in (("a", 3), ("b", 3), ("c", 1)):
        weights[f"W{name}"] = (rng.standard_normal((32, 32, size, size)) / 17).astype(np.float32)
        pads = [size // 2] * 4
        nodes.append(helper.make_node("Conv", ["x", f"W{name}"], [f"{name}_sum"], pads=pads, name=name))
        nodes.append(helper.make_node("Relu", [f"{name}_sum"], [name]))
    nodes += [helper.make_node("Add", ["a", "b"], ["d"]), helper.make_node("Add", ["d", "c"], ["y"])]
    ends = [tiny.tensor("x", (1, 32, 9, 9))], [tiny.tensor("y", (1, 32, 9, 9))]
    return tiny.model(nodes, *ends, weights)


@pytest.fixture(scope="module")
def made(model):
    graph = import_onnx(model)
    return graph, graph_units(graph, HOST, 1).plan


class Made:
    """Seconds made up: of a copy, of an operator whose image lies channels last, and of one that does not."""

    def __init__(self, copying, last, other):
        self.seconds = copying, last, other

    def measure(self, task, candidates):
        image, *operands = task.program.inputs
        lies_last = image.layout is not None and len(image.layout.exprs) == 4
        return [Trial(c, "ok", (self.seconds[1 if lies_last else 2 if operands else 0],)) for c in candidates]


def test_one_copy_serves_all_who_want_it(model, made):
    """It is found where it saves time; the model computes what it did, and so does its plan's text."""
    graph, plan = made
    found = tune_copies(graph, plan, Machine(HOST, 1), Made(1e-4, 1e-4, 1e-3))
    (copy,) = found.copies
    assert copy.value == "x" and len(copy.readers) == 3 and found.saved == pytest.approx(3e-3 - 4e-4)
    assert len(found.plan.layouts.values[copy.name]) == 4
    whole = ModelPlan(HOST.fingerprint, {}, found.plan)
    assert model_plan_from_json(whole.to_json()) == whole
    compiled = tilewright.compile(model, threads=1, accuracy="exact")
    other = tilewright.compile(model, threads=1, accuracy="exact", plan=whole)
    assert sum(group.operators == "Copy" for group in other.groups()) == 1
    assert len(other.groups()) == len(compiled.groups()) + 1
    feeds = compiled.sample_feeds()
    for mine, theirs in zip(other(*feeds.values()), compiled(*feeds.values()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_it_replaces_what_each_converts_itself(made):
    graph, plan = made
    unit = next(u for u in graph_units(graph, HOST, 1).units if "x" in u.inputs.values())
    converted = {next(iter(unit.outputs.values())): {"x": ("d0", "d2", "d3", "d1")}}
    converting = replace(plan, layouts=replace(plan.layouts, converted=converted))
    found = tune_copies(graph, converting, Machine(HOST, 1), Made(1e-4, 1e-4, 1e-3))
    assert len(found.copies) == 1 and not found.plan.layouts.converted


@pytest.mark.parametrize("seconds", [(3e-3, 1e-4, 1e-3), (1e-4, 1e-3, 1e-3), (1e-4, 2e-3, 1e-3)])
def test_copies_that_do_not_save_are_not_made(made, seconds):
    graph, plan = made
    found = tune_copies(graph, plan, Machine(HOST, 1), Made(*seconds))
    assert found.plan is plan and (found.copies, found.saved) == ((), 0.0)


def test_without_time_nothing_changes(made):
    graph, plan = made
    assert tune_copies(graph, plan, Machine(HOST, 1), Made(1e-4, 1e-4, 1e-3), until=0.0).plan is plan


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        (ValueCopy("x", "x.copy", ("nobody",)), "the plan copies 'x' for the node that makes 'nobody'"),
        (ValueCopy("Wa", "x.copy", ("y",)), "which does not read it"),
        (ValueCopy("x", "x", ("a_sum",)), "the plan calls a copy 'x', which is a value of the model"),
    ],
)
def test_plans_whose_copies_nobody_reads_are_refused(model, made, copy, message):
    _, plan = made
    other = replace(plan, passes=replace(plan.passes, copies=(copy,)))
    with pytest.raises(ArtefactError, match=message):
        tilewright.compile(model, threads=1, plan=ModelPlan(HOST.fingerprint, {}, other))


def test_measured(model, made):
    """By real kernels: whatever is found compiles and is right."""
    graph, plan = made
    with LocalMeasurer() as measurer:
        found = tune_copies(graph, plan, Machine(HOST, 1), measurer)
    other = tilewright.compile(model, threads=1, plan=ModelPlan(HOST.fingerprint, {}, found.plan))
    compiled = tilewright.compile(model, threads=1, accuracy="exact")
    feeds = compiled.sample_feeds()
    for mine, theirs in zip(other(*feeds.values()), compiled(*feeds.values()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
