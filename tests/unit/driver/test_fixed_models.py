"""Models of fixed sizes by the interface of all models: prepared, asked for sizes, compiled and loaded."""

import numpy as np
import pytest
from onnx import helper

import tilewright
from onnx_models import model, tensor
from tilewright.support import InputError


@pytest.fixture(params=["compiled", "loaded"])
def squared(request, tmp_path):
    made = model([helper.make_node("Mul", ["x", "x"], ["y"])], [tensor("x", (3,))], [tensor("y", (3,))])
    compiled = tilewright.compile(made, threads=1)
    if request.param == "compiled":
        return compiled
    compiled.save(tmp_path / "m.tw")
    return tilewright.load(tmp_path / "m.tw")


def test_there_is_no_size_to_choose(squared):
    assert squared.at() is squared and squared.sizes == {}
    for ask in (
        lambda: squared.at(n=3),
        lambda: squared.prepare({"n": 3}),
        lambda: squared.sample_feeds(0, n=3),
    ):
        with pytest.raises(InputError, match="the model has no open size 'n'"):
            ask()


def test_preparing_has_the_memory_of_runs(squared):
    prepared = squared.prepare()
    assert prepared.seconds >= 0 and prepared.compiled == 0 and prepared.nbytes == squared.run_bytes
    feeds = squared.sample_feeds(1)
    np.testing.assert_array_equal(squared.run(None, feeds)[0], feeds["x"] ** 2)
