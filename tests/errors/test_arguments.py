"""Wrong arguments of ``compile``, ``load`` and the command line: what is said of them."""

import re

import numpy as np
import onnx
import pytest

import onnx_models as tiny
import tilewright
from tilewright.cli import main
from tilewright.support import InputError, TargetError, UnsupportedOperatorError, UserError


@pytest.mark.parametrize("threads", [0, -1, "2", 2.0, True, 1e9])
def test_threads_are_whole_numbers(threads):
    with pytest.raises(
        InputError, match=f"threads must be a whole number from 1.*got {re.escape(repr(threads))}"
    ):
        tilewright.compile(tiny.relu(), threads=threads)


def test_there_is_a_most_of_threads_and_no_word_of_other_options():
    with pytest.raises(
        InputError, match="threads must be a whole number from 1 to 1024, got 100000"
    ) as caught:
        tilewright.compile(tiny.relu(), threads=100_000)
    assert not caught.value.hint


def test_wait_policies_are_named():
    with pytest.raises(InputError, match="there is no wait policy 'never'") as caught:
        tilewright.compile(tiny.relu(), wait_policy="never")
    assert "active, passive" in caught.value.hint


@pytest.mark.parametrize("model", [5, None, ["model.onnx"]])
def test_what_is_no_model(model):
    with pytest.raises(InputError, match=f"not {type(model).__name__}") as caught:
        tilewright.compile(model)
    assert "torch.onnx.export" in caught.value.hint


def test_targets_are_names_or_targets():
    with pytest.raises(TargetError, match="a name or a target, not int"):
        tilewright.compile(tiny.relu(), target=3)


@pytest.mark.parametrize("size", ["4", 1.5, -1, True, None])
def test_sizes_are_whole_numbers(size):
    for shapes in ({"batch": size}, {"x": (size, 3)}):
        with pytest.raises(InputError, match=f"the size {re.escape(repr(size))}, no whole number"):
            tilewright.compile(tiny.relu(("batch", 3)), shapes=shapes)


def test_whole_numbers_of_numpy_are_as_good(tmp_path):
    two, three = np.int64(2), np.uint8(3)
    x = np.ones((2, 3), np.float32)
    for given in ({"batch": two}, {"x": (two, three)}, {"x": np.array([2, 3])}):
        model = tilewright.compile(tiny.relu(("batch", 3)), shapes=given, threads=two)
        assert model.inputs[0].shape == (2, 3) and model(x)[0].tolist() == x.tolist()
    opened = tilewright.compile(
        tiny.relu(("batch", "n")), dynamic={"batch": (np.int64(1), np.int64(4))}, shapes={"n": three}
    )
    assert opened(x)[0].tolist() == x.tolist()
    model.save(tmp_path / "m.tw")
    tilewright.load(tmp_path / "m.tw", threads=np.int32(1))
    assert model.sample_feeds(two)["x"].tolist() == model.sample_feeds(2)["x"].tolist()


def test_open_sizes_are_named_in_the_hint(tmp_path, capsys):
    with pytest.raises(
        InputError, match=r"sizes open: 'x': axis 0 \('batch'\), axis 1 \('x\[1\]'\)"
    ) as caught:
        tilewright.compile(tiny.relu(("batch", None)))
    assert "shapes={'batch': 1, 'x[1]': 1}" in caught.value.hint
    assert "--shape batch=1 --shape x[1]=1" in caught.value.hint
    # and what the hint says works
    path = str(tmp_path / "open.onnx")
    onnx.save(tiny.relu(("batch", None)), path)
    assert main(["run", path, "--shape", "batch=1", "--shape", "x[1]=1"]) == 0
    assert "float32[1, 1]" in capsys.readouterr().out


def test_elements_that_are_no_numbers():
    strings = tiny.model(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        [tiny.tensor("x", (2,), onnx.TensorProto.COMPLEX64)],
        [tiny.tensor("y", (2,), onnx.TensorProto.COMPLEX64)],
    )
    with pytest.raises(
        UnsupportedOperatorError, match="'x' has elements of complex64, which cannot be computed"
    ):
        tilewright.compile(strings)


def test_sizes_of_architectures(capsys):
    assert main(["compile", "zoo:resnet18:tiny"]) == 2
    assert "there is no size 'tiny' of zoo:resnet18: write zoo:resnet18 or zoo:resnet18:small" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("path", [4, None, b"x"])
def test_loading_what_is_no_path(path):
    with pytest.raises(UserError, match="path"):
        tilewright.load(path)


@pytest.mark.parametrize("plan", [3, b"{}", {"units": {}}])
def test_what_is_no_plan(plan):
    with pytest.raises(InputError, match=f"plan= is .* not {type(plan).__name__}") as caught:
        tilewright.compile(tiny.relu(), plan=plan)
    assert "--show plan" in caught.value.hint


@pytest.mark.parametrize("records", [4, b"records", ["records"]])
def test_records_that_are_no_path(records):
    with pytest.raises(InputError, match=f"given by its path, not by {type(records).__name__}"):
        tilewright.compile(tiny.relu(), records=records)
