"""Descriptors against a model of the hardware: products read by them what boxes write by their maps."""

import numpy as np
import pytest

from tilewright.codegen.clike.tiles import MatrixPlace, box_swizzle, matrix_place, unturned, values
from tilewright.ir import Index, var

#: Bytes of a row of each swizzle, and the bits of an address that it turns by.
BITS = {128: 7, 64: 3, 32: 1}


def written(matrix, width, nbytes):
    """Where a copied box puts each element: row after row of ``width`` bytes, 16 bytes of each turned."""
    rows, columns = matrix
    assert columns * nbytes == width
    flat = np.arange(rows)[:, None] * width + np.arange(columns) * nbytes
    return flat ^ ((flat // 128 & BITS[width]) << 4)


def read(place, start, rows, depth, nbytes):
    """Where a unit looks for element [row, k] by a descriptor that begins at ``start`` (PTX ISA)."""
    width = {1: 128, 2: 64, 3: 32}[place.mode]
    out = np.empty((rows, depth), np.int64)
    for r in range(rows):
        for k in range(depth):
            if place.turned:
                n = width // nbytes
                at = r // n * place.leading + r % n * nbytes + k // 8 * place.stride + k % 8 * width
            else:
                at = r // 8 * place.stride + r % 8 * width + k * nbytes
            at += start
            out[r, k] = at ^ ((at // 128 & BITS[width]) << 4)
    return out


@pytest.mark.parametrize("width", BITS)
@pytest.mark.parametrize(("nbytes", "depth"), [(2, 16), (4, 8)])
@pytest.mark.parametrize("step", [0, 1])
def test_rows_along_the_sums(width, nbytes, depth, step):
    columns = width // nbytes
    if (step + 1) * depth > columns:
        pytest.skip("one step is all of a row")
    tile = written((64, columns), width, nbytes) + 2048
    places = tile[:, step * depth : (step + 1) * depth]
    found = matrix_place(places, nbytes)
    assert found is not None and not found.turned
    np.testing.assert_array_equal(read(found, places[0, 0], 64, depth, nbytes), places)


@pytest.mark.parametrize("width", BITS)
@pytest.mark.parametrize("boxes", [1, 2, 4])
@pytest.mark.parametrize("step", [0, 2])
def test_rows_across_the_sums(width, boxes, step):
    columns, box = width // 2, 64 * width
    tile = [written((64, columns), width, 2) + 4096 + n * box for n in range(boxes)]
    places = np.concatenate(tile, axis=1)[step * 16 : (step + 1) * 16].T
    found = matrix_place(places, 2)
    assert found is not None and found.turned
    np.testing.assert_array_equal(read(found, places[0, 0], boxes * columns, 16, 2), places)


def test_tiles_that_no_descriptor_says():
    tile = written((64, 64), 128, 2)
    assert matrix_place(tile[:, :16], 2) == MatrixPlace(16, 1024, 1, False)
    for wrong in (
        tile + 16,
        tile + 128,
        np.arange(64)[:, None] * 144 + np.arange(64) * 2,
        unturned(tile, 7),
        tile[::-1],
    ):
        assert matrix_place(wrong[:, :16], 2) is None
    # the same elements as two other boxes
    assert (
        matrix_place(np.concatenate([tile[:8, :16], tile[:8, :16] + 1536, tile[:8, :16] + 5120]), 2) is None
    )


def test_boxes():
    for width, bits in BITS.items():
        tile = written((64, width // 2), width, 2)
        assert box_swizzle(tile + 1024, width, 2) == width
        assert box_swizzle(unturned(tile, bits) + 128, width, 2) == 0
        assert box_swizzle(tile + 64, width, 2) is None and box_swizzle(tile[::-1], width, 2) is None
    # rows of another length are not what a box writes
    assert box_swizzle(written((64, 64), 128, 2)[:, :32], 64, 2) is None


def test_values_of_variables():
    env = {"i": (Index(0), Index(99)), "j": (Index(2), var("i") + 2)}
    points = list(values(["i", "j"], env))
    assert {"i": 0, "j": 2} in points and {p["i"] for p in points} >= {0, 99}
    assert values(["n"], env) is None
