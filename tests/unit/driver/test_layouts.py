"""Packing arrays into layouts and back."""

import numpy as np
import pytest

from tilewright.driver.layouts import is_plain, pack, unpack
from tilewright.ir import F32, Buffer, IndexMap, buffer, floordiv, identity_map, index, mod, var
from tilewright.runtime import address_of


def _blocked(rows, columns, block):
    """`[rows, columns]` as `[columns / block, rows, block]`, the last block padded."""
    blocks = -(-columns // block)
    d0, d1 = var("d0"), var("d1")
    layout = IndexMap(
        ("d0", "d1"),
        (floordiv(d1, block), d0, mod(d1, block)),
        (index(blocks), index(rows), index(block)),
    )
    return Buffer("w", (index(rows), index(columns)), F32, layout=layout)


@pytest.mark.parametrize(
    ("rows", "columns", "block"), [(3, 8, 4), (3, 7, 4), (1, 1, 4), (5, 4, 4), (2, 9, 1)]
)
def test_blocked_layouts_pad_with_zeros_and_come_back(rows, columns, block):
    array = np.arange(1, rows * columns + 1, dtype=np.float32).reshape(rows, columns)
    b = _blocked(rows, columns, block)
    packed = pack(array, b)
    blocks = -(-columns // block)
    expected = np.zeros((blocks, rows, block), np.float32)
    for i in range(rows):
        for j in range(columns):
            expected[j // block, i, j % block] = array[i, j]
    np.testing.assert_array_equal(packed, expected)
    assert address_of(packed) % 64 == 0
    np.testing.assert_array_equal(unpack(packed.reshape(-1), b), array)


def test_row_major_is_plain():
    assert is_plain(buffer("a", (2, 3), F32))
    assert is_plain(buffer("a", (2, 3), F32).with_(layout=identity_map((2, 3))))
    assert not is_plain(_blocked(3, 8, 4))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    packed = pack(array, buffer("a", (2, 3), F32))
    np.testing.assert_array_equal(packed, array)
    assert not np.shares_memory(packed, array)
