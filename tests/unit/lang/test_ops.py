"""The operator library against plain numpy."""

import itertools

import numpy as np
import pytest

from tilewright import ir, lang
from tilewright.lang import ops

RNG = np.random.default_rng(13)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(fn, *arrays):
    """An operator on arrays, in double precision; every tensor of the program has a name."""
    inputs = [lang.placeholder(a.shape, ir.dtype_of(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    program = lang.program(inputs, fn(*inputs))
    ir.verify_program(program)
    return lang.evaluate(program, arrays, dtype_override="f64")[program.outputs[0].name]


def close(found, expected, rtol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-9)


def conv_reference(x, w, strides, padding, dilations, groups):
    rank = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *padding])
    outer = [
        (x.shape[2 + d] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1 for d in range(rank)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *outer))
    icg, ocg = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        g = o // ocg
        part = x[:, g * icg : (g + 1) * icg]
        for k in itertools.product(*map(range, w.shape[2:])):
            window = tuple(
                slice(k[d] * dilations[d], k[d] * dilations[d] + strides[d] * (outer[d] - 1) + 1, strides[d])
                for d in range(rank)
            )
            y[:, o] += np.einsum(
                "nc...,c->n...", part[(slice(None), slice(None), *window)], w[(o, slice(None), *k)]
            )
    return y


CONVS = [
    ((2, 3, 9), (4, 3, 3), 1, 1, 1, 1),
    ((1, 4, 8, 7), (6, 4, 3, 3), 2, 1, 1, 1),
    ((1, 4, 8, 7), (6, 2, 3, 2), 1, [(0, 1), (2, 0)], 2, 2),
    ((1, 4, 6, 6), (4, 1, 3, 3), 2, 1, 1, 4),
    ((1, 4, 6, 6), (8, 1, 3, 3), 1, 1, 1, 4),
    ((1, 5, 6, 6), (3, 5, 1, 1), 1, 0, 1, 1),
    ((1, 4, 5, 5), (4, 1, 1, 1), 1, 0, 1, 4),
    ((1, 3, 4, 6, 5), (4, 3, 3, 3, 3), (1, 2, 2), 1, 1, 1),
]


@pytest.mark.parametrize(("xs", "ws", "stride", "padding", "dilation", "groups"), CONVS)
def test_conv(xs, ws, stride, padding, dilation, groups):
    x, w = f32(*xs), f32(*ws)
    rank = len(xs) - 2
    full = ops.common.per_dimension(stride, rank, ""), ops.common.pairs(padding, rank)
    expected = conv_reference(x, w, full[0], full[1], ops.common.per_dimension(dilation, rank, ""), groups)
    close(run(lambda a, b: ops.conv(a, b, None, stride, padding, dilation, groups), x, w), expected)
    bias = f32(ws[0])
    shaped = bias.reshape(-1, *[1] * rank)
    close(
        run(lambda a, b, c: ops.conv(a, b, c, stride, padding, dilation, groups), x, w, bias),
        expected + shaped,
    )


def test_a_convolution_is_a_padding_and_one_reduction_stage():
    x, w = lang.placeholder((1, 4, 8, 8), name="X"), lang.placeholder((6, 4, 3, 3), name="W")
    program = lang.program([x, w], ops.conv(x, w, padding=1, name="Y"))
    assert [s.name for s in program.stages] == ["X_pad", "Y"]
    assert [(it.name, it.kind) for it in program.stages[1].iters] == [
        ("n", "par"), ("oc", "par"), ("oh", "par"), ("ow", "par"),
        ("ic", "red"), ("kh", "red"), ("kw", "red"),
    ]  # fmt: skip


def test_depthwise_has_no_reduction_over_channels():
    x, w = lang.placeholder((1, 4, 8, 8), name="X"), lang.placeholder((4, 1, 3, 3), name="W")
    program = lang.program([x, w], ops.depthwise_conv(x, w, name="Y"))
    (stage,) = program.stages
    assert [it.name for it in stage.iters if it.kind == "red"] == ["kh", "kw"]
    channel = next(ld.indices[1] for ld in ir.stmt_loads(stage.body) if ld.buffer == "X")
    assert channel == ir.var("oc")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "extra"), [(1, 1, 0, 0), (2, 1, 1, 1), (3, 2, 1, 0)]
)
def test_conv_transpose(stride, dilation, padding, extra, groups):
    x, w = f32(1, 4, 5, 4), f32(4, 3, 3, 2)
    rank, ocg = 2, 3
    sizes = [(x.shape[2 + d] - 1) * stride + dilation * (w.shape[2 + d] - 1) + 1 for d in range(rank)]
    full = np.zeros((1, ocg * groups, *(s + extra for s in sizes)))
    for c, o in itertools.product(range(4), range(ocg)):
        out = c // (4 // groups) * ocg + o
        for h, v, kh, kw in itertools.product(range(5), range(4), range(3), range(2)):
            full[0, out, h * stride + kh * dilation, v * stride + kw * dilation] += x[0, c, h, v] * w[
                c, o, kh, kw
            ].astype(np.float64)
    cut = tuple(slice(padding, full.shape[2 + d] - padding) for d in range(2))
    found = run(lambda a, b: ops.conv_transpose(a, b, None, stride, padding, dilation, extra, groups), x, w)
    close(found, full[(slice(None), slice(None), *cut)])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
    ],
)
def test_matmul(a, b):
    x, y = f32(*a), f32(*b)
    expected = x.astype(np.float64) @ y
    close(run(ops.matmul, x, y), expected)
    if x.ndim > 1 and y.ndim > 1:
        swapped = np.swapaxes(x, -1, -2).copy(), np.swapaxes(y, -1, -2).copy()
        close(run(lambda p, q: ops.matmul(p, q, True, True), *swapped), expected)


def test_matmul_of_bytes_accumulates_in_a_wider_type():
    x, y = RNG.integers(-128, 127, (2, 3, 40)).astype(np.int8)
    found = run(lambda a, b: ops.matmul(a, b, transpose_b=True, accumulate="i32"), x, y)
    np.testing.assert_array_equal(found, x.astype(np.int32) @ y.T.astype(np.int32))


def test_gemm_and_dense():
    a, b, c = f32(3, 4), f32(5, 4), f32(5)
    wide = a.astype(np.float64)
    close(
        run(lambda x, y, z: ops.gemm(x, y, z, 0.5, 2.0, transpose_b=True), a, b, c), 0.5 * wide @ b.T + 2 * c
    )
    close(run(lambda x, y: ops.gemm(x, y, alpha=2.0, transpose_b=True), a, b), 2 * wide @ b.T)
    close(run(ops.dense, a, b, c), wide @ b.T + c)


def windows(x, size, stride, padding, dilation, value):
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *padding], constant_values=value)
    view = np.lib.stride_tricks.sliding_window_view(
        x, [(s - 1) * d + 1 for s, d in zip(size, dilation, strict=True)], axis=(2, 3)
    )
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
@pytest.mark.parametrize(
    ("size", "stride", "padding"), [((3, 2), (2, 1), [(1, 1), (0, 1)]), ((2, 2), (2, 2), [(0, 0)] * 2)]
)
def test_pooling(size, stride, padding, dilation):
    x = f32(2, 3, 8, 7)
    expected = windows(x, size, stride, padding, dilation, -np.inf).max(axis=(-1, -2))
    close(run(lambda a: ops.max_pool(a, size, stride, padding, dilation), x), expected)
    seen = windows(x, size, stride, padding, dilation, np.nan)
    close(
        run(lambda a: ops.average_pool(a, size, stride, padding, dilation), x),
        np.nanmean(seen, axis=(-1, -2)),
    )
    full = windows(x, size, stride, padding, dilation, 0).mean(axis=(-1, -2))
    close(run(lambda a: ops.average_pool(a, size, stride, padding, dilation, count_padding=True), x), full)


def test_average_pooling_with_a_border_that_does_not_count():
    x = f32(1, 1, 5, 5)
    found = run(
        lambda a: ops.average_pool(a, (2, 2), 2, [(0, 1), (1, 1)], count_padding=True, uncounted=(1, 1)), x
    )
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (0, 0), (1, 0)])
    padded = np.pad(padded, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=np.nan)
    view = padded[:, :, :6, :6].reshape(1, 1, 3, 2, 3, 2)
    close(found, np.nanmean(view, axis=(3, 5)))


def test_global_pooling():
    x = f32(2, 3, 4, 5)
    close(run(ops.global_average_pool, x), x.astype(np.float64).mean(axis=(2, 3), keepdims=True))
    close(run(ops.global_max_pool, x), x.max(axis=(2, 3), keepdims=True))


KINDS = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min,
    "l1": lambda x, **k: np.abs(x).sum(**k), "l2": lambda x, **k: np.sqrt((x * x).sum(**k)),
    "sum_square": lambda x, **k: (x * x).sum(**k), "log_sum": lambda x, **k: np.log(x.sum(**k)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [None, 1, (0, 2), ()])
def test_reduce(kind, axes):
    x = np.abs(f32(3, 4, 5)) + 0.5
    wide = x.astype(np.float64)
    for keep in (False, True):
        found = run(lambda a, keep=keep: ops.reduce(kind, a, axes, keep), x)
        if axes == ():
            expected = KINDS[kind](wide[None], axis=0)
        else:
            expected = KINDS[kind](wide, axis=axes, keepdims=keep)
        close(found, expected)


def test_means_of_integers_and_of_symbolic_extents():
    x = RNG.integers(-20, 20, (4, 6)).astype(np.int32)
    np.testing.assert_array_equal(run(lambda a: ops.reduce("mean", a, 1), x), np.trunc(x.mean(axis=1)))
    n = lang.param("n")
    A = lang.placeholder((n, 3), "f64", name="A")
    data = RNG.standard_normal((5, 3))
    found = lang.evaluate(lang.program([A], ops.reduce("mean", A, 0, name="m")), [data])["m"]
    close(found, data.mean(axis=0))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_arg_reduce(kind):
    x = RNG.integers(0, 3, (3, 8, 2)).astype(np.float32)
    theirs = getattr(np, kind)
    np.testing.assert_array_equal(run(lambda a: ops.arg_reduce(kind, a, 1), x), theirs(x, axis=1))
    last = 7 - theirs(x[:, ::-1], axis=1)
    np.testing.assert_array_equal(run(lambda a: ops.arg_reduce(kind, a, 1, True, True), x), last[:, None])


def softmax_reference(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis):
    x = f32(3, 4, 5) * 10
    wide = x.astype(np.float64)
    close(run(lambda a: ops.softmax(a, axis), x), softmax_reference(wide, axis))
    close(run(lambda a: ops.log_softmax(a, axis), x), np.log(softmax_reference(wide, axis)))


def test_softmax_is_five_stages_with_fixed_names():
    x = lang.placeholder((3, 4), name="x")
    program = lang.program([x], ops.softmax(x, name="p"))
    assert [s.name for s in program.stages] == ["p_max", "p_exp", "p_sum", "p_inverse", "p"]


def test_normalisations():
    x = f32(2, 4, 3, 5)
    wide = x.astype(np.float64)
    scale, bias = f32(4), f32(4)
    by_channel = [v.reshape(1, 4, 1, 1) for v in (scale, bias)]

    def normalised(v, axes):
        centred = v - v.mean(axis=axes, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + 1e-5)

    last = f32(5), f32(5)
    close(run(ops.layer_norm, x, *last), normalised(wide, -1) * last[0] + last[1])
    close(run(lambda a: ops.layer_norm(a, axis=2), x), normalised(wide, (2, 3)))
    close(run(ops.instance_norm, x, scale, bias), normalised(wide, (2, 3)) * by_channel[0] + by_channel[1])
    grouped = normalised(wide.reshape(2, 2, 2, 3, 5), (2, 3, 4)).reshape(x.shape)
    found = run(lambda a, s, b: ops.group_norm(a, s, b, 2), x, scale, bias)
    close(found, grouped * by_channel[0] + by_channel[1])
    mean, var = f32(4), np.abs(f32(4)) + 0.1
    expected = (wide - mean.reshape(1, 4, 1, 1)) / np.sqrt(var.reshape(1, 4, 1, 1) + 1e-5)
    close(run(ops.batch_norm, x, scale, bias, mean, var), expected * by_channel[0] + by_channel[1], 1e-5)


def test_attention():
    q, k, v = f32(2, 6, 4), f32(2, 6, 4), f32(2, 6, 3)
    mask = f32(6, 6)
    scores = q.astype(np.float64) @ np.swapaxes(k, 1, 2) / 2 + mask
    close(run(ops.attention, q, k, v, mask), softmax_reference(scores, -1) @ v)
    hidden = np.where(np.tril(np.ones((6, 6), bool)), scores - mask, -np.inf)
    close(
        run(lambda a, b, c: ops.attention(a, b, c, causal=True), q, k, v), softmax_reference(hidden, -1) @ v
    )


def test_elementwise_with_broadcasting():
    x, y = f32(3, 1, 4), f32(2, 1) + 5
    wide = x.astype(np.float64)
    for fn, theirs in (
        (ops.add, np.add), (ops.subtract, np.subtract), (ops.multiply, np.multiply), (ops.divide, np.divide),
        (ops.maximum, np.maximum), (ops.minimum, np.minimum),
    ):  # fmt: skip
        close(run(fn, x, y), theirs(wide, y))
    found = run(lambda a, b: ops.where(ops.elementwise(lambda p: p > 0, a), a, b), x, y)
    close(found, np.where(x > 0, x, y))
    i, j = np.array([-7, 7, 6], np.int32), np.array([2, -2, 3], np.int32)
    np.testing.assert_array_equal(run(ops.divide, i, j), [-3, -3, 2])
    np.testing.assert_array_equal(run(lambda a: ops.cast(a, "i32"), x), x.astype(np.int32))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2, 3, 4), (6, 4)),
        ((2, 12), (2, 3, 4)),
        ((24,), (2, 3, 4)),
        ((4, 6), (3, 8)),
        ((2, 1, 3), (1, 6, 1)),
        ((1,), ()),
    ],
)
def test_reshape(old, new):
    x = f32(*old)
    np.testing.assert_array_equal(run(lambda a: ops.reshape(a, new), x), x.reshape(new))


def test_reshape_keeps_symbolic_dimensions():
    n = lang.param("n")
    A = lang.placeholder((n, 6), name="A")
    data = f32(3, 6)
    found = lang.evaluate(lang.program([A], ops.reshape(A, (n, 2, 3), name="B")), [data])["B"]
    np.testing.assert_array_equal(found, data.reshape(3, 2, 3))


def test_moving_elements():
    x, y = f32(3, 4, 5), f32(2, 4, 5)
    same = np.testing.assert_array_equal
    same(run(lambda a: ops.transpose(a, (2, 0, 1)), x), x.transpose(2, 0, 1))
    same(run(ops.transpose, x), x.T)
    same(run(lambda a, b: ops.concat([a, b, a]), x, y), np.concatenate([x, y, x]))
    same(run(lambda a: ops.strided_slice(a, (2, 0, 1), (2, 4, 2), (-1, 1, 2)), x), x[2:0:-1, :, 1:5:2])
    same(run(lambda a: ops.expand(a, (2, 3, 4, 5)), x), np.broadcast_to(x, (2, 3, 4, 5)))
    same(run(lambda a: ops.tile(a, (2, 1, 3)), x), np.tile(x, (2, 1, 3)))
    same(
        run(lambda a: ops.pad(a, [(1, 0), (0, 2), (0, 0)], 7), x),
        np.pad(x, [(1, 0), (0, 2), (0, 0)], constant_values=7),
    )
    same(run(lambda a: ops.pad(a, [(-1, 0), (0, -2), (0, 0)]), x), x[1:, :-2])
    same(
        run(lambda a: ops.pad(a, [(0, 0), (2, 2), (0, 0)], mode="reflect"), x),
        np.pad(x, [(0, 0), (2, 2), (0, 0)], mode="reflect"),
    )


def test_gathers():
    x = f32(3, 4, 5)
    at = np.array([[0, -1], [2, 1]])
    same = np.testing.assert_array_equal
    same(run(lambda a, i: ops.gather(a, i, 1), x, at), np.take(x, at, axis=1))
    index = RNG.integers(0, 4, (3, 2, 5))
    same(run(lambda a, i: ops.gather_elements(a, i, 1), x, index), np.take_along_axis(x, index, axis=1))
    same(run(ops.gather_nd, x, at), x[at[:, 0], at[:, 1]])
    batched = np.array([[1], [3], [0]])
    same(run(lambda a, i: ops.gather_nd(a, i, 1), x, batched), x[np.arange(3), batched[:, 0]])


@pytest.mark.parametrize("reduction", [None, "add"])
def test_scatter_nd(reduction):
    x, new = f32(4, 3), f32(3, 3)
    at = np.array([[1], [3], [1]])
    expected = x.astype(np.float64)
    for p, v in zip(at[:, 0], new, strict=True):
        expected[p] = v if reduction is None else expected[p] + v
    close(run(lambda a, i, u: ops.scatter_nd(a, i, u, reduction), x, at, new), expected)


def test_stencils():
    x = f32(6, 7)
    wide = np.pad(x.astype(np.float64), 1)
    weights = {(0, 0): -4.0, (1, 0): 1.0, (-1, 0): 1.0, (0, 1): 1.0, (0, -1): 1.0}
    expected = sum(w * wide[1 + a : 7 + a, 1 + b : 8 + b] for (a, b), w in weights.items())
    close(run(lambda a: ops.stencil(a, weights), x), expected)
    near = np.pad(x.astype(np.float64), 1, mode="edge")
    blurred = sum(near[a : a + 6, b : b + 7] for a in range(3) for b in range(3)) / 9
    close(run(ops.box_blur, x), blurred)
