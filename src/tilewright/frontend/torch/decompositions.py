"""How operators of ATen are taken apart into others where torch does not say, as functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch

T: TypeAlias = torch.Tensor
aten: Final = torch.ops.aten


def _lengths(x: T, p: float) -> T:
    """Norms along the last axis; zeros where there are no elements, for which torch's own refuses some."""
    return torch.linalg.vector_norm(x, p, -1) if x.numel() else x.new_zeros(x.shape[:-1])


def _cdist(x1: T, x2: T, p: float, compute_mode: int | None) -> T:
    """Distances of all rows of one from all of the other."""
    return _lengths(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _pdist(self: T, p: float = 2.0) -> T:
    """Distances of all pairs of rows."""
    first, second = torch.triu_indices(self.shape[0], self.shape[0], 1)
    return _lengths(self[first] - self[second], p)


def _addbmm(self: T, batch1: T, batch2: T, *, beta: Any = 1, alpha: Any = 1) -> T:
    """``beta * self + alpha * (batch1 @ batch2).sum(0)``; where beta is 0, whatever ``self`` holds."""
    product = (batch1 @ batch2).sum(0) * alpha
    made = product if beta == 0 else product + self * beta
    return made.to(self.dtype)


def _trilinear(
    i1: T, i2: T, i3: T, expand1: list[int], expand2: list[int], expand3: list[int], sumdim: list[int],
    unroll_dim: int = 1,
) -> T:  # fmt: skip
    """Products of three tensors, each first given axes of one, summed."""

    def grown(x: T, axes: Sequence[int]) -> T:
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        return x

    return (grown(i1, expand1) * grown(i2, expand2) * grown(i3, expand3)).sum(sumdim)


def _picked(values: T, places: T, dim: int, keepdim: bool) -> T:
    """The elements at places of which there is one along an axis."""
    made = values.gather(dim, places)
    return made if keepdim else made.squeeze(dim)


def _by_rank(self: T, dim: int, keepdim: bool, rank: Callable[[T], T]) -> Any:
    """The element whose place in order a function of the tensor says, and where it is.

    Which of equals is meant torch leaves open, so that places of integers are left to it.
    """
    if not self.is_floating_point():
        return NotImplemented
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values, where = self.sort(dim)
    place = rank(self)
    return _picked(values, place, dim, keepdim), _picked(where, place, dim, keepdim)


def _kth(self: T, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest along an axis."""
    return _by_rank(
        self, dim, keepdim, lambda x: torch.full_like(x.narrow(dim, 0, 1), k - 1, dtype=torch.int64)
    )


def _median(self: T, dim: int, keepdim: bool = False) -> Any:
    """The lower one of the middle along an axis; what is no number, where there is some."""

    def rank(x: T) -> T:
        numbers = (~torch.isnan(x)).sum(dim, keepdim=True)
        # the first of what is no number comes behind all that are
        return torch.where(numbers < x.shape[dim], numbers, (x.shape[dim] - 1) // 2)

    return _by_rank(self, dim, keepdim, rank)


def _nanmedian(self: T, dim: int, keepdim: bool = False) -> Any:
    """The same of what are numbers."""

    def rank(x: T) -> T:
        return ((~torch.isnan(x)).sum(dim, keepdim=True) - 1).clamp(min=0) // 2

    return _by_rank(self, dim, keepdim, rank)


def _of_all(by_axis: Callable[..., Any]) -> Callable[[T], Any]:
    """The same of all elements."""

    def made(self: T) -> Any:
        if self.numel() == 0:
            return NotImplemented
        found = by_axis(self.reshape(-1), 0)
        return found if found is NotImplemented else found[0]

    return made


def _mode(self: T, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent along an axis, the smallest of these, and the last place of it."""
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    if self.shape[dim] == 0:
        return NotImplemented
    x = self.movedim(dim, -1)
    counts = (x.unsqueeze(-1) == x.unsqueeze(-2)).sum(-1)
    most = counts == counts.amax(-1, keepdim=True)
    order = x.sort(-1)
    first = most.gather(-1, order.indices).to(torch.uint8).argmax(-1, keepdim=True)
    value = order.values.gather(-1, first)
    numbers = torch.arange(x.shape[-1]).expand(x.shape)
    place = torch.where(x == value, numbers, -1).amax(-1, keepdim=True)
    results = [made.movedim(-1, dim) for made in (value, place)]
    return tuple(made if keepdim else made.squeeze(dim) for made in results)


def _scanned(
    parts: Sequence[T], dim: int, join: Callable[[Sequence[T], Sequence[T]], Sequence[T]]
) -> Sequence[T]:
    """Each element joined with all before it, in steps of 1, 2, 4 … (Hillis and Steele, 1986)."""
    size, step = parts[0].shape[dim], 1
    while step < size:
        before = [x.narrow(dim, 0, size - step) for x in parts]
        after = [x.narrow(dim, step, size - step) for x in parts]
        made = join(before, after)
        parts = [torch.cat([x.narrow(dim, 0, step), y], dim) for x, y in zip(parts, made, strict=True)]
        step *= 2
    return parts


def _running_extreme(better: Callable[[T, T], T]) -> Callable[[T, int], Any]:
    """The best up to each element and its last place; what is no number stays."""

    def join(before: Sequence[T], after: Sequence[T]) -> Sequence[T]:
        taken = better(after[0], before[0])
        if after[0].is_floating_point():
            taken = torch.isnan(after[0]) | (taken & ~torch.isnan(before[0]))
        return [torch.where(taken, y, x) for x, y in zip(before, after, strict=True)]

    def made(self: T, dim: int) -> Any:
        if self.dim() == 0 or self.numel() == 0:
            return self.clone(), torch.zeros_like(self, dtype=torch.int64)
        shape = [self.shape[dim] if at == dim % self.dim() else 1 for at in range(self.dim())]
        places = torch.arange(self.shape[dim]).reshape(shape).expand(self.shape)
        return tuple(_scanned([self, places], dim, join))

    return made


def _logcumsumexp(self: T, dim: int) -> T:
    """The logarithm of the sum of exponentials up to each element."""
    if self.dim() == 0:
        return self.clone()
    wide = self.float() if self.dtype in (torch.float16, torch.bfloat16) else self
    (made,) = _scanned([wide], dim, lambda x, y: [torch.logaddexp(x[0], y[0])])
    return made.to(self.dtype)


#: What leaves a number as it is, by the name of the combination.
_NEUTRAL: Final = MappingProxyType({"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf})


def _scatter_reduce(self: T, dim: int, index: T, src: T, reduce: str, *, include_self: bool = True) -> Any:
    """A tensor with elements at places along an axis combined."""
    if self.dtype == torch.bool or (include_self and reduce != "mean"):
        return NotImplemented
    if reduce == "mean" and not self.is_floating_point():
        return NotImplemented
    if self.dim() == 0:
        made = _scatter_reduce(
            self.reshape(1), 0, index.reshape(-1), src.reshape(-1), reduce, include_self=include_self
        )
        return made if made is NotImplemented else made.reshape(())
    start = self
    if not include_self:
        neutral = _NEUTRAL[reduce]
        if not self.is_floating_point() and reduce in ("amax", "amin"):
            kinds = torch.iinfo(self.dtype)
            neutral = kinds.min if reduce == "amax" else kinds.max
        start = self.scatter(dim, index, neutral)
    if reduce != "mean":
        return start.scatter_reduce(dim, index, src, reduce, include_self=True)
    wide = torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype
    ones = torch.ones_like(self, dtype=wide)
    counts = (ones if include_self else ones.scatter(dim, index, 0.0)).scatter_add(
        dim, index, torch.ones_like(index, dtype=wide)
    )
    total = start.to(wide).scatter_add(dim, index, src.to(wide))
    return (total / counts.clamp(min=1)).to(self.dtype)


def _scatter_by(self: T, dim: int, index: T, src: Any, *, reduce: str) -> T:
    """The old name of two of these, with a tensor or one number."""
    if not isinstance(src, torch.Tensor):
        src = torch.full_like(index, src, dtype=self.dtype)
    return self.scatter_reduce(dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def _index_reduce(self: T, dim: int, index: T, source: T, reduce: str, *, include_self: bool = True) -> Any:
    """A tensor with slices combined, by their numbers along an axis."""
    if self.dim() == 0:
        flat = (x.reshape(1) for x in (self, index, source))
        self, index, source = flat
        return _index_reduce(self, 0, index, source, reduce, include_self=include_self).reshape(())
    shape = [-1 if at == dim % self.dim() else 1 for at in range(self.dim())]
    places = index.long().reshape(shape).expand(source.shape)
    return self.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def _put(self: T, index: T, source: T, accumulate: bool = False) -> T:
    """A tensor with elements at places of the flat one set, or added to."""
    flat = self.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(self.shape)


def _as_strided_scatter(
    self: T, src: T, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """A tensor with elements at places of its memory set."""
    if not self.is_contiguous() or self.storage_offset():
        return NotImplemented
    places = torch.arange(self.numel()).as_strided([1, *size], [1, *stride], storage_offset or 0)
    flat = self.reshape(-1).index_put((places.reshape(-1),), src.reshape(-1))
    return flat.reshape(self.shape)


def _masked_scatter(self: T, mask: T, source: T) -> Any:
    """Elements where a mask holds, in their order, in place of these."""
    if source.numel() == 0:
        return NotImplemented
    self, mask = torch.broadcast_tensors(self, mask)
    places = (mask.reshape(-1).cumsum(0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.reshape(-1)[places].reshape(mask.shape), self)


def _nonzero_static(self: T, *, size: int, fill_value: int = -1) -> Any:
    """The places of the first so many elements that are not zero, a row each."""
    if self.numel() == 0 or self.dim() == 0:
        return torch.full((size, self.dim()), fill_value)
    there = self.reshape(-1) != 0
    rank = there.cumsum(0) - 1
    row = torch.where(there & (rank < size), rank, size)
    flat = torch.full((size + 1,), -1).scatter(0, row, torch.arange(self.numel()))[:size]
    columns, step = [], self.numel()
    for length in self.shape:
        step //= length
        columns.append(torch.where(flat < 0, fill_value, (flat.clamp(min=0) // step) % length))
    return torch.stack(columns, 1)


def _searchsorted(
    sorted_sequence: T, self: T, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: T | None = None,
) -> T:  # fmt: skip
    """How many elements of a sorted row are less than each number, or no more than it: by halving."""
    right = right or side == "right"
    size = sorted_sequence.shape[-1]
    if sorter is not None and size:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    count = torch.zeros_like(self, dtype=torch.int64)
    step = 1 << size.bit_length() >> 1
    while step:
        # the one that is asked about, in each row
        at = (count + (step - 1)).clamp(max=size - 1)
        one = sorted_sequence.dim() == 1
        found = sorted_sequence[at] if one else sorted_sequence.gather(-1, at)
        below = ~(found > self if right else found >= self)
        count = torch.where(below & (count + step <= size), count + step, count)
        step //= 2
    return count.to(torch.int32) if out_int32 else count


def _counted(places: T, inside: T, bins: int, weight: T | None, dtype: torch.dtype) -> T:
    """How many elements lie in each bin, or the sum of their weights."""
    amount = torch.ones_like(places, dtype=dtype) if weight is None else weight.reshape(-1)
    made = torch.zeros(bins + 1, dtype=dtype)
    return made.scatter_add(0, torch.where(inside, places, bins), amount)[:bins]


def _histc(self: T, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """The counts of elements in bins of equal width; between the extrema, where no bounds are given."""
    if not self.is_floating_point():
        return NotImplemented
    if self.numel() == 0:
        return torch.zeros(bins, dtype=self.dtype)
    x = self.reshape(-1)
    low, high = torch.full((), min, dtype=x.dtype), torch.full((), max, dtype=x.dtype)
    if min == max:
        low, high = x.min(), x.max()
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    inside = (x >= low) & (x <= high)
    share = torch.where(inside, (x - low) * bins / (high - low), 0.0)
    return _counted(share.long().clamp(max=bins - 1), inside, bins, None, x.dtype)


def _in_bins(x: T, edges: T) -> tuple[T, T]:
    """The bin of each element, the last one closed, and whether there is one."""
    place = _searchsorted(edges, x, right=True) - 1
    last = edges.shape[0] - 2
    return place.clamp(0, last), (x >= edges[0]) & (x <= edges[-1])


def _edges(self: T, bins: Sequence[int], range: Sequence[float] | None) -> Any:
    """The edges of bins of equal width along each axis, between bounds, or the extrema."""
    points = self.reshape(-1, self.shape[-1])
    if points.shape[0] == 0:
        return NotImplemented
    made = []
    for axis, count in enumerate(bins):
        x = points[:, axis]
        low, high = (
            (x.min(), x.max())
            if range is None
            else (torch.full((), value, dtype=x.dtype) for value in range[2 * axis : 2 * axis + 2])
        )
        same = low == high
        low, high = torch.where(same, low - 0.5, low), torch.where(same, high + 0.5, high)
        at, step = torch.arange(count + 1), (high - low) / count
        # from both ends, as linspace has it
        made.append(torch.where(at < (count + 1) // 2, low + step * at, high - step * (count - at)))
    return made


def _in_boxes(self: T, bins: Sequence[T], *, weight: T | None = None, density: bool = False) -> T:
    """The counts of points in boxes between edges, or their share of all by the volume."""
    points = self.reshape(-1, self.shape[-1])
    sizes = [edges.shape[0] - 1 for edges in bins]
    place, inside = (
        torch.zeros(points.shape[0], dtype=torch.int64),
        torch.ones(points.shape[0], dtype=torch.bool),
    )
    for axis, edges in enumerate(bins):
        at, there = _in_bins(points[:, axis], edges)
        place, inside = place * sizes[axis] + at, inside & there
    made = _counted(place, inside, math.prod(sizes), weight, self.dtype).reshape(sizes)
    if density:
        made = made / made.sum()
        for axis, edges in enumerate(bins):
            made = made / edges.diff().reshape([-1 if at == axis else 1 for at in range(len(sizes))])
    return made


def _by_edges(several: bool) -> Callable[..., Any]:
    """Counts between bounds that are given, or the extrema; the ``several`` axes of points, or one."""

    def made(
        self: T, bins: Any = 100, *, range: Sequence[float] | None = None, weight: T | None = None,
        density: bool = False,
    ) -> Any:  # fmt: skip
        x = self if several else self.reshape(-1, 1)
        edges = _edges(x, bins if several else [bins], range)
        if edges is NotImplemented:
            return edges
        counts = _in_boxes(x, edges, weight=weight, density=density)
        return counts if several else (counts, edges[0])

    return made


def _histogram(self: T, bins: T, *, weight: T | None = None, density: bool = False) -> Any:
    """The counts of elements between edges."""
    return _in_boxes(self.reshape(-1, 1), [bins], weight=weight, density=density), bins.clone()


def _segment_reduce(
    data: T, reduce: str, *, lengths: T | None = None, indices: T | None = None, offsets: T | None = None,
    axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Any:  # fmt: skip
    """Consecutive parts of an axis combined, each as long as is said, for each place of the axes before."""
    said = offsets if offsets is not None else lengths
    if indices is not None or said is None or not data.is_floating_point() or said.dim() != axis + 1:
        return NotImplemented
    batch, size, rest = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    starts = offsets[..., :-1] if offsets is not None else said.cumsum(-1) - said
    amounts = offsets.diff() if offsets is not None else said
    count = amounts.shape[-1]
    if count == 0 or size == 0:
        return NotImplemented
    numbers = torch.arange(size).expand([*batch, size]).contiguous()
    part = _searchsorted((starts + amounts).contiguous(), numbers, right=True)
    part = torch.where(numbers < starts[..., :1], count, part)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    # one part more for what belongs to none
    start = torch.full(
        [*batch, count + 1, *rest], _NEUTRAL[name] if initial is None else initial, dtype=data.dtype
    )
    places = part.reshape([*part.shape, *[1] * len(rest)]).expand(data.shape)
    made = start.scatter_reduce(axis, places, data, "sum" if name == "mean" else name).narrow(axis, 0, count)
    if name != "mean":
        return made
    amount = amounts.to(data.dtype).reshape([*amounts.shape, *[1] * len(rest)])
    return torch.where(amount > 0, made / amount, math.nan if initial is None else initial)


def _adaptive_max_pool(self: T, output_size: Sequence[int]) -> Any:
    """The largest of as many parts of each axis as are wanted, and where in its plane it is.

    Part i of n goes from i * size // n to (i + 1) * size / n, rounded up; shorter ones repeat their last.
    """
    if 0 in self.shape or 0 in output_size:
        return NotImplemented
    rank = len(output_size)
    x, places = self, torch.zeros([1] * rank, dtype=torch.int64)
    plane = self.shape[-rank:]
    for axis, (size, count) in enumerate(zip(plane, output_size, strict=True)):
        start = torch.arange(count) * size // count
        end = ((torch.arange(count) + 1) * size + count - 1) // count
        widest = max(-(-(i + 1) * size // count) - i * size // count for i in range(count))
        at = torch.minimum(start[:, None] + torch.arange(widest), end[:, None] - 1)
        x = x.index_select(axis - rank, at.reshape(-1))
        step = math.prod(plane[axis + 1 :])
        places = places + (at.reshape(-1) * step).reshape([-1 if a == axis else 1 for a in range(rank)])
    shape = [n for size, all_ in zip(output_size, x.shape[-rank:], strict=True) for n in (size, all_ // size)]
    lead = [*self.shape[:-rank]]
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]

    def windows(x: T, lead: Sequence[int]) -> T:
        split = x.reshape([*lead, *shape])
        kept = len(lead)
        return split.permute([*range(kept), *(kept + at for at in order)]).reshape([*lead, *output_size, -1])

    best, at = windows(x, lead).max(-1)
    known = windows(places, []).expand([*best.shape, -1])
    return best, known.gather(-1, at.unsqueeze(-1)).squeeze(-1)


def _embedding_renorm(self: T, indices: T, max_norm: float, norm_type: float) -> T:
    """A matrix with those rows that are read scaled where they are longer than a bound."""
    lengths = torch.linalg.vector_norm(self, norm_type, 1, keepdim=True)
    read = torch.zeros(self.shape[0], dtype=torch.bool).index_fill(0, indices.reshape(-1), True)
    longer = read.unsqueeze(1) & (lengths > max_norm)
    # the addend is torch's, in embedding_renorm
    return torch.where(longer, self * (max_norm / (lengths + 1e-7)), self)


def _ldexp(self: T, other: T) -> T:
    """A number by a power of two."""
    return self * torch.pow(2.0, other)


def _angle(self: T) -> Any:
    """Zero or pi; of complex numbers a rule says it."""
    if self.is_complex():
        return NotImplemented
    made = torch.where(self < 0, math.pi, 0.0)
    return torch.where(torch.isnan(self), math.nan, made).to(torch.result_type(self, 1.0))


def _signbit(self: T) -> T:
    """Whether the sign is negative, of zeros as well."""
    return torch.copysign(torch.ones_like(self), self) < 0 if self.is_floating_point() else self < 0


#: Functions of the operators' arguments, by their names and overloads; NotImplemented leaves one as it is.
DECOMPOSITIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "_cdist_forward.default": _cdist,
        "_pdist_forward.default": _pdist,
        "dist.default": lambda self, other, p=2: torch.linalg.vector_norm(self - other, p),
        "addbmm.default": _addbmm,
        "_trilinear.default": _trilinear,
        "kthvalue.default": _kth,
        "median.dim": _median,
        "median.default": _of_all(_median),
        "nanmedian.dim": _nanmedian,
        "nanmedian.default": _of_all(_nanmedian),
        "mode.default": _mode,
        "cummax.default": _running_extreme(torch.ge),
        "cummin.default": _running_extreme(torch.le),
        "logcumsumexp.default": _logcumsumexp,
        "scatter_reduce.two": _scatter_reduce,
        "scatter.reduce": _scatter_by,
        "scatter.value_reduce": _scatter_by,
        "index_reduce.default": _index_reduce,
        "put.default": _put,
        "as_strided_scatter.default": _as_strided_scatter,
        "masked_scatter.default": _masked_scatter,
        "nonzero_static.default": _nonzero_static,
        "searchsorted.Tensor": _searchsorted,
        "bucketize.Tensor": lambda self, boundaries, **said: _searchsorted(boundaries, self, **said),
        "histc.default": _histc,
        "histogram.bins_tensor": _histogram,
        "histogram.bin_ct": _by_edges(several=False),
        "_histogramdd_from_bin_cts.default": _by_edges(several=True),
        "_histogramdd_from_bin_tensors.default": _in_boxes,
        "_histogramdd_bin_edges.default": lambda self, bins, *, range=None, **_: _edges(self, bins, range),
        "adaptive_max_pool2d.default": _adaptive_max_pool,
        "adaptive_max_pool3d.default": _adaptive_max_pool,
        "segment_reduce.default": _segment_reduce,
        "embedding_renorm.default": _embedding_renorm,
        "ldexp.Tensor": _ldexp,
        "angle.default": _angle,
        "polygamma.default": lambda n, self: NotImplemented if n else torch.digamma(self),
        "signbit.default": _signbit,
    }
)
