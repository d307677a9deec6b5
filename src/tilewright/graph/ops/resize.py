"""Resize and Upsample: separable interpolation with tables of places and weights.

One axis after another; where that pays, strategies compute several as one expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from itertools import permutations
from math import prod
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Readable, clamped, compute
from tilewright.graph.ops.common import Scalar, convert_tensor, is_float, number, stem, wide
from tilewright.graph.registry import Context, Kind, operator
from tilewright.ir import dtype_of, exact_quotient, index_of, is_open, typical

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

#: Terms of a result that are one expression, at most.
MOST_TERMS: Final = 8
#: Reading along the last axis, where each lane looks up its place, costs as much as so many other reads.
GATHERED: Final = 4

_COORDINATES: Final = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDINGS: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_POLICIES: Final = ("stretch", "not_larger", "not_smaller")


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized: `roi` is the part of it that is cropped, as fractions.

    Without a `scale` that is `out / size`, which a run alone knows.
    """

    axis: int
    size: int
    out: int
    scale: float | None
    roi: tuple[float, float]

    @property
    def is_open(self) -> bool:
        """Whether only a run knows its sizes."""
        return is_open(self.size) or is_open(self.out)


@dataclass(frozen=True, slots=True)
class _Method:
    """The attributes that say how to interpolate."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool


@operator("Resize", kind=Kind.GATHER, static=(1, 2, 3))
def resize(
    ctx: Context,
    x: Operand,
    roi: Operand | None = None,
    scales: Operand | None = None,
    sizes: Operand | None = None,
) -> Operand:
    """The input interpolated to another size: nearest, linear or cubic."""
    if ctx.version < 11:
        # Resize-10 has the scales as its second input, and looks up as Upsample does where it enlarges. What
        # it means where it shrinks nobody wrote down; onnxruntime and OpenVINO round up.
        method = _Method(_mode(ctx), "asymmetric", "simple", -0.75, False, False)
        return _resized(ctx, x, _by_scales(ctx, x, ctx.static(1)), method, 0.0)
    method = _Method(
        _mode(ctx),
        ctx.choice("coordinate_transformation_mode", _COORDINATES, "half_pixel"),
        ctx.choice("nearest_mode", _ROUNDINGS, "round_prefer_floor"),
        ctx.real("cubic_coeff_a", -0.75),
        ctx.flag("exclude_outside", False),
        ctx.flag("antialias", False),
    )
    return _resized(ctx, x, _axes(ctx, x, method), method, ctx.real("extrapolation_value", 0.0))


@operator("Upsample", kind=Kind.GATHER, static=(1,))
def upsample(ctx: Context, x: Operand, scales: Operand | None = None) -> Operand:
    """The input enlarged by factors, looking up place / factor."""
    factors = np.array(ctx.reals("scales")) if ctx.has("scales") else ctx.static(1)
    method = _Method(_mode(ctx), "asymmetric", "floor", -0.75, False, False)
    return _resized(ctx, x, _by_scales(ctx, x, factors), method, 0.0)


def _mode(ctx: Context) -> str:
    """How to interpolate: Upsample's `bilinear` is what is `linear` today."""
    mode = ctx.choice("mode", ("nearest", "linear", "cubic", "bilinear"), "nearest")
    return "linear" if mode == "bilinear" else mode


def _by_scales(ctx: Context, x: Operand, factors: npt.NDArray[np.generic]) -> list[_Axis]:
    ctx.require(factors.size == len(x.shape), "scales must have an entry for each axis")
    found = []
    for axis, (size, factor) in enumerate(zip(x.shape, factors.reshape(-1).astype(float), strict=True)):
        ctx.require(factor > 0, "a scale is not positive")
        found.append(_Axis(axis, size, _scaled(size, factor), factor, (0.0, 1.0)))
    return found


def _axes(ctx: Context, x: Operand, method: _Method) -> list[_Axis]:
    """The axes to resize, from scales or from sizes, under the policy for keeping the aspect ratio."""
    rank = len(x.shape)
    named = [ctx.normal_axis(axis, rank) for axis in ctx.integers("axes", range(rank))]
    sizes = ctx.static_ints(3) if ctx.has_input(3) and ctx.type(3).elements else None
    if sizes is not None:
        ctx.require(len(sizes) == len(named), "sizes must have an entry for each axis")
        pairs = [(out, x.shape[axis]) for axis, out in zip(named, sizes, strict=True)]
        ctx.require(all(size != 0 or out == 0 for out, size in pairs), "an axis without elements cannot grow")
        factors = [_factor(out, size) for out, size in pairs]
        policy = ctx.choice("keep_aspect_ratio_policy", _POLICIES, "stretch")
        if policy != "stretch":
            if None in factors:
                raise ctx.unsupported(f"the policy {policy} for sizes that only a run knows")
            known = [factor for factor in factors if factor is not None]
            kept = min(known) if policy == "not_larger" else max(known)
            # Halves round up, unlike Python's rounding.
            sizes = tuple(_scaled(x.shape[axis], kept, 0.5) for axis in named)
            factors = [kept] * len(named)
    else:
        given = ctx.static(2) if ctx.has_input(2) else None
        ctx.require(given is not None and given.size == len(named), "Resize needs scales or sizes")
        scales = [] if given is None else [float(factor) for factor in given.reshape(-1)]
        ctx.require(min(scales, default=1.0) > 0, "a scale is not positive")
        sizes = tuple(_scaled(x.shape[axis], factor) for axis, factor in zip(named, scales, strict=True))
        factors = [*scales]
    crop = method.coordinates == "tf_crop_and_resize"
    roi = [float(value) for value in ctx.static(1).reshape(-1)] if crop else [0.0, 1.0] * 0
    if crop:
        ctx.require(len(roi) == 2 * len(named), "roi must have two entries for each axis")
    parts = [(roi[at], roi[at + len(named)]) if crop else (0.0, 1.0) for at in range(len(named))]
    return [
        _Axis(axis, x.shape[axis], out, factor, part)
        for axis, out, factor, part in zip(named, sizes, factors, parts, strict=True)
    ]


def _scaled(size: int, factor: float, more: float = 0.0) -> int:
    """floor(size * factor + more)."""
    if not is_open(size):
        return math.floor(size * factor + more)
    exact, half = Fraction(factor), Fraction(more)
    below = exact.denominator * half.denominator
    return (size * (exact.numerator * half.denominator) + half.numerator * exact.denominator) // below


def _factor(out: int, size: int) -> float | None:
    """`out / size` where that is known."""
    if not (is_open(out) or is_open(size)):
        return out / size if size else 1.0
    for a, b, invert in ((out, size, False), (size, out, True)):
        ratio = exact_quotient(index_of(a), index_of(b))
        if ratio is not None and ratio.is_const:
            return 1.0 / ratio.const if invert else float(ratio.const)
    return None


def _coordinates(axis: _Axis, method: _Method) -> Floats:
    """Where in the input each output element lies."""
    # Which element is the nearest one is decided in single precision, as everywhere else: with a scale of
    # 0.6, say, places that are whole numbers there lie just below them in double precision.
    at: Floats = np.arange(axis.out, dtype=np.float32 if method.mode == "nearest" else np.float64)
    scale, width = axis.scale, axis.out
    assert scale is not None  # it is where sizes are known
    match method.coordinates:
        case "align_corners":
            # The last element of the output lies on the last one of the input, in torch and the other
            # runtimes. The standard's own cases lay that off by what the size was rounded by, where images
            # shrink (decision 0080).
            end = scale * axis.size if scale < 1 and method.mode != "nearest" else width
            return at * 0 if end == 1 else at * (axis.size - 1) / (end - 1)
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case "tf_crop_and_resize":
            begin, stop = axis.roi
            if width == 1:
                return at * 0 + (stop - begin) * (axis.size - 1) / 2 + begin * (axis.size - 1)
            return at * (stop - begin) * (axis.size - 1) / (width - 1) + begin * (axis.size - 1)
        case "pytorch_half_pixel":
            return at * 0 if width == 1 else (at + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            offset = axis.size / 2 * (1 - width / (scale * axis.size))
            return offset + (at + 0.5) / scale - 0.5
        case _:
            return (at + 0.5) / scale - 0.5


def _nearest(places: Floats, rounding: str) -> Ints:
    match rounding:
        case "round_prefer_floor":
            rounded = np.ceil(places - 0.5)
        case "round_prefer_ceil":
            rounded = np.floor(places + 0.5)
        case "floor":
            rounded = np.floor(places)
        case _:
            rounded = np.ceil(places)
    return np.asarray(rounded, np.int64)


def _kernel(distance: Floats, method: _Method) -> Floats:
    """The weight of an element at a distance: a triangle, or the cubic of Keys with parameter `a`."""
    far = np.abs(distance)
    if method.mode == "linear":
        return np.asarray(np.clip(1 - far, 0, 1), np.float64)
    a = method.cubic
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    middle = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    return np.where(far <= 1, near, np.where(far < 2, middle, 0.0))


def _reach(axis: _Axis, method: _Method) -> tuple[float, int]:
    """How much the kernel is widened, and the first element that counts, from the one before a place."""
    # Shrinking with antialias widens the kernel, so that every input element counts.
    stretch = min(axis.scale or 1.0, 1.0) if method.antialias else 1.0
    return stretch, math.floor(-(1 if method.mode == "linear" else 2) / stretch) + 1


def _taps(axis: _Axis, method: _Method) -> tuple[Ints, Floats]:
    """For each output element, the input elements it combines and their weights."""
    places = _coordinates(axis, method)
    stretch, reach = _reach(axis, method)
    taps = np.arange(reach, 2 - reach)
    # A place on an element counts as the end of the interval before it.
    base = np.ceil(places).astype(np.int64) - 1
    index = base[:, None] + taps[None, :]
    weights = _kernel((index - places[:, None]) * stretch, method)
    outside = (index < 0) | (index >= axis.size)
    if method.exclude_outside:
        weights = np.where(outside, 0.0, weights)
    if method.exclude_outside or method.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, axis.size - 1), weights


def _resized(ctx: Context, x: Operand, axes: Sequence[_Axis], method: _Method, filling: float) -> Operand:
    crop = method.coordinates == "tf_crop_and_resize"
    sizes = {axis.axis: axis.out for axis in axes}
    ctx.limit_elements([sizes.get(axis, size) for axis, size in enumerate(x.shape)], x.dtype)
    active = [axis for axis in axes if axis.out != axis.size or axis.scale != 1.0 or crop]
    result = x
    if method.mode == "nearest":
        result = _looked_up(ctx, x, active, method)
    else:
        result = convert_tensor(ctx, x, wide(x.dtype) if is_float(x.dtype) else "f32")
        tables = [_table(ctx, axis, method, result.dtype) for axis in active]
        for table in _in_order(x, tables):
            result = _interpolated(ctx, result, table)
        if result.dtype != x.dtype:
            inner = result
            result = compute(inner.shape, lambda *i: lang.cast(inner[i], x.dtype), name=f"{stem(ctx)}_out")
    return _filled(ctx, result, active, method, filling) if crop else result


def _looked_up(ctx: Context, x: Operand, axes: Sequence[_Axis], method: _Method) -> Operand:
    shape = list(x.shape)
    tables: dict[int, Readable | tuple[int, int, int]] = {}
    for axis in axes:
        shape[axis.axis] = axis.out
        rounding = method.nearest
        if rounding == "simple":
            rounding = "ceil" if axis.scale is not None and axis.scale < 1 else "floor"
        if axis.is_open:
            tables[axis.axis] = _open_arithmetic(axis, method, rounding) or _open_places(
                axis, method, rounding
            )
            continue
        index = np.clip(_nearest(_coordinates(axis, method), rounding), 0, axis.size - 1)
        tables[axis.axis] = _arithmetic(index) or ctx.table(index, "places")

    def of(*i: Ix) -> Scalar:
        place: list[At] = list(i)
        for axis, table in tables.items():
            if isinstance(table, tuple):
                factor, divisor, offset = table
                place[axis] = (i[axis] * factor + offset) // divisor
            else:
                place[axis] = clamped(table[(i[axis],)], x.shape[axis])
        return x[tuple(place)]

    return compute(shape, of, name=stem(ctx))


def _arithmetic(index: Ints) -> tuple[int, int, int] | None:
    """(factor, divisor, offset) such that place o is (factor o + offset) // divisor; else None."""
    if not index.size:
        return 1, 1, 0
    at = np.arange(index.size)
    step = int(index[1] - index[0]) if index.size > 1 else 1
    if step > 0 and np.array_equal(index, at * step + index[0]):
        return step, 1, int(index[0])
    repeat = int((index == index[0]).sum())
    if repeat > 1 and np.array_equal(index, at // repeat + index[0]):
        return 1, repeat, int(index[0]) * repeat
    return None


def _open_arithmetic(axis: _Axis, method: _Method, rounding: str) -> tuple[int, int, int] | None:
    """`_arithmetic` for all sizes: a whole factor repeats its pattern from element to element."""
    scale = axis.scale
    whole = scale is not None and (scale.is_integer() or (1.0 / scale).is_integer())
    if scale is None or not whole or method.coordinates in ("align_corners", "tf_crop_and_resize"):
        return None
    found = set()
    for size in (24, 35):
        size *= round(max(1.0, 1.0 / scale))
        known = replace(axis, size=size, out=math.floor(size * scale))
        found.add(_arithmetic(np.clip(_nearest(_coordinates(known, method), rounding), 0, size - 1)))
    return found.pop() if len(found) == 1 else None


def _open_place(axis: _Axis, method: _Method, o: Ix, dtype: str) -> Scalar:
    """Where in the input an output element lies, in a run: `_coordinates`."""
    at, size, width = lang.to_scalar(o, dtype), number(axis.size, dtype), number(axis.out, dtype)
    half, one, zero = (number(v, dtype) for v in (0.5, 1, 0))
    if axis.scale is None:
        scale = lang.cast(number(axis.out, "f64") / number(axis.size, "f64"), dtype)
    else:
        scale = number(axis.scale, dtype)
    match method.coordinates:
        case "align_corners":
            shrinks = axis.scale is not None and axis.scale < 1 and method.mode != "nearest"
            end = scale * size if shrinks else width
            last = lang.select(end == one, one, end - one)
            return lang.select(end == one, zero, at * (size - one) / last)
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + half) / scale
        case "tf_crop_and_resize":
            begin, stop = (number(part, dtype) for part in axis.roi)
            middle = (stop - begin) * (size - one) * half + begin * (size - one)
            last = lang.select(width == one, one, width - one)
            spread = at * (stop - begin) * (size - one) / last + begin * (size - one)
            return lang.select(width == one, middle, spread)
        case "pytorch_half_pixel":
            return lang.select(width == one, zero, (at + half) / scale - half)
        case "half_pixel_symmetric":
            offset = size * half * (one - width / (scale * size))
            return offset + (at + half) / scale - half
        case _:
            return (at + half) / scale - half


def _open_places(axis: _Axis, method: _Method, rounding: str) -> Operand:
    """The nearest element of the input to each of the output, in a run."""

    def place(o: Ix) -> Scalar:
        exact, half = _open_place(axis, method, o, "f32"), number(0.5, "f32")
        match rounding:
            case "round_prefer_floor":
                rounded = lang.ceil(exact - half)
            case "round_prefer_ceil":
                rounded = lang.floor(exact + half)
            case "floor":
                rounded = lang.floor(exact)
            case _:
                rounded = lang.ceil(exact)
        return lang.cast(rounded, "i64")

    return compute((axis.out,), place, name="places", dtype="i64")


def _open_table(ctx: Context, axis: _Axis, method: _Method, dtype: str) -> _Table:
    """`_table` in a run."""
    if method.antialias and axis.scale is None:
        raise ctx.unsupported("antialias by a factor that only a run knows")
    stretch, reach = _reach(axis, method)
    taps, one = 2 - 2 * reach, number(1, "f64")

    def first(o: Ix) -> tuple[Scalar, Scalar]:
        place = _open_place(axis, method, o, "f64")
        return place, lang.ceil(place) - one + number(reach, "f64")

    def index(t: Ix, o: Ix) -> Scalar:
        return lang.cast(first(o)[1] + lang.to_scalar(t, "f64"), "i64")

    def weight(place: Scalar, at: Scalar) -> Scalar:
        far = lang.absolute((at - place) * number(stretch, "f64"))
        if method.mode == "linear":
            made = lang.maximum(one - far, number(0, "f64"))
        else:
            a = method.cubic
            c = [number(v, "f64") for v in (a + 2, a + 3, a, 5 * a, 8 * a, 4 * a)]
            near = (c[0] * far - c[1]) * far * far + one
            middle = ((c[2] * far - c[3]) * far + c[4]) * far - c[5]
            beyond = lang.select(far < number(2, "f64"), middle, number(0, "f64"))
            made = lang.select(far <= one, near, beyond)
        if not method.exclude_outside:
            return made
        inside = lang.logical_and(at >= number(0, "f64"), at < number(axis.size, "f64"))
        return lang.select(inside, made, number(0, "f64"))

    def share(t: Ix, o: Ix) -> Scalar:
        place, start = first(o)
        made = weight(place, start + lang.to_scalar(t, "f64"))
        if method.exclude_outside or method.antialias:
            made = made / reduce(add, (weight(place, start + number(n, "f64")) for n in range(taps)))
        return lang.cast(made, dtype)

    places = compute((taps, axis.out), index, name="places", dtype="i64")
    return _Table(axis, taps, places, compute((taps, axis.out), share, name="weights", dtype=dtype))


@dataclass(frozen=True, slots=True)
class _Table:
    """For each of ``taps`` terms and each place along an axis of the result: place in the operand, weight."""

    axis: _Axis
    taps: int
    places: Operand
    weights: Operand


def _table(ctx: Context, axis: _Axis, method: _Method, dtype: str) -> _Table:
    if axis.is_open:
        return _open_table(ctx, axis, method, dtype)
    index, weights = _taps(axis, method)
    places = ctx.table(np.ascontiguousarray(index.T), "places")
    values = np.ascontiguousarray(weights.T.astype(dtype_of(dtype).numpy))
    return _Table(axis, index.shape[1], places, ctx.table(values, "weights"))


def _in_order(x: Operand, tables: Sequence[_Table]) -> Sequence[_Table]:
    """The tables in the order in which resizing one axis after another reads least."""

    def read(order: Sequence[_Table]) -> float:
        sizes, total = list(x.shape), 0.0
        for table in order:
            axis = table.axis
            sizes[axis.axis] = axis.out
            total += typical(prod(sizes)) * table.taps * (GATHERED if axis.axis == len(sizes) - 1 else 1)
        return total

    return min(permutations(tables), key=read)


def _interpolated(ctx: Context, x: Operand, table: _Table) -> Operand:
    """Weighted sums along an axis: an expression where they have few terms, else a reduction."""
    axis = table.axis
    shape = [axis.out if n == axis.axis else size for n, size in enumerate(x.shape)]

    def term(i: Sequence[Ix], tap: At) -> Scalar:
        here = (tap, i[axis.axis])
        source = clamped(table.places[here], axis.size)
        return x[(*i[: axis.axis], source, *i[axis.axis + 1 :])] * table.weights[here]

    def of(*i: Ix) -> Scalar:
        if table.taps <= MOST_TERMS:
            return reduce(add, (term(i, tap) for tap in range(table.taps)))
        tap = lang.reduce_axis(table.taps, "tap")
        return lang.sum(term(i, tap), axis=tap)

    return compute(shape, of, name=f"{stem(ctx)}_axis{axis.axis}")


def _filled(ctx: Context, x: Operand, axes: Sequence[_Axis], method: _Method, filling: float) -> Operand:
    """The value for places outside of the input, where a crop reaches beyond it."""
    tables: list[tuple[int, Operand]] = []
    for axis in axes:
        if axis.is_open:
            place = partial(_open_place, axis, method, dtype="f64")
            last = number(axis.size - 1, "f64")

            def beyond_ends(o: Ix, place: Callable[[Ix], Scalar] = place, last: Scalar = last) -> Scalar:
                return lang.logical_or(place(o) < number(0, "f64"), place(o) > last)

            tables.append((axis.axis, compute((axis.out,), beyond_ends, name="outside", dtype="bool")))
            continue
        places = _coordinates(axis, method)
        outside = (places < 0) | (places > axis.size - 1)
        if outside.any():
            tables.append((axis.axis, ctx.table(outside, "outside")))
    if not tables:
        return x

    def of(*i: Ix) -> Scalar:
        beyond = lang.logical_or(*(table[(i[axis],)] for axis, table in tables))
        return lang.select(beyond, number(filling, x.dtype), x[i])

    return compute(x.shape, of, name=f"{stem(ctx)}_filled")
