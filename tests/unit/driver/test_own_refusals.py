"""A refusal inside of our own rules, or of code generation while a model is compiled: an internal error."""

import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.driver import kernels
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
