"""Plans of models: text that gives the same kernels on another day, and what is wrong with others."""

import json

import numpy as np
import pytest

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
            if nest["form"] == "tiles" and nest["plan"].get("prefetch") and nest["plan"]["rows"] > 1:
                nest["plan"]["prefetch"], nest["plan"]["rows"] = False, 1
                changed += 1
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


def test_an_unknown_strategy_is_refused(model):
    with pytest.raises(InputError, match="there is no strategy 'magic'"):
        tilewright.compile(model, strategy="magic")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the model's plan is not JSON"),
        ("{}", "not the plan of a model"),
        ('{"format": "tilewright-model-plan", "version": 1}', "has exactly 'format', 'version', 'target'"),
        (
            '{"format": "tilewright-model-plan", "version": 1, "target": 3, "units": {}}',
            "'target' of a model's plan",
        ),
        (" " * ((1 << 28) + 1), "at most"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(ArtefactError, match=message):
        model_plan_from_json(text)


def test_devices_take_no_strategy_yet(model):
    with pytest.raises(TargetError, match="follow no strategy or plan yet"):
        tilewright.compile(model, target="pocl", strategy="random")
