"""Saved models for devices: the same results, without the compiler; and what is wrong with a file."""

import json
import subprocess
import sys

import numpy as np
import pytest
from onnx import helper

import tilewright
from devices import HAVE_NVRTC, LANGUAGES
from onnx_models import model, tensor
from tilewright.devices import DevicePlanBuilder, OfflineDevice, SavedDeviceModel
from tilewright.frontend import zoo
from tilewright.runtime import aligned_copy, open_saved_model, write_container
from tilewright.support import ArtefactError, InputError, InstallationError, TargetError
from tilewright.target import find_target

#: What a machine with a device need not have.
COMPILER = ("llvmlite", "islpy", "onnx", "msgspec", "rich", "click")


@pytest.fixture(scope="module", params=LANGUAGES)
def saved(request, tmp_path_factory):
    """A model compiled for a device, and the file that it was saved to."""
    path = tmp_path_factory.mktemp("saved") / "model.tw"
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), target=request.param)
    compiled.save(path)
    return compiled, path


def test_a_saved_model_gives_the_same_results(saved):
    compiled, path = saved
    loaded = tilewright.load(path)
    assert loaded.step_names == compiled._assembled.plan.step_names
    assert (loaded.threads, loaded.run_bytes) == (1, compiled.run_bytes)
    feeds = loaded.sample_feeds(3)
    for a, b in zip(compiled.run(None, feeds), loaded.run(None, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.measure(feeds, 2).shape == (2, len(loaded.step_names))
    bound = loaded.bind(feeds)
    np.testing.assert_array_equal(bound.run()[0], compiled.run(None, feeds)[0])
    wrong = {name: np.full_like(a, 10**6) for name, a in feeds.items()}
    with pytest.raises(tilewright.UserError, match="out of range"):
        loaded.run(None, wrong)


def test_a_saved_model_reads_and_writes_where_tensors_lie(tmp_path):
    tilewright.compile(zoo.SMALL["tinybert4"](), target="c").save(tmp_path / "model.tw")
    loaded = tilewright.load(tmp_path / "model.tw")
    assert isinstance(loaded, SavedDeviceModel)
    feeds = {name: aligned_copy(a) for name, a in loaded.sample_feeds().items()}
    want = loaded.run(None, feeds)
    bound = loaded.bind_tensors(feeds)
    for a, b, info in zip(want, bound.run(), loaded.outputs, strict=True):
        np.testing.assert_array_equal(np.from_dlpack(b), a)
        assert (b.dtype, b.shape) == (info.dtype, info.shape)
    # the very memory: inputs change in place, and an output of one run is read where it lies
    (first, *_) = bound.run()
    lying = np.from_dlpack(first)
    other = loaded.sample_feeds(seed=3)
    for name, array in feeds.items():
        array[...] = other[name]
    bound.run()
    np.testing.assert_array_equal(lying, loaded.run(None, other)[0])
    with pytest.raises(InputError, match="has shape"):
        loaded.bind_tensors({name: aligned_copy(a.reshape(-1)) for name, a in feeds.items()})


def test_a_saved_model_whose_output_is_no_result_of_a_kernel(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Identity", ["x"], ["y"])]
    proto = model(nodes, [tensor("x", (4,))], [tensor("y", (4,)), tensor("z", (4,))], {})
    tilewright.compile(proto, target="c").save(tmp_path / "model.tw")
    with pytest.raises(InputError, match="an output of the model is an input or a constant"):
        tilewright.load(tmp_path / "model.tw").bind_tensors({"x": aligned_copy(np.ones(4, np.float32))})


def test_it_needs_no_compiler(saved):
    code = f"""
import sys
for name in {COMPILER!r}:
    sys.modules[name] = None
import tilewright
model = tilewright.load({str(saved[1])!r})
print(len(model.run(None, model.sample_feeds())))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2"]


def altered(path, to, change):
    """A copy of a saved model with another manifest."""
    opened = open_saved_model(path)
    data = json.loads(json.dumps(opened.manifest.as_data()))
    change(data)
    write_container(to, data, {name: [content] for name, content in opened.sections.items()})
    return to


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["device"].update(modules=[[0, 1 << 40]] * 99), "does not hold all of its code"),
        (lambda d: d["device"].update(language=3), "device: language"),
        (lambda d: d.update(device=[]), "device: device"),
        (lambda d: d["device"]["kernels"][0].__setitem__(2, 0), "device: kernels"),
        (lambda d: d["device"]["kernels"][0].__setitem__(1, 99), "device: kernels"),
        (lambda d: d["device"].update(kernels=[3]), "device: kernels"),
        (lambda d: d["device"]["kernels"][0].append([0, 0]), "has a tensor map that is none"),
        (lambda d: d["device"].update(kernels={}), "device: kernels"),
        (lambda d: d["device"].update(kernels=[]), "the kernels of the launches"),
        (lambda d: d["device"].update(steps=[3]), "device: steps"),
        (lambda d: d["device"].update(call_steps=[10**9]), "device: call_steps"),
        (lambda d: d["device"].update(call_steps=[]), "call_steps"),
        (lambda d: d["device"].update(modules=[[0]]), "device: device"),
        (lambda d: d["device"].update(modules=[[0, -1]]), "device: device"),
        (lambda d: d.update(returned_constants=10**6), "returned_constants"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(saved, tmp_path, change, message):
    with pytest.raises(ArtefactError, match=message):
        tilewright.load(altered(saved[1], tmp_path / "m.tw", change))


def test_code_for_another_device_of_its_kind(tmp_path):
    tilewright.compile(zoo.SMALL["tinybert4"](), target="c").save(tmp_path / "m.tw")

    def change(data):
        data["device"].update(identity="another device")

    with pytest.raises(ArtefactError, match="is for another device, this device is"):
        tilewright.load(altered(tmp_path / "m.tw", tmp_path / "other.tw", change))


@pytest.mark.skipif(not HAVE_NVRTC, reason="kernels for CUDA are compiled by NVRTC")
def test_a_model_for_a_device_that_is_not_here(tmp_path):
    target = find_target("cuda:sm_90")
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), target=target)
    compiled.save(tmp_path / "m.tw")
    code = open_saved_model(tmp_path / "m.tw").manifest.device
    assert (code.language, code.arch) == ("cuda", "sm_90a") and len(code.kernels) > 10
    if isinstance(compiled._assembled.plan.device, OfflineDevice):
        with pytest.raises(TargetError, match="compiled for cuda:sm_90, which is not here"):
            compiled.run(None, compiled.sample_feeds())
        with pytest.raises((InstallationError, TargetError)):
            tilewright.load(tmp_path / "m.tw")


def test_what_needs_a_device_that_is_not_here():
    device = OfflineDevice(find_target("cuda:sm_90"))
    module = device.load(b"code")
    assert module.binary == b"code"
    for act in (
        lambda: device.allocate(1),
        lambda: device.upload(None, None),
        lambda: device.download(None, None),
        device.event,
        device.synchronize,
        lambda: module.prepare("f", (1, 1, 1), (1, 1, 1), [], [], 0),
    ):
        with pytest.raises(TargetError, match="cuda:sm_90 is not here"):
            act()
    with pytest.raises(TargetError, match="the model was compiled for cuda:sm_90, which is not here"):
        DevicePlanBuilder(device).build().run([], [])
