"""Sizes that data decides: counts of what holds, and numbers that inputs hold; nothing compiled in a run."""

import threading

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models

import tilewright
from tilewright.support import InputError, UnsupportedOperatorError

node = helper.make_node
INT, BOOL = TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(3)


def model(nodes, inputs, outputs, weights=None):
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    return onnx_models.model(nodes, inputs, infos, weights or {})


def masked():
    """The rows of w where x is positive, doubled; then those of the result whose sum is positive."""
    nodes = [
        node("Greater", ["x", "zero"], ["holds"]),
        node("NonZero", ["holds"], ["where"]),
        node("Transpose", ["where"], ["places"], perm=[1, 0]),
        node("GatherND", ["w", "places"], ["rows"]),
        node("Add", ["rows", "rows"], ["y"]),
        node("ReduceSum", ["y", "one"], ["sums"], keepdims=0),
        node("Greater", ["sums", "zero"], ["again"]),
        node("Compress", ["y", "again"], ["z"], axis=0),
        node("Shape", ["z"], ["count"]),
    ]
    weights = {"zero": np.array(0, np.float32), "one": np.array([1], np.int64)}
    inputs = [onnx_models.tensor("x", ("n",)), onnx_models.tensor("w", ("n", 4))]
    return model(nodes, inputs, {"y": 1, "z": 1, "count": INT}, weights)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_chosen_by_data_in_stages(threads):
    made = tilewright.compile(masked(), threads=threads, dynamic={"n": (1, 300)})
    for n, shift in ((1, 9), (1, -9), (5, 0), (300, 0), (64, -9), (64, 9), (257, 1)):
        x = RNG.standard_normal(n).astype(np.float32) + shift
        w = RNG.standard_normal((n, 4)).astype(np.float32)
        y = 2 * w[x > 0]
        got = made(x, w)
        np.testing.assert_array_equal(got[0], y)
        np.testing.assert_array_equal(got[1], y[y.sum(1) > 0])
        np.testing.assert_array_equal(got[2], got[1].shape)
    assert made.compilations == 0
    (one,) = made.run(["z"], {"x": x, "w": w})
    np.testing.assert_array_equal(one, got[1])
    assert [each.shape for each in made.outputs] == [("?", 4), ("?", 4), (2,)]
    bound = made.bind({"x": x, "w": w})
    np.testing.assert_array_equal(bound.run()[0], got[0])


@pytest.mark.parametrize("shape", [("n",), ("n", 3), (2, "n", 3)])
def test_places_of_what_is_not_zero(shape):
    made = tilewright.compile(
        model([node("NonZero", ["x"], ["y"])], [onnx_models.tensor("x", shape)], {"y": INT}),
        dynamic={"n": (0, 40)},
    )
    for n in (0, 1, 7, 40):
        x = (RNG.integers(0, 2, [n if d == "n" else d for d in shape]) * 2.5).astype(np.float32)
        np.testing.assert_array_equal(made(x)[0], np.nonzero(x))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_conditions_may_be_shorter(axis):
    attributes = {} if axis is None else {"axis": axis}
    inputs = [onnx_models.tensor("x", (3, "n")), onnx_models.tensor("c", (2,), BOOL)]
    made = tilewright.compile(
        model([node("Compress", ["x", "c"], ["y"], **attributes)], inputs, {"y": 1}), dynamic={}
    )
    for n, c in ((2, [True, False]), (9, [True, True]), (4, [False, False])):
        x, condition = RNG.standard_normal((3, n)).astype(np.float32), np.array(c)
        np.testing.assert_array_equal(made(x, condition)[0], np.compress(condition, x, axis=axis))


def chosen_twice():
    """Rows of x and of w by two masks, added: they have to be as many."""
    nodes = []
    for mask, rows in (("a", "x"), ("b", "w")):
        nodes += [
            node("NonZero", [mask], [f"where {mask}"]),
            node("Transpose", [f"where {mask}"], [f"places {mask}"], perm=[1, 0]),
            node("GatherND", [rows, f"places {mask}"], [f"rows {mask}"]),
        ]
    nodes += [node("Add", ["rows a", "rows b"], ["y"]), node("Neg", ["y"], ["z"])]
    inputs = [onnx_models.tensor(mask, ("n",), BOOL) for mask in "ab"]
    inputs += [onnx_models.tensor(name, ("n", 3)) for name in "xw"]
    return model(nodes, inputs, {"y": 1, "z": 1})


def test_sizes_that_data_says_are_checked_where_they_have_to_be_equal(tmp_path):
    made = tilewright.compile(chosen_twice(), threads=1, dynamic={"n": (0, 40)})
    made.save(tmp_path / "it.tw")
    for one in (made, tilewright.load(tmp_path / "it.tw")):
        for n in (0, 1, 7, 40):
            a = RNG.random(n) < 0.5
            x, w = (RNG.standard_normal((n, 3)).astype(np.float32) for _ in "xw")
            b = RNG.permutation(a)
            y, z = one(a, b, x, w)
            np.testing.assert_array_equal([y, -z], [x[a] + w[b]] * 2)
        with pytest.raises(
            InputError, match=r"what 'where a/total' says is 40 and what 'where b/total' .* is 2.*Add"
        ):
            one(np.ones(40, bool), np.arange(40) < 2, x, w)
    # one row is added to all: by a compilation for what the masks hold, where there is a compiler
    assert made.compilations == 0
    np.testing.assert_array_equal(made(np.ones(40, bool), np.arange(40) < 1, x, w)[0], x + w[:1])
    assert made.compilations == 1


def ints(*values):
    return np.array(values, np.int64)


#: A node of x [3, 4] and s, and what numpy makes of them.
SAID = {
    "Expand": (ints(2, 3, 4), lambda x, s: np.broadcast_to(x, s)),
    "Tile": (ints(2, 3), np.tile),
    "Pad": (ints(1, 0, 2, 3), lambda x, s: np.pad(x, [(s[0], s[2]), (s[1], s[3])])),
    "ConstantOfShape": (ints(3, 0), lambda x, s: np.zeros(s, np.float32)),
}


@pytest.mark.parametrize("op", SAID)
def test_inputs_may_say_sizes(op):
    first, of = SAID[op]
    names = ["s"] if op == "ConstantOfShape" else ["x", "s"]
    inputs = [onnx_models.tensor("s", first.shape, INT)]
    inputs = inputs if op == "ConstantOfShape" else [onnx_models.tensor("x", (3, 4)), *inputs]
    made = tilewright.compile(model([node(op, names, ["y"])], inputs, {"y": 1}), threads=1, dynamic={})
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    others = [first] if op == "Expand" else [first, first + 1]
    others += [ints(5, 3, 4), ints(0, 3, 4)] if op == "Expand" else []
    for said in others:
        feeds = {"x": x, "s": said}
        (got,) = made.run(None, {name: feeds[name] for name in names})
        np.testing.assert_array_equal(got, of(x, said))
    assert made.compilations == 0


def test_a_size_that_there_cannot_be_is_named():
    nodes = [node("Tile", ["x", "s"], ["y"])]
    inputs = [onnx_models.tensor("x", (3, 4)), onnx_models.tensor("s", (2,), INT)]
    made = tilewright.compile(model(nodes, inputs, {"y": 1}), dynamic={})
    x = np.ones((3, 4), np.float32)
    with pytest.raises(InputError, match="'s' says a size of -1, which is not from 0 to"):
        made(x, ints(1, -1))
    with pytest.raises(InputError, match="input 's' is missing"):
        made.run(None, {"x": x})
    assert made(x, ints(1, 2))[0].shape == (3, 8)


def test_without_dynamic_data_decides_no_sizes():
    inputs = [onnx_models.tensor("x", (6,))]
    source = model([node("NonZero", ["x"], ["y"])], inputs, {"y": INT})
    with pytest.raises(UnsupportedOperatorError, match="must be known when the model is compiled") as caught:
        tilewright.compile(source)
    assert "dynamic={}" in caught.value.hint


def test_runs_at_the_same_time_have_counts_of_their_own():
    made = tilewright.compile(masked(), threads=1, dynamic={"n": (1, 64)})
    wrong = []

    def runs(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            n = int(rng.integers(1, 65))
            x, w = rng.standard_normal(n).astype(np.float32), rng.standard_normal((n, 4)).astype(np.float32)
            if not np.array_equal(made(x, w)[0], 2 * w[x > 0]):
                wrong.append(seed)

    workers = [threading.Thread(target=runs, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_what_inputs_say_besides_sizes_is_compiled_for_when_first_used(caplog):
    """As many axes as a run says are no sizes: an input is compiled for, each time it holds others."""
    inputs = [onnx_models.tensor("x", ("n", 4)), onnx_models.tensor("k", ("m",), INT)]
    nodes = [node("ReduceSum", ["x", "k"], ["y"], keepdims=0)]
    made = tilewright.compile(model(nodes, inputs, {"y": 1}), dynamic={})
    assert "what 'k' hold is compiled for when it is first used" in caplog.text
    for n, k in ((3, (0,)), (3, (-1,)), (5, (-1,)), (3, (0,)), (3, (1, 0))):
        x = RNG.standard_normal((n, 4)).astype(np.float32)
        (got,) = made(x, np.array(k))
        np.testing.assert_allclose(got, x.sum(k), rtol=1e-5)
    assert made.compilations == 4


def boxes_kept(boxes, scores, most, overlap, least):
    """Of each class: boxes by falling scores, without those that overlap a better one that was kept."""
    kept = []
    for b, of_batch in enumerate(scores):
        for c, row in enumerate(of_batch):
            taken = []
            for i in np.argsort(-row, kind="stable"):
                low, high = boxes[b, i, :2], boxes[b, i, 2:]
                sides = [
                    np.clip(np.minimum(high, boxes[b, j, 2:]) - np.maximum(low, boxes[b, j, :2]), 0, None)
                    for j in taken
                ]
                areas = [np.prod(boxes[b, j, 2:] - boxes[b, j, :2]) + np.prod(high - low) for j in taken]
                pairs = zip(sides, areas, strict=True)
                apart = all(np.prod(s) / (area - np.prod(s)) <= overlap for s, area in pairs)
                if row[i] > least and apart and len(taken) < most:
                    taken.append(i)
            kept += [(b, c, i) for i in taken]
    return np.array(kept, np.int64).reshape(-1, 3)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(3))
def test_boxes_of_a_detector(seed):
    """The head of a detector: what is kept of any number of boxes, and their corners."""
    rng = np.random.default_rng(seed)
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"]),
        node("Slice", ["kept", "first", "end", "first"], ["none"]),
        node("Slice", ["kept", "two", "three", "one"], ["which"]),
        node("Squeeze", ["which", "one"], ["places"]),
        node("Squeeze", ["boxes", "first"], ["all"]),
        node("Gather", ["all", "places"], ["corners"], axis=0),
    ]
    weights = {"most": ints(5), "overlap": np.array([0.4], np.float32), "least": np.array([0.3], np.float32)}
    weights |= {"first": ints(0), "end": ints(9), "one": ints(1), "two": ints(2), "three": ints(3)}
    inputs = [onnx_models.tensor("boxes", (1, "n", 4)), onnx_models.tensor("scores", (1, 2, "n"))]
    source = model(nodes, inputs, {"kept": INT, "corners": 1}, weights)
    made = tilewright.compile(source, threads=2, dynamic={"n": (1, 200)})
    for n in (1, 7, 60, 200):
        low = rng.random((1, n, 2))
        boxes = np.concatenate([low, low + 0.05 + rng.random((1, n, 2)) / 3], 2).astype(np.float32)
        scores = rng.random((1, 2, n)).astype(np.float32)
        kept, corners = made(boxes, scores)
        np.testing.assert_array_equal(kept, boxes_kept(boxes, scores, 5, 0.4, 0.3))
        np.testing.assert_array_equal(corners, boxes[0, kept[:, 2]])
    assert made.compilations == 0
