"""Sampling images at places given as data: GridSample, RoiAlign."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, clamped, compute
from tilewright.graph.ops.common import Scalar, cast, number, stem
from tilewright.graph.registry import Context, Kind, operator

#: The parameter of the cubic kernel that the standard states for GridSample.
_CUBIC = -0.75


@operator("GridSample", kind=Kind.OPAQUE)
def grid_sample(ctx: Context, x: Operand, grid: Operand) -> Operand:
    """The input at the places of a grid in [-1, 1], nearest, linear or cubic."""
    rank = len(x.shape) - 2
    sizes = x.shape[2:]
    ctx.require(rank >= 1 and grid.shape[-1] == rank, f"a grid {list(grid.shape)} for {rank} axes")
    mode = ctx.choice("mode", ("linear", "nearest", "cubic", "bilinear", "bicubic"), "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    padding = ctx.choice("padding_mode", ("zeros", "border", "reflection"), "zeros")
    aligned = ctx.flag("align_corners", False)
    dtype = grid.dtype
    out = grid.shape[1:-1]

    def coordinate(axis: int) -> Operand:
        """Where along an axis each output lies; the grid names the axes from the last to the first."""
        size = sizes[axis]

        def of(n: Ix, *o: Ix) -> Scalar:
            at = grid[(n, *o, rank - 1 - axis)]
            if aligned:
                place = (at + 1.0) * number((size - 1) / 2, dtype)
            else:
                place = ((at + 1.0) * number(float(size), dtype) - 1.0) * 0.5
            if mode == "nearest":
                place = lang.round(place)
            return place if mode == "cubic" else _returned(place, size, padding, aligned, dtype)

        return compute((x.shape[0], *out), of, name=f"{stem(ctx)}_place")

    places = [coordinate(axis) for axis in range(rank)]
    taps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]

    def of(n: Ix, c: Ix, *o: Ix) -> Scalar:
        base = [lang.floor(place[(n, *o)]) for place in places]
        total: Scalar | None = None
        for tap in itertools.product(taps, repeat=rank):
            positions = [low + number(float(t), dtype) for low, t in zip(base, tap, strict=True)]
            element = _element(x, n, c, positions, padding, aligned, dtype)
            for low, place, t in zip(base, places, tap, strict=True):
                if mode != "nearest":
                    element = element * cast(_weight(place[(n, *o)] - low, t, mode, dtype), dtype, x.dtype)
            total = element if total is None else total + element
        assert total is not None
        return total

    return compute((x.shape[0], x.shape[1], *out), of, name=stem(ctx))


def _returned(place: Scalar, size: int, padding: str, aligned: bool, dtype: str) -> Scalar:
    """A place outside of the axis brought back to its border, or mirrored there."""
    if padding == "border":
        return lang.maximum(lang.minimum(place, number(float(size - 1), dtype)), number(0, dtype))
    if padding != "reflection":
        return place
    low, high = (0.0, float(size - 1)) if aligned else (-0.5, size - 0.5)
    width = high - low
    if width == 0:
        return number(0, dtype)
    away = lang.absolute(place - number(low, dtype))
    times = lang.floor(away / number(width, dtype))
    rest = away - times * number(width, dtype)
    odd = times - lang.floor(times * 0.5) * 2.0
    mirrored = lang.select(odd == 0.0, rest + number(low, dtype), number(high, dtype) - rest)
    return lang.maximum(lang.minimum(mirrored, number(float(size - 1), dtype)), number(0, dtype))


def _element(
    x: Operand, n: At, c: At, positions: Sequence[Scalar], padding: str, aligned: bool, dtype: str
) -> Scalar:
    sizes = x.shape[2:]
    place: list[At] = []
    inside: list[Scalar] = []
    for position, size in zip(positions, sizes, strict=True):
        if padding == "zeros":
            inside += [position >= 0.0, position <= float(size - 1)]
            kept = lang.maximum(lang.minimum(position, number(float(size), dtype)), number(-1.0, dtype))
        else:
            kept = _returned(position, size, padding, aligned, dtype)
        # Half-way results of mirroring are rounded to the element they mean.
        place.append(clamped(lang.cast(lang.round(kept), "i64"), size))
    element = x[(n, c, *place)]
    return lang.select(lang.logical_and(*inside), element, number(0, x.dtype)) if inside else element


def _weight(fraction: Scalar, tap: int, mode: str, dtype: str) -> Scalar:
    """The weight of the element `tap` after the one before a place that is `fraction` beyond that."""
    if mode == "linear":
        return fraction if tap else 1.0 - fraction
    a = number(_CUBIC, dtype)
    far = lang.absolute(fraction - number(float(tap), dtype))
    if tap in (0, 1):
        return ((a + 2.0) * far - (a + 3.0)) * far * far + 1.0
    return ((a * far - a * 5.0) * far + a * 8.0) * far - a * 4.0


@operator("RoiAlign", kind=Kind.OPAQUE)
def roi_align(ctx: Context, x: Operand, rois: Operand, images: Operand) -> Operand:
    """Regions of images resampled to a fixed size: the mean or maximum of samples in each cell."""
    height, width = ctx.integer("output_height", 1), ctx.integer("output_width", 1)
    ratio = ctx.integer("sampling_ratio", 0)
    scale = ctx.real("spatial_scale", 1.0)
    coordinates = ("half_pixel", "output_half_pixel")
    half = ctx.version >= 16
    half = half and ctx.choice("coordinate_transformation_mode", coordinates, "half_pixel") == "half_pixel"
    dtype = x.dtype
    sizes = (height, width)

    def cell_of(r: Ix, axis: int) -> tuple[Scalar, Scalar]:
        """Where a region begins, and the extent of a cell."""
        shift = number(-0.5 if half else 0.0, dtype)
        low = rois[(r, 1 - axis)] * number(scale, dtype) + shift
        high = rois[(r, 3 - axis)] * number(scale, dtype) + shift
        extent = high - low if half else lang.maximum(high - low, number(1.0, dtype))
        return low, extent / number(float(sizes[axis]), dtype)

    def count(axis: int) -> Operand:
        """As many samples as a cell has pixels; regions beyond twice the image have no more."""
        most = 2 * -(-x.shape[2 + axis] // sizes[axis])

        def of(r: Ix) -> Scalar:
            pixels = lang.ceil(cell_of(r, axis)[1])
            return lang.cast(
                lang.maximum(lang.minimum(pixels, number(float(most), dtype)), number(1, dtype)), "i64"
            )

        return compute((rois.shape[0],), of, name=f"{stem(ctx)}_count", dtype="i64")

    counts = [] if ratio > 0 else [count(axis) for axis in range(2)]
    samples = [
        lang.reduce_axis(ratio if ratio > 0 else 2 * -(-x.shape[2 + axis] // sizes[axis]), name)
        for axis, name in enumerate(("iy", "ix"))
    ]

    def sample(r: Ix, o: Sequence[Ix], axis: int) -> Scalar:
        low, cell = cell_of(r, axis)
        at = lang.to_scalar(samples[axis], dtype) + 0.5
        inside = at / lang.cast(counts[axis][(r,)], dtype) if counts else at * number(1.0 / ratio, dtype)
        return low + (lang.to_scalar(o[axis], dtype) + inside) * cell

    ctx.limit_indices(2, 0, x.shape[0])
    combine: Callable[..., Scalar] = (
        lang.sum if ctx.choice("mode", ("avg", "max"), "avg") == "avg" else lang.max
    )

    def of(r: Ix, c: Ix, *o: Ix) -> Scalar:
        image = clamped(lang.cast(images[(r,)], "i64"), x.shape[0])
        places = [sample(r, o, axis) for axis in range(2)]
        outside = [
            test
            for place, size in zip(places, x.shape[2:], strict=True)
            for test in (place < -1.0, place > float(size))
        ]
        parts = [
            lang.maximum(lang.minimum(place, number(float(size - 1), dtype)), number(0, dtype))
            for place, size in zip(places, x.shape[2:], strict=True)
        ]
        corners: list[Scalar] = []
        for tap in itertools.product((0, 1), repeat=2):
            at = [
                clamped(lang.cast(lang.floor(part), "i64") + number(t, "i64"), size)
                for part, t, size in zip(parts, tap, x.shape[2:], strict=True)
            ]
            element = x[(image, c, *at)]
            for part, t in zip(parts, tap, strict=True):
                element = element * _weight(part - lang.floor(part), t, "linear", dtype)
            corners.append(element)
        if combine is lang.max:
            # The maximum is of the weighted corners, each by itself.
            value = corners[0]
            for corner in corners[1:]:
                value = lang.maximum(value, corner)
        else:
            value = corners[0] + corners[1] + corners[2] + corners[3]
        taken = lang.select(lang.logical_or(*outside), number(0, dtype), value)
        if not counts:
            return combine(taken, axis=samples)
        there = [lang.to_scalar(axis, "i64") < each[(r,)] for axis, each in zip(samples, counts, strict=True)]
        return combine(taken, axis=samples, where=lang.logical_and(*there))

    shape = (rois.shape[0], x.shape[1], height, width)
    total = compute(shape, of, name=stem(ctx))
    if combine is lang.max:
        return total

    def mean(r: Ix, *i: Ix) -> Scalar:
        if not counts:
            return total[(r, *i)] * number(1.0 / (ratio * ratio), dtype)
        return total[(r, *i)] / lang.cast(counts[0][(r,)] * counts[1][(r,)], dtype)

    return compute(shape, mean, name=f"{stem(ctx)}_mean")
