"""Checkpoints of GPTQ: matrices of 2, 3, 4 or 8 bits in groups along their depth, which products read packed.

    qweight  i32 [depth * bits / 32, out]       numbers of a column, the first lowest, across words
    qzeros   i32 [groups, out * bits / 32]      zero points along a row, less one (not in ``gptq_v2``)
    scales   f16 [groups, out]
    g_idx    i32 [depth]                        the group of each row

Source: `qlinear_cuda.py` of AutoGPTQ (Frantar et al., arXiv:2210.17323). Numbers of 2 and 3 bits are kept
in 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tilewright.llm.formats import Array, Blocks
from tilewright.support import ModelError, UnsupportedOperatorError, quoted

_BITS: Final = (2, 3, 4, 8)
_WORD: Final = 32
#: What a matrix is stored as, by the ends of names.
_PARTS: Final = ("qweight", "qzeros", "scales", "g_idx")
#: Numbers that are taken apart bit by bit at a time: 64 MB of bits.
_AT_ONCE: Final = 1 << 23


def with_blocks(
    tensors: Mapping[str, Array], configuration: Mapping[str, Any]
) -> Mapping[str, Array | Blocks]:
    """Tensors of a checkpoint, with matrices in blocks where its configuration says that they are GPTQ's.

    Raises UnsupportedOperatorError for other methods and for groups in another order than that of rows,
    ModelError for parts that are missing or do not fit.
    """
    told = configuration.get("quantization_config")
    if told is None:
        return tensors
    method = told.get("quant_method") if isinstance(told, Mapping) else None
    if method != "gptq":
        raise UnsupportedOperatorError(
            f"weights quantised by {quoted(str(method))}",
            hint="those of GPTQ, or without quantization_config",
        )
    bits, less = told.get("bits"), int(told.get("checkpoint_format", "gptq") != "gptq_v2")
    if bits not in _BITS:
        raise UnsupportedOperatorError(f"weights of GPTQ with {bits!r} bits", hint="2, 3, 4 or 8")
    stems = [name.removesuffix(f".{_PARTS[0]}") for name in tensors if name.endswith(f".{_PARTS[0]}")]
    made: dict[str, Array | Blocks] = {
        name: array for name, array in tensors.items() if name.rpartition(".")[2] not in _PARTS
    }
    for stem in stems:
        parts = [tensors.get(f"{stem}.{part}") for part in _PARTS]
        made[f"{stem}.weight"] = _blocks(stem, bits, less, *parts)
    return made


def _blocks(
    stem: str,
    bits: int,
    less: int,
    words: Array | None,
    zeros: Array | None,
    scale: Array | None,
    order: Array | None,
) -> Blocks:
    if words is None or zeros is None or scale is None:
        raise ModelError(
            f"the matrix {quoted(stem)} is not whole", hint="qweight, qzeros and scales are needed"
        )
    depth, (groups, columns) = len(words) * _WORD // bits, scale.shape
    fits = words.dtype == zeros.dtype == np.int32 and words.shape == (depth * bits // _WORD, columns)
    fits = fits and groups > 0 and depth % groups == 0 and zeros.shape == (groups, columns * bits // _WORD)
    if not fits:
        raise ModelError(
            f"the parts of the matrix {quoted(stem)} do not fit: {list(words.shape)} words of {bits} bits, "
            f"{list(zeros.shape)} of zero points, scales {list(scale.shape)}"
        )
    block = depth // groups
    if order is not None and not np.array_equal(order, np.arange(depth) // block):
        raise UnsupportedOperatorError(
            f"the rows of {quoted(stem)} are in groups by another order (desc_act)",
            hint="a checkpoint whose groups are in the order of rows",
        )
    kept = 4 if bits <= 4 else 8
    numbers = _unpacked(words.T, bits)
    zero = _unpacked(zeros, bits).T.astype(np.float32) + np.float32(less)
    return Blocks(kept, block, numbers, scale.T.astype(np.float32), zero)


def _unpacked(words: Array, bits: int) -> Array:
    """Numbers of rows of words, each row one run of bits, the first lowest."""
    rows, count = len(words), words.shape[1] * _WORD // bits
    made = np.empty((rows, count), np.uint8)
    step = max(1, _AT_ONCE // max(1, count))
    weights = (1 << np.arange(bits)).astype(np.uint8)
    for at in range(0, rows, step):
        part = np.ascontiguousarray(words[at : at + step]).astype("<i4").view(np.uint8)
        digits = np.unpackbits(part, axis=1, bitorder="little").reshape(len(part), count, bits)
        made[at : at + step] = digits @ weights
    return made
