"""Compiled models: what they return, from whom they take it, and from how many threads."""

import threading

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.support import InputError, assert_close


@pytest.fixture(scope="module")
def mlp():
    return tilewright.compile(tiny.mlp(), threads=2)


def _x(seed=0):
    return np.random.default_rng(seed).standard_normal((4, 8), dtype=np.float32)


def test_it_computes_what_the_model_says(mlp):
    x = _x()
    (y,) = mlp(x)
    assert y.dtype == np.float32 and y.flags.c_contiguous
    assert_close(y, tiny.mlp_expected(x), magnitude=np.full((4, 8), 100.0), terms=24)


def test_inputs_and_outputs_are_described(mlp):
    assert [(i.name, i.dtype, i.shape) for i in mlp.inputs] == [("x", np.dtype("float32"), (4, 8))]
    assert [(o.name, o.dtype, o.shape) for o in mlp.outputs] == [("y", np.dtype("float32"), (4, 8))]
    assert mlp.name == "tiny" and mlp.threads == 2
    assert "4 kernels" in repr(mlp) or "kernels" in repr(mlp)


def test_outputs_are_chosen_by_name_in_any_order():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    compiled = tilewright.compile(
        tiny.model(nodes, [tiny.tensor("x", (5,))], [tiny.tensor("a", (5,)), tiny.tensor("b", (5,))])
    )
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    b, a, again = compiled.run(["b", "a", "b"], {"x": x})
    np.testing.assert_array_equal(a, np.maximum(x, 0))
    np.testing.assert_array_equal(b, -x)
    np.testing.assert_array_equal(b, again)
    assert not np.shares_memory(b, again)


def test_each_run_returns_new_arrays(mlp):
    first, second = mlp(_x(1))[0], mlp(_x(2))[0]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, mlp(_x(1))[0])


def test_outputs_that_no_kernel_makes_are_copies():
    weights = {"w": np.arange(6, dtype=np.float32)}
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["w"], ["constant"]),
        helper.make_node("Reshape", ["x", "shape"], ["view"]),
    ]
    weights["shape"] = np.array([3, 2], np.int64)
    outputs = [tiny.tensor("same", (2, 3)), tiny.tensor("constant", (6,)), tiny.tensor("view", (3, 2))]
    compiled = tilewright.compile(tiny.model(nodes, [tiny.tensor("x", (2, 3))], outputs, weights))
    x = np.random.default_rng(0).standard_normal((2, 3), dtype=np.float32)
    same, constant, view = compiled(x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(constant, np.arange(6))
    np.testing.assert_array_equal(view, x.reshape(3, 2))
    same[...] = 0
    constant[...] = 0
    assert x.any() and compiled(x)[1].any()


def test_views_of_constants_that_operators_made_are_returned():
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("Transpose", ["d"], ["v"], perm=[1, 0]),
        helper.make_node("Relu", ["x"], ["r"]),
    ]
    constants = {"q": np.uint8([[3, 0, 1, 1, 1]]), "s": np.float32(0.75)}
    outputs = [tiny.tensor("r", (2,)), tiny.tensor("v", (5, 1))]
    model = tilewright.compile(tiny.model(nodes, [tiny.tensor("x", (2,))], outputs, constants))
    _, made = model.run(None, {"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(made.ravel(), [2.25, 0, 0.75, 0.75, 0.75])


def test_a_value_and_its_view_are_both_returned():
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Reshape", ["y", "shape"], ["z"]),
        helper.make_node("Neg", ["z"], ["w"]),
    ]
    outputs = [tiny.tensor("y", (2, 3)), tiny.tensor("z", (6,)), tiny.tensor("w", (6,))]
    compiled = tilewright.compile(
        tiny.model(nodes, [tiny.tensor("x", (2, 3))], outputs, {"shape": np.array([6], np.int64)})
    )
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    y, z, w = compiled(x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(z, np.maximum(x, 0).reshape(6))
    np.testing.assert_array_equal(w, -np.maximum(x, 0).reshape(6))
    assert not np.shares_memory(y, z)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_scalars_and_empty_tensors(shape):
    compiled = tilewright.compile(tiny.relu(shape))
    x = np.full(shape, -1.5, np.float32)
    (y,) = compiled(x)
    assert y.shape == shape
    np.testing.assert_array_equal(y, np.zeros(shape))


def test_any_strides_will_do(mlp):
    x = _x()
    wide = np.zeros((8, 16), np.float32)
    wide[::2, ::2] = x
    expected = mlp(x)[0]
    np.testing.assert_array_equal(mlp(wide[::2, ::2])[0], expected)
    np.testing.assert_array_equal(mlp(np.asfortranarray(x))[0], expected)
    read_only = x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(mlp(read_only)[0], expected)
    odd = np.zeros(4 * 8 * 4 + 4, np.uint8)[4:].view(np.float32).reshape(4, 8)
    odd[...] = x
    np.testing.assert_array_equal(mlp(odd)[0], expected)


def test_many_threads_run_one_model():
    compiled = tilewright.compile(tiny.mlp(), threads=2)
    inputs = [_x(seed) for seed in range(8)]
    expected = [compiled(x)[0] for x in inputs]
    wrong = []

    def work(at):
        for turn in range(50):
            which = (at + turn) % len(inputs)
            if not np.array_equal(compiled(inputs[which])[0], expected[which]):
                wrong.append((at, turn))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"the input 'x': float32\[4, 8\] is missing"),
        ({"X": 0}, r"no input 'X'\n  hint: its inputs are 'x'"),
        (
            {"x": np.zeros((4, 8))},
            r"'x': float32\[4, 8\] got elements of float64\n.*numpy.asarray",
        ),
        ({"x": np.zeros((8, 4), np.float32)}, r"'x': float32\[4, 8\] got the shape \[8, 4\]"),
        ({"x": np.zeros((4, 8), ">f4")}, r"float32 in foreign byte order"),
        ({"x": [[1.0], [1.0, 2.0]]}, r"'x'.* cannot be made an array"),
        ({"x": np.zeros((4, 8), object)}, r"elements of object"),
        ([np.zeros((4, 8), np.float32)], r"must be a mapping"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(mlp, feeds, message):
    with pytest.raises(InputError, match=message):
        mlp.run(None, feeds)


def test_wrong_calls_are_refused(mlp):
    with pytest.raises(InputError, match="takes 1 inputs, got 2"):
        mlp(_x(), _x())
    with pytest.raises(InputError, match="no output 'z'"):
        mlp.run(["z"], {"x": _x()})
    with pytest.raises(InputError, match="list of names"):
        mlp.run("y", {"x": _x()})


def test_a_profile_has_every_kernel(mlp):
    profile = mlp.profile({"x": _x()}, repeats=3)
    names = [name for row in profile.rows for name in row.nodes]
    assert {"first", "second"} <= set(names)
    assert profile.repeats == 3 and profile.total > 0
    assert sum(profile.share(row) for row in profile.rows) == pytest.approx(1)
    # Two matrix products of 4x8x16, and a few element-wise operations.
    assert 2 * 2 * 4 * 8 * 16 <= sum(row.flops for row in profile.rows) <= 2 * 2 * 4 * 8 * 16 + 500
    assert profile.as_data()["kernels"][0]["flops"] == profile.rows[0].flops
    assert "first" in str(profile)


def test_explanations_name_the_nodes(mlp):
    rows = mlp.explain()
    assert [row["group"] for row in rows] == list(range(len(rows)))
    assert {"first", "second"} <= {name for row in rows for name in row["nodes"]}
    group = mlp.groups()[0]
    assert "define" in group.kernel.code.llvm()
    assert group.kernel.code.symbol in group.kernel.code.assembly()
    assert all("schedule" in row for row in rows)


def test_intermediates_are_those_of_the_model(mlp):
    x = _x()
    values = mlp.intermediates({"x": x})
    assert_close(values["y"], mlp(x)[0])
    hidden = np.maximum(x @ _weight("a") + _weight("b"), 0)
    if "h" in values:
        np.testing.assert_allclose(values["h"], hidden, rtol=1e-4, atol=1e-4)
    assert set(values) <= {"m", "n", "h", "p", "y"}


def _weight(name):
    found = next(each for each in tiny.mlp().graph.initializer if each.name == name)
    return np.frombuffer(found.raw_data, np.float32).reshape(tuple(found.dims))


def test_equal_kernels_are_compiled_once():
    random = np.random.default_rng(0)
    weights = {f"w{at}": random.standard_normal((7, 7), dtype=np.float32) for at in range(4)}
    nodes = [helper.make_node("MatMul", [f"v{at}", f"w{at}"], [f"v{at + 1}"]) for at in range(4)]
    compiled = tilewright.compile(
        tiny.model(nodes, [tiny.tensor("v0", (3, 7))], [tiny.tensor("v4", (3, 7))], weights)
    )
    groups = compiled.groups()
    assert len(groups) == 4
    assert len({group.kernel.name for group in groups}) == 1


def test_sample_feeds_respect_what_they_index():
    weights = {"table": np.zeros((5, 2), np.float32)}
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    compiled = tilewright.compile(
        tiny.model([node], [tiny.tensor("ids", (100,), tiny.INT64)], [tiny.tensor("y", (100, 2))], weights)
    )
    ids = compiled.sample_feeds(3)["ids"]
    assert ids.min() >= 0 and ids.max() == 4
    np.testing.assert_array_equal(ids, compiled.sample_feeds(3)["ids"])
    assert (ids != compiled.sample_feeds(4)["ids"]).any()


def test_progress_is_reported_and_can_stop_a_compilation():
    seen = []
    tilewright.compile(tiny.mlp(), progress=lambda *step: seen.append(step))
    assert seen[0][0] == "import"
    assert any(step[0] == "schedule" and step[1] == step[2] for step in seen)

    class StopError(Exception):
        pass

    def stop(phase, done, total, what=""):
        if phase == "schedule":
            raise StopError

    with pytest.raises(StopError):
        tilewright.compile(tiny.mlp(), progress=stop)


def test_a_bound_model_reads_what_its_arrays_hold_at_the_time(mlp):
    x = _x(1)
    bound = mlp.bind({"x": x})
    (first,) = bound.run()
    np.testing.assert_array_equal(first, mlp(x)[0])
    x[...] = _x(2)
    (second,) = bound.run()
    np.testing.assert_array_equal(second, mlp(_x(2))[0])
    assert np.shares_memory(first, second)


def test_bound_outputs_that_no_kernel_makes():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["same"])]
    outputs = [tiny.tensor("same", (2, 3)), tiny.tensor("y", (2, 3))]
    compiled = tilewright.compile(tiny.model(nodes, [tiny.tensor("x", (2, 3))], outputs))
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    bound = compiled.bind({"x": x})
    for _ in range(2):
        same, y = bound.run()
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        assert not np.shares_memory(same, x)
        x *= -1


def test_only_arrays_that_runs_can_read_where_they_are_are_bound(mlp):
    with pytest.raises(InputError, match="cannot be bound: runs would not read it where it is"):
        mlp.bind({"x": np.asfortranarray(_x())})
    with pytest.raises(InputError, match=r"\[4, 9\]"):
        mlp.bind({"x": np.zeros((4, 9), np.float32)})
