"""Sequences whose length, or of which a place, only a run knows: beside numpy."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models

import tilewright
from tilewright.support import InputError, UnsupportedOperatorError

node, info = helper.make_node, helper.make_tensor_value_info
INT, BOOL, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT


def listed(after, *, first=(), insert=("seq", "row")):
    """As many rows as `steps` says, x times 1, 2 …, in a list; then what is made of it."""
    body = helper.make_graph(
        [
            node("Add", ["i", "one"], ["count"]),
            node("Cast", ["count"], ["times"], to=FLOAT),
            node("Mul", ["x", "times"], ["row"]),
            node("SequenceInsert", list(insert), ["more"]),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            info("i", INT, ()),
            info("go", BOOL, ()),
            helper.make_tensor_sequence_value_info("seq", FLOAT, None),
        ],
        [info("on", BOOL, ()), helper.make_tensor_sequence_value_info("more", FLOAT, None)],
        [helper.make_tensor("one", INT, (), [1])],
    )
    begin = node("SequenceConstruct", list(first), ["none"]) if first else node("SequenceEmpty", [], ["none"])
    nodes = [begin, node("Loop", ["steps", "", "none"], ["list"], body=body), *after]
    inputs = [onnx_models.tensor("steps", (), INT), onnx_models.tensor("x", (2, "n"))]
    inputs += [onnx_models.tensor("at", (), INT)] if any("at" in each.input for each in after) else []
    kind = INT if after[-1].op_type == "SequenceLength" else FLOAT
    return onnx_models.model(nodes, inputs, [info("y", kind, None)], {})


def rows(x, steps):
    return [x * np.float32(i + 1) for i in range(steps)]


JOINS = {
    "one behind the other": ({"axis": 0}, lambda x, n: np.concatenate(rows(x, n), 0)),
    "side by side": ({"axis": -1}, lambda x, n: np.concatenate(rows(x, n), 1)),
    "along a new axis": ({"axis": 0, "new_axis": 1}, lambda x, n: np.stack(rows(x, n))),
    "along a new last axis": ({"axis": -1, "new_axis": 1}, lambda x, n: np.stack(rows(x, n), -1)),
}


@pytest.mark.parametrize("name", JOINS)
def test_lists_of_any_length_are_joined(name, tmp_path):
    attributes, of = JOINS[name]
    made = tilewright.compile(
        listed([node("ConcatFromSequence", ["list"], ["y"], **attributes)]), threads=1, dynamic={"n": (1, 9)}
    )
    made.save(tmp_path / "it.tw")
    loaded = tilewright.load(tmp_path / "it.tw")
    for steps, n in ((1, 1), (4, 3), (17, 9)):
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        for model in (made, loaded):
            np.testing.assert_array_equal(model(np.array(steps), x)[0], of(x, steps))
    assert made.compilations == 0


def test_elements_are_taken_by_places_that_data_says():
    begins = ["x", "x"]
    source = listed(
        [node("Identity", ["list"], ["same"]), node("SequenceAt", ["same", "at"], ["y"])], first=begins
    )
    made = tilewright.compile(source, threads=1, dynamic={})
    x = np.ones((2, 3), np.float32)
    for at, times in ((0, 1), (1, 1), (2, 1), (4, 3), (-1, 3)):
        np.testing.assert_array_equal(made(np.array(3), x, np.array(at))[0], x * times)
    with pytest.raises(InputError, match="holds 5, which is out of range"):
        made(np.array(3), x, np.array(5))
    assert made.compilations == 0


def test_lengths_of_lists_are_told():
    made = tilewright.compile(listed([node("SequenceLength", ["list"], ["y"])]), threads=1, dynamic={})
    for steps in (0, 1, 6):
        (got,) = made(np.array(steps), np.ones((2, 3), np.float32))
        assert (got.shape, int(got)) == ((), steps)


def test_elements_of_known_lists_are_taken_by_data():
    nodes = [node("Neg", ["x"], ["m"]), node("SequenceConstruct", ["x", "m"], ["s"]),
             node("SequenceAt", ["s", "at"], ["y"])]  # fmt: skip
    inputs = [onnx_models.tensor("x", ("n",)), onnx_models.tensor("at", (), INT)]
    made = tilewright.compile(
        onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], {}), threads=1, dynamic={}
    )
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal([made(x, np.array(at))[0] for at in (0, 1, -1)], [x, -x, -x])


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        (("seq", "row", "zero"), "'seq' that it carries is no list of one element more a step"),
        (("seq", "row"), "the length of its sequence is known only in a run"),
    ],
)
def test_other_lists_are_compiled_for_what_inputs_hold(insert, message, caplog):
    """Elements put in front, and the last but one taken out."""
    after = [node("ConcatFromSequence", ["left"], ["y"], axis=0)]
    after.insert(0, node("SequenceErase", ["list"], ["left"]))
    source = listed(after, insert=insert)
    if len(insert) > 2:
        source.graph.initializer.append(helper.make_tensor("zero", INT, (), [0]))
    made = tilewright.compile(source, dynamic={})
    assert message in caplog.text
    x = np.ones((2, 3), np.float32)
    kept = rows(x, 3)[:-1] if len(insert) == 2 else rows(x, 3)[:0:-1]
    np.testing.assert_array_equal(made(np.array(3), x)[0], np.concatenate(kept))
    assert made.compilations == 1


def test_elements_of_unlike_sizes_are_compiled_for_their_places(caplog):
    nodes = [node("SequenceConstruct", ["x", "w"], ["s"]), node("SequenceAt", ["s", "at"], ["y"])]
    inputs = [onnx_models.tensor("x", (2,)), onnx_models.tensor("w", (3,)), onnx_models.tensor("at", (), INT)]
    source = onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], {})
    made = tilewright.compile(source, dynamic={})
    assert "are none, or unlike each other" in caplog.text
    x, w = np.ones(2, np.float32), np.zeros(3, np.float32)
    assert [made(x, w, np.array(at))[0].shape for at in (0, 1)] == [(2,), (3,)]


def test_lists_are_no_tensors(caplog):
    made = tilewright.compile(listed([node("Neg", ["list"], ["y"])]), dynamic={})
    assert "its input 'list' is a sequence of tensors" in caplog.text
    with pytest.raises(UnsupportedOperatorError, match="its input 'list' is a sequence of tensors"):
        made(np.array(3), np.ones((2, 3), np.float32))


def test_places_set_by_masks_have_one_plan():
    """Places that data chooses, and as many updates, chosen by it as well."""
    nodes = [
        node("Less", ["x", "zero"], ["mask"]), node("NonZero", ["mask"], ["where"]),
        node("Transpose", ["where"], ["places"], perm=[1, 0]), node("Compress", ["w", "mask"], ["new"]),
        node("ScatterND", ["x", "places", "new"], ["y"]),
    ]  # fmt: skip
    inputs = [onnx_models.tensor("x", ("n",)), onnx_models.tensor("w", ("n",))]
    weights = {"zero": np.array(0, np.float32)}
    made = tilewright.compile(onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], weights), dynamic={})
    for n in (1, 8, 100):
        x, w = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        np.testing.assert_array_equal(made(x, w)[0], np.where(x < 0, w, x))
    assert made.compilations == 0
