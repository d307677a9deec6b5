"""Operators of ATen, each compiled and compared with torch on numbers that are easily got wrong."""

import extras

extras.need_torch()

import functools

import numpy as np
import pytest
import torch

from tilewright.frontend import torch as frontend
from tilewright.torch import Options, compile_graph
from torch_checks import check, compiled, traced

NAN, INF = float("nan"), float("inf")
STRANGE = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, INF, -INF, NAN, 1e-30, 7.25, -3.75]
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
aten = torch.ops.aten


def strange(dtype=torch.float32):
    return torch.tensor(STRANGE, dtype=dtype)


def pairs(dtype=torch.float32):
    x = strange(dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


EXACT_FUNCTIONS = [aten.abs, aten.neg, aten.floor, aten.ceil, aten.round, aten.trunc, aten.sign]
FUNCTIONS = [
    *(aten.exp, aten.expm1, aten.exp2, aten.log, aten.log2, aten.log10, aten.log1p, aten.sqrt, aten.rsqrt),
    *(aten.reciprocal, aten.sin, aten.tanh, aten.sigmoid, aten.erf, aten.atan, aten.elu),
    *(aten.isnan, aten.isinf, aten.logical_not),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_functions(dtype):
    for function in EXACT_FUNCTIONS:
        check(function, strange(dtype), exact=True)
    together = lambda x: [function(x) for function in FUNCTIONS]  # noqa: E731
    check(together, strange(dtype))


def test_integers_become_floating_point_or_stay():
    x = torch.tensor([0, 1, -1, 5, -128, 127], dtype=torch.int8)
    check(lambda x: [aten.exp(x), aten.floor(x), aten.sign(x), aten.neg(x), aten.isnan(x)], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_arithmetic_on_strange_numbers(dtype):
    a, b = pairs(dtype)
    check(lambda a, b: [a + b, a - b, a * b, a / b, aten.rsub(a, b)], a, b, exact=True)
    check(lambda a, b: [aten.add(a, b, alpha=2), aten.sub(a, 3), aten.mul(a, 0.1), a / 3], a, b)


def test_quotients_and_remainders():
    a, b = pairs()
    check(lambda a, b: [aten.div(a, b, rounding_mode="floor"), aten.div(a, b, rounding_mode="trunc")], a, b)
    check(lambda a, b: [aten.fmod(a, b), aten.remainder(a, b)], a, b)


def test_quotients_of_integers_round_as_asked():
    x = torch.arange(-9, 10)
    divided = lambda x, d: [  # noqa: E731
        aten.div(x, d, rounding_mode="floor"),
        aten.div(x, d, rounding_mode="trunc"),
        aten.remainder(x, d),
        aten.fmod(x, d),
        aten.div(x, d),
    ]
    check(functools.partial(divided, d=4), x)
    check(functools.partial(divided, d=-4), x)


def test_extrema_and_comparisons_of_strange_numbers():
    a, b = pairs()
    nonzero = (a != 0) | (b != 0)  # which of two zeros an extremum is, torch leaves open
    a, b = a[nonzero], b[nonzero]
    check(lambda a, b: [aten.maximum(a, b), aten.minimum(a, b), aten.fmax(a, b), aten.fmin(a, b)], a, b)
    check(lambda a, b: [a == b, a != b, a < b, a <= b, a > b, a >= b], a, b)
    check(
        lambda a, b: [
            aten.clamp(a, -1, 2),
            aten.round(b, decimals=1),
            aten.clamp(a, 3, 1),
            aten.where(a > b, a, b),
        ],
        a,
        b,
    )
    check(lambda a, b: [aten.atan2(a, b), aten.hypot(a, b), aten.copysign(a, b)], a, b)


def test_comparisons_promote():
    ints = torch.tensor([0, 1, 2, 255], dtype=torch.uint8)
    check(lambda x: [x == 1.5, x < 1.5, x >= 2, x != 255], ints)
    halves = torch.tensor([0.1, 0.2], dtype=torch.bfloat16)
    check(lambda x: [x == 0.1, x < 0.2, x > torch.tensor(0.1, dtype=torch.float64)], halves)
    check(lambda x, y: [x < y, x == y, x + y], ints, torch.tensor([1, 1, 1, -1], dtype=torch.int8))


def test_numbers_of_rank_0_do_not_promote():
    x = torch.ones(3)
    check(lambda x, s: [x + s, x * s, s - x], x, torch.tensor(2.5, dtype=torch.float64))
    check(lambda x, s: [x + s, x * s], torch.ones(3, dtype=torch.int32), torch.tensor(7))


def test_truth_values():
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    check(lambda a, b: [a + b, a * b, a & b, a | b, a ^ b, ~a, aten.maximum(a, b), a < b, a == b], a, b)
    check(lambda a, b: [a.sum(), a.any(), a.all(), b.cumsum(0), aten.logical_xor(a, b)], a, b)


@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5])
def test_powers(exponent):
    check(lambda x: aten.pow(x, exponent), strange())


def test_powers_of_tensors_and_integers():
    a, b = pairs()
    check(aten.pow, a, b)
    check(lambda x: [aten.pow(x, 2), aten.pow(x, 3), aten.pow(x, 0)], torch.arange(-3, 4))


def test_reductions():
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    x[1, 2, 3] = NAN
    check(lambda x: [x.sum(), x.sum(1), x.mean((0, 2), keepdim=True), x.amax(2), x.amin((0, 1))], x)
    check(lambda x: [*x.max(1), *x.min(2, keepdim=True), x.argmax(), x.argmin(0)], x)
    check(lambda x: [x[0].var(1), x[0].std(), x[0].prod(1), x[0].cumsum(0), *torch.var_mean(x[0], 0)], x)
    check(lambda x: [torch.linalg.vector_norm(x, order, 1) for order in (0, 1, 2, INF, -INF)], x)


def test_reductions_of_ties_and_integers():
    x = torch.tensor([[3, 1, 3], [2, 2, 2], [-5, 0, 7]], dtype=torch.int32)
    check(lambda x: [x.argmax(1), x.argmin(1), *x.max(0), x.sum(0), x.prod(), x.any(1)], x)
    check(lambda x: [*x.sort(1), *x.sort(0, descending=True), *x.topk(2)], x.float())


def test_nothing_to_reduce():
    x = torch.zeros(0, 3)
    check(lambda x: [x.sum(0), x.sum(), x.prod(0), x.any(0), x.all(0), x.mean(0)], x)
    check(lambda x: [x + 1, x.relu(), x.t() @ x, torch.cat([x, x])], x)
    check(lambda x, y: x @ y, torch.zeros(7, 0), torch.zeros(0, 64))


def test_movement():
    x = torch.arange(24.0).reshape(2, 3, 4)
    check(lambda x: [x.flip(0, 2), x.roll(1, 2), x.repeat(2, 1, 1, 2), x[:, 1:3:2] + 0, x[..., -1] + 0], x)
    check(lambda x: [torch.cat([x, x], 1), torch.stack([x, x], 2), *(y + 0 for y in x.split([1, 2], 1))], x)
    check(lambda x: [x.permute(2, 0, 1) + 0, x.transpose(0, 1) * 1, x.diagonal(1, 1, 2) + 0], x)
    check(lambda x: [torch.nn.functional.pad(x, (1, -1, 0, 2), value=5.0), x.tril(-1), x.triu(1)], x)
    check(lambda x: [x.unfold(1, 2, 1) + 0, aten.diagonal_scatter(x, x[:, 0, :3], 1, 1, 2)], x)
    check(lambda x: torch.as_strided(x, (2, 2), (5, 7), 3) + 1, x)


def test_parts_are_replaced():
    x, y = torch.arange(12.0).reshape(4, 3), torch.full((2, 3), -1.0)
    for start, end, step in ((0, 2, 1), (2, 4, 1), (1, 3, 1), (0, 4, 2), (1, 4, 2)):
        check(lambda x, y: aten.slice_scatter(x, y, 0, start, end, step), x, y)  # noqa: B023
    check(lambda x, y: aten.select_scatter(x, y[:, 0], 0, -1), torch.zeros(4, 2), y)


def test_strides_are_torchs():
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    check(lambda x: [x + 1, x.permute(3, 0, 1, 2) * 2], x)
    check(lambda x: x.t() + 1, torch.randn(3, 4))
    check(lambda x: x.t() + 1, torch.randn(4, 8)[:, ::2])


def test_indexing():
    x, i = torch.randn(4, 5, 6), torch.tensor([[0, -1], [2, 1]])
    check(lambda x, i: [x[i], x[:, i], x[i, :, i], x[:, i, i], aten.index_select(x, 1, i[1])], x, i)
    check(lambda x, i: [aten.gather(x, 1, i[None].abs()), aten.embedding(x[0], i.abs())], x, i)


def test_updates():
    x, i = torch.zeros(4, 5), torch.tensor([0, 3, 3])
    new = torch.arange(15.0).reshape(3, 5)
    check(lambda x, i, new: aten.index_put(x, [i], new, True), x, i, new)
    check(lambda x, i, new: aten.index_put(x, [None, i], new[:, 0], True), x, i, new)
    check(lambda x, i, new: [x.scatter_add(0, i[:, None], new), x.scatter(1, i[:2, None], 3.0)], x, i, new)
    check(lambda x, i, new: x.scatter_reduce(0, i[:, None], new, "amax"), x, i, new)


def test_products():
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(1))
    a, b, c = draw(3, 4), draw(4, 5), draw(5)
    check(lambda a, b, c: [a @ b, aten.addmm(c, a, b, beta=0.5, alpha=2), aten.mv(b, c)], a, b, c)
    check(lambda a, b, c: aten.addmm(c * NAN, a, b, beta=0), a, b, c)
    check(lambda a: [a.long() @ a.long().t(), torch.einsum("ij,kj->ik", a, a)], a)


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_convolutions(groups):
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(2))
    x, weight = draw(2, 4, 7, 8), draw(6, 4 // groups, 3, 2)
    window = ([2, 1], [1, 2], [1, 2], False, [0, 0], groups)
    grad = draw(*aten.convolution(x, weight, None, *window).shape)
    check(lambda g, x, w: aten.convolution_backward(g, x, w, [6], *window, [True] * 3), grad, x, weight)


def test_pools():
    x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(3))
    x[0, 0, 4, 4] = NAN
    check(lambda x: aten.max_pool2d_with_indices(x, [3, 2], [2, 2], [1, 1]), x)
    check(lambda x: aten.max_pool2d_with_indices(x[0], [3, 3], [2, 2], [0, 0], [1, 1], True), x)
    check(lambda x: [aten.avg_pool2d(x, [3, 2], [2, 2], [1, 1], False, False), aten.avg_pool2d(x, [2])], x)


def test_gradients_of_pools():
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    best, where = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    check(
        lambda g, x, i: aten.max_pool2d_with_indices_backward(
            g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, i
        ),
        best, x, where,
    )  # fmt: skip
    grad = torch.ones(2, 3, 4, 4)
    check(lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None), grad, x)


def test_normalisations():
    x = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(5))
    ones = torch.linspace(0.5, 2, 6)
    check(lambda x: [x.softmax(1), x.log_softmax(0), torch.logsumexp(x, 2)], x)
    check(lambda x, w: aten.native_group_norm(x, w, None, 2, 6, 5, 3, 1e-5), x, ones)
    check(lambda x, w: aten.native_layer_norm(x.transpose(1, 2).contiguous(), [6], w, w, 1e-5), x, ones)
    check(lambda x, w: torch.nn.functional.batch_norm(x, w, w, w, None), x, ones)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradient(causal):
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(6))
    q, k, v, grad = draw(2, 2, 5, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 4)
    mask = None if causal else draw(2, 1, 5, 5)
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    out, sums = forward(q, k, v, 0.0, causal, attn_mask=mask)
    together = lambda q, k, v, g, out, sums, *mask: [  # noqa: E731
        forward(q, k, v, 0.0, causal, attn_mask=next(iter(mask), None))[1] + 0,
        *backward(g, q, k, v, out, sums, 0.0, causal, attn_mask=next(iter(mask), None)),
    ]
    args = (q, k, v, grad, out, sums, *([] if mask is None else [mask]))
    for a, b in zip(compiled(together, *args)(*args), together(*args), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


REFUSED = {
    "what may be zero": (lambda x: x // x, torch.ones(3, dtype=torch.int64)),
    "power of integers": (lambda x: x**x, torch.ones(3, dtype=torch.int64)),
    "not read": (torch.special.airy_ai, torch.ones(3)),
    "no place in them": (
        lambda x: aten.bitwise_left_shift.Tensor_Scalar(x, 70),
        torch.ones(3, dtype=torch.int64),
    ),
    "no tensor of this machine's types": (lambda x: x.to(torch.float8_e5m2), torch.ones(3, 2)),
    "beyond the padding": (
        lambda x: aten.avg_pool2d(x, [2], [2], [0], True, True, 3),
        torch.ones(1, 1, 5, 5),
    ),
    "not exact": (lambda x: torch.fmod(x, 0.3), torch.ones(3, dtype=torch.float64)),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variances_of_too_few_numbers():
    check(lambda x: (x.var(0, correction=3), x.var((0, 1), correction=1)), torch.tensor([[1.0], [3.0]]))
    check(lambda x: (x.var(), x.std(0), torch.var_mean(x, 0, correction=2)[0]), torch.tensor([2.0]))


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals_say_why(reason):
    function, x = REFUSED[reason]
    made = traced(function, x)
    refused = frontend.read_module(made).refused
    assert any(reason in each.reason for each in refused.values())
    torch.testing.assert_close(
        compile_graph(made, Options())(x)[0].double(), function(x).double(), equal_nan=True
    )


def test_the_table_names_operators_that_torch_has():
    for name in frontend.TABLE:
        operator, overload = name.split(".")
        *space, packet = operator.split("::")
        assert overload in getattr(torch.ops.prims if space == ["prims"] else aten, packet).overloads(), name


def test_arrays_and_tensors_share_memory():
    for dtype in frontend.DTYPES:
        x = torch.ones(2, 3, dtype=dtype)
        array = frontend.as_array(x.t())
        assert array.shape == (3, 2) and not array.flags.c_contiguous
        array[1, 0] = 0
        assert x[0, 1] == 0
        back = frontend.as_tensor(array)
        assert back.dtype == dtype and back.data_ptr() == x.data_ptr()
    pairs = frontend.as_array(torch.tensor([1 + 2j]).conj())
    assert pairs.tolist() == [[1, -2]]
    assert frontend.tensor_type(torch.ones(2, dtype=torch.float8_e5m2)) is None
    assert np.array_equal(frontend.as_array(torch._neg_view(torch.ones(2))), [-1, -1])
