"""The CUDA device over a driver that is not there: what it is asked for, and what becomes of its errors.

The driver here keeps memory in this process and runs Python functions in place of kernels. Nothing of it
says that a real one does the same: that is for a machine with a card.
"""

import ctypes
import sys
from dataclasses import replace
from enum import IntEnum
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.devices import DeviceCall, DevicePlanBuilder, bind_tensors
from tilewright.devices.cuda import CudaDevice
from tilewright.runtime import TensorInfo, aligned_copy
from tilewright.support import InputError, InstallationError, InternalError, ResourceError, TargetError
from tilewright.target import H200, CudaDriver, TensorMap, detect_cuda
from tilewright.target.detect_cuda import cuda_driver

#: The function of this name hides the module.
MODULE = sys.modules[cuda_driver.__module__]


class Code(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_UNKNOWN = 999


FACTS = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "CLOCK_RATE": 1980000,
    "MEMORY_CLOCK_RATE": 2619000, "GLOBAL_MEMORY_BUS_WIDTH": 5120,
}  # fmt: skip


class Driver:
    """The part of the driver's interface that the device uses."""

    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in FACTS})
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __init__(self, kernels=None, fail=None, devices=1, name=b"NVIDIA H200\0"):
        self.kernels, self.fail, self.devices, self.name = kernels or {}, fail or {}, devices, name
        self.memory, self.asked, self.recording = {}, [], None

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.asked.append(name)
            if name in self.fail:
                return (self.fail[name], None)
            value = getattr(self, f"_{name}", lambda *_: name)(*arguments)
            return (Code.CUDA_SUCCESS, value)

        return call

    def _cuDeviceGetCount(self):
        return self.devices

    def _cuDeviceGetAttribute(self, attribute, device):
        return FACTS[attribute]

    def _cuDeviceGetName(self, length, device):
        return self.name

    def _cuDriverGetVersion(self):
        return 13000

    def _cuDeviceTotalMem(self, device):
        return 1 << 30

    def _cuMemAlloc(self, nbytes):
        buffer = ctypes.create_string_buffer(nbytes)
        self.memory[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def _cuMemcpyHtoDAsync(self, to, source, nbytes, stream):
        ctypes.memmove(to, source, nbytes)

    def _cuMemcpyDtoHAsync(self, to, source, nbytes, stream):
        ctypes.memmove(to, source, nbytes)

    def _cuModuleGetFunction(self, module, symbol):
        return self.kernels[symbol.decode()]

    def _cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, table, extra):
        launch = (function, table, (gx, gy, gz), (bx, by, bz), shared)
        if self.recording is not None:
            self.recording.append(launch)
        else:
            self.run(*launch)

    def run(self, function, table, grid, block, shared):
        pointers = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
        function([pointers[n] for n in range(function.count)], grid, block, shared)

    def _cuStreamCreate(self, flags):
        return 77

    def _cuStreamBeginCapture(self, stream, mode):
        self.recording = []

    def _cuStreamEndCapture(self, stream):
        graph, self.recording = self.recording, None
        return graph

    def _cuGraphInstantiate(self, graph, flags):
        return graph

    def _cuGraphLaunch(self, graph, stream):
        for launch in graph:
            self.run(*launch)

    def _cuEventElapsedTime(self, start, end):
        return 2.5


def device(**options):
    driver = Driver(**options)
    return CudaDevice("", CudaDriver(driver)), driver


def doubled(arguments, grid, block, shared):
    """``y[i] = 2 x[i]`` for the first ``n`` floats."""
    x, y = (ctypes.cast(a, ctypes.POINTER(ctypes.c_uint64))[0] for a in arguments[:2])
    (n,) = (ctypes.cast(a, ctypes.POINTER(ctypes.c_int32))[0] for a in arguments[2:])
    source = np.ctypeslib.as_array(ctypes.cast(x, ctypes.POINTER(ctypes.c_float)), (n,))
    np.ctypeslib.as_array(ctypes.cast(y, ctypes.POINTER(ctypes.c_float)), (n,))[...] = source * 2
    doubled.seen = (grid, block, shared)


doubled.count = 3


def plan_of(made, shared=0):
    builder = DevicePlanBuilder(made)
    x, y = builder.input(24), builder.output(24)
    call = DeviceCall(
        made.load(b"module"),
        "doubled",
        (2, 1, 1),
        (3, 1, 1),
        (x, y),
        (np.int32(6),),
        shared,
        builder.step("s"),
    )
    builder.launch(call)
    return builder.build()


def test_a_plan_is_one_graph_over_one_allocation():
    made, driver = device(kernels={"doubled": doubled})
    plan = plan_of(made)
    x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    plan.run([x], [y])
    np.testing.assert_array_equal(y, x * 2)
    assert doubled.seen == ((2, 1, 1), (3, 1, 1), 0)
    assert driver.asked.count("cuMemAlloc") == 1
    # launched alone while it was recorded, and since then by the graph
    assert driver.asked.count("cuGraphLaunch") == driver.asked.count("cuLaunchKernel") == 1
    assert plan.seconds(5) == pytest.approx(2.5e-3 / 5)
    assert plan.measure([x], [y], repeats=2).tolist() == [[2500000], [2500000]]


def test_much_shared_memory_is_asked_for():
    made, driver = device(kernels={"doubled": doubled})
    plan_of(made, shared=1 << 16).run([np.zeros(6, np.float32)], [np.zeros(6, np.float32)])
    assert "cuFuncSetAttribute" in driver.asked and doubled.seen[2] == 1 << 16


@pytest.mark.parametrize(
    ("fail", "error", "message"),
    [
        (
            {"cuMemAlloc": Code.CUDA_ERROR_OUT_OF_MEMORY},
            ResourceError,
            "NVIDIA H200 has no memory for a buffer",
        ),
        (
            {"cuModuleLoadData": Code.CUDA_ERROR_NO_BINARY_FOR_GPU},
            TargetError,
            "not for NVIDIA H200, which is sm_90",
        ),
        ({"cuGraphLaunch": Code.CUDA_ERROR_ILLEGAL_ADDRESS}, TargetError, "was lost during a run"),
        ({"cuStreamCreate": Code.CUDA_ERROR_UNKNOWN}, InternalError, "refuses a stream: CUDA_ERROR_UNKNOWN"),
        ({"cuDeviceGet": Code.CUDA_ERROR_UNKNOWN}, TargetError, "refuses cuDeviceGet"),
    ],
)
def test_errors_of_the_driver(fail, error, message):
    with pytest.raises(error, match=message):
        plan_of(device(kernels={"doubled": doubled}, fail=fail)[0]).run(
            [np.zeros(6, np.float32)], [np.zeros(6, np.float32)]
        )


class Boxes:
    """A tensor map of the driver: its words, at whose address the launch finds it."""

    def __init__(self, *said):
        self.said, self.words = said, (ctypes.c_uint64 * 16)(*range(16))

    def getPtr(self):
        return ctypes.addressof(self.words)


def with_maps(**options):
    made, driver = device(**options)
    for name in ("DataType", "Interleave", "Swizzle", "L2promotion", "FloatOOBfill"):
        words = type(name, (), {"__getattr__": lambda self, text: text.rpartition("_")[2]})()
        setattr(driver, f"CUtensorMap{name}", words)
    driver._cuTensorMapEncodeTiled = Boxes
    return made, driver


def test_tensor_maps_come_after_the_scalars():
    made, _ = with_maps(kernels={"f": "f"})
    memory = made.allocate(64)
    said = TensorMap(0, "bf16", (3, 96, 64), (6144, 64, 1), (1, 64, 32), 64)
    launch = made.load(b"module").prepare("f", (1, 1, 1), (1, 1, 1), [memory], [np.int32(5)], 0, [said])
    (values, maps, _) = launch.kept
    assert [launch.table[1], launch.table[2]] == [ctypes.addressof(values[1]), maps[0].getPtr()]
    kind, rank, pointer, shape, strides, box, steps, _, swizzle, *_ = maps[0].said
    assert (kind, rank, pointer) == ("BFLOAT16", 3, memory.pointer)
    # fastest first, strides in bytes without that of neighbours
    assert (shape, strides, box, steps) == ([64, 96, 3], [128, 12288], [32, 64, 1], [1, 1, 1])
    assert swizzle == "64B"


def test_a_driver_without_tensor_maps(monkeypatch):
    made, _ = device(kernels={"f": "f"})
    monkeypatch.setattr(made, "_driver", CudaDriver(SimpleNamespace()))
    with pytest.raises(TargetError, match="has no tensor maps"):
        made.tensor_map(TensorMap(0, "f16", (64,), (1,), (64,), 128), 0)


class Lent:
    """A tensor that lies in memory of the card (of the driver that is not there: the host's)."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__()


def test_tensors_of_other_libraries():
    """A run on them copies nothing, and starts after what they wait for."""
    made, driver = device(kernels={"doubled": doubled})
    plan = plan_of(made)
    info = TensorInfo("x", np.dtype(np.float32), (2, 3))
    x = aligned_copy(np.arange(6, dtype=np.float32).reshape(2, 3))
    lent = Lent(x)
    bound = bind_tensors(plan, {"x": lent}, [info], [replace(info, name="y")], [0])
    assert lent.streams == [77]
    driver.asked.clear()
    (y,) = bound.run()
    assert not any("Memcpy" in name for name in driver.asked)
    assert y.__dlpack_device__() == (2, 0)
    driver.asked.clear()
    capsule = y.__dlpack__(stream=1)
    assert "cuStreamSynchronize" in driver.asked and "dltensor" in repr(capsule)
    np.testing.assert_array_equal(y.numpy(), 2 * x)
    x += 1
    np.testing.assert_array_equal(bound.run()[0].numpy(), 2 * x)
    with pytest.raises(InputError, match="does not begin at a multiple of 16 bytes"):
        odd = aligned_copy(np.arange(7, dtype=np.float32))[1:]
        bind_tensors(plan, {"x": Lent(odd)}, [replace(info, shape=(6,))], [info], [0])


def test_no_device_and_another_architecture():
    with pytest.raises(TargetError, match="no CUDA device"):
        device(devices=0)
    with pytest.raises(TargetError, match="for sm_80, but the device here, NVIDIA H200, is sm_90"):
        CudaDevice("sm_80", CudaDriver(Driver()))


def test_the_target_of_a_device():
    found = detect_cuda(CudaDriver(Driver()))
    assert (found.name, found.arch, found.units) == ("cuda", "sm_90a", 132)
    assert found.memory_bytes == 1 << 30 and found.shared_per_block == 232448
    # as the driver says, not as the table of its kind
    moved = found.level("memory").bandwidth * found.units * found.clock_hz
    assert moved == pytest.approx(2 * 2619e6 * 5120 / 8)
    silent = SimpleNamespace(**(FACTS | {"MEMORY_CLOCK_RATE": 0}))
    driver = Driver()
    driver._cuDeviceGetAttribute = lambda attribute, _: getattr(silent, attribute)
    assert detect_cuda(CudaDriver(driver)).level("memory").bandwidth == H200.level("memory").bandwidth
    # a device without a table has that of its architecture
    other = detect_cuda(CudaDriver(Driver(name=b"Another\0")))
    assert other.level("l2") == found.level("l2")


def test_a_driver_that_is_missing_or_broken(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(MODULE, "import_module", missing)
    with pytest.raises(InstallationError, match="cuda-bindings cannot be imported"):
        cuda_driver()

    def no_library(_):
        raise RuntimeError("no libcuda\nhere")

    monkeypatch.setattr(MODULE, "import_module", lambda _: SimpleNamespace(cuInit=no_library))
    with pytest.raises(InstallationError, match="no NVIDIA driver here: no libcuda"):
        cuda_driver()
    broken = SimpleNamespace(cuInit=lambda _: (Code.CUDA_ERROR_UNKNOWN,))
    monkeypatch.setattr(MODULE, "import_module", lambda _: broken)
    with pytest.raises(InstallationError, match="cannot start: CUDA_ERROR_UNKNOWN"):
        cuda_driver()
