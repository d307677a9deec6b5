"""Compiling: what decides, and what is refused."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.support import (
    InputError,
    ModelError,
    TargetError,
    UnsupportedOperatorError,
    read_settings,
)
from tilewright.target import AARCH64_NEON, detect


def test_a_path_bytes_and_a_message_give_the_same(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(tiny.mlp(), path)
    x = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    results = [tilewright.compile(each)(x)[0] for each in (path, str(path), path.read_bytes(), tiny.mlp())]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_open_sizes_must_be_settled():
    model = tiny.relu(("batch", 3))
    with pytest.raises(InputError, match=r"(?s)'x': axis 0 \('batch'\).*hint: .*shapes="):
        tilewright.compile(model)
    compiled = tilewright.compile(model, shapes={"batch": 2})
    assert compiled.inputs[0].shape == (2, 3)
    with pytest.raises(InputError, match="compile it again with shapes="):
        compiled(np.zeros((3, 3), np.float32))
    assert tilewright.compile(model, shapes={"x": (5, 3)}).outputs[0].shape == (5, 3)


def test_every_unsupported_node_is_named_before_anything_is_compiled():
    nodes = [
        helper.make_node("NoSuchThing", ["x"], ["a"], name="left", domain="my.domain"),
        helper.make_node("Relu", ["a"], ["b"], name="fine"),
        helper.make_node("Other", ["x"], ["c"], name="right", domain="my.domain"),
        helper.make_node("Add", ["b", "c"], ["y"], name="sum"),
    ]
    model = tiny.model(nodes, [tiny.tensor("x", (2,))], [tiny.tensor("y", (2,))])
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    phases = []
    with pytest.raises(UnsupportedOperatorError) as caught:
        tilewright.compile(model, progress=lambda phase, *_: phases.append(phase))
    assert [place.name for place, _ in caught.value.nodes] == ["left", "right"]
    assert "node 'left' (my.domain.NoSuchThing)" in str(caught.value)
    assert "schedule" not in phases


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_must_be_positive(threads):
    with pytest.raises(InputError, match="threads must be a whole number from 1"):
        tilewright.compile(tiny.relu(), threads=threads)


def test_targets_that_cannot_run_here_are_refused():
    with pytest.raises(TargetError, match="no target 'gpu9000'"):
        tilewright.compile(tiny.relu(), target="gpu9000")
    if detect().arch != "aarch64":
        with pytest.raises(TargetError, match="cannot run on this machine"):
            tilewright.compile(tiny.relu(), target=AARCH64_NEON)
    weaker = dataclasses.replace(detect(), preferred_vector_bits=128)
    x = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    np.testing.assert_array_equal(tilewright.compile(tiny.relu(), target=weaker)(x)[0], np.maximum(x, 0))


def test_seconds_are_told_by_phase():
    seconds = tilewright.compile(tiny.relu()).compile_seconds
    assert set(seconds) == {"import", "graph", "kernels", "plan", "total"}
    assert seconds["total"] == pytest.approx(sum(v for k, v in seconds.items() if k != "total"))


def test_settings_may_be_given(tmp_path):
    settings = dataclasses.replace(read_settings({}), cache_dir=tmp_path, threads=1, compile_jobs=1)
    compiled = tilewright.compile(tiny.mlp(), settings=settings)
    assert compiled.threads == 1
    assert list(tmp_path.rglob("*.o"))


def test_an_empty_model_is_refused():
    with pytest.raises(ModelError, match="empty"):
        tilewright.compile(b"")
