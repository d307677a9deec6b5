"""Tensors of other libraries on the model's device: read and lent where they lie."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from devices import HAVE_OPENCL
from onnx_models import model, tensor
from tilewright.devices import DeviceTensor, HostDevice, OfflineDevice
from tilewright.devices.dlpack import borrowed
from tilewright.frontend import zoo
from tilewright.runtime import TensorInfo, aligned_copy
from tilewright.support import InputError
from tilewright.target import A100

DEVICE = HostDevice()


def lent(array):
    """A tensor with the content of an array, in memory of its own."""
    memory = DEVICE.allocate(array.nbytes)
    DEVICE.upload(memory, np.ascontiguousarray(array))
    return DeviceTensor(DEVICE, memory, array.dtype, array.shape)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "u1", "i4", "i8", "u8", "?"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 5)])
def test_numpy_takes_and_gives(dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    taken = np.from_dlpack(lent(array))
    assert taken.dtype == array.dtype
    np.testing.assert_array_equal(taken, array)
    # and back: the same bytes, not a copy
    info = TensorInfo("x", array.dtype, array.shape)
    own = aligned_copy(array)
    memory = borrowed(DEVICE, info, own)
    assert memory.nbytes == array.nbytes
    if own.size:
        own.reshape(-1)[0] = 1 - own.reshape(-1)[0]
    np.testing.assert_array_equal(DeviceTensor(DEVICE, memory, own.dtype, own.shape).numpy(), own)


def test_what_is_lent_lives_as_long_as_the_borrower():
    given = lent(np.arange(5, dtype=np.float32))
    alive = weakref.ref(given.memory)
    taken = np.from_dlpack(given)
    del given
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(taken, np.arange(5))
    del taken
    gc.collect()
    assert alive() is None


def test_what_is_borrowed_lives_as_long_as_its_memory():
    class Held(np.ndarray):
        """An array that can be watched."""

    own = aligned_copy(np.ones(7, np.float32)).view(Held)
    alive = weakref.ref(own)
    memory = borrowed(DEVICE, TensorInfo("x", own.dtype, own.shape), own)
    part = memory.part(0, 4)
    del own, memory
    gc.collect()
    assert alive() is not None
    del part
    gc.collect()
    assert alive() is None


def test_narrow_floats_keep_their_type():
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    given = lent(array)
    info = TensorInfo("x", array.dtype, array.shape)
    memory = borrowed(DEVICE, info, given)
    np.testing.assert_array_equal(DeviceTensor(DEVICE, memory, array.dtype, array.shape).numpy(), array)
    with pytest.raises(InputError, match="has elements of 16 bits of another type"):
        borrowed(DEVICE, TensorInfo("x", np.dtype(np.uint16), (2,)), given)


def test_models_read_and_write_where_tensors_lie():
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), target="c")
    feeds = {name: aligned_copy(a) for name, a in compiled.sample_feeds().items()}
    want = compiled.run(None, feeds)
    bound = compiled.bind_tensors(feeds)
    got = bound.run()
    for a, b, info in zip(want, got, compiled.outputs, strict=True):
        np.testing.assert_array_equal(np.from_dlpack(b), a)
        assert (b.dtype, b.shape) == (info.dtype, info.shape)
    # an output of one run as an input of another, and inputs that change in place
    other = compiled.sample_feeds(seed=3)
    for name, array in feeds.items():
        array[...] = other[name]
    for a, b in zip(compiled.run(None, other), bound.run(), strict=True):
        np.testing.assert_array_equal(b.numpy(), a)
    ids = next(info for info in compiled.inputs if info.dtype.kind == "i")
    feeds[ids.name][...] = 10**6
    with pytest.raises(InputError, match="out of range"):
        bound.run()


def identity(shape=(4, 8)):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    return model(nodes, [tensor("x", shape)], [tensor("y", shape)], {})


def test_tensors_that_do_not_fit():
    compiled = tilewright.compile(identity(), target="c")
    good = aligned_copy(np.ones((4, 8), np.float32))
    for given, message in (
        ({"x": [1.0]}, "is list, which does not speak DLPack"),
        ({"x": good.astype(np.int32)}, "elements of 32 bits of another type"),
        ({"x": good.reshape(8, 4)}, r"has shape \[8, 4\]"),
        ({"x": aligned_copy(np.ones((8, 4), np.float32)).T}, "does not lie row by row"),
        ({"y": good}, "no input 'y'"),
        ({}, "is missing"),
    ):
        with pytest.raises(InputError, match=message):
            compiled.bind_tensors(given)
    at = aligned_copy(np.ones(40, np.float32))[1:33].reshape(4, 8)
    with pytest.raises(InputError, match="does not begin at a multiple of 64 bytes"):
        compiled.bind_tensors({"x": at})


class Elsewhere:
    """A tensor of a card."""

    def __dlpack__(self, *, stream=None):
        raise AssertionError("nobody asks for it")

    def __dlpack_device__(self):
        return 2, 0


def test_tensors_of_other_devices():
    compiled = tilewright.compile(identity(), target="c")
    with pytest.raises(InputError, match=r"lies on device \(2, 0\), the model runs on \(1, 0\)"):
        compiled.bind_tensors({"x": Elsewhere()})
    with pytest.raises(InputError, match="is lent where it lies"):
        lent(np.ones(3, np.float32)).__dlpack__(copy=True)
    with pytest.raises(InputError, match="is lent where it lies"):
        lent(np.ones(3, np.float32)).__dlpack__(dl_device=(2, 0))


def test_models_without_tensors_of_a_device():
    with pytest.raises(InputError, match="runs on a CPU") as caught:
        tilewright.compile(identity()).bind_tensors({"x": np.ones((4, 8), np.float32)})
    assert "numpy.from_dlpack" in caught.value.hint
    constant = helper.make_tensor("c", TensorProto.FLOAT, (2,), [1.0, 2.0])
    nodes = [helper.make_node("Constant", [], ["y"], value=constant), helper.make_node("Relu", ["x"], ["z"])]
    proto = model(nodes, [tensor("x", (4,))], [tensor("y", (2,)), tensor("z", (4,))], {})
    with pytest.raises(InputError, match="an output of the model is an input, a constant"):
        tilewright.compile(proto, target="c").bind_tensors({"x": aligned_copy(np.ones(4, np.float32))})


def test_tensors_of_a_device_without_dlpack():
    device = OfflineDevice(A100)
    info = TensorInfo("x", np.dtype(np.float32), (2,))
    with pytest.raises(InputError, match="of a100 cannot be passed to other libraries"):
        borrowed(device, info, np.ones(2, np.float32))


@pytest.mark.skipif(not HAVE_OPENCL, reason="there is no OpenCL device")
def test_opencl_lends_nothing():
    compiled = tilewright.compile(identity(), target="opencl")
    with pytest.raises(InputError, match="cannot be passed to other libraries"):
        compiled.bind_tensors({"x": np.ones((4, 8), np.float32)})
