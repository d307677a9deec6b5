"""What devices refuse, and what is said where packages are missing."""

import sys
from types import SimpleNamespace

import pytest

from devices import on_device
from tilewright.build.device_kernel import buffer_bytes
from tilewright.cli.files import write_folder
from tilewright.codegen import compile_cuda, emit_kernels
from tilewright.codegen.nvrtc import read_resources
from tilewright.devices import DeviceLimits, open_device
from tilewright.devices.opencl import OpenClDevice
from tilewright.ir import (
    F32,
    ZERO,
    Exec,
    LoopFunction,
    Param,
    Window,
    buffer,
    index,
    parse_function,
)
from tilewright.support import (
    InputError,
    InstallationError,
    InternalError,
    ResourceError,
    ScheduleError,
    TargetError,
)
from tilewright.target import choose_opencl_device, pyopencl

DETECTION = sys.modules[choose_opencl_device.__module__]


def test_languages_that_nobody_takes():
    with pytest.raises(TargetError, match="no device for 'metal'"):
        open_device("metal")


def test_packages_that_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(InstallationError, match="pyopencl cannot be imported") as caught:
        pyopencl()
    assert caught.value.hint == "pip install 'tilewright[opencl]'"
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(InstallationError, match="cuda-bindings cannot be imported") as caught:
        compile_cuda("", "sm_90")
    assert caught.value.hint == "pip install 'tilewright[cuda]'"


class _NoLibrary:
    @staticmethod
    def nvrtcVersion():
        raise RuntimeError("no libnvrtc\nhere")


class _Nvrtc:
    """As much of NVRTC as its refusals take."""

    class nvrtcResult:
        NVRTC_SUCCESS = 0

    def __init__(self, log=b"kernels.cu(3): error: no\0", version=(13, 0)):
        self._log, self._version, self.options = log, version, ()

    def nvrtcVersion(self):
        return (0, *self._version)

    def nvrtcGetSupportedArchs(self):
        return (0, 2, [80, 90])

    def nvrtcCreateProgram(self, *_):
        return (0, "program")

    def nvrtcCompileProgram(self, _, count, options):
        assert count == len(options)
        self.options = options
        return (6,)

    def nvrtcGetProgramLogSize(self, _):
        return (0, len(self._log))

    def nvrtcGetProgramLog(self, _, content):
        content[:] = self._log
        return (0,)

    def nvrtcDestroyProgram(self, _):
        return (0,)


@pytest.mark.parametrize(("version", "asked"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_nvrtc_compiles_anew(monkeypatch, version, asked):
    # what comes from its cache has no log, and so no registers and spills; older ones know no such option
    nvrtc = _Nvrtc(version=version)
    monkeypatch.setattr("tilewright.codegen.nvrtc.import_module", lambda _: nvrtc)
    with pytest.raises(InternalError):
        compile_cuda("", "sm_90")
    assert (b"--no-cache" in nvrtc.options) == asked


def test_what_nvrtc_refuses(monkeypatch):
    monkeypatch.setattr("tilewright.codegen.nvrtc.import_module", lambda _: _NoLibrary)
    with pytest.raises(InstallationError, match="NVRTC cannot be loaded: no libnvrtc"):
        compile_cuda("", "sm_90")
    monkeypatch.setattr("tilewright.codegen.nvrtc.import_module", lambda _: _Nvrtc())
    with pytest.raises(TargetError, match=r"does not compile for sm_70(.|\n)*nvidia-cuda-nvrtc-cu12"):
        compile_cuda("", "sm_70")
    with pytest.raises(InternalError, match=r"kernels.cu\(3\): error: no"):
        compile_cuda("", "sm_90")


def test_what_ptxas_says_of_kernels():
    log = """ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas         .     400 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem"""
    used = read_resources(log)["k"]
    assert (used.registers, used.spilled, used.stack, used.shared) == (40, 12, 400, 2048)


def test_sizes_that_are_known_too_late():
    with pytest.raises(ScheduleError, match="not known when the device's memory is laid out"):
        buffer_bytes(buffer("t", (index(Param("n")),), F32), {})


def test_loops_whose_extents_nobody_knows():
    func = parse_function("""
function("f", outputs=[y])
n = param(1, 9)
x = i32[4]
y = f32[4]
for b in thread("block.x", 4):
    for t in thread("thread.x", int(x[b])):
        y[b] = f32(0.0)
""")
    with pytest.raises(ScheduleError, match="has no known bound"):
        emit_kernels(func, "cuda")


def test_folders_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        write_folder(str(tmp_path / "file" / "folder"), {})


class _OpenClError(Exception):
    pass


class _OpenClMemoryError(_OpenClError):
    pass


def test_opencl_without_devices_or_memory(monkeypatch):
    monkeypatch.setattr(DETECTION, "opencl_devices", list)
    with pytest.raises(InstallationError, match="no OpenCL device: no driver"):
        choose_opencl_device()
    monkeypatch.setattr(DETECTION, "opencl_devices", lambda: [SimpleNamespace(name="One")])
    with pytest.raises(TargetError, match="no OpenCL device 'two'"):
        choose_opencl_device("two")
    device = object.__new__(OpenClDevice)
    device._cl = SimpleNamespace(MemoryError=_OpenClMemoryError, Error=_OpenClError)
    device.name, device.limits = "One", DeviceLimits(1, 1, 1024)
    no_memory = pytest.raises(ResourceError, match="the device One has no memory for a buffer")
    with no_memory, device._errors("a buffer", 4096):
        raise _OpenClMemoryError
    with pytest.raises(InternalError, match="OpenCL refuses a buffer: why"), device._errors("a buffer"):
        raise _OpenClError("why")


def test_kernels_that_find_no_memory():
    func = parse_function("""
function("f", outputs=[y])
n = param(1, 2000000000)
y = f32[1]
with alloc(f32[n, n]) as t:
    with seq:
        t[0, 0] = f32(1.0)
        y[0] = t[0, 0]
""")
    with pytest.raises(ResourceError, match="f found no memory"):
        on_device(func, "c")({}, {"n": 1 << 30})


def test_instructions_that_a_device_has_not():
    body = Exec("vpdpbusd", (Window("y", (ZERO,), (4,), "rw"),))
    func = LoopFunction("f", (), (buffer("y", (4,), F32),), ("y",), body)
    with pytest.raises(TargetError, match="CUDA has no instruction vpdpbusd"):
        emit_kernels(func, "cuda")
