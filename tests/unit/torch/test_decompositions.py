"""Operators that are taken apart before they are read, against torch: ties, borders, what is no number."""

import extras

extras.need_torch()

import functools

import pytest
import torch

from torch_checks import check

NAN = float("nan")
aten = torch.ops.aten


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_distances():
    a, b = drawn(2, 5, 3), drawn(4, 3, seed=1)
    check(lambda a, b: [aten._cdist_forward(a, b, p, None) for p in (0.0, 1.0, 2.0, 3.5, float("inf"))], a, b)
    check(lambda b: [torch.pdist(b), torch.dist(b, b + 1, 3), torch.cdist(b[:, :0], b[:, :0])], b)
    check(lambda a, b: [torch.cdist(a, b, p) for p in (2.0, float("inf"))], a[:0], b)


def test_places_in_order():
    x = drawn(3, 7)
    x[1, 2] = x[2, :] = NAN
    check(lambda x: [*x.median(1), x.median(), x.nanmedian()], x)
    check(lambda x: [*x.nanmedian(1), *x.kthvalue(3, 1)], x[:2])
    ties = torch.tensor([[2.0, 1.0, 2.0, 1.0, 0.0], [4.0, 4.0, 1.0, 5.0, 5.0]])
    check(lambda x: [*x.mode(1), *x.mode(0, keepdim=True)], ties)
    check(lambda x: [*x[0, 0].median(0), *x[0, 0].mode(0)], x)


def test_running_extrema():
    x = torch.tensor([[1.0, 3.0, 3.0, NAN, 5.0, 2.0], [-1.0, -2.0, 4.0, 4.0, 0.0, 9.0]])
    check(lambda x: [*x.cummax(1), *x.cummin(0), *x[0].long().cummin(0)], torch.nan_to_num(x))
    check(lambda x: [*x.cummax(1), *x.cummin(1), x[1].logcumsumexp(0)], x)


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.filterwarnings("ignore:scatter_reduce:UserWarning")
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_combined_at_places(reduce):
    x, new = drawn(4, 3), drawn(5, 3, seed=1)
    i = torch.tensor([[0, 0, 3], [0, 1, 1], [3, 0, 1], [0, 0, 0], [1, 1, 1]])
    both = [True, False]
    check(lambda x, i, y: [x.scatter_reduce(0, i, y, reduce, include_self=s) for s in both], x, i, new)
    if reduce != "sum":
        check(
            lambda x, i, y: [x.index_reduce(0, i, y, reduce, include_self=s) for s in both], x, i[:, 0], new
        )
    if reduce != "mean":
        whole = (100 * x).long(), i, (100 * new).long()
        check(lambda x, i, y: x.scatter_reduce(0, i, y, reduce, include_self=False), *whole)


def test_updates_by_masks_and_flat_places():
    x, mask = drawn(3, 4), drawn(3, 4, seed=2) > 0
    check(lambda x, m: [x.masked_scatter(m, x.flip(0)), aten.nonzero_static(m, size=5)], x, mask)
    check(lambda x: [x.put(torch.tensor([1, -1, 1]), x[0, :3] * 0 + 7, False)], x)
    check(lambda x: aten.as_strided_scatter(x, x[:2, :2] * 2, [2, 2], [5, 2], 1), x)
    check(lambda x: x.scatter(1, torch.zeros(3, 1, dtype=torch.int64), 2.0, reduce="multiply"), x)


@pytest.mark.parametrize("right", [False, True])
def test_searches(right):
    edges, x = torch.tensor([-1.0, 0.0, 0.0, 2.0, 5.0]), torch.tensor([-3.0, 0.0, 1.0, 5.0, 9.0, NAN])
    rows = torch.stack([edges, edges + 1])
    found = functools.partial(torch.searchsorted, right=right, out_int32=True)
    check(lambda e, r, x: [found(e, x), found(r, x.expand(2, 6).contiguous())], edges, rows, x)
    check(lambda e, x: torch.bucketize(x, e, right=right), edges, x)


def test_histograms():
    x = torch.tensor([-2.0, 0.0, 0.5, 1.0, 1.0, 3.0, 4.0, NAN])
    edges = torch.tensor([0.0, 1.0, 3.5, 4.0])
    check(lambda x: [x.histc(4, 0, 4), x[:7].histc(3), x[:1].histc(2)], x)
    check(
        lambda x, e: [*x.histogram(e, density=True), *x.histogram(4, range=(0.0, 4.0), weight=x * 0 + 2)],
        x,
        edges,
    )
    check(lambda x: torch.histogramdd(x, [2, 3])[0], drawn(9, 2))


@pytest.mark.few(2)
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "max", "min"])
def test_segments(reduce):
    x, lengths = drawn(6, 2), torch.tensor([2, 0, 3, 1])
    check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n), x, lengths)
    offsets = torch.tensor([0, 2, 2, 5])
    check(lambda x, n: aten.segment_reduce(x, reduce, offsets=n, initial=1.0), x, offsets)


def test_pools_of_parts_that_are_not_alike():
    x = drawn(2, 3, 7, 5)
    x[0, 0, 3, 3] = NAN
    check(lambda x: [*aten.adaptive_max_pool2d(x, [3, 4]), *aten.adaptive_max_pool3d(x[1:], [2, 3, 2])], x)
    x = torch.nan_to_num(x)
    check(lambda x: [aten._adaptive_avg_pool2d(x, [3, 4]), aten._adaptive_avg_pool3d(x, [2, 3, 5])], x)
    check(lambda x: [aten.avg_pool2d(x, [2, 2], [2, 2], [1, 1], True, padded) for padded in (True, False)], x)
    window = [3, 2], [2, 2], [1, 1]
    grad = torch.ones(aten.avg_pool2d(x, *window).shape)
    check(lambda g, x: aten.avg_pool2d_backward(g, x, *window, False, False, None), grad, x)
    check(lambda g, x: aten._adaptive_avg_pool2d_backward(g, x), drawn(2, 3, 3, 4), x)


def test_samples_of_images():
    x, grid = drawn(1, 2, 5, 4), drawn(1, 3, 3, 2, seed=1) * 1.5
    check(
        lambda x, g: [aten.grid_sampler_2d(x, g, m, p, m == 1) for m in (0, 1, 2) for p in (0, 1, 2)], x, grid
    )
    check(lambda x: [aten._upsample_bilinear2d_aa(x, [3, 6], align) for align in (False, True)], x)


def test_the_rest():
    x = drawn(3, 4)
    check(
        lambda x: [torch.ldexp(x, torch.arange(4)), torch.angle(x), x.signbit(), torch.triu_indices(3, 4, 1)],
        x,
    )
    check(lambda x: [x[:, :3].addbmm(x[:, :3, None], x[:, None, :3], beta=0.5), x.norm(3, 1)], x)
    check(lambda x: [aten.polygamma(0, x), aten.nonzero_static(x[0, 0], size=3)], x)
    check(lambda x: aten.embedding_renorm(x, torch.tensor([0, 2]), 0.5, 2.0), x)
