"""A refusal inside of our own rules, or of code generation while a model is compiled: an internal error."""

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.driver import kernels
from tilewright.ir import Param, index
from tilewright.support import InternalError, ScheduleError


def relu():
    node = helper.make_node("Relu", ["x"], ["y"], name="the node")
    return tiny.model([node], [tiny.tensor("x", (4, 8))], [tiny.tensor("y", (4, 8))], {})


def refuse(*_, **__):
    raise ScheduleError("no such loop", hint="use another one")


@pytest.mark.parametrize("place", ["emit_kernel", "plan"])
def test_a_refused_plan_of_our_own_names_the_node(place, monkeypatch):
    if place == "plan":
        monkeypatch.setattr(kernels.Task, "default", refuse)
    else:
        monkeypatch.setattr("tilewright.build.kernel.emit_kernel", refuse)
    with pytest.raises(InternalError, match="a plan of our own is refused: no such loop") as caught:
        tilewright.compile(relu())
    assert "'the node'" in str(caught.value)
    assert isinstance(caught.value.__cause__, ScheduleError)


def test_a_refused_plan_that_was_given_is_the_user_s(monkeypatch):
    model = relu()
    plan = tilewright.compile(model).plan().to_json()
    monkeypatch.setattr("tilewright.build.kernel.emit_kernel", refuse)
    with pytest.raises(ScheduleError, match="no such loop"):
        tilewright.compile(model, plan=plan)


def test_a_number_that_our_own_rules_ask_for_costs_compilations_alone(monkeypatch, caplog):
    """Where a rule for open sizes asks for a number, each size is compiled for itself."""
    node = helper.make_node("Relu", ["x"], ["y"])
    model = tiny.model([node], [tiny.tensor("x", ("n", 8))], [tiny.tensor("y", ("n", 8))], {})

    def ask(*_):
        index(Param("n")).as_int()

    monkeypatch.setattr("tilewright.driver.open_plan.compiled_steps", ask)
    made = tilewright.compile(model, dynamic={"n": (1, 9)})
    assert "no plan is for all sizes: index n is not a constant" in caplog.text
    x = np.arange(-8, 8, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(made(x)[0], np.maximum(x, 0))
    assert made.compilations == 1
