"""Values of LLVM IR: operands with their types, literals."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from tilewright.ir import BOOL, DType

PTR = DType("ptr", "uint", 64)
#: How a ``bool`` is stored: one byte, 0 or 1.
BYTE = DType("u8", "uint", 8)

SCALAR_TYPES = MappingProxyType(
    {
        "f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "i64": "i64", "i32": "i32",
        "i16": "i16", "i8": "i8", "u64": "i64", "u32": "i32", "u16": "i16", "u8": "i8",
        "bool": "i1", "ptr": "ptr",
    }
)  # fmt: skip
_SUFFIX = MappingProxyType(dict(SCALAR_TYPES, f64="f64", f32="f32", f16="f16", bf16="bf16"))


@cache
def type_text(name: str, lanes: int) -> str:
    """The LLVM type of ``lanes`` elements (1: a scalar) of the element type called ``name``."""
    t = SCALAR_TYPES[name]
    return t if lanes == 1 else f"<{lanes} x {t}>"


@cache
def suffix(name: str, lanes: int) -> str:
    """How overloaded intrinsics spell the type: ``f32``, ``v16f32``."""
    t = _SUFFIX[name]
    return t if lanes == 1 else f"v{lanes}{t}"


def memory_type(dtype: DType, lanes: int) -> str:
    """The LLVM type of elements in memory."""
    return type_text("u8" if dtype.kind == "bool" else dtype.name, lanes)


class Val(NamedTuple):
    """An SSA value or literal: operand ``text``, scalar ``dtype``, ``lanes`` (1 = scalar), defining scope.

    ``root`` names the buffer that a pointer points into. A tuple, as those are the quickest to make: one is
    made for every instruction that is written.
    """

    text: str
    dtype: DType
    lanes: int = 1
    depth: int = 0
    root: str = ""

    @property
    def type(self) -> str:
        """The LLVM type."""
        return type_text(self.dtype.name, self.lanes)

    @property
    def typed(self) -> str:
        """``type operand``."""
        return f"{type_text(self.dtype.name, self.lanes)} {self.text}"

    @property
    def suffix(self) -> str:
        """How overloaded intrinsics spell the type."""
        return suffix(self.dtype.name, self.lanes)


def literal(value: float | int | bool, dtype: DType, lanes: int = 1) -> Val:
    """A literal, splat over ``lanes``."""
    if dtype.kind == "int":
        text = str(int(value))
    elif dtype.kind == "float":
        text = _float_text(repr(float(value)), dtype)
    elif dtype.kind == "bool":
        text = "true" if value else "false"
    else:
        n = int(value)
        wraps = n >= 1 << (dtype.bits - 1) and dtype is not PTR
        text = str(n - (1 << dtype.bits) if wraps else n)
    return Val(text if lanes == 1 else f"splat ({SCALAR_TYPES[dtype.name]} {text})", dtype, lanes)


def literals(values: Sequence[float], dtype: DType) -> Val:
    """A vector of different literals."""
    items = [literal(v, dtype).typed for v in values]
    return Val(f"<{', '.join(items)}>", dtype, len(items))


def poison(like: Val) -> Val:
    """An undefined value of the same type."""
    return Val("poison", like.dtype, like.lanes)


def iota(dtype: DType, lanes: int) -> Val:
    """The literal ``0, 1, 2 …``."""
    t = SCALAR_TYPES[dtype.name]
    return Val(f"<{', '.join(f'{t} {n}' for n in range(lanes))}>", dtype, lanes)


def mask_literal(lanes: Iterable[bool]) -> Val:
    """A mask with the given lanes on."""
    items = [f"i1 {'true' if on else 'false'}" for on in lanes]
    return Val(f"<{', '.join(items)}>", BOOL, len(items))


def literal_lanes(mask: Val) -> tuple[bool, ...] | None:
    """The lanes of a :func:`mask_literal`; ``None`` for other masks."""
    if mask.depth or not mask.text.startswith("<i1 "):
        return None
    return tuple([item.endswith("true") for item in mask.text[1:-1].split(", ")])


@lru_cache(maxsize=4096)
def _float_text(printed: str, dtype: DType) -> str:
    """The exact hexadecimal literal of a float (given as text: 0.0 equals -0.0)."""
    value = float(printed)
    if dtype.name in ("f64", "f32"):
        if dtype.name == "f32":
            value = struct.unpack("<f", struct.pack("<f", _clamp_f32(value)))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    bits = int.from_bytes(dtype.numpy.type(value).tobytes(), "little")
    return f"0x{'H' if dtype.name == 'f16' else 'R'}{bits:04X}"


def _clamp_f32(value: float) -> float:
    """Overflowing literals become infinities as in a cast (``struct.pack`` would raise)."""
    if value != value or abs(value) <= 3.4028235677973366e38:
        return value
    return float("inf") if value > 0 else float("-inf")
