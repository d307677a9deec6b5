"""The default schedule of GPUs: right for every kind of stage, at ragged and prime sizes."""

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import For, locate
from tilewright.lang import ops
from tilewright.lower import insert_barriers
from tilewright.plan import plan_unit
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import assert_close
from tilewright.target import H200, POCL

RNG = np.random.default_rng(5)


def t(name, *shape, dtype="f32"):
    return lang.placeholder(shape, dtype, name=name)


def of(result, *inputs):
    return lang.program(list(inputs), [result])


def chain(m=13, k=7, n=11):
    a, b = t("A", m, k), t("B", k, n)
    product = ops.matmul(a, b)
    return of(lang.compute((m, n), lambda i, j: lang.maximum(product[i, j], 0.0), name="Y"), a, b)


def batched(batch=3, m=5, k=7, n=2):
    a, b = t("A", batch, m, k), t("B", batch, k, n)
    return of(ops.matmul(a, b), a, b)


def vector(m=17, k=13):
    a, b = t("A", m, k), t("B", k, 1)
    return of(ops.matmul(a, b), a, b)


def softmax(rows=5, columns=37):
    x = t("X", rows, columns)
    return of(ops.softmax(x, axis=1), x)


def norm(rows=3, columns=11):
    x, g, b = t("X", rows, columns), t("G", columns), t("B", columns)
    return of(ops.layer_norm(x, g, b), x, g, b)


def conv1d(channels=3, n=11, out=4):
    x, w = t("X", 2, channels, n), t("W", out, channels, 3)
    return of(ops.conv(x, w, strides=(2,)), x, w)


def conv2d(channels=4, h=9, w=7, out=6):
    x, f = t("X", 1, channels, h, w), t("W", out, channels // 2, 3, 3)
    return of(ops.conv(x, f, strides=(2, 2), dilations=(1, 2), groups=2), x, f)


def conv3d(channels=2, d=5, h=4, w=3, out=3):
    x, f = t("X", 1, channels, d, h, w), t("W", out, channels, 2, 2, 2)
    return of(ops.conv(x, f), x, f)


def depthwise(channels=5, h=7, w=7):
    x, f = t("X", 1, channels, h, w), t("W", channels, 1, 3, 3)
    return of(ops.depthwise_conv(x, f), x, f)


def transposed(channels=3, h=4, w=5, out=2):
    x, f = t("X", 1, channels, h, w), t("W", channels, out, 3, 3)
    return of(ops.conv_transpose(x, f, strides=(2, 2)), x, f)


def pooling(channels=3, h=7, w=7):
    x = t("X", 1, channels, h, w)
    return of(ops.max_pool(x, (3, 3), strides=(2, 2)), x)


def sums(a=7, b=11, c=3):
    x = t("X", a, b, c)
    return of(ops.reduce("mean", x, (1,)), x)


def largest(rows=5, columns=13):
    x = t("X", rows, columns)
    return of(ops.arg_reduce("argmax", x, 1), x)


def scanned(rows=5, columns=41):
    x = t("X", rows, columns)
    total = lang.scan(x.shape, lambda y, i, j: lang.select(j == 0, 0, y[i, j - 1]) + x[i, j], axis=1)
    return of(total, x)


def scattered(rows=7, columns=3, count=5):
    x, u, i = t("X", rows, columns), t("U", count, columns), t("I", count, 1, dtype="i64")
    return of(ops.scatter_nd(x, i, u), x, i, u)


def gathered(rows=7, columns=3, count=5):
    x, i = t("X", rows, columns), t("I", count, dtype="i64")
    return of(ops.gather(x, i), x, i)


def moved(a=5, b=7, c=3):
    x = t("X", a, b, c)
    return of(ops.concat([ops.transpose(x, (2, 0, 1)), ops.transpose(x, (2, 0, 1))], axis=1), x)


PROGRAMS = [
    chain, batched, vector, softmax, norm, conv1d, conv2d, conv3d, depthwise, transposed, pooling, sums,
    largest, scanned, scattered, gathered, moved,
]  # fmt: skip


#: The same at larger ragged and prime sizes, which take several blocks, tiles and steps.
LARGER = [
    (chain, (131, 67, 113)), (batched, (3, 37, 41, 29)), (vector, (257, 523)), (softmax, (37, 1031)),
    (norm, (19, 263)), (conv1d, (13, 211, 17)), (conv2d, (14, 37, 29, 22)), (conv3d, (5, 13, 11, 9, 7)),
    (depthwise, (37, 29, 31)), (transposed, (13, 11, 17, 7)), (pooling, (13, 37, 29)), (sums, (37, 53, 11)),
    (largest, (37, 1031)), (scanned, (37, 3001)), (scattered, (101, 17, 53)), (gathered, (101, 17, 53)),
    (moved, (13, 29, 11)),
]  # fmt: skip


def compare(program, s, languages, terms):
    given = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        whole = RNG.integers(0, 5, shape) if b.dtype.is_integer else RNG.standard_normal(shape)
        given[b.name] = whole.astype(b.dtype.numpy)
    want, sizes = lang.evaluate(program, given), lang.evaluate(program, given, absolute=True)
    for language in languages:
        got = on_device(s.func, language)(given)
        for name, value in want.items():
            assert_close(got[name], value, magnitude=sizes[name], terms=terms)


@pytest.mark.few(12)
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_on_devices(make):
    program = make()
    planned = plan_unit(program, Machine(POCL, 1))
    s = planned.schedule
    rewritten = Schedule(program).replay(planned.plan.rewrites)
    assert not check_legal(rewritten.func, insert_barriers(s.func))
    compare(program, s, LANGUAGES, terms=64)
    checked_by_nvrtc(s.func, registers=64)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("make", "sizes"), LARGER, ids=[f"{make.__name__}-{max(sizes)}" for make, sizes in LARGER]
)
def test_larger_programs_on_devices(make, sizes):
    program = make(*sizes)
    for target in (POCL, H200):
        compare(program, plan_unit(program, Machine(target, 1)).schedule, LANGUAGES[:1], terms=4096)


def test_results_of_sums_stay_with_the_thread_that_reads_them():
    s = plan_unit(chain(), Machine(H200, 1)).schedule
    assert s.buffers()["matmul"].scope == "local"
    kinds = [place.node.kind.axis for place in locate(s.func.body, For) if place.node.kind.name == "thread"]
    assert kinds == ["block.x", "thread.x"]


def test_what_many_read_is_computed_once():
    s = plan_unit(softmax(), Machine(H200, 1)).schedule
    # the maximum and the sum of each row are kernels of their own
    axes = [place.node.kind.axis for place in locate(s.func.body, For) if place.node.kind.axis == "block.x"]
    assert len(axes) == 1
    assert s.trace.steps == plan_unit(softmax(), Machine(H200, 1)).schedule.trace.steps
