"""What can go wrong between a schedule and results: code, calls of kernels, other engines, saved models."""

import subprocess
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.build import build
from tilewright.cli import main
from tilewright.codegen import emit_kernel, link_shared
from tilewright.driver import BenchPlan, verify_model
from tilewright.driver.bench.torch_model import torch_module
from tilewright.driver.engines import optional_module
from tilewright.ir import parse_function
from tilewright.lower import lower
from tilewright.runtime import native
from tilewright.runtime.load import check_machine
from tilewright.support import (
    ArtefactError,
    InputError,
    InstallationError,
    ResourceError,
    ScheduleError,
    TargetError,
    UnsupportedOperatorError,
)
from tilewright.target import detect

# ---- code ----


def _emitted(text):
    return emit_kernel(lower(parse_function(text.lstrip())), triple=detect().llvm_triple, vector_bits=256)


def test_parallel_loops_may_not_write_outer_registers():
    text = """
function("f", outputs=[y])
y = f32[8]
acc = alloc(f32[1], scope="register")
acc[0] = f32(0.0)
for i in parallel(8):
    acc[0] = acc[0] + f32(1.0)
    y[i] = f32(0.0)
y[0] = acc[0]
"""
    with pytest.raises(ScheduleError, match="parallel loop i writes registers allocated around it") as caught:
        _emitted(text)
    assert "inside of the loop" in caught.value.hint


def test_registers_have_constant_shapes():
    text = """
function("f", outputs=[y])
n = param(1, 64)
y = f32[n]
for i in range(n):
    acc = alloc(f32[n], scope="register")
    acc[0] = f32(1.0)
    y[i] = acc[0]
"""
    with pytest.raises(ScheduleError, match="register buffer acc has a symbolic shape") as caught:
        _emitted(text)
    assert "split" in caught.value.hint


def test_linking_has_a_time_limit(tmp_path, monkeypatch):
    def never(command, **kwargs):
        raise subprocess.TimeoutExpired(command, kwargs["timeout"])

    monkeypatch.setattr("tilewright.codegen.link.subprocess.run", never)
    with pytest.raises(ResourceError, match=r"linking lib\.so took longer than \d+ s"):
        link_shared([b""], tmp_path / "lib.so")
    assert list(tmp_path.iterdir()) == []


# ---- kernels ----


def _doubled(**limits):
    n = lang.param("n", **limits)
    X = lang.placeholder((n,), name="X")
    return build(lang.program([X], [lang.compute((n,), lambda i: X[i] * 2, name="Y")]), threads=1)


def test_a_kernel_names_the_input_and_the_size():
    kernel = _doubled(lo=2, hi=8, multiple_of=2)
    with pytest.raises(InputError, match="the size n cannot be read off any input's shape"):
        kernel()
    with pytest.raises(InputError, match=r"the size n = 3 is not a multiple of 2 in \[2, 8\]"):
        kernel(np.zeros(3, np.float32))
    with pytest.raises(InputError, match=r"input 'X' must be f32 of shape \[4\], got float64"):
        kernel(np.zeros(4))
    with pytest.raises(InputError, match="the kernel 'main' has no input 'Z'"):
        kernel(np.zeros(4, np.float32), Z=np.zeros(4, np.float32))
    with pytest.raises(InputError, match="the kernel 'main' takes 1 inputs, got 2"):
        kernel(np.zeros(4, np.float32), np.zeros(4, np.float32))
    (y,) = kernel(X=np.ones(4, np.float32))
    assert y.tolist() == [2] * 4


def test_a_kernel_names_the_missing_input():
    A, B = lang.placeholder((4,), name="A"), lang.placeholder((4,), name="B")
    kernel = build(lang.program([A, B], [lang.compute((4,), lambda i: A[i] + B[i], name="C")]), threads=1)
    with pytest.raises(InputError, match="input 'B' is missing"):
        kernel(np.zeros(4, np.float32))


#: Buffers of 4 TiB for n = 2**20, and of 2**82 bytes, whose number does not fit into 64 bits.
HUGE = {"large": "n, n", "beyond 64 bits": "n, n, n, n"}


@pytest.mark.parametrize("loop", ["range", "parallel"])
@pytest.mark.parametrize("shape", HUGE)
def test_no_memory_for_a_buffer_of_symbolic_size(shape, loop):
    last = ", ".join(["n - 1"] * HUGE[shape].count("n"))
    kernel = build(
        parse_function(
            f"""
function("f", outputs=[y])
n = param(1, 2147483648)
x = u8[n]
y = f32[4]
for i in {loop}(4):
    acc = alloc(f32[1], scope="register")
    acc[0] = f32(1.0)
    with alloc(f32[{HUGE[shape]}]) as t:
        t[{last}] = cast(x[n - 1], f32)
        acc[0] = acc[0] + t[{last}]
    y[i] = acc[0]
""".lstrip()
        ),
        threads=2,
    )
    with pytest.raises(ResourceError, match="'f' found no memory for buffers whose sizes") as caught:
        kernel(np.zeros(1 << 20, np.uint8))
    assert "smaller arrays" in caught.value.hint
    (y,) = kernel(np.full(3, 4, np.uint8))  # the failure is that run's alone
    assert y.tolist() == [5] * 4


def test_assumptions_about_sizes_are_named():
    n, X = lang.param("n"), lang.placeholder((lang.param("n"),), name="X")
    program = lang.program([X], [lang.compute((n,), lambda i: X[i], name="Y")], name="part", assumes=[n >= 4])
    with pytest.raises(InputError, match=r"'part' cannot run: it assumes n - 4 >= 0"):
        build(program)(np.zeros(3, np.float32))


def test_a_buffer_of_no_elements_needs_no_memory():
    kernel = build(
        parse_function(
            """
function("f", outputs=[y])
n = param(1, 64)
x = f32[n]
y = f32[n]
t = alloc(f32[n - 4])
for i in range(n - 4):
    t[i] = x[i]
for j in range(n):
    y[j] = x[j] + f32(1.0)
""".lstrip()
        )
    )
    (y,) = kernel(np.zeros(3, np.float32))
    assert y.tolist() == [1] * 3


# ---- other engines ----


def test_packages_that_are_not_installed(monkeypatch):
    with pytest.raises(InstallationError, match="no_such_package cannot be imported") as caught:
        optional_module("no_such_package.part")
    assert caught.value.hint == "pip install no_such_package"
    monkeypatch.setattr("tilewright.driver.bench.harness.have_module", lambda name: False)
    with pytest.raises(InstallationError, match="onnxruntime is not installed"):
        BenchPlan(engines=("onnxruntime",), threads=1)
    monkeypatch.setattr("tilewright.driver.verify.have_module", lambda name: False)
    compiled = tilewright.compile(tiny.relu())
    with pytest.raises(InstallationError, match="onnxruntime is not installed") as caught:
        verify_model(compiled, tiny.relu(), compiled.sample_feeds(), "onnxruntime")
    assert caught.value.hint == "pip install onnxruntime"


def test_an_engine_that_refuses_the_model(monkeypatch):
    class Engine:
        class SessionOptions:
            pass

        GraphOptimizationLevel = SimpleNamespace(ORT_DISABLE_ALL=0)
        capi = SimpleNamespace(onnxruntime_pybind11_state=SimpleNamespace())

        @staticmethod
        def InferenceSession(*args, **kwargs):
            raise RuntimeError("it does not like it\nat all")

    monkeypatch.setattr("tilewright.driver.verify.have_module", lambda name: True)
    monkeypatch.setattr("tilewright.driver.verify.optional_module", lambda name: Engine)
    compiled = tilewright.compile(tiny.relu())
    with pytest.raises(InputError, match=r"onnxruntime cannot run the model: it does not like it$"):
        verify_model(compiled, tiny.relu(), compiled.sample_feeds(), "onnxruntime")


def test_padding_that_torch_does_not_have():
    weights = {"w": np.ones((1, 1, 2), np.float32)}
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="odd", pads=[0, 1])
    model = tiny.model([node], [tiny.tensor("x", (1, 1, 4))], [tiny.tensor("y", (1, 1, 4))], weights)
    fake = SimpleNamespace(conv1d=None, conv2d=None, conv3d=None, from_numpy=lambda a: a)
    run = torch_module(fake, model)
    x = SimpleNamespace(dim=lambda: 3)
    with pytest.raises(UnsupportedOperatorError, match="torch pads both sides of an axis alike"):
        run({"x": x})


# ---- saved models, the command line ----


def test_a_machine_that_is_not_known(monkeypatch):
    def unknown():
        raise TargetError("there is no table for pdp11")

    monkeypatch.setattr("tilewright.runtime.load.detect", unknown)
    with pytest.raises(ArtefactError, match="'m' cannot run here: there is no table for pdp11"):
        check_machine(SimpleNamespace(arch="x86_64", features=()), "'m'")


def test_a_saved_model_that_finds_no_memory(tmp_path, monkeypatch):
    tilewright.compile(tiny.relu()).save(tmp_path / "m.tw")

    def full(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("tilewright.runtime.container.mmap.mmap", full)
    with pytest.raises(ResourceError, match=r"no memory to read .*m\.tw"):
        tilewright.load(tmp_path / "m.tw")


def test_a_plan_that_finds_no_memory(monkeypatch):
    X = lang.placeholder((4,), name="X")
    kernel = build(lang.program([X], [lang.compute((4,), lambda i: X[i] + 1, name="Y")]))
    monkeypatch.setattr(native.library(), "tw_plan_create", lambda *args: None)
    with pytest.raises(ResourceError, match="no memory for a plan"):
        kernel(np.zeros(4, np.float32))


def test_bench_names_the_input_or_what_went_wrong(tmp_path, monkeypatch, capsys):
    file = tmp_path / "m.onnx"
    onnx.save(tiny.relu(), file)
    monkeypatch.setattr("tilewright.cli.commands.bench.read_feeds", lambda *args: {"other": np.zeros(1)})
    assert main(["bench", str(file)]) == 2
    assert "the input 'x': float32[2, 3] is missing" in capsys.readouterr().err
    monkeypatch.undo()

    def broken(*args):
        ours = SimpleNamespace(engine="tilewright", error="it broke", median=None, minimum=None)
        return SimpleNamespace(ours=ours, engines=[ours], as_data=dict, others=SimpleNamespace(warning=""))

    monkeypatch.setattr("tilewright.cli.commands.bench.run_benchmark", broken)
    assert main(["bench", str(file)]) == 2
    assert "tilewright cannot run the model: it broke" in capsys.readouterr().err


def test_an_archive_that_may_not_be_read(tmp_path, capsys):
    file = tmp_path / "m.onnx"
    onnx.save(tiny.relu(), file)
    assert main(["run", str(file), "--inputs", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "cannot read" in err and tmp_path.name in err
