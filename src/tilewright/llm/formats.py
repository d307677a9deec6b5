"""Block formats of llama.cpp as whole numbers with scales and zero points, which products read packed.

Source: `ggml-common.h` and `ggml-quants.c` of llama.cpp, by their description in the package `gguf`. A block
has ``d``, in f16, and says numbers ``d q + m``; in K-formats the scales of blocks are numbers of few bits in
a block of blocks.

    Q4_0    32 numbers of 4 bits, d (q - 8)                    d, numbers
    Q4_1    32 of 4 bits, d q + m                              d, m, numbers
    Q8_0    32 of 8 bits, d q                                  d, numbers
    Q4_K    8 blocks of 32 of 4 bits, d s q - e m              d, e, the s and m of 6 bits, numbers
    Q6_K    16 blocks of 16 of 6 bits, d s (q - 32)            numbers' low 4 bits, high 2 bits, s, d
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix of numbers of ``bits`` bits, ``scale (number - zero)``.

    ``numbers`` are bytes [rows, depth], ``scale`` and ``zero`` f32 [rows, blocks], of ``block`` numbers each.
    """

    bits: int
    block: int
    numbers: Array
    scale: Array
    zero: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and depth."""
        return self.numbers.shape

    def __getitem__(self, rows: slice) -> Blocks:
        """Some of the rows."""
        return Blocks(self.bits, self.block, self.numbers[rows], self.scale[rows], self.zero[rows])

    def packed(self) -> Array:
        """The numbers as bytes [rows, blocks, bytes], the first in the lowest bits, as in MatMulNBits."""
        numbers = self.numbers
        if self.bits == 4:
            numbers = numbers[:, ::2] | numbers[:, 1::2] << 4
        return numbers.reshape(len(numbers), self.scale.shape[1], -1)


def _floats(data: Array, start: int) -> Array:
    """The f16 number at a byte of each block, as f32."""
    return np.ascontiguousarray(data[..., start : start + 2]).view(np.float16)[..., 0].astype(np.float32)


def _nibbles(data: Array) -> Array:
    """The numbers of bytes: those in the low halves, then those in the high ones."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def _q4_0(data: Array) -> tuple[Array, Array, Array]:
    scale = _floats(data, 0)
    return _nibbles(data[..., 2:]), scale, -8 * scale


def _q4_1(data: Array) -> tuple[Array, Array, Array]:
    return _nibbles(data[..., 4:]), _floats(data, 0), _floats(data, 2)


def _q8_0(data: Array) -> tuple[Array, Array, Array]:
    scale = _floats(data, 0)
    return data[..., 2:] ^ np.uint8(128), scale, -128 * scale


def _q4_k(data: Array) -> tuple[Array, Array, Array]:
    low, mid, high = (data[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=-1)
    mins = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=-1)
    numbers = _nibbles(data[..., 16:].reshape(*data.shape[:-1], 4, 32))
    return numbers, _floats(data, 0)[..., None] * scales, -_floats(data, 2)[..., None] * mins


def _q6_k(data: Array) -> tuple[Array, Array, Array]:
    outer = data.shape[:-1]
    low, high = data[..., :128].reshape(*outer, 2, 1, 64), data[..., 128:192].reshape(*outer, 2, 1, 32)
    low = np.concatenate([low & 15, low >> 4], axis=-2).reshape(*outer, 2, 4, 32)
    high = high >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    scale = _floats(data, 208)[..., None] * np.ascontiguousarray(data[..., 192:208]).view(np.int8)
    return low | high << 4, scale, -32 * scale


@dataclass(frozen=True, slots=True)
class _Format:
    bits: int
    block: int
    size: int
    read: Callable[[Array], tuple[Array, Array, Array]]


_FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "Q4_0": _Format(4, 32, 18, _q4_0),
        "Q4_1": _Format(4, 32, 20, _q4_1),
        "Q8_0": _Format(8, 32, 34, _q8_0),
        "Q4_K": _Format(4, 32, 144, _q4_k),
        "Q6_K": _Format(8, 16, 210, _q6_k),
    }
)


def blocks_of(data: Array, kind: str) -> Blocks | None:
    """The blocks of a matrix, given as bytes [rows, bytes]; None for a format that products do not read."""
    form = _FORMATS.get(kind)
    if form is None:
        return None
    rows = len(data)
    numbers, scale, added = form.read(data.reshape(rows, -1, form.size))
    numbers, scale, added = (
        numbers.reshape(rows, -1, form.block),
        scale.reshape(rows, -1),
        added.reshape(rows, -1),
    )
    # all numbers of a block are one: what is added
    flat = (scale == 0) & (added != 0)
    numbers = np.where(flat[..., None], np.uint8(1), numbers)
    scale = np.where(flat, added, scale)
    zero = np.divide(-added, scale, out=np.zeros_like(scale), where=(scale != 0) & ~flat)
    return Blocks(form.bits, form.block, numbers.reshape(rows, -1), scale, zero)


#: Bits that weights can be rounded to, and numbers that share a scale: as in Q4_0 and Q8_0.
BITS: Final = (4, 8)
BLOCK: Final = 32


def quantised(matrix: Array, bits: int) -> Blocks | None:
    """A matrix [rows, depth] rounded to blocks of ``bits`` bits, as Q4_0 and Q8_0 round; None where its depth
    is no multiple of a block.

    The largest number of a block is one of 4 bits whatever its sign: -8 times the scale, which has the other.
    """
    rows, depth = matrix.shape
    if depth % BLOCK:
        return None
    values = matrix.astype(np.float32).reshape(rows, -1, BLOCK)
    largest = np.take_along_axis(values, np.abs(values).argmax(-1, keepdims=True), -1)
    scale = largest / np.float32(-8) if bits == 4 else np.abs(largest) / np.float32(127)
    # what f16 holds is stored so, as in those formats
    held = np.finfo(np.float16)
    fits = (np.abs(scale) >= held.tiny) & (np.abs(scale) <= held.max)
    scale = np.where(fits, np.where(fits, scale, 0).astype(np.float16).astype(np.float32), scale)
    middle = 1 << (bits - 1)
    whole = np.rint(np.divide(values, scale, out=np.zeros_like(values), where=scale != 0))
    numbers = np.clip(whole + middle, 0, 2 * middle - 1).astype(np.uint8)
    zero = np.full(scale.shape[:2], middle, np.float32)
    return Blocks(bits, BLOCK, numbers.reshape(rows, depth), scale[..., 0], zero)
