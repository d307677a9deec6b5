import ml_dtypes
import numpy as np
import pytest

from tilewright.cli.arrays import read_feeds, write_archive
from tilewright.driver import TensorInfo
from tilewright.support import InputError


@pytest.mark.parametrize("name", ["bfloat16", "int4", "uint2", "float16"])
def test_arrays_come_back_in_types_that_numpy_does_not_know(name, tmp_path):
    array = np.arange(-2, 4).clip(0 if name[0] == "u" else -8).reshape(2, 3).astype(np.dtype(name))
    path = str(tmp_path / "a.npz")
    write_archive(path, {"x": array})
    back = read_feeds({}, path, [TensorInfo("x", array.dtype, (2, 3))])["x"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back.astype(np.float32), array.astype(np.float32))


def test_bytes_without_a_meaning_are_no_numbers_that_numpy_knows(tmp_path):
    path = str(tmp_path / "a.npz")
    write_archive(path, {"x": np.zeros(3, ml_dtypes.bfloat16)})
    with pytest.raises(InputError, match=r"holds void16\[3\], but the input is 'x': float16\[3\]"):
        read_feeds({}, path, [TensorInfo("x", np.dtype(np.float16), (3,))])
