"""Converting a caller's arrays to and from the layout that primitives gave an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import F32, Buffer, FloorDiv, Index, IndexMap, Mod, Var
from tilewright.schedule.loop.set_layout import with_layout
from tilewright.schedule.trace import Step
from tilewright.support import InternalError, ScheduleError

Array: TypeAlias = "np.ndarray[Any, Any]"


def pack_argument(array: Array, tensor: str, steps: Iterable[Step], layout: IndexMap | None = None) -> Array:
    """``array``, in the shape that ``tensor`` had first, as the layout primitives of ``steps`` left it.

    Steps of other tensors and other primitives are passed over; padding is zero. ``layout`` is the index map
    that the tensor had first. One that it has in the end, besides its shape, is not looked at. Raises
    ScheduleError where the array does not fit.
    """
    for change in _changes(array.shape, tensor, steps, layout):
        array = change.forward(array)
    return array


def unpack_argument(
    array: Array, tensor: str, shape: Sequence[int], steps: Iterable[Step], layout: IndexMap | None = None
) -> Array:
    """The inverse of :func:`pack_argument`: an array of the first ``shape``, padding and copies dropped.

    Raises ScheduleError for an array of another shape than the layout's.
    """
    changes = _changes(tuple(shape), tensor, steps, layout)
    last = changes[-1].after if changes else tuple(shape)
    if array.shape != last:
        raise ScheduleError(f"{tensor!r} has shape {last} in this layout, the array {array.shape}")
    for change in reversed(changes):
        array = change.backward(array)
    return array


def places(layout: IndexMap, shape: Sequence[int]) -> tuple[npt.NDArray[np.int64], ...]:
    """For each physical axis, where the elements of a box lie on it (open grids, which numpy broadcasts)."""
    grids = np.ix_(*(np.arange(size, dtype=np.int64) for size in shape))
    axes = dict(zip(layout.dims, grids, strict=True))
    return tuple(_values(expr, axes) for expr in layout.exprs)


def _values(index: Index, axes: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    total = np.asarray(index.const, np.int64)
    for atom, coefficient in index.terms:
        match atom:
            case Var():
                value = axes[atom.name]
            case FloorDiv():
                value = _values(atom.arg, axes) // atom.divisor
            case Mod():
                value = _values(atom.arg, axes) % atom.divisor
            case _:
                raise InternalError(f"a layout of a constant buffer holds {atom}")
        total = total + coefficient * value
    return total


@dataclass(frozen=True, slots=True)
class _Change:
    """One step from the shape ``before`` to the shape ``after``: a primitive, or the adoption of a map."""

    primitive: str
    args: tuple[Any, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def forward(self, array: Array) -> Array:
        return _forward(array, self.primitive, self.args)

    def backward(self, array: Array) -> Array:
        return _backward(array, self.primitive, self.args, self.before)


def _changes(
    shape: tuple[int, ...], tensor: str, steps: Iterable[Step], layout: IndexMap | None
) -> list[_Change]:
    """The steps of a tensor that change its shape."""
    found: list[_Change] = []
    probe: Array = np.zeros(shape, np.bool_)
    for step in steps:
        if not step.primitive.startswith("layout_") or not step.args or step.args[0] != tensor:
            continue
        args = _arguments(step)
        if step.primitive == "layout_place":
            b = Buffer(tensor, tuple(map(Index, probe.shape)), F32)
            layout = with_layout(b, args[0]).layout if args[0] else None
            continue
        if step.primitive == "layout_adopt":
            args, layout = (layout,), None
        before = probe.shape
        probe = _forward(probe, step.primitive, args)
        found.append(_Change(step.primitive, args, before, probe.shape))
    return found


def _arguments(step: Step) -> tuple[Any, ...]:
    return (*step.args[1:], *(v for _, v in step.kwargs))


def _forward(array: Array, primitive: str, args: tuple[Any, ...]) -> Array:
    match primitive:
        case "layout_reorder":
            return array.transpose(args[0])
        case "layout_adopt":
            (layout,) = args
            out: Array = np.zeros([n.as_int() for n in layout.shape], array.dtype)
            out[places(layout, array.shape)] = array
            return out
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
        case "layout_unpad":
            dim, before, after = args
            return array.take(range(before, array.shape[dim] - after), axis=dim)
        case "layout_fold":
            return _folded(array, *args)
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
        case "layout_adopt":
            (layout,) = args
            return array[places(layout, shape)]
        case "layout_fuse":
            return array.reshape(shape)
        case "layout_unpad":
            return _forward(array, "layout_pad", args)
        case "layout_fold":
            dim, stride = args
            return _forward(array, "layout_unfold", (dim, shape[dim + 1], stride))
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
            whole: Array = np.empty(shape, array.dtype)
            for t in reversed(range(array.shape[dim])):
                at = [slice(None)] * len(shape)
                at[dim] = slice(stride * t, min(stride * t + tile, shape[dim]))
                part = array.take(t, axis=dim)
                whole[tuple(at)] = part.take(range(at[dim].stop - at[dim].start), axis=dim)
            return whole


def _folded(array: Array, dim: int, stride: int) -> Array:
    tiles, tile = array.shape[dim : dim + 2]
    out: Array = np.zeros(
        (*array.shape[:dim], stride * (tiles - 1) + tile, *array.shape[dim + 2 :]), array.dtype
    )
    at = [slice(None)] * out.ndim
    for t in range(tiles):
        at[dim] = slice(stride * t, stride * t + tile)
        out[tuple(at)] = array.take(t, axis=dim)
    for t in range(tiles):
        at[dim] = slice(stride * t, stride * t + tile)
        if not np.array_equal(out[tuple(at)], array.take(t, axis=dim), equal_nan=array.dtype.kind == "f"):
            raise ScheduleError(f"tiles of dimension {dim} hold different copies of what they share")
    return out


def _extents(size: int, factors: Sequence[int]) -> list[int]:
    rest = prod(f for f in factors if f != -1)
    return [-(-size // rest) if f == -1 else f for f in factors]
