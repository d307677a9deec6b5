"""Plans of models: text that gives the same kernels on another day, and what is wrong with others."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models

import tilewright
from tilewright.driver.plans import model_plan_from_json
from tilewright.frontend import zoo
from tilewright.ir import structural_hash
from tilewright.support import ArtefactError, InputError, TargetError


def functions(compiled):
    return [structural_hash(group.kernel.lowered()) for group in compiled.groups()]


@pytest.fixture(scope="module")
def model():
    return zoo.SMALL["resnet18"]()


@pytest.fixture(scope="module")
def compiled(model):
    return tilewright.compile(model, threads=2)


def test_a_model_from_its_plan_is_the_same(model, compiled):
    again = tilewright.compile(model, threads=2, plan=compiled.plan().to_json())
    assert functions(again) == functions(compiled)
    feeds = compiled.sample_feeds()
    for a, b in zip(compiled.run(None, feeds), again.run(None, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.plan() == compiled.plan()


def test_a_plan_decides_and_not_only_agrees(model, compiled):
    """A plan with other decisions gives other kernels, whose results are as right."""
    data = json.loads(compiled.plan().to_json())
    changed = 0
    for unit in data["units"].values():
        for nest in unit["nests"]:
            # the loops of one thread, without what is asked for ahead
            lines = [re.sub(r" parallel| prefetch=\S+", "", line) for line in nest["trees"]]
            changed += lines != nest["trees"]
            nest["trees"] = lines
    assert changed
    other = tilewright.compile(model, threads=2, plan=json.dumps(data))
    assert functions(other) != functions(compiled)
    feeds = compiled.sample_feeds()
    for a, b in zip(compiled.run(None, feeds), other.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_strategy_by_name(model, compiled):
    random = tilewright.compile(model, threads=2, strategy="random")
    feeds = compiled.sample_feeds()
    for a, b in zip(compiled.run(None, feeds), random.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_strategy_that_finds_nothing_says_so(model, compiled, caplog):
    found = tilewright.compile(model, threads=2, strategy="polyhedral")
    same = sum(unit == compiled.plan().units[key] for key, unit in found.plan().units.items())
    assert f"the strategy polyhedral finds nothing other than the default for {same} of" in caplog.text


def test_an_unknown_strategy_is_refused(model):
    with pytest.raises(InputError, match="there is no strategy 'magic'"):
        tilewright.compile(model, strategy="magic")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the model's plan is not JSON"),
        ("{}", "not the plan of a model"),
        ('{"format": "tilewright-model-plan", "version": 3}', "has exactly 'format', 'graph', 'quantities'"),
        (
            '{"format": "tilewright-model-plan", "version": 3, "target": 3, "quantities": "", "graph": null,'
            ' "units": {}}',
            "'target' of a model's plan",
        ),
        (
            '{"format": "tilewright-model-plan", "version": 3, "target": "", "quantities": 1, "graph": null,'
            ' "units": {}}',
            "'quantities' of a model's plan is a digest",
        ),
        (
            '{"format": "tilewright-model-plan", "version": 3, "target": "", "quantities": "", "graph": null,'
            ' "units": {"abc/2": 3}}',
            "kernel abc/2: not a plan",
        ),
        (" " * ((1 << 28) + 1), "at most"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(ArtefactError, match=message):
        model_plan_from_json(text)


def test_strategies_of_cpus_are_refused_for_devices(model):
    with pytest.raises(TargetError, match="the strategy 'polyhedral' is for CPUs, and c is none"):
        tilewright.compile(model, target="c", strategy="polyhedral")


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert_base"])
def test_the_graph_is_as_the_plan_says(name):
    """Joins, parts, layouts and passes come from the plan: another one gives another model, as right."""
    model = zoo.SMALL[name]()
    compiled = tilewright.compile(model, threads=2)
    data = json.loads(compiled.plan().to_json())
    data["graph"].update(joins=[], layouts={}, copied={}, parts={})
    plain = tilewright.compile(model, threads=2, plan=json.dumps(data))
    assert all(b.layout is None for g in plain.groups() for b in g.kernel.program.outputs)
    assert plain.plan().graph == model_plan_from_json(json.dumps(data)).graph
    feeds = compiled.sample_feeds()
    for a, b in zip(compiled.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_cut_stores_the_value_between_two_kernels():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    weights = {"w": np.linspace(-1, 1, 16 * 8 * 9, dtype=np.float32).reshape(16, 8, 3, 3)}
    tensors = [onnx_models.tensor(name, (1, size, 9, 9)) for name, size in (("x", 8), ("z", 16))]
    model = onnx_models.model(nodes, tensors[:1], tensors[1:], weights)
    compiled = tilewright.compile(model, threads=2)
    assert [group.operators for group in compiled.groups()] == ["Conv+Relu"]
    data = json.loads(compiled.plan().to_json())
    data["graph"]["fusion"]["cuts"], data["units"] = ["y"], {}
    cut = tilewright.compile(model, threads=2, plan=json.dumps(data))
    assert [group.operators for group in cut.groups()] == ["Conv", "Relu"]
    feeds = compiled.sample_feeds()
    for a, b in zip(compiled.run(None, feeds), cut.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.update(precision="bf16"), "the plan is for the precision bf16, not f32"),
        (
            lambda g: g.update(joins=[["a", "b"]]),
            "the plan joins the kernels of 'a', 'b', which do not follow",
        ),
        (lambda g: g.update(joins=[["a"]]), "a join of 'joins' names two groups at least"),
        (lambda g: g.update(parts={"nothing": 2}), "the plan names 'nothing', which no kernel"),
        (lambda g: g.update(parts={"nothing": 1}), "parts are 2 at least"),
        (lambda g: g.update(copied={"nothing": ["d0"]}), "the plan names 'nothing', which no kernel"),
        (lambda g: g.update(layouts={"nothing": ["d0"]}), "the plan gives a layout to 'nothing'"),
        (lambda g: g.update(layouts={"nothing": []}), "a layout is a list of indices"),
        (lambda g: g.update(layouts={next(iter(g["layouts"])): ["d0"]}), "a layout of the plan does not fit"),
        (lambda g: g["fusion"].update(cuts=["nothing"]), "the plan cuts at 'nothing', which the model"),
        (
            lambda g: g.update(converted={"kernel": {"x": ["d" * 10_000]}}),
            "an index of .converted. is longer than any",
        ),
        (lambda g: g.update(more=1), "there is no field 'more'"),
        (
            lambda g: g["fusion"].update(max_nodes="many"),
            r"Expected `int`, got `str` - at `\$.fusion.max_nodes`",
        ),
        (lambda g: g["passes"]["fill"].update(width=3), "there is no field 'width'"),
    ],
)
def test_plans_of_other_models_are_refused(model, compiled, change, message):
    data = json.loads(compiled.plan().to_json())
    change(data["graph"])
    with pytest.raises(ArtefactError, match=message):
        tilewright.compile(model, threads=2, plan=json.dumps(data))


def test_a_kernel_without_parts_is_named(model, compiled):
    data = json.loads(compiled.plan().to_json())
    value = compiled.groups()[0].outputs[0]
    data["graph"]["parts"] = {value: 7}
    with pytest.raises(ArtefactError, match="in 7 parts of the batch, which it does not have"):
        tilewright.compile(model, threads=2, plan=json.dumps(data))


def test_a_kernel_is_joined_once(model):
    model = zoo.SMALL["mobilenet_v2"]()
    compiled = tilewright.compile(model, threads=2)
    data = json.loads(compiled.plan().to_json())
    run = next(iter(data["graph"]["joins"]), None) or [g.outputs[0] for g in compiled.groups()[1:3]]
    data["graph"]["joins"] = [run, run]
    with pytest.raises(ArtefactError, match="twice"):
        tilewright.compile(model, threads=2, plan=json.dumps(data))


def test_a_strategy_varies_kernels_of_devices():
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [onnx_models.tensor(name, shape) for name, shape in (("x", (24, 40)), ("w", (40, 48)))]
    made = onnx_models.model([node], inputs, [onnx_models.tensor("y", (24, 48))])
    compiled = tilewright.compile(made, target="c", strategy="random")
    feeds = compiled.sample_feeds()
    (got,) = compiled.run(None, feeds)
    np.testing.assert_allclose(got, feeds["x"] @ feeds["w"], atol=1e-4)
    # plans of kernels on devices are plans: they can be kept, and make the same kernels
    again = tilewright.compile(made, target="c", plan=compiled.plan().to_json())
    assert [g.kernel.schedule.trace for g in again.groups()] == [
        g.kernel.schedule.trace for g in compiled.groups()
    ]


def test_the_plan_of_another_model_or_of_other_threads_is_told(caplog):
    two = tilewright.compile(onnx_models.mlp(), threads=2).plan()
    with pytest.raises(InputError, match="another model"):
        tilewright.compile(onnx_models.relu(), threads=2, plan=two)
    with pytest.raises(InputError, match="made for 2 threads") as caught:
        tilewright.compile(onnx_models.mlp(), threads=1, plan=two)
    assert caught.value.hint == "threads=2"
    part = replace(two, units=dict(list(two.units.items())[:1]))
    tilewright.compile(onnx_models.mlp(), threads=2, plan=part)
    assert "the plan has 1 of 2 kernels" in caplog.text
