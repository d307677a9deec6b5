"""Tensor maps as numbers in files, which may be anything."""

import pytest

from tilewright.target import TensorMap, read_tensor_map

MAP = TensorMap(1, "tf32", (2, 96, 64), (6144, 64, 1), (1, 64, 32), 128)


def test_numbers_and_back():
    assert read_tensor_map(MAP.numbers(), 2) == MAP
    assert MAP.element == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n[:-1],
        lambda n: [],
        lambda n: [*n[:3]],
        lambda n: [2, *n[1:]],
        lambda n: [n[0], 9, *n[2:]],
        lambda n: [*n[:2], 48, *n[3:]],
        lambda n: [*n[:6], 6145, *n[7:]],
        lambda n: [*n[:8], 2, *n[9:]],
        lambda n: [*n[:-1], 65],
        lambda n: [*n[:-1], 0],
        lambda n: [*n[:3], 1 << 50, *n[4:]],
    ],
)
def test_others(change):
    with pytest.raises(ValueError, match="tensor map"):
        read_tensor_map(change(list(MAP.numbers())), 2)
