"""Block formats of llama.cpp: the numbers that its package gives."""

import numpy as np
import pytest

from tilewright.llm.formats import Blocks, blocks_of, quantised

KINDS = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210)}
#: Where scales in f16 stand in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}


def _numbers(blocks):
    zero, scale = (np.repeat(each, blocks.block, axis=1) for each in (blocks.zero, blocks.scale))
    return (blocks.numbers - zero) * scale


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_say_the_numbers_that_the_package_says(kind):
    quants = pytest.importorskip("gguf.quants")
    count, size = KINDS[kind]
    rng = np.random.default_rng(5)
    data = rng.integers(0, 256, (6, 4, size)).astype(np.uint8)
    for at in SCALES[kind]:
        data[..., at : at + 2] = rng.standard_normal((6, 4, 1)).astype(np.float16).view(np.uint8)
    # blocks of zeros, and of one number
    data[0, 0, SCALES[kind][0] :][:2] = 0
    data[1, 1] = 0
    data = data.reshape(6, -1)
    wanted = quants.dequantize(data, getattr(quants.GGMLQuantizationType, kind))
    found = blocks_of(data, kind)
    assert found.shape == (6, 4 * count) and found.numbers.max() < 1 << found.bits
    np.testing.assert_allclose(_numbers(found), wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())
    np.testing.assert_array_equal(_numbers(found[2:4]), _numbers(found)[2:4])


@pytest.mark.parametrize(("bits", "kind"), [(4, "Q4_0"), (8, "Q8_0")])
def test_matrices_are_rounded_as_the_package_rounds_them(bits, kind):
    quants = pytest.importorskip("gguf.quants")
    rng = np.random.default_rng(bits)
    matrix = rng.standard_normal((5, 96)).astype(np.float32)
    matrix[2, 32:64] = 0
    found = quantised(matrix, bits)
    form = getattr(quants.GGMLQuantizationType, kind)
    wanted = quants.dequantize(quants.quantize(matrix, form), form)
    # its scales are f16, so that some numbers are rounded to the next
    assert np.abs(_numbers(found) - wanted).max() < np.abs(found.scale).max() * 1.02
    assert np.abs(_numbers(found) - matrix).mean() <= np.abs(wanted - matrix).mean() * 1.01
    assert np.abs(_numbers(found) - matrix).max() <= np.abs(found.scale).max() * (1.01 if bits == 4 else 0.51)
    assert quantised(matrix[:, :40], bits) is None


def test_other_formats_are_none():
    assert blocks_of(np.zeros((2, 22), np.uint8), "Q5_0") is None


def test_numbers_of_four_bits_are_packed_two_a_byte():
    numbers = np.arange(8, dtype=np.uint8).reshape(1, 8)
    blocks = Blocks(4, 4, numbers, np.ones((1, 2), np.float32), np.zeros((1, 2), np.float32))
    assert blocks.packed().tolist() == [[[0x10, 0x32], [0x54, 0x76]]]
