"""Models in bf16: what is rounded, how far results are from f32, and that all else works as before."""

import numpy as np
import pytest

import onnx_models as tiny
import tilewright
from tilewright.driver import verify_model
from tilewright.frontend import zoo
from tilewright.ir import BF16, F32
from tilewright.support import InputError
from tilewright.target import detect


def relative(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


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
    if any(i.name == "vdpbf16ps" for i in detect().instructions):
        assert any("vdpbf16ps(" in str(group.kernel.schedule) for group in groups)
    assert compiled.precision == "bf16"


def test_intermediate_values_come_out_in_f32():
    compiled = tilewright.compile(zoo.SMALL["mobilenet_v2"](), precision="bf16")
    assert {a.dtype for a in compiled.intermediates(compiled.sample_feeds()).values()} == {np.dtype("f4")}


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
