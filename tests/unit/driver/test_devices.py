"""Whole models on devices: scaled-down reference architectures, tensor by tensor."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

import tilewright
from devices import HAVE_NVRTC, LANGUAGES, on_device
from tilewright.build.device_kernel import check_limits, kernel_source
from tilewright.cli import main
from tilewright.devices import DevicePlanBuilder, open_device
from tilewright.driver import emit_model, verify_model
from tilewright.frontend import zoo
from tilewright.ir import parse_function
from tilewright.support import InputError, ResourceError, ScheduleError, TargetError
from tilewright.target import find_target

#: Compilers take seconds for each model: one of each kind here, the others in the slow test below.
QUICK = [("tinybert4", LANGUAGES[0])]


@pytest.mark.parametrize(("name", "language"), QUICK)
def test_models_on_a_device(name, language):
    check(name, language)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
@pytest.mark.parametrize("language", LANGUAGES)
def test_all_models_on_all_devices(name, language):
    check(name, language)


def check(name, language):
    model = zoo.SMALL[name]()
    compiled = tilewright.compile(model, target=language)
    found = verify_model(compiled, model, compiled.sample_feeds())
    assert found.ok, found.first_difference


def test_a_compiled_model_on_a_device(tmp_path):
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), target="c")
    feeds = compiled.sample_feeds()
    first = compiled.run(None, feeds)
    bound = compiled.bind(feeds)
    for a, b in zip(first, bound.run(), strict=True):
        np.testing.assert_array_equal(a, b)
    profile = compiled.profile(feeds, 2)
    assert str(profile).count("\n") >= len(compiled.groups())
    assert compiled.explain()[0]["schedule"].startswith("s = Schedule")
    assert "int32_t" in compiled.groups()[0].kernel.code_text("source")
    with pytest.raises(TargetError, match="no text of the form 'llvm'"):
        compiled.groups()[0].kernel.code_text("llvm")
    with pytest.raises(TargetError, match="is no library for C"):
        compiled.export_c(tmp_path / "m.h")
    with pytest.raises(InputError, match="precision bf16 is for CPUs"):
        tilewright.compile(zoo.SMALL["tinybert4"](), target="c", precision="bf16")


def test_places_out_of_range_end_a_run():
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), target="c")
    feeds = compiled.sample_feeds()
    name = next(info.name for info in compiled.inputs if info.dtype.kind == "i")
    wrong = {**feeds, name: np.full_like(feeds[name], 10**6)}
    with pytest.raises(InputError, match="out of range"):
        compiled.run(None, wrong)


def test_the_command_line(capsys):
    assert main(["verify", "zoo:tinybert4:small", "--target", LANGUAGES[0]]) == 0
    assert "agree" in capsys.readouterr().out
    assert (
        main(["explain", "zoo:tinybert4:small", "--target", LANGUAGES[0], "--show", "source", "--group", "0"])
        == 0
    )
    assert "cast_sub_mul" in capsys.readouterr().out


def test_text_for_devices_that_are_not_here(tmp_path, capsys):
    command = ["compile", "zoo:tinybert4:small", "--target", "cuda:sm_90"]
    assert main([*command, "--emit", "source"]) == 0
    assert "__global__" in capsys.readouterr().out
    assert main([*command, "--emit", "source", "--output", str(tmp_path / "out")]) == 0
    assert all(path.suffix == ".cu" for path in (tmp_path / "out").iterdir())
    assert main([*command, "--emit", "cubin"]) == 2
    assert main([*command[:2], "--target", "cpu", "--emit", "source"]) == 2
    capsys.readouterr()
    if HAVE_NVRTC:
        assert main([*command, "--emit", "cubin", "--json"]) == 0
        units = json.loads(capsys.readouterr().out)["units"]
        used = [row for unit in units for row in unit["kernels"]]
        assert used and all(row["spilled_bytes"] == 0 and row["registers"] <= 128 for row in used)
    with pytest.raises(TargetError, match="cubin is for CUDA"):
        emit_model(zoo.SMALL["tinybert4"](), find_target("pocl"), "cubin")


def test_kernels_beyond_the_limits_of_a_device():
    func = parse_function("""
function("f", outputs=[y])
x = f32[2, 8]
y = f32[2, 8]
for b in thread("block.x", 2):
    for t in thread("thread.x", 8):
        y[b, t] = x[b, t]
""")
    device = open_device("c")
    # the grid of a device with threads, whether one is here or not
    (entry,) = kernel_source(func, "opencl").kernels
    for change, message in (
        ({"threads": 4}, "8 threads a block, of 4"),
        ({"threads_per_axis": (4, 4, 4)}, "blocks of 8 x 1 x 1 threads"),
        ({"blocks": (1, 1, 1)}, "2 x 1 x 1 blocks"),
        ({"shared_bytes": -1}, "of shared memory a block"),
    ):
        with pytest.raises(ScheduleError, match=message):
            check_limits(_Limited(device, replace(device.limits, **change)), entry, {})
    builder = DevicePlanBuilder(_Limited(device, replace(device.limits, memory_bytes=100)))
    builder.input(1000)
    with pytest.raises(ResourceError, match=r"the device .* has 100 B"):
        builder.build()
    with pytest.raises(InputError, match="'x' is missing"):
        on_device(func, "c")({})
    with pytest.raises(InputError, match="must be f32 of shape"):
        on_device(func, "c")({"x": np.zeros(3, np.float32)})
    plan, inputs, outputs = on_device(func, "c").plan({"x": np.zeros((2, 8), np.float32)}, {})
    with pytest.raises(InputError, match="expected 1 inputs, got 0"):
        plan.run([], list(outputs.values()))
    with pytest.raises(InputError, match="output 0 must be 64 bytes"):
        plan.run(inputs, [np.zeros(3, np.float32)])


def test_what_a_function_assumes_is_checked_before_it_is_launched():
    func = parse_function("""
function("f", outputs=[y])
n = param(1, 100)
assume(n - 2 >= 0)
x = f32[n]
y = f32[n]
for b in thread("block.x", n):
    y[b] = x[b]
""")
    run = on_device(func, "c")
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run({"x": x}, {"n": 3})["y"], x)
    with pytest.raises(InputError, match="it assumes n - 2 >= 0"):
        run({"x": x[:1].copy()}, {"n": 1})


def test_a_benchmark_of_a_device(capsys):
    command = ["bench", "zoo:tinybert4:small", "--target", "c", "--rounds", "1", "--seconds", "0", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "c"


class _Limited:
    """A device with other limits."""

    def __init__(self, device, limits):
        self.name, self.language, self.limits = device.name, device.language, limits


def perceptron(dtype):
    """Two products with what is around them, of numbers of a type."""
    rng = np.random.default_rng(0)

    def known(name, *shape):
        values = rng.standard_normal(shape) / np.sqrt(shape[0])
        return onnx.numpy_helper.from_array(values.astype(dtype), name)

    make, kind = onnx.helper.make_node, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        make("MatMul", ["x", "w"], ["h"]), make("Add", ["h", "b"], ["i"]), make("Relu", ["i"], ["j"]),
        make("MatMul", ["j", "v"], ["s"]), make("Softmax", ["s"], ["y"], axis=-1),
    ]  # fmt: skip
    x, y = (onnx.helper.make_tensor_value_info(n, kind, s) for n, s in (("x", (33, 48)), ("y", (33, 20))))
    graph = onnx.helper.make_graph(
        nodes, "perceptron", [x], [y], [known("w", 48, 64), known("b", 64), known("v", 64, 20)]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("dtype", "precision", "rule"),
    [("f2", "f32", "gpu_matrix"), ("f4", "tf32", "gpu_matrix"), ("f4", "f32", "gpu_product")],
)
def test_models_of_narrow_numbers_take_matrix_units(dtype, precision, rule):
    """The schedule of a device with units, whose instructions C has as loops."""
    model = perceptron(dtype)
    device = replace(find_target("cuda:sm_80"), name="c", language="c")
    compiled = tilewright.compile(model, target=device, precision=precision)
    rules = [nest.rule for group in compiled.groups() for nest in group.kernel.plan.nests]
    assert rules.count(rule) == 2 and len({"gpu_matrix", "gpu_product"} & set(rules)) == 1
    found = verify_model(compiled, model, compiled.sample_feeds())
    assert found.ok, found.first_difference
    units = emit_model(model, find_target("cuda:sm_80"), precision=precision)
    assert [rule for unit in units for rule in unit.rules] == rules


def test_tf32_is_for_devices():
    with pytest.raises(InputError, match="tf32 is for devices"):
        tilewright.compile(perceptron("f4"), precision="tf32")
