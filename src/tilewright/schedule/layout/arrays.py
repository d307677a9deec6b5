"""Converting a caller's arrays to and from the layout that primitives gave an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from tilewright.schedule.trace import Step
from tilewright.support import InternalError, ScheduleError

Array: TypeAlias = "np.ndarray[Any, Any]"


def pack_argument(array: Array, tensor: str, steps: Iterable[Step]) -> Array:
    """``array``, in the shape that ``tensor`` had first, as the layout primitives of ``steps`` left it.

    Steps of other tensors and other primitives are passed over; padding is zero. Raises ScheduleError where
    the array does not fit.
    """
    for step in _of(tensor, steps):
        array = _forward(array, step.primitive, _arguments(step))
    return array


def unpack_argument(array: Array, tensor: str, shape: Sequence[int], steps: Iterable[Step]) -> Array:
    """The inverse of :func:`pack_argument`: an array of the first ``shape``, padding and copies dropped.

    Raises ScheduleError for an array of another shape than the layout's.
    """
    mine = _of(tensor, steps)
    shapes = [tuple(shape)]
    probe: Array = np.empty(shapes[0], np.bool_)
    for step in mine:
        probe = _forward(probe, step.primitive, _arguments(step))
        shapes.append(probe.shape)
    if array.shape != shapes[-1]:
        raise ScheduleError(f"{tensor!r} has shape {shapes[-1]} in this layout, the array {array.shape}")
    for step, before in zip(reversed(mine), reversed(shapes[:-1]), strict=True):
        array = _backward(array, step.primitive, _arguments(step), before)
    return array


def _of(tensor: str, steps: Iterable[Step]) -> list[Step]:
    return [s for s in steps if s.primitive.startswith("layout_") and s.args and s.args[0] == tensor]


def _arguments(step: Step) -> tuple[Any, ...]:
    return (*step.args[1:], *(v for _, v in step.kwargs))


def _forward(array: Array, primitive: str, args: tuple[Any, ...]) -> Array:
    match primitive:
        case "layout_reorder":
            return array.transpose(args[0])
        case "layout_fuse":
            dim, count = args
            return array.reshape(*array.shape[:dim], -1, *array.shape[dim + count :])
        case "layout_pad":
            dim, before, after = args
            return np.pad(array, [(before, after) if d == dim else (0, 0) for d in range(array.ndim)])
        case "layout_split":
            dim, factors = args
            extents = _extents(array.shape[dim], factors)
            array = _forward(array, "layout_pad", (dim, 0, prod(extents) - array.shape[dim]))
            return array.reshape(*array.shape[:dim], *extents, *array.shape[dim + 1 :])
        case "layout_unfold":
            dim, tile, stride = args
            tiles = -(-(array.shape[dim] - tile) // stride) + 1
            array = _forward(array, "layout_pad", (dim, 0, stride * (tiles - 1) + tile - array.shape[dim]))
            parts = [array.take(range(stride * t, stride * t + tile), axis=dim) for t in range(tiles)]
            return np.stack(parts, axis=dim)
        case _:
            raise InternalError(f"arrays cannot follow the layout primitive {primitive}")


def _backward(array: Array, primitive: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    match primitive:
        case "layout_reorder":
            return array.transpose(np.argsort(args[0]))
        case "layout_fuse":
            return array.reshape(shape)
        case "layout_pad":
            dim, before, _ = args
            return array.take(range(before, before + shape[dim]), axis=dim)
        case "layout_split":
            dim, factors = args
            total = prod(_extents(shape[dim], factors))
            array = array.reshape(*shape[:dim], total, *shape[dim + 1 :])
            return array.take(range(shape[dim]), axis=dim)
        case _:
            dim, tile, stride = args
            out: Array = np.empty(shape, array.dtype)
            for t in reversed(range(array.shape[dim])):
                at = [slice(None)] * len(shape)
                at[dim] = slice(stride * t, min(stride * t + tile, shape[dim]))
                part = array.take(t, axis=dim)
                out[tuple(at)] = part.take(range(at[dim].stop - at[dim].start), axis=dim)
            return out


def _extents(size: int, factors: Sequence[int]) -> list[int]:
    rest = prod(f for f in factors if f != -1)
    return [-(-size // rest) if f == -1 else f for f in factors]
