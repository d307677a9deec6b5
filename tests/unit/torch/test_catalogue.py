"""Patterns of bugs by which compilers of torch's programs have computed wrong results without a word.

The kinds are those of the study arXiv:2604.08720 and of the issues of PyTorch that it counts: memory that is
read after it was changed, views and overlapping memory, types that are too wide or too narrow, numbers at the
ends of a type, sizes of zero and one, rewritten graphs, state between calls. Each is written anew.
"""

import extras

extras.need_torch()

import copy

import pytest
import torch
import torch.nn.functional as F

from tilewright.torch import backend

NAN, INF = float("nan"), float("inf")


def ints(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


def line(*shape, dtype=torch.float32):
    """Numbers that differ, around zero."""
    count = int(torch.tensor(shape).prod())
    return ((torch.arange(count) * 7 % 23 - 11) / 4).reshape(shape).to(dtype)


def _swapped(x, y):
    x[:], y[:] = y.clone(), x.clone()
    return x - y


def _copied_then_changed(x, y):
    y[0:, :] = x[0:, :]
    x.add_(1)
    return x * 1


def _view_of_bits(x):
    y = x.view(torch.int32) * 2
    y.sub_(-4)
    x[:, 1:2] = 2
    return y.view(torch.int64)


def _read_before_change(x):
    y = x.log()
    x.log_()
    return y


def _each_from_another(x):
    torch._foreach_add_([x], [x.flip(0)])
    return x


def _placed_then_flipped(x):
    x.index_put_((torch.arange(x.shape[0]),), x * 2)
    x.add_(x.flip(0))
    return x


def _moved_within(x):
    x[1:] = x[:-1].clone()
    return x


def _added_at_places(x, y):
    y[x] += y[x]
    return y


def _expanded_then_written(x):
    a = x.expand(3).clone()
    a[-1] = 3
    return a


def _through_transposed(x):
    x.t().mul_(2)[0].add_(1)
    return x + 0


def _through_diagonal(x):
    torch.diagonal(x).copy_(torch.ones(3))
    return x.sum(0)


def _chunks_in_place(x):
    a, b = x.chunk(2)
    a.add_(b)
    b.mul_(a)
    return x


def _swapped_halves(x):
    a, b = x.unbind(1)
    c = a.clone()
    a.copy_(b)
    b.copy_(c)
    return x


def _two_views_of_pairs(x):
    z = torch.view_as_complex(x + 1)
    return torch.view_as_real(z) + 1, torch.view_as_real(z + 1)


def _masked_in_place(x):
    x[x > 0] = -1.0
    return x.sum()


def _out_argument(x):
    made = torch.empty_like(x)
    torch.add(x, 1, out=made)
    x.zero_()
    return made


def _shared_result(x):
    y = x + 1
    z = y[0]
    y.mul_(3)
    return y, z


def _detached(x):
    y = x.detach()
    y.add_(1)
    return x * 2


def _resized_by_squeeze(x):
    y = x.unsqueeze(0).squeeze_(0)
    y.sub_(1)
    return x, y


def _accumulated(x):
    total = torch.zeros(())
    for at in range(3):
        total += x[at].sum()
        x[at].mul_(total)
    return x, total


def _scattered_twice(x):
    return torch.zeros(4).scatter_add_(0, ints(1, 1, 3, 1, 0), x), torch.zeros(4).index_add(
        0, ints(2, 2, 2, 0, 0), x
    )


PATTERNS = {
    "swap": (_swapped, line(2, 3), line(2, 3) * 3),
    "copied, then changed": (_copied_then_changed, line(3, 4), torch.zeros(3, 4)),
    "view of bits": (_view_of_bits, torch.arange(-6, 6).reshape(3, 4)),
    "read before a change": (_read_before_change, torch.tensor(3.0)),
    "foreach": (_each_from_another, line(4, 4)),
    "placed, then flipped": (_placed_then_flipped, line(4, 8)),
    "moved within": (_moved_within, line(5, 2)),
    "added at places": (_added_at_places, ints(0, 1), line(2, 8)),
    "expanded": (_expanded_then_written, torch.tensor(1.0)),
    "transposed": (_through_transposed, line(3, 3)),
    "diagonal": (_through_diagonal, line(3, 3)),
    "chunks": (_chunks_in_place, line(4, 3)),
    "halves": (_swapped_halves, line(5, 2)),
    "pairs": (_two_views_of_pairs, line(4, 2)),
    "masked": (_masked_in_place, line(6)),
    "out": (_out_argument, line(5)),
    "shared": (_shared_result, line(2, 3)),
    "detached": (_detached, line(3)),
    "squeezed": (_resized_by_squeeze, line(3)),
    "accumulated": (_accumulated, line(3, 2)),
    "repeated places": (_scattered_twice, line(5)),
    "the same argument twice": (lambda x, y: (x.add_(1), y * 2)[1], *[line(3)] * 2),
    "overlapping memory": (lambda x: x.unfold(0, 3, 1).sum(1), line(9)),
    "strides of zero": (lambda x: x.sum(0) + x.contiguous().flatten()[3], line(1, 4).expand(3, 4)),
    "an offset": (lambda x: x.reshape(-1) * 2, line(6, 6)[2:5, 1:4]),
    "a view of an offset": (lambda x: x.as_strided((2, 2), (2, 1), 1) + x.flatten()[0], line(3, 3)),
    "negative shifts": (lambda x: x.roll(-2, 0) - x.roll(5, 1), line(3, 4)),
    "bytes wrap": (lambda x: (x + x).to(torch.int16), ints(128, 255, 3, dtype=torch.uint8)),
    "bytes below zero": (lambda x: (-x, x - 4, ~x), ints(0, 1, 255, dtype=torch.uint8)),
    "bytes of 8 bits": (lambda x: (x * x).abs(), ints(-128, 127, 16, dtype=torch.int8)),
    "the least integer": (lambda x: (x.abs(), -x, x - 1), ints(-(2**31), 5, dtype=torch.int32)),
    "far integers": (lambda x: (x + 1, x * 3, x.sum()), ints(2**53, 2**53 + 1, -(2**62))),
    "far integers compared": (lambda x: (x == x.float(), x > 2**53, x.max()), ints(2**53, 2**53 + 1)),
    "integers and halves": (lambda x: x // 2 - torch.div(x, 2, rounding_mode="trunc"), ints(-3, -1, 3)),
    "remainders": (lambda x: (x % 3, x % -3, torch.fmod(x, 3)), ints(-7, 7, -3, 0)),
    "float remainders": (
        lambda x: (x % 0.3, torch.fmod(x, -0.7), torch.floor_divide(x, 0.1)),
        torch.tensor([-1.0, 1.0, 0.3, -0.3, 5e5]),
    ),
    "truth is counted": (lambda x: (x.sum(), x.cumsum(0), x + x, x.float().mean()), line(7) > 0),
    "truth of numbers": (lambda x: (x.bool(), ~x.bool(), x.any()), torch.tensor([0.0, -0.0, NAN, 1e-40])),
    "truth xor": (lambda x: (x ^ (x > 1)) & ~x.bool(), ints(0, 1, 2, 3)),
    "rank 0 counts less": (
        lambda x, y: (x * y, x + 1.5),
        line(3, dtype=torch.float16),
        torch.tensor(1.1, dtype=torch.float64),
    ),
    "integers with halves": (lambda x, y: x + y, ints(1, 2, 3), line(3, dtype=torch.bfloat16)),
    "division of integers": (lambda x: (x / 2, x.float() / 3, torch.true_divide(x, x + 1)), ints(1, 2, 5)),
    "rounding": (lambda x: (x.round(), x.trunc(), x.frac()), torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])),
    "sums in half precision": (lambda x: x.sum(), torch.full((4096,), 1.001, dtype=torch.bfloat16)),
    "to half and back": (lambda x: x.half().float() + x.bfloat16().float(), torch.tensor([1.0009, 7e4])),
    "no number in extrema": (
        lambda x: (x.amax(), x.argmax(), x.clamp(-1, 1), x.relu(), torch.fmax(x, -x)),
        torch.tensor([1.0, NAN, -INF, INF]),
    ),
    "no number compared": (
        lambda x: (x != x, x >= x, torch.where(x > 0, x, 0.0), x.sign()),
        torch.tensor([NAN, 1.0, -INF, -0.0]),
    ),
    "no number times zero": (lambda x: (x * 0, x - x, 0 / x), torch.tensor([NAN, INF, -INF, 0.0, 2.0])),
    "signs of zero": (
        lambda x: (1 / x, torch.copysign(torch.ones(2), x), -x + 0.0),
        torch.tensor([0.0, -0.0]),
    ),
    "softmax of nothing": (lambda x: (x.softmax(0), x.logsumexp(0)), torch.tensor([-INF, -INF])),
    "softmax of much": (lambda x: (x.softmax(0), x.log_softmax(0)), torch.tensor([1e4, 1e4 - 1, -1e4])),
    "tanh of much": (
        lambda x: (x.tanh(), x.sigmoid(), F.softplus(x), F.gelu(x)),
        torch.tensor([-1e3, -90.0, 90.0]),
    ),
    "powers": (lambda x: (x**2, x**0, x**-1, x**0.5, 2**x), torch.tensor([-2.0, 0.0, NAN, 4.0])),
    "powers of zero": (lambda x: (x**x, torch.pow(0, x)), torch.tensor([0.0, 1.0])),
    "small numbers": (lambda x: (x / 2, x * 1e-3, x.sqrt()), torch.tensor([1e-38, 1e-40])),
    "atan2": (lambda x: torch.atan2(x, x.flip(0)), torch.tensor([0.0, -0.0, 1.0, -1.0])),
    "empty sums": (lambda x: (x.sum(1), x.prod(1), x.all(1), x.any(1), x.mean(1)), torch.zeros(2, 0)),
    "empty joins": (lambda x: torch.cat([x, x[:0], x + 1]), line(2, 3)),
    "empty products": (lambda x: x @ x.t(), torch.zeros(3, 0)),
    "no batch": (lambda x: F.conv2d(x, torch.ones(2, 3, 2, 2)), torch.zeros(0, 3, 4, 4)),
    "one element": (lambda x: (x.var(unbiased=False), x.squeeze(), x.std(0, unbiased=False)), line(1, 1)),
    "rank 0": (lambda x: (x.sum(0), x.softmax(0), x.sort(0)[0], x.cumsum(0), x.flatten()), torch.tensor(2.0)),
    "broadcast of one": (lambda x: x + x.t() * x[:, :1], line(3, 1).expand(3, 3)),
    "ties": (lambda x: (x.argmax(1), x.argmin(0), x.sort(dim=1, stable=True)[1]), line(3, 4).round() * 0),
    "norm of a group": (lambda x: F.group_norm(x, 2), line(2, 4, 3) * 1e3),
    "ceil of a pool": (
        lambda x: (F.max_pool2d(x, 2, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)),
        line(1, 2, 5, 5) - 9,
    ),
    "pads of a pool": (lambda x: F.max_pool2d(x, 3, 1, 1), line(1, 1, 4, 4) - 100),
    "average without pads": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), line(1, 1, 5, 5)),
    "negative pads": (lambda x: F.pad(x, (-1, 2, 1, -1), value=5.0), line(3, 4)),
    "reflection": (lambda x: F.pad(x, (2, 1), mode="reflect"), line(1, 2, 4)),
    "channels last": (
        lambda x: F.conv2d(x, torch.ones(3, 2, 3, 3), padding=1, stride=2).relu(),
        line(1, 2, 5, 5).to(memory_format=torch.channels_last),
    ),
    "transposed convolution": (
        lambda x: F.conv_transpose2d(x, line(2, 3, 3, 3), stride=2, padding=1, output_padding=1),
        line(1, 2, 3, 3),
    ),
    "a bias for each": (lambda x: torch.baddbmm(x[:, :1, :1], x, x.mT, beta=0.5), line(2, 3, 4)),
    "beta of zero": (lambda x: torch.addmm(torch.full((3, 3), NAN), x, x, beta=0), line(3, 3)),
    "alpha": (lambda x: torch.add(x, x.flip(0), alpha=-2) - torch.sub(x, 1, alpha=3), line(4)),
    "a chain of products": (lambda x: (x @ x.t() @ x, (x.t() @ x).t() @ x.t()), line(3, 4)),
    "products twice": (lambda x: x @ x + x @ x.t() + x.t() @ x, line(3, 3)),
    "the same taken twice": (lambda x: (x.exp() + x.exp(), x.exp() - x.exp()), line(5)),
    "split and joined": (
        lambda x: torch.cat(x.split([1, 2, 1]), 0) - torch.cat([*x.split([1, 2, 1])][::-1]),
        line(4, 2),
    ),
    "transposed twice": (lambda x: x.permute(2, 0, 1).permute(1, 2, 0) + x.mT.mT, line(2, 3, 4)),
    "views twice": (lambda x: x.t().reshape(2, 6).t().reshape(3, 4), line(3, 4)),
    "means of means": (lambda x: x.mean(0, keepdim=True).mean(1) - x.mean(), line(3, 5)),
    "steps of slices": (lambda x: x[::2, 1::3] - x[:3:2, -2::3], line(4, 6)),
    "places below zero": (lambda x: (x[-1], x[[-1, 0, -2]], x[:, ints(-1, 1)]), line(3, 4)),
    "places apart": (lambda x: x[ints(0, 1), :, ints(2, 0)], line(2, 3, 4)),
    "numbers of a range": (lambda x: torch.arange(0, 1, 0.1) + torch.linspace(-1, 1, 10), line(1)),
    "a range down": (lambda x: torch.arange(9, -1, -3) + x, ints(1)),
    "a triangle": (lambda x: x.tril(-1) + x.triu(2), line(4, 5)),
    "running": (lambda x: (x.cumsum(1), x.flip(1).cumprod(1), x.cummax(1)[0]), line(2, 5)),
    "one of many": (lambda x: F.one_hot(x, 4) + F.embedding(x, line(4, 4), padding_idx=1), ints(0, 3, 1)),
    "ignored classes": (lambda x: F.cross_entropy(x, ints(0, -100, 2), label_smoothing=0.1), line(3, 3)),
    "images grow": (
        lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True),
        line(1, 1, 3, 4),
    ),
    "nearest": (lambda x: F.interpolate(x, scale_factor=1.7), line(1, 2, 3, 4)),
    "masks of attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(3, 3).tril().bool()),
        line(1, 2, 3, 4),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


@pytest.mark.few(4)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_programs_of_the_catalogue(pattern):
    """Results, their types, and what has become of the arguments are as without a compiler, twice."""
    function, *args = PATTERNS[pattern]
    made = torch.compile(function, backend=backend)
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    for _ in range(2):
        found, expected = made(*mine), function(*theirs)
        torch.testing.assert_close((found, mine), (expected, theirs), rtol=2e-5, atol=1e-6, equal_nan=True)
