"""Models whose states stay where they are: one array is read and written, and nothing is copied."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.support import InputError, ModelError
from unit.graph.test_states import model

STATE = {"past": "present"}
OPEN = {"n": (1, 8)}


@pytest.fixture(scope="module")
def compiled():
    return tilewright.compile(model(), dynamic=OPEN, state=STATE, threads=1)


def _feeds(past, count, start):
    new = np.random.default_rng(count).standard_normal((2, count, 4)).astype(np.float32)
    return {"past": past, "new": new, "start": np.array(start)}


def test_runs_write_into_the_input(compiled):
    past, wanted = np.zeros((2, 8, 4), np.float32), np.zeros((2, 8, 4), np.float32)
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    for count, start in ((3, [0, 1]), (1, [3, 4]), (2, [4, 6]), (1, [0, 7])):
        feeds = _feeds(past, count, start)
        for row, at in enumerate(start):
            wanted[row, at : at + count] = feeds["new"][row]
        present, y = compiled.run(None, feeds)
        assert present is past
        np.testing.assert_array_equal(past, wanted)
        np.testing.assert_allclose(y, wanted @ weights, rtol=1e-4, atol=1e-4)
    assert compiled.compilations == 0
    bound = compiled.bind(_feeds(past, 8, [0, 0]))
    present, _ = bound.run()
    assert present is past and past.all()
    assert compiled.profile(_feeds(past, 1, [0, 0]), 1).rows


def test_a_place_out_of_range_ends_a_run(compiled):
    with pytest.raises(InputError, match="out of range"):
        compiled.run(None, _feeds(np.zeros((2, 8, 4), np.float32), 3, [0, 6]))


def test_arrays_that_cannot_be_written_are_refused(compiled):
    feeds = _feeds(np.zeros((2, 8, 4), np.float32), 1, [0, 0])
    fixed = feeds["past"].copy()
    fixed.flags.writeable = False
    for past in (fixed, np.zeros((2, 4, 8), np.float32).swapaxes(1, 2)):
        with pytest.raises(InputError, match="the state 'past' is changed where it is"):
            compiled.run(None, feeds | {"past": past})
    with pytest.raises(InputError, match="the state 'past' shares memory with another argument"):
        compiled.run(None, feeds | {"new": feeds["past"].reshape(-1)[:8].reshape(2, 1, 4)})


def test_what_needs_another_plan_is_refused(compiled, tmp_path):
    with pytest.raises(InputError, match="runs by its plan for all sizes"):
        compiled.at(n=2)
    with pytest.raises(InputError, match="are not saved"):
        compiled.save(tmp_path / "a.tw")
    with pytest.raises(InputError, match="state= is for models with open sizes"):
        tilewright.compile(model(), shapes={"n": 2}, state=STATE)


def test_sizes_without_a_plan_are_refused(monkeypatch):
    def none(*_):
        raise ModelError("none is for all")

    monkeypatch.setattr("tilewright.driver.dynamic.plan_sizes", none)
    with pytest.raises(InputError, match="there is no plan for all sizes"):
        tilewright.compile(model(), dynamic=OPEN, state=STATE)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (["past"], "state= maps names of inputs to names of outputs"),
        ({"past": 3}, "state= maps names of inputs to names of outputs"),
        ({"past": "present", "new": "present"}, "state= names an output twice"),
        ({"past": "y"}, "the output 'y' cannot be written where the input 'past' is"),
    ],
)
def test_states_that_cannot_be_are_refused(state, problem):
    with pytest.raises(InputError, match=problem):
        tilewright.compile(model(), dynamic=OPEN, state=state)


def test_data_that_decides_sizes_is_refused():
    found = helper.make_node("NonZero", ["y"], ["places"])
    made = model([found], ["places"])
    made.graph.output[2].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(InputError, match="data decides no sizes"):
        tilewright.compile(made, dynamic=OPEN, state=STATE, threads=1)
