import gc
import os
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from tilewright.runtime import ALIGNMENT, address_of, aligned_copy, aligned_empty, guarded_array, memory
from tilewright.support import ResourceError

SHAPES = [(), (0,), (3, 0, 2), 1, (7,), (3, 5, 7), (memory.NATIVE_FROM_BYTES // 4 + 3,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64, np.bool_])
def test_aligned_empty(shape, dtype):
    array = aligned_empty(shape, dtype)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape)
    assert array.dtype == dtype
    assert address_of(array) % ALIGNMENT == 0
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert (array == 1).all()


def test_aligned_copy_keeps_the_values_of_any_layout():
    source = np.arange(24).reshape(2, 3, 4).T
    copy = aligned_copy(source)
    assert (copy == source).all()
    assert copy.flags.c_contiguous
    copy[...] = 0
    assert source.any()


def test_large_arrays_are_released(monkeypatch):
    class Counting:
        released = 0

        def tw_alloc(self, nbytes):
            return real.tw_alloc(nbytes)

        def tw_release(self, address):
            self.released += 1
            real.tw_release(address)

    real, counting = memory.library(), Counting()
    monkeypatch.setattr(memory, "library", lambda: counting)
    array = aligned_empty(memory.NATIVE_FROM_BYTES, np.uint8)
    part = array[5:9]
    del array
    gc.collect()
    assert counting.released == 0
    part[...] = 3
    del part
    gc.collect()
    assert counting.released == 1


def test_released_blocks_serve_later_arrays_of_about_their_size():
    nbytes = 6 << 20
    memory.return_free_memory()
    first = aligned_empty(nbytes, np.uint8)
    where = memory.address_of(first)
    first[...] = 7
    del first
    gc.collect()
    small, again = aligned_empty(nbytes // 2, np.uint8), aligned_empty(nbytes - 100, np.uint8)
    assert memory.address_of(small) != where
    assert memory.address_of(again) == where
    other = aligned_empty(nbytes, np.uint8)
    again[...], other[...], small[...] = 1, 2, 3
    assert (again == 1).all()
    assert (other == 2).all()


def test_kept_blocks_are_given_back():
    memory.return_free_memory()
    arrays = [aligned_empty((8 << 20) + (n << 21), np.uint8) for n in range(20)]
    for array in arrays:
        array[...] = 1
    before = _resident_bytes()
    del array
    arrays.clear()
    gc.collect()
    memory.return_free_memory()
    assert before - _resident_bytes() > 20 * (7 << 20)


def _resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_impossible_sizes_are_refused():
    with pytest.raises(ResourceError, match=r"TiB"):
        aligned_empty(1 << 60, np.uint8)
    with pytest.raises(ResourceError, match=r"TiB"):
        guarded_array(1 << 60, np.uint8)


@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (4096,), (0,)], ids=str)
@pytest.mark.parametrize("at_end", [True, False])
def test_guarded_arrays_are_usable_up_to_their_ends(shape, at_end):
    array = guarded_array(shape, np.float32, at_end=at_end)
    assert not array.any()
    array[...] = 2
    assert (array == 2).all()
    edge = address_of(array) + (array.nbytes if at_end else 0)
    assert edge % 4096 == 0


def test_guarded_arrays_may_be_aligned():
    array = guarded_array(5, np.float32, align=ALIGNMENT)
    assert address_of(array) % ALIGNMENT == 0
    with pytest.raises(ValueError, match="power of two, got 48"):
        guarded_array(5, np.float32, align=48)


@pytest.mark.parametrize(("at_end", "offset"), [(True, 20), (False, -1)])
def test_touching_a_guard_ends_the_process(at_end, offset):
    code = (
        "import ctypes, numpy as np\n"
        "from tilewright.runtime import address_of, guarded_array\n"
        f"array = guarded_array(5, np.float32, at_end={at_end})\n"
        f"print('before', flush=True)\n"
        f"print(ctypes.c_char.from_address(address_of(array) + {offset}).value)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "before\n"
    assert ended.returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    "dtype", [np.float32, np.bool_, np.int64, ml_dtypes.bfloat16, ml_dtypes.int4], ids=str
)
def test_addresses_of_all_kinds_of_arrays(dtype):
    plain = np.zeros((4, 6), dtype)
    fixed = plain.view()
    fixed.flags.writeable = False
    start = plain.__array_interface__["data"][0]
    assert memory.address_of(plain) == memory.address_of(fixed) == start
    assert memory.address_of(plain[:, 2:]) == start + 2 * plain.itemsize
    assert memory.address_of(plain[2:]) == start + 12 * plain.itemsize
    assert isinstance(memory.address_of(plain[:0]), int)
