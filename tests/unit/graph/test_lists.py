"""Lists that only a run has, as inputs and outputs, too, and values that may be absent: beside numpy."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models

import tilewright
from tilewright.support import InputError, ModelError, UnsupportedOperatorError

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
    with pytest.raises(InputError, match=r"\(SequenceAt\): place 5 is out of range for 5 elements"):
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


@pytest.mark.parametrize("insert", [("seq", "row"), ("seq", "row", "zero")])
def test_elements_are_put_in_and_taken_out_anywhere(insert):
    """Elements put in front, or at the end, and the last but one taken out."""
    after = [node("ConcatFromSequence", ["left"], ["y"], axis=0)]
    after.insert(0, node("SequenceErase", ["list"], ["left"]))
    source = listed(after, insert=insert)
    if len(insert) > 2:
        source.graph.initializer.append(helper.make_tensor("zero", INT, (), [0]))
    made = tilewright.compile(source, dynamic={})
    x = np.ones((2, 3), np.float32)
    kept = rows(x, 3)[:-1] if len(insert) == 2 else rows(x, 3)[:0:-1]
    np.testing.assert_array_equal(made(np.array(3), x)[0], np.concatenate(kept))
    with pytest.raises(InputError, match=r"\(ConcatFromSequence\): elements of these shapes .* none"):
        made(np.array(1), x)
    assert made.compilations == 0


def test_elements_of_unlike_sizes():
    nodes = [node("SequenceConstruct", ["x", "w"], ["s"]), node("SequenceAt", ["s", "at"], ["y"])]
    inputs = [onnx_models.tensor("x", (2,)), onnx_models.tensor("w", (3,)), onnx_models.tensor("at", (), INT)]
    source = onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], {})
    made = tilewright.compile(source, dynamic={})
    x, w = np.ones(2, np.float32), np.zeros(3, np.float32)
    assert [made(x, w, np.array(at))[0].shape for at in (0, 1)] == [(2,), (3,)]
    assert made.compilations == 0


LIST = helper.make_tensor_sequence_value_info


def scaled(kind=None):
    """The elements of a list, doubled and behind them negated, and how many there are."""
    body = helper.make_graph(
        [node("Mul", ["e", "b"], ["d"]), node("Neg", ["e"], ["m"])],
        "each",
        [info("e", FLOAT, ("k", 2)), info("b", FLOAT, (1, 2))],
        [info("d", FLOAT, ("k", 2)), info("m", FLOAT, ("k", 2))],
    )
    nodes = [
        node("SequenceMap", ["s", "by"], ["t", "u"], body=body),
        node("SequenceLength", ["s"], ["n"]),
        node("SequenceInsert", ["t", "by"], ["v"]),
    ]
    inputs = [kind or LIST("s", FLOAT, ("k", 2)), onnx_models.tensor("by", (1, 2))]
    outputs = [LIST("v", FLOAT, None), LIST("u", FLOAT, None), info("n", INT, ())]
    return onnx_models.model(nodes, inputs, outputs, {})


def test_lists_are_inputs_and_outputs(tmp_path):
    made = tilewright.compile(scaled(), threads=1, dynamic={})
    made.save(tmp_path / "it.tw")
    assert str(made.inputs[0]) == "'s': list of float32[?, 2]"
    rng, by = np.random.default_rng(3), np.full((1, 2), 3, np.float32)
    for model in (made, tilewright.load(tmp_path / "it.tw")):
        for lengths in ((), (1,), (4, 1, 7, 0), (2,) * 9):
            given = [rng.standard_normal((n, 2), np.float32) for n in lengths]
            feeds = {"s": given, "by": by}
            for more, less, count in (model.run(None, feeds), model.bind(feeds).run()):
                assert (len(more), len(less), int(count)) == (len(given) + 1, len(given), len(given))
                for got, want in zip((*more, *less), (*given, by, *given), strict=True):
                    sign = -1 if any(got is each for each in less) else 1 if got is more[-1] else 3
                    np.testing.assert_allclose(got, want * sign)
                    assert got is not by and not np.may_share_memory(got, by)
    assert made.compilations == 0
    assert made.measure(feeds, 2).shape[0] == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((1, 2), np.float32), "the input 's': list of float32.* got ndarray"),
        ([np.zeros((1, 3), np.float32)], r"'s\[0\]' has the shape \[1, 3\]; the input is 's'"),
        ([np.zeros((1, 2), np.float64)], r"'s\[0\]': float32\[1, 2\] got elements of float64"),
        ([None], r"'s\[0\]' is no array but NoneType"),
        (None, "the input 's': list of float32.* got NoneType"),
    ],
)
def test_what_is_no_list_is_refused(given, message):
    made = tilewright.compile(scaled(), threads=1, dynamic={})
    by = np.ones((1, 2), np.float32)
    with pytest.raises(InputError, match=message):
        made.run(None, {"s": given, "by": by})
    with pytest.raises(InputError, match="the output 'v' is a list, or may be absent: out= is for arrays"):
        made.run(["v"], {"s": [], "by": by}, out=[by])
    with pytest.raises(InputError, match=r"the input 's'.* is missing"):
        made.run(None, {"by": by})


def test_lists_ask_for_open_sizes():
    with pytest.raises(UnsupportedOperatorError, match="not a dense tensor but: sequence") as caught:
        tilewright.compile(scaled())
    assert caught.value.hint == "dynamic={} takes lists"
    texts = LIST("s", TensorProto.STRING, ("k", 2))
    with pytest.raises(UnsupportedOperatorError, match="'s' has elements of string"):
        tilewright.compile(scaled(texts), dynamic={})
    nested = helper.make_sequence_type_proto(LIST("s", FLOAT, (2,)).type)
    with pytest.raises(UnsupportedOperatorError, match="'s' holds what are no dense tensors"):
        tilewright.compile(scaled(helper.make_value_info("s", nested)), dynamic={})
    parts = [node("SplitToSequence", ["x"], ["y"])]
    source = onnx_models.model(parts, [onnx_models.tensor("x", (2,))], [LIST("y", FLOAT, None)], {})
    with pytest.raises(UnsupportedOperatorError, match="the model's output 'y' is a sequence") as caught:
        tilewright.compile(source)
    assert "dynamic={}" in caught.value.hint
    assert [a.tolist() for a in tilewright.compile(source, dynamic={})(np.ones(2, np.float32))[0]] == [
        [1]
    ] * 2


def test_values_that_may_be_absent():
    """The value, where it is there, else x; an optional output that is there in one branch alone."""
    take = helper.make_graph([node("OptionalGetElement", ["o"], ["a"])], "is", [], [info("a", FLOAT, None)])
    other = helper.make_graph([node("Identity", ["x"], ["b"])], "none", [], [info("b", FLOAT, None)])
    there = helper.make_graph([node("Optional", ["x"], ["c"])], "c", [], [info("c", FLOAT, None)])
    none = helper.make_graph([node("Optional", [], ["d"])], "d", [], [info("d", FLOAT, None)])
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ("m",)))
    none.node[0].attribute.append(helper.make_attribute("type", kind.optional_type.elem_type))
    nodes = [
        node("OptionalHasElement", ["o"], ["has"]),
        node("If", ["has"], ["y"], then_branch=take, else_branch=other),
        node("If", ["has"], ["z"], then_branch=there, else_branch=none),
        node("OptionalGetElement", ["z"], ["w"]),
    ]
    inputs = [helper.make_value_info("o", kind), onnx_models.tensor("x", ("n",))]
    outputs = [info("y", FLOAT, None), helper.make_value_info("z", kind), info("w", FLOAT, None)]
    made = tilewright.compile(onnx_models.model(nodes, inputs, outputs, {}), threads=1, dynamic={})
    x, o = np.arange(3, dtype=np.float32), np.ones(5, np.float32)
    for got, want in zip(made(o, x), (o, x, x), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(InputError, match=r"'w' \(OptionalGetElement\): the value that it takes is absent"):
        made(None, x)
    del nodes[-1], outputs[-1]
    made = tilewright.compile(onnx_models.model(nodes, inputs, outputs, {}), threads=1, dynamic={})
    y, z = made(None, x)
    assert z is None and y.tolist() == x.tolist()


def test_parts_of_open_tensors():
    """One element for each row of an open number; parts as data says."""
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], keepdims=0),
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=0),
        node("SequenceAt", ["rows", "at"], ["row"]),
    ]
    inputs = [onnx_models.tensor("x", ("n", 3)), onnx_models.tensor("sizes", ("k",), INT)]
    inputs += [onnx_models.tensor("at", (), INT)]
    outputs = [LIST("parts", FLOAT, None), info("row", FLOAT, (3,))]
    made = tilewright.compile(onnx_models.model(nodes, inputs, outputs, {}), threads=1, dynamic={})
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    parts, row = made(x, np.array([2, 0, 5]), np.array(-2))
    assert [len(part) for part in parts] == [2, 0, 5] and row.tolist() == x[5].tolist()
    np.testing.assert_array_equal(np.concatenate(parts), x)
    with pytest.raises(InputError, match=r"\(SplitToSequence\): parts of \[2, 1\] are not 7 elements"):
        made(x, np.array([2, 1]), np.array(0))
    assert made.compilations == 0


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceAt", ["x", "zero"], ["y"])], "its input 0 is no sequence"),
        ([node("SequenceLength", ["o"], ["y"])], "its input 0 is no sequence"),
        ([node("SequenceInsert", ["s", "s"], ["y"])], "its input 1 is no tensor"),
        ([node("SplitToSequence", ["s"], ["y"])], "its input 0 is no tensor"),
        ([node("ConcatFromSequence", ["s"], ["y"], axis=3)], "axis 3 is out of range for rank 2"),
    ],
)
def test_wrong_nodes_are_named(nodes, message):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, (2,)))
    inputs = [LIST("s", FLOAT, (2, 3)), onnx_models.tensor("x", (2,)), helper.make_value_info("o", kind)]
    source = onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], {"zero": np.array(0)})
    with pytest.raises(ModelError, match=rf"'y' \({nodes[0].op_type}\): {message}"):
        tilewright.compile(source, dynamic={})


def test_one_value_that_is_carried_twice():
    """A loop that is given one tensor for two of the values it carries, and one list."""
    body = helper.make_graph(
        [
            node("Add", ["a", "x"], ["c"]),
            node("SequenceInsert", ["s", "a"], ["u"]),
            node("Identity", ["g"], ["h"]),
        ],
        "body",
        [info("i", INT, ()), info("g", BOOL, ()), *(info(n, FLOAT, None) for n in "ab"),
         *(LIST(n, FLOAT, None) for n in "st")],
        [info("h", BOOL, ()), info("c", FLOAT, None), info("b", FLOAT, None), LIST("u", FLOAT, None),
         LIST("t", FLOAT, None)],
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("Loop", ["n", "", "x", "x", "e", "e"], list("yzvw"), body=body),
    ]
    inputs = [onnx_models.tensor("n", (), INT), onnx_models.tensor("x", ("k",))]
    outputs = [info("y", FLOAT, None), info("z", FLOAT, None), LIST("v", FLOAT, None), LIST("w", FLOAT, None)]
    made = tilewright.compile(onnx_models.model(nodes, inputs, outputs, {}), threads=1, dynamic={})
    x = np.arange(3, dtype=np.float32)
    y, z, v, w = made(np.array(3), x)
    assert (y.tolist(), z.tolist(), w) == ((4 * x).tolist(), x.tolist(), [])
    np.testing.assert_array_equal(v, [x, 2 * x, 3 * x])


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
