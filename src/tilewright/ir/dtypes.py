"""Scalar element types of the IR and their numpy counterparts."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import ml_dtypes
import numpy as np

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type: ``name`` as printed (``f32``), its ``kind`` and its storage size in ``bits``."""

    name: str
    kind: Kind
    bits: int

    @property
    def bytes(self) -> int:
        """Storage size in bytes (a ``bool`` takes one)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether values are signed or unsigned integers (not ``bool``)."""
        return self.kind in ("int", "uint")

    @property
    def holds_indices(self) -> bool:
        """Whether indices of this type compare and add as indices do: in others they may wrap.

        Those of 32 bits, too: what is counted in them is no larger, as in C, where they come from.
        """
        return self.kind == "int" and self.bits >= 32

    @property
    def small(self) -> bool:
        """Whether values are moved, compared and converted, but not computed with.

        Integers of fewer than 8 bits, floats of fewer than 16. In memory each takes a byte, of type
        :attr:`held`; integers are extended to it.
        """
        return self.name in _HELD

    @property
    def held(self) -> DType:
        """The type as which machines hold values: bytes for small types, the type itself for others."""
        return _HELD.get(self.name, self)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype with the same storage."""
        storage: np.dtype[np.generic] = _NUMPY[self.name]
        return storage

    @property
    def min_value(self) -> float | int | bool:
        """Smallest value (``-inf`` for floats, if they have it): the identity of a maximum."""
        if self.kind == "float":
            return float(self._finfo.min) if self.small else float("-inf")
        if self.kind == "bool":
            return False
        return 0 if self.kind == "uint" else -(1 << (self.bits - 1))

    @property
    def max_value(self) -> float | int | bool:
        """Largest value (``+inf`` for floats, if they have it): the identity of a minimum."""
        if self.kind == "float":
            return float(self._finfo.max) if self.small else float("inf")
        if self.kind == "bool":
            return True
        return (1 << self.bits) - 1 if self.kind == "uint" else (1 << (self.bits - 1)) - 1

    @property
    def _finfo(self) -> Any:
        return ml_dtypes.finfo(self.numpy)  # type: ignore[no-untyped-call]  # the package's own stubs

    def __str__(self) -> str:
        return self.name


F64 = DType("f64", "float", 64)
F32 = DType("f32", "float", 32)
F16 = DType("f16", "float", 16)
BF16 = DType("bf16", "float", 16)
I64 = DType("i64", "int", 64)
I32 = DType("i32", "int", 32)
I16 = DType("i16", "int", 16)
I8 = DType("i8", "int", 8)
U64 = DType("u64", "uint", 64)
U32 = DType("u32", "uint", 32)
U16 = DType("u16", "uint", 16)
U8 = DType("u8", "uint", 8)
BOOL = DType("bool", "bool", 8)

_SMALL = MappingProxyType(
    {
        DType("i4", "int", 4): (ml_dtypes.int4, I8),
        DType("u4", "uint", 4): (ml_dtypes.uint4, U8),
        DType("i2", "int", 2): (ml_dtypes.int2, I8),
        DType("u2", "uint", 2): (ml_dtypes.uint2, U8),
        DType("f8e4m3fn", "float", 8): (ml_dtypes.float8_e4m3fn, U8),
        DType("f8e4m3fnuz", "float", 8): (ml_dtypes.float8_e4m3fnuz, U8),
        DType("f8e5m2", "float", 8): (ml_dtypes.float8_e5m2, U8),
        DType("f8e5m2fnuz", "float", 8): (ml_dtypes.float8_e5m2fnuz, U8),
        DType("f8e8m0", "float", 8): (ml_dtypes.float8_e8m0fnu, U8),
        DType("f4e2m1", "float", 4): (ml_dtypes.float4_e2m1fn, U8),
    }
)
_HELD = MappingProxyType({t.name: held for t, (_, held) in _SMALL.items()})

DTYPES = MappingProxyType(
    {t.name: t for t in (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, *_SMALL)}
)
SMALL_DTYPES = tuple(_SMALL)

_NUMPY = MappingProxyType(
    {
        "f64": np.dtype(np.float64),
        "f32": np.dtype(np.float32),
        "f16": np.dtype(np.float16),
        "bf16": np.dtype(ml_dtypes.bfloat16),
        "i64": np.dtype(np.int64),
        "i32": np.dtype(np.int32),
        "i16": np.dtype(np.int16),
        "i8": np.dtype(np.int8),
        "u64": np.dtype(np.uint64),
        "u32": np.dtype(np.uint32),
        "u16": np.dtype(np.uint16),
        "u8": np.dtype(np.uint8),
        "bool": np.dtype(np.bool_),
        **{t.name: np.dtype(stored) for t, (stored, _) in _SMALL.items()},
    }
)
_FROM_NUMPY = MappingProxyType({v: DTYPES[k] for k, v in _NUMPY.items()})


def dtype_of(value: DType | str | np.dtype[np.generic] | type) -> DType:
    """Return the :class:`DType` named by a string, a numpy dtype or scalar type, or a ``DType`` itself.

    Raises ``KeyError`` where no such element type exists (``complex64``, strings).
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    try:
        found = np.dtype(value)
    except TypeError as error:
        raise KeyError(str(error)) from None
    return _FROM_NUMPY[found]
