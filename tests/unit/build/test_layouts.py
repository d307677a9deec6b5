"""Packing arrays into layouts and back."""

import numpy as np
import pytest

from tilewright.build.layouts import (is_plain, pack, unpack)
from tilewright.ir import (
    F32,
    Buffer,
    IndexMap,
    buffer,
    evaluate_index,
    floordiv,
    identity_map,
    index,
    mod,
    var,
)
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


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((6, 8), ("d1//4", "d0", "d1%4")),
        ((5, 7), ("d1//4", "d0//2", "d0%2", "d1%4")),
        ((48, 20), ("d0//16", "d1//4", "d0%16//4", "d1%4", "d0%4")),
        ((3, 5, 2), ("d2", "d0", "d1")),
        # Not a cut into digits: the diagonal is stored along an axis of its own.
        ((4, 6), ("d0+d1", "d0")),
    ],
)
def test_every_layout_is_its_index_map(shape, layout):
    texts = {
        "d0": var("d0"), "d1": var("d1"), "d2": var("d2"),
        "d1//4": floordiv(var("d1"), 4), "d1%4": mod(var("d1"), 4),
        "d0//2": floordiv(var("d0"), 2), "d0%2": mod(var("d0"), 2),
        "d0//16": floordiv(var("d0"), 16), "d0%16//4": floordiv(mod(var("d0"), 16), 4),
        "d0%4": mod(var("d0"), 4),
        "d0+d1": var("d0") + var("d1"),
    }  # fmt: skip
    exprs = tuple(texts[each] for each in layout)
    points = list(np.ndindex(*shape))
    env = [{f"d{axis}": at for axis, at in enumerate(point)} for point in points]
    places = [tuple(evaluate_index(expr, each) for expr in exprs) for each in env]
    sizes = tuple(max(place[axis] for place in places) + 1 for axis in range(len(exprs)))
    b = Buffer(
        "w",
        tuple(map(index, shape)),
        F32,
        layout=IndexMap(tuple(f"d{axis}" for axis in range(len(shape))), exprs, tuple(map(index, sizes))),
    )
    array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    expected = np.zeros(sizes, np.float32)
    for point, place in zip(points, places, strict=True):
        expected[place] = array[point]
    np.testing.assert_array_equal(pack(array, b), expected)
    np.testing.assert_array_equal(unpack(expected.reshape(-1), b), array)
