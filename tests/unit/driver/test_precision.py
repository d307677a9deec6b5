"""Models in bf16: what is rounded, how far results are from f32, and that all else works as before."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_models as tiny
import tilewright
from onnx_models import tensor
from tilewright.cost import is_fast
from tilewright.driver import verify_model
from tilewright.frontend import zoo
from tilewright.ir import BF16, F32
from tilewright.support import InputError
from tilewright.target import detect

#: Instructions for products of bf16 that pay on this machine.
FAST = {i.name for i in detect().instructions if i.a.dtype == BF16 and is_fast(i, detect())}


def relative(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", zoo.SMALL)
def test_the_architectures(name):
    model = zoo.SMALL[name]()
    exact, rounded = tilewright.compile(model), tilewright.compile(model, precision="bf16")
    feeds = exact.sample_feeds()
    for want, got in zip(exact.run(None, feeds), rounded.run(None, feeds), strict=True):
        assert got.dtype == want.dtype == np.float32
        assert 0 < relative(got, want) < 0.03
    outcome = verify_model(rounded, model, feeds, "onnx")
    assert outcome.ok, outcome.first_difference
    assert rounded.constant_bytes <= exact.constant_bytes


def test_values_between_kernels_and_weights_are_rounded():
    compiled = tilewright.compile(zoo.SMALL["resnet18"](), precision="bf16")
    groups = compiled.groups()
    made = [b for group in groups[:-1] for b in group.kernel.program.outputs]
    assert {b.dtype for b in made} == {BF16}
    assert [b.dtype for b in groups[-1].kernel.program.outputs] == [F32]
    # few channels make no good tiles, but lanes
    if "vdpbf16ps" in FAST:
        assert any("vdpbf16ps(" in str(group.kernel.schedule) for group in groups)
    assert compiled.precision == "bf16"


def test_intermediate_values_come_out_in_f32():
    model = zoo.SMALL["mobilenet_v2"]()
    compiled = tilewright.compile(model, precision="bf16")
    named = {value for node in model.graph.node for value in node.output}
    found = {v: a for v, a in compiled.intermediates(compiled.sample_feeds()).items() if v in named}
    assert len(found) > 20 and {a.dtype for a in found.values()} == {np.dtype("f4")}


def test_a_wrong_weight_is_found():
    model = zoo.SMALL["tinybert4"]()
    compiled = tilewright.compile(model, precision="bf16")
    wrong = zoo.SMALL["tinybert4"]()
    largest = max((t for t in wrong.graph.initializer if len(t.dims) == 2), key=lambda t: np.prod(t.dims))
    array = np.frombuffer(largest.raw_data, np.float32).copy()
    largest.raw_data = (array * 1.5).tobytes()
    assert not verify_model(compiled, wrong, compiled.sample_feeds(), "onnx").ok


def test_saved_models_keep_the_precision(tmp_path):
    compiled = tilewright.compile(zoo.SMALL["resnet18"](), precision="bf16")
    feeds = compiled.sample_feeds()
    compiled.save(tmp_path / "m.tw")
    loaded = tilewright.load(tmp_path / "m.tw")
    np.testing.assert_array_equal(loaded.run(None, feeds)[0], compiled.run(None, feeds)[0])


@pytest.mark.few(2)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_results_between_runs(threads):
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), precision="bf16", threads=threads)
    feeds = compiled.sample_feeds()
    first = compiled.run(None, feeds)
    for again in range(3):
        for a, b in zip(first, compiled.run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(again))


def test_f32_is_the_default_and_other_names_are_refused():
    assert tilewright.compile(tiny.relu()).precision == "f32"
    with pytest.raises(InputError, match="no precision 'f16'"):
        tilewright.compile(tiny.relu(), precision="f16")


@pytest.mark.parametrize("given", [False, True])
def test_rows_that_are_masked_as_a_whole_have_equal_weights(given):
    """Masks of the lowest finite f32, made between kernels: they stay finite, infinite ones infinite."""
    low = float(np.finfo(np.float32).min)
    nodes = [
        helper.make_node("Not", ["keep"], ["drop"]),
        helper.make_node("Cast", ["drop"], ["dropped"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["dropped", "low"], ["mask"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        # read twice: the mask and the masked scores are stored between kernels
        helper.make_node("Add", ["a", "mask"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["other"]),
        helper.make_node("Softmax", ["b"], ["y"], axis=-1),
    ]
    if given:
        del nodes[:3]
    rng = np.random.default_rng(0)
    keep = rng.random((6, 16)) > 0.5
    keep[2] = False
    constants = {"w": rng.normal(size=(16, 16)).astype(np.float32), "low": np.float32(low)}
    ends = [tensor("y", (6, 16)), tensor("other", (6, 16))]
    starts = [tensor("x", (6, 16)), tensor("mask", (6, 16)) if given else tensor("keep", (6, 16), 9)]
    compiled = tilewright.compile(tiny.model(nodes, starts, ends, constants), precision="bf16")
    x = rng.normal(size=(6, 16)).astype(np.float32)
    mask = np.where(keep, np.float32(0), np.float32(low))
    made, _ = compiled.run(None, {"x": x, "mask": mask} if given else {"x": x, "keep": keep})
    scores = x @ constants["w"]
    for row in range(6):
        inside = keep[row] if keep[row].any() else np.ones(16, bool)
        e = np.exp(scores[row] - scores[row][inside].max()) * inside if keep[row].any() else inside * 1.0
        np.testing.assert_allclose(made[row], e / e.sum(), atol=0.02)
    assert {b.dtype for g in compiled.groups() for b in g.kernel.program.outputs} == {BF16, F32}
    if given:
        mask[3, ::2] = -np.inf
        made, _ = compiled.run(None, {"x": x, "mask": mask})
        assert np.isfinite(made[3]).all() and (made[3, ::2] == 0).all()


def test_first_layers_use_the_instruction():
    """The input that a caller gives in f32 is rounded for the convolution that reads it."""
    compiled = tilewright.compile(zoo.SMALL["resnet18"](), precision="bf16")
    first = next(group for group in compiled.groups() if "Conv" in group.operators)
    assert ("vdpbf16ps(" in str(first.kernel.schedule)) == ("vdpbf16ps" in FAST)
    assert [i.dtype for i in compiled.inputs] == [np.float32]


@pytest.mark.parametrize(("channels", "groups"), [(64, 2), (64, 8), (40, 5)])
def test_grouped_convolutions_use_the_instruction(channels, groups):
    """Groups that fill blocks, those that do once they are merged, and those that zeros make fill them."""
    rng = np.random.default_rng(0)
    shapes = {"a": (channels, 32, 1, 1), "w": (channels, channels // groups, 3, 3), "c": (64, channels, 1, 1)}
    constants = {name: (rng.normal(size=shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"]),
        helper.make_node("Conv", ["h", "w"], ["g"], group=groups, pads=[1] * 4, name="grouped"),
        helper.make_node("Conv", ["g", "c"], ["y"]),
    ]
    model = tiny.model(nodes, [tensor("x", (1, 32, 17, 28))], [tensor("y", (1, 64, 17, 28))], constants)
    compiled = tilewright.compile(model, precision="bf16", threads=2)
    kernel = next(group.kernel for group in compiled.groups() if "grouped" in group.label)
    full = detect().lanes(F32) == 16 and detect().fma_per_cycle >= 2
    if "vdpbf16ps" in FAST and full:
        assert "vdpbf16ps(" in str(kernel.schedule)
    outcome = verify_model(compiled, model, compiled.sample_feeds(), "onnx")
    assert outcome.ok, outcome.first_difference
