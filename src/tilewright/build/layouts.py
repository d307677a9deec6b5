"""Arrays between their logical order and the layout that a kernel wants them in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir import Buffer, FloorDiv, Index, Mod, Var
from tilewright.runtime import aligned_empty
from tilewright.schedule import places

Array = npt.NDArray[Any]


def physical_sizes(buffer: Buffer) -> tuple[int, ...]:
    """The allocated shape of a buffer of constant shape."""
    return tuple(extent.as_int() for extent in buffer.physical_shape)


def is_plain(buffer: Buffer) -> bool:
    """Whether a buffer's memory is its logical elements, row by row."""
    layout = buffer.layout
    if layout is None:
        return True
    same = tuple(expr.as_var() for expr in layout.exprs) == layout.dims
    return same and layout.shape == buffer.shape


def pack(array: Array, buffer: Buffer) -> Array:
    """A new aligned array of the buffer's physical shape that holds ``array`` in its layout, padding zero."""
    sizes = physical_sizes(buffer)
    out = aligned_empty(sizes, array.dtype)
    if is_plain(buffer):
        np.copyto(out, array.reshape(sizes))
        return out
    logical = array.reshape(tuple(extent.as_int() for extent in buffer.shape))
    digits = _digits(buffer)
    if digits is None:
        out[...] = 0
        out[_places(buffer)] = logical
    else:
        np.copyto(out, _digit_view(logical, digits, sizes))
    return out


def unpack(array: Array, buffer: Buffer) -> Array:
    """The logical elements of an array in the buffer's layout; a view where that layout is plain."""
    packed = array.reshape(physical_sizes(buffer))
    return packed if is_plain(buffer) else packed[_places(buffer)]


@dataclass(frozen=True, slots=True)
class _Digit:
    """A physical axis that is one digit of a logical one: ``index % high // low``; high 0 is no end."""

    axis: int
    low: int
    high: int


def _digits(buffer: Buffer) -> tuple[_Digit, ...] | None:
    """The physical axes as digits that together make up every logical axis; None where they are not that."""
    assert buffer.layout is not None
    dims = {name: axis for axis, name in enumerate(buffer.layout.dims)}
    found = [_digit(expr, dims) for expr in buffer.layout.exprs]
    digits = [digit for digit in found if digit is not None]
    if len(digits) != len(found):
        return None
    for axis in dims.values():
        own = sorted((digit for digit in digits if digit.axis == axis), key=lambda digit: digit.low)
        ends = [*(digit.low for digit in own[1:]), 0]
        if not own or own[0].low != 1 or [digit.high for digit in own] != ends:
            return None
    return tuple(digits)


def _digit(index: Index, dims: dict[str, int]) -> _Digit | None:
    if index.const or len(index.terms) != 1 or index.terms[0][1] != 1:
        return None
    match index.terms[0][0]:
        case Var(name=name) if name in dims:
            return _Digit(dims[name], 1, 0)
        case FloorDiv(arg=arg, divisor=divisor):
            inner = _digit(arg, dims)
            if inner is None or (inner.high and inner.high % (inner.low * divisor)):
                return None
            return _Digit(inner.axis, inner.low * divisor, inner.high)
        case Mod(arg=arg, divisor=divisor):
            inner = _digit(arg, dims)
            if inner is None or (inner.high and inner.high % (inner.low * divisor)):
                return None
            return _Digit(inner.axis, inner.low, inner.low * divisor)
    return None


def _digit_view(array: Array, digits: tuple[_Digit, ...], sizes: tuple[int, ...]) -> Array:
    """The array, padded with zeros, with its axes cut into digits and in the order of the physical ones."""
    order = sorted(range(len(digits)), key=lambda at: (digits[at].axis, -digits[at].low))
    cut = tuple(sizes[at] for at in order)
    extents = [math.prod(sizes[at] for at in order if digits[at].axis == axis) for axis in range(array.ndim)]
    missing = [(0, extent - size) for extent, size in zip(extents, array.shape, strict=True)]
    padded = np.pad(array, missing) if any(after for _, after in missing) else array
    return padded.reshape(cut).transpose(np.argsort(order))


def _places(buffer: Buffer) -> tuple[npt.NDArray[np.int64], ...]:
    """For each physical axis, where the logical elements are on it."""
    assert buffer.layout is not None
    return places(buffer.layout, [extent.as_int() for extent in buffer.shape])
