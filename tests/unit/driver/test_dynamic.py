"""Models with open sizes: equal to static compiles at every size, few kernels, flat memory, refusals."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models

import tilewright
from tilewright.driver.dynamic import DynamicModel
from tilewright.driver.open_sizes import UNSAID
from tilewright.runtime import SizeRange
from tilewright.runtime.open_plan import SIZES_KEPT
from tilewright.strategies.construct.strategy import ConstructStrategy
from tilewright.support import InputError, ModelError

HIDDEN, HEADS = 24, 3


def encoder():
    """A layer of attention over rows of any length and number, its shape arithmetic as exporters write it."""
    rng = np.random.default_rng(5)
    square = (HIDDEN, HIDDEN)
    shapes = {"table": (50, HIDDEN), "wq": square, "wk": square, "wv": square, "wo": (HIDDEN, 8)}
    shapes |= {"places": (64, HIDDEN), "g": (HIDDEN,), "b": (HIDDEN,)}
    weights = {name: rng.standard_normal(shape, np.float32) / 5 for name, shape in shapes.items()}
    whole = {"zero": 0, "heads": HEADS, "depth": HIDDEN // HEADS, "hidden": HIDDEN}
    weights |= {name: np.array([n], np.int64) for name, n in whole.items()}
    weights |= {"first": np.array(0, np.int64), "second": np.array(1, np.int64)}
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["words"]),
        node("Shape", ["ids"], ["shape"]),
        node("Gather", ["shape", "second"], ["n"], axis=0),
        node("Gather", ["shape", "first"], ["rows"], axis=0),
        node("Unsqueeze", ["n", "zero"], ["n1"]),
        node("Unsqueeze", ["rows", "zero"], ["rows1"]),
        node("Slice", ["places", "zero", "n1"], ["place"]),
        node("Add", ["words", "place"], ["x"]),
        node("LayerNormalization", ["x", "g", "b"], ["y"]),
        node("Concat", ["rows1", "n1", "heads", "depth"], ["apart"], axis=0),
        node("Concat", ["rows1", "n1", "hidden"], ["together"], axis=0),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["y", f"w{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "apart"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "together"], ["flat"]),
        node("MatMul", ["flat", "wo"], ["out"]),
    ]
    inputs = [onnx_models.tensor("ids", ("batch", "seq"), TensorProto.INT64)]
    return onnx_models.model(nodes, inputs, [onnx_models.tensor("out", ("batch", "seq", 8))], weights)


def convolutions():
    rng = np.random.default_rng(6)
    shapes = {"w": (16, 3, 3, 3), "v": (16, 5)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("GlobalAveragePool", ["z"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["out"]),
    ]
    x, out = onnx_models.tensor("x", ("batch", 3, "h", 18)), onnx_models.tensor("out", ("batch", 5))
    return onnx_models.model(nodes, [x], [out], weights)


def cache_weights():
    return np.random.default_rng(7).standard_normal((16, 16), np.float32)


def decoder_step():
    """Attention of one new place over a cache that grows, which it returns one longer."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("Transpose", ["present"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["new", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "present"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "w"], ["out"]),
    ]
    inputs = [onnx_models.tensor("past", (1, "past", 16)), onnx_models.tensor("new", (1, 1, 16))]
    outputs = [onnx_models.tensor("out", (1, 1, 16)), onnx_models.tensor("present", (1, "n", 16))]
    return onnx_models.model(nodes, inputs, outputs, {"w": cache_weights()})


@pytest.fixture(scope="module")
def encoding():
    return tilewright.compile(encoder(), threads=2, dynamic={"seq": (1, 64), "batch": (1, 9)})


def ids(batch, length):
    return np.random.default_rng(batch + length).integers(0, 50, (batch, length))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("batch", "length"), [(1, 1), (1, 40), (1, 41), (9, 1), (2, 33), (2, 64), (9, 64), (3, 17), (4, 5)]
)
def test_every_size_gives_what_a_static_compile_gives(encoding, batch, length):
    static = tilewright.compile(encoder(), threads=2, shapes={"batch": batch, "seq": length})
    (want,), (got,) = static(ids(batch, length)), encoding(ids(batch, length))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert got.shape == (batch, length, 8)


def test_no_size_is_compiled_or_kept_for_good(encoding):
    """One plan stands for all sizes: a run of a further one adds some numbers, of which few are kept."""
    (planned,) = encoding.plans
    for length in range(1, 65):
        for batch in (1, 4, 9):
            assert encoding(ids(batch, length))[0].shape == (batch, length, 8)
    assert encoding.compilations == 0
    assert len(planned.plan.plans[0]._known) <= SIZES_KEPT
    assert all(kernel.program.params for kernel in planned.stages[0].steps.kernels)


def test_two_open_sizes_of_a_convolution():
    model = tilewright.compile(convolutions(), threads=2, dynamic={"batch": (1, 40), "h": (8, 90)})
    for batch, h in [(1, 8), (2, 37), (3, 90), (40, 19), (2, 38)]:
        x = np.random.default_rng(h).standard_normal((batch, 3, h, 18), np.float32)
        static = tilewright.compile(convolutions(), threads=2, shapes={"batch": batch, "h": h})
        np.testing.assert_allclose(model(x)[0], static(x)[0], rtol=1e-4, atol=1e-4)


def decode(model, steps):
    """Run a decoder over its growing cache, each step held against numpy; after each the step's number."""
    rng = np.random.default_rng(1)
    past = np.zeros((1, 0, 16), np.float32)
    for step in range(steps):
        new = rng.standard_normal((1, 1, 16), np.float32)
        whole = np.concatenate([past, new], axis=1)
        scores = new @ whole.transpose(0, 2, 1)
        shares = np.exp(scores - scores.max())
        out, past = model(past, new)
        np.testing.assert_allclose(out, shares / shares.sum() @ whole @ cache_weights(), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(past, whole)
        yield step


def test_a_cache_grows_without_compiling():
    model = tilewright.compile(decoder_step(), threads=2, dynamic={"past": (0, 200)})
    assert len(list(decode(model, 40))) == 40
    assert (model.compilations, len(model.plans)) == (0, 1)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 65), "the size 'seq' is 65; the model is compiled for 1 to 64"),
        ((10, 4), "the size 'batch' is 10; the model is compiled for 1 to 9"),
        ((0, 4), "the size 'batch' is 0"),
        ((4,), "has 2 dimensions"),
    ],
)
def test_sizes_out_of_range_are_refused_by_name(encoding, shape, message):
    with pytest.raises(InputError, match=message):
        encoding(np.zeros(shape, np.int64))


def test_inputs_that_contradict_each_other_are_named():
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    tensors = [onnx_models.tensor(name, ("n", 4)) for name in "abc"]
    model = tilewright.compile(onnx_models.model(nodes, tensors[:2], tensors[2:], {}), dynamic={"n": (1, 8)})
    a = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(model(a, a)[0], a + a)
    with pytest.raises(InputError, match="the size 'n' is 3 by axis 0 of 'a' and 2 by axis 0 of 'b'"):
        model(a, a[:2])
    with pytest.raises(InputError, match="the input 'b' is missing"):
        model.run(None, {"a": a})
    with pytest.raises(InputError, match="the model takes 2 inputs, got 1"):
        model(a)
    with pytest.raises(InputError, match="inputs must be a mapping"):
        model.run(None, [a])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sek": (1, 64)}, "the model has no open size 'sek'"),
        ({"seq": 64, "batch": (1, 2)}, "dynamic= gives 'seq' the range 64"),
        ({"seq": (64, 1), "batch": (1, 2)}, "dynamic= gives 'seq' the range"),
        ({"seq": (-1, 1), "batch": (1, 2)}, "dynamic= gives 'seq' the range"),
        ({"seq": (True, 4), "batch": (1, 2)}, "dynamic= gives 'seq' the range"),
        ([("seq", 1)], "dynamic= must map names to ranges"),
    ],
)
def test_ranges_that_say_nothing_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        tilewright.compile(encoder(), dynamic=given)


def test_dynamic_goes_without_devices():
    with pytest.raises(InputError, match="dynamic= is for CPUs, without a plan"):
        tilewright.compile(encoder(), dynamic={"seq": (1, 2)}, target="pocl")


def test_sizes_by_name(encoding):
    assert isinstance(encoding, DynamicModel) and "seq 1 to 64" in repr(encoding)
    compiled = encoding.at(batch=2, seq=20)
    np.testing.assert_allclose(compiled(ids(2, 20))[0], encoding(ids(2, 20))[0], rtol=1e-4, atol=1e-5)
    assert encoding.profile({"ids": ids(2, 20)}, repeats=2).rows
    np.testing.assert_array_equal(encoding.bind({"ids": ids(2, 20)}).run()[0], encoding(ids(2, 20))[0])
    with pytest.raises(InputError, match="the size 'seq' is missing"):
        encoding.at(batch=2)
    with pytest.raises(InputError, match="no open size 'sequence'"):
        encoding.at(batch=2, sequence=4)


def test_memory_of_sizes_may_be_there_before_they_run(encoding):
    before = encoding.compilations
    small, large = (
        encoding.prepare({"batch": 1, "seq": 1}),
        encoding.prepare({"batch": 1, "seq": 1}, {"batch": 3, "seq": 40}),
    )
    assert 0 < small.nbytes < large.nbytes and large.seconds > 0
    assert (large.compiled, encoding.compilations) == (0, before)
    assert encoding.prepare().nbytes == 0
    with pytest.raises(InputError, match="the size 'seq' is missing"):
        encoding.prepare({"batch": 1})
    encoding.trim()
    assert encoding(ids(2, 3))[0].shape == (2, 3, 8)


def test_models_are_one_kind_of_thing(encoding, tmp_path):
    """What a model with fixed sizes has, one with open sizes has, compiled or loaded."""
    fixed = encoding.at(batch=2, seq=5)
    found = {"open": encoding, "fixed": fixed}
    for name, model in list(found.items()):
        model.save(tmp_path / name)
        found[f"loaded {name}"] = tilewright.load(tmp_path / name)
    feeds = {"ids": ids(2, 5)}
    every = [{name for name in dir(model) if not name.startswith("_")} for model in found.values()]
    # what needs one size is asked of `at`
    own = {
        "run_bytes",
        "intermediates",
        "export_c",
        "parts",
        "plan",
        "bind_tensors",
        "graph_plan",
        "precision",
        "step_names",
    }
    assert every[1] - every[0] <= own and every[3] - every[2] <= own | {"at"}
    for name, model in found.items():
        assert isinstance(model, tilewright.Model), name
        assert [each.name for each in (*model.inputs, *model.outputs)] == ["ids", "out"]
        into = np.empty((2, 5, 8), np.float32)
        assert model.run(["out"], feeds, out=[into])[0] is into
        np.testing.assert_allclose(into, fixed.run(None, feeds)[0], rtol=1e-5, atol=1e-5)
        times = model.measure(feeds, repeats=3)
        assert times.shape[0] == 3 and times.shape[1] > 1 and (times > 0).all()
        sizes = {"batch": 2, "seq": 5} if model.sizes else {}
        assert model.prepare(sizes).nbytes > 0 and model.constant_bytes > 0
        assert model.sample_feeds(3, **sizes)["ids"].shape == (2, 5)
        np.testing.assert_array_equal(model.bind(feeds).run()[0], into)
    with pytest.raises(InputError, match="the model has no open size 'seq'"):
        fixed.at(seq=5)


def test_a_model_with_open_sizes_tells_what_it_is(encoding):
    assert len(encoding.explain()) == len(encoding.descriptions()) == len(encoding.groups()) > 4
    functions = re.findall(r"^(?:void|int32_t) \w+\(", encoding.c_source(), re.MULTILINE)
    assert len(functions) >= len(encoding.groups()) // 2
    before = encoding.compilations
    small, large = (encoding.profile({"ids": ids(n, 5)}, repeats=2) for n in (2, 4))
    assert encoding.compilations == before
    # of two versions of a kernel one runs
    assert [row.nodes for row in large.rows] == [*dict.fromkeys(each.nodes for each in encoding.groups())]
    work = [[sum(row.flops for row in p.rows), sum(row.nbytes for row in p.rows)] for p in (small, large)]
    assert 1.8 < work[1][0] / work[0][0] <= 2 and 1 < work[1][1] / work[0][1] <= 2


def test_names_of_the_file_are_open_without_being_named():
    model = tilewright.compile(encoder(), threads=1, dynamic={})
    assert model.sizes == {"batch": UNSAID, "seq": UNSAID}
    assert model(ids(2, 9))[0].shape == (2, 9, 8)
    with pytest.raises(InputError, match="the size 'batch' is 4097; the model is compiled for 1 to 4096"):
        model(np.zeros((4097, 1), np.int64))
    some = tilewright.compile(encoder(), threads=1, dynamic={"seq": (4, 40)})
    assert some.sizes == {"seq": SizeRange(4, 40), "batch": UNSAID}


def test_a_strategy_plans_symbolic_kernels_at_a_typical_size():
    rows = []

    class Watched(ConstructStrategy):
        def start(self, task, history, rng):
            rows.append(task.program.outputs[0].shape[0].as_int())
            return super().start(task, history, rng)

    x, y = (onnx_models.tensor(name, ("n", 16)) for name in "xy")
    source = onnx_models.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [x], [y], {"w": cache_weights()}
    )
    model = tilewright.compile(source, threads=1, dynamic={"n": (33, 64)}, strategy=Watched())
    for n in (33, 50, 64):
        a = np.random.default_rng(n).standard_normal((n, 16), np.float32)
        np.testing.assert_allclose(model(a)[0], a @ cache_weights(), rtol=1e-4, atol=1e-4)
    # the largest prime of the range and one in the middle, and none of the sizes that ran
    assert rows == [61, 43]


def test_one_size_settled_another_open():
    model = tilewright.compile(encoder(), threads=1, shapes={"batch": 2}, dynamic={"seq": (4, 40)})
    assert list(model.sizes) == ["seq"] and model.inputs[0].shape == (2, "seq")
    assert model(ids(2, 9))[0].shape == (2, 9, 8)


def test_products_of_bytes_whose_rows_are_open():
    """Instructions find operands by strides that are numbers: where these are a run's own, none is used."""
    random = np.random.default_rng(3)
    weights = {"w": random.integers(-99, 99, (64, 26)).astype(np.int8)}
    onnx_model = onnx_models.model(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        [onnx_models.tensor("x", ("batch", "steps", 64), TensorProto.UINT8)],
        [onnx_models.tensor("y", ("batch", "steps", 26), TensorProto.INT32)],
        weights,
    )
    model = tilewright.compile(onnx_model, threads=2, dynamic={"batch": (1, 2), "steps": (20, 90)})
    for batch, steps in ((1, 44), (2, 44), (1, 90), (2, 21)):
        x = random.integers(0, 256, (batch, steps, 64)).astype(np.uint8)
        wanted = x.astype(np.int32) @ weights["w"].astype(np.int32)
        np.testing.assert_array_equal(model(x)[0], wanted)


def product_of_batches():
    """Exporters name the batch of each input anew."""
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    inputs = [onnx_models.tensor("a", ("rows_a", 3, 4)), onnx_models.tensor("b", ("rows_b", 4, 5))]
    return onnx_models.model([node], inputs, [onnx_models.tensor("y", (None, 3, 5))])


def test_sizes_that_the_model_needs_equal_are_found_out(caplog):
    with caplog.at_level("INFO", logger="tilewright"):
        model = tilewright.compile(
            product_of_batches(), dynamic={"rows_a": (1, 9), "rows_b": (1, 7)}, threads=1
        )
    assert "'product' (MatMul): 'rows_a' - 'rows_b' has to be 0" in caplog.text
    a, b = np.ones((4, 3, 4), np.float32), np.ones((4, 4, 5), np.float32)
    np.testing.assert_array_equal(model(a, b)[0], a @ b)
    with pytest.raises(InputError, match=r"the size 'rows_b' is 3 and 'rows_a' is 4.*have to be equal"):
        model(a, b[:3])
    np.testing.assert_array_equal(model(a, b)[0], a @ b)


def test_what_is_said_to_be_equal_is_read_as_one(caplog):
    model = tilewright.compile(
        product_of_batches(), dynamic={"rows_a": (1, 9)}, same={"rows_b": "rows_a"}, threads=1
    )
    assert list(model.sizes) == ["rows_a"]
    with pytest.raises(InputError, match="axis 0 of 'b' has 3 elements, not rows_a: 'rows_a' is 4 by axis 0"):
        model(np.ones((4, 3, 4), np.float32), np.ones((3, 4, 5), np.float32))


def test_sizes_that_never_fit_are_named_with_their_node():
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    inputs = [onnx_models.tensor("a", ("n", 4)), onnx_models.tensor("b", (5, "n"))]
    model = onnx_models.model([node], inputs, [onnx_models.tensor("y", (None, None))])
    with pytest.raises(ModelError, match=r"'product'.*4 != 5"):
        tilewright.compile(model, dynamic={"n": (1, 9)}, threads=1)


def outputs_of_all_kinds():
    """Outputs that a kernel makes, that are another one, a view of it, an input, and a constant."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Identity", ["x"], ["c"]),
        helper.make_node("Reshape", ["a", "s"], ["d"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abcdw"]
    weights = {"s": np.array([-1]), "w": np.arange(3, dtype=np.float32)}
    return onnx_models.model(nodes, [onnx_models.tensor("x", ("n", "m"))], outputs, weights)


def test_outputs_are_arrays_of_their_own_whatever_makes_them(tmp_path):
    made = tilewright.compile(outputs_of_all_kinds(), threads=2, dynamic={"n": (0, 50), "m": (1, 70)})
    made.save(tmp_path / "outputs.tw")
    for model in (made, tilewright.load(tmp_path / "outputs.tw")):
        for n, m in ((0, 3), (1, 1), (50, 70), (7, 33)):
            x = np.random.default_rng(n).standard_normal((n, m), np.float32)
            r = np.maximum(x, 0)
            wanted = {"a": r, "b": r, "c": x, "d": r.reshape(-1), "w": np.arange(3, dtype=np.float32)}
            for names in ("abcdw", "da", "cwb"):
                got = model.run(list(names), {"x": x})
                for name, array in zip(names, got, strict=True):
                    np.testing.assert_array_equal(array, wanted[name])
                places = [array.__array_interface__["data"][0] for array in got if array.size]
                assert len(set(places)) == len(places)
    flat = np.empty(7 * 33, np.float32)
    (result,) = made.run(["d"], {"x": x}, out=[flat])
    assert result is flat
    np.testing.assert_array_equal(flat, r.reshape(-1))
    np.testing.assert_array_equal(made.bind({"x": x}).run()[3], flat)


def test_few_and_many_elements_have_versions_of_a_kernel(tmp_path):
    """Both are built when compiling, a run calls one of them, and a saved model has them, too."""
    node = helper.make_node
    nodes = [node("Exp", ["x"], ["y"]), node("Tanh", ["y"], ["t"]), node("Mul", ["t", "x"], ["out"])]
    x, out = (onnx_models.tensor(name, ("rows", "columns")) for name in ("x", "out"))
    sizes = {"rows": (1, 600), "columns": (1, 600)}
    model = tilewright.compile(onnx_models.model(nodes, [x], [out]), threads=2, dynamic=sizes)
    units = [unit for stage in model.plans[0].stages for unit in stage.steps.units]
    few, many = (unit.elements for unit in units)
    assert few[0] == 0 and few[1] == many[0] and many[1] is None
    model.save(tmp_path / "model.tw")
    loaded = tilewright.load(tmp_path / "model.tw")
    rng = np.random.default_rng(2)
    for shape in ((1, 1), (3, 5), (600, 1), (37, 64), (600, 600)):
        array = rng.standard_normal(shape, np.float32)
        (got,) = model(array)
        np.testing.assert_allclose(got, np.tanh(np.exp(array)) * array, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(loaded(array)[0], got)
        # the kernel of the other version is in no row
        (row,) = model.profile({"x": array}, repeats=2).rows
        kernels = [kernel.name for stage in model.plans[0].stages for kernel in stage.steps.kernels]
        assert row.kernel == kernels[2 * array.size > few[1]]
    assert model.compilations == 0
