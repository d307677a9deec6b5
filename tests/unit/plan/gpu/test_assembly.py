"""The default schedule of GPUs: right for every kind of stage, at ragged and prime sizes."""

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import For, locate, run_program
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


def chain():
    a, b = t("A", 13, 7), t("B", 7, 11)
    product = ops.matmul(a, b)
    return of(lang.compute((13, 11), lambda i, j: lang.maximum(product[i, j], 0.0), name="Y"), a, b)


def batched():
    a, b = t("A", 3, 5, 7), t("B", 3, 7, 2)
    return of(ops.matmul(a, b), a, b)


def vector():
    a, b = t("A", 17, 13), t("B", 13, 1)
    return of(ops.matmul(a, b), a, b)


def softmax():
    x = t("X", 5, 37)
    return of(ops.softmax(x, axis=1), x)


def norm():
    x, g, b = t("X", 3, 11), t("G", 11), t("B", 11)
    return of(ops.layer_norm(x, g, b), x, g, b)


def conv1d():
    x, w = t("X", 2, 3, 11), t("W", 4, 3, 3)
    return of(ops.conv(x, w, strides=(2,)), x, w)


def conv2d():
    x, w = t("X", 1, 4, 9, 7), t("W", 6, 2, 3, 3)
    return of(ops.conv(x, w, strides=(2, 2), dilations=(1, 2), groups=2), x, w)


def conv3d():
    x, w = t("X", 1, 2, 5, 4, 3), t("W", 3, 2, 2, 2, 2)
    return of(ops.conv(x, w), x, w)


def depthwise():
    x, w = t("X", 1, 5, 7, 7), t("W", 5, 1, 3, 3)
    return of(ops.depthwise_conv(x, w), x, w)


def transposed():
    x, w = t("X", 1, 3, 4, 5), t("W", 3, 2, 3, 3)
    return of(ops.conv_transpose(x, w, strides=(2, 2)), x, w)


def pooling():
    x = t("X", 1, 3, 7, 7)
    return of(ops.max_pool(x, (3, 3), strides=(2, 2)), x)


def sums():
    x = t("X", 7, 11, 3)
    return of(ops.reduce("mean", x, (1,)), x)


def largest():
    x = t("X", 5, 13)
    return of(ops.arg_reduce("argmax", x, 1), x)


def gathered():
    x, i = t("X", 7, 3), t("I", 5, dtype="i64")
    return of(ops.gather(x, i), x, i)


def moved():
    x = t("X", 5, 7, 3)
    return of(ops.concat([ops.transpose(x, (2, 0, 1)), ops.transpose(x, (2, 0, 1))], axis=1), x)


PROGRAMS = [
    chain, batched, vector, softmax, norm, conv1d, conv2d, conv3d, depthwise, transposed, pooling, sums,
    largest, gathered, moved,
]  # fmt: skip


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_on_devices(make):
    program = make()
    planned = plan_unit(program, Machine(POCL, 1))
    s = planned.schedule
    rewritten = Schedule(program).replay(planned.plan.rewrites)
    assert not check_legal(rewritten.func, insert_barriers(s.func))
    given = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        whole = RNG.integers(0, 5, shape) if b.dtype.is_integer else RNG.standard_normal(shape)
        given[b.name] = whole.astype(b.dtype.numpy)
    want = run_program(program, given)
    for language in LANGUAGES:
        got = on_device(s.func, language)(given)
        for name, value in want.items():
            assert_close(got[name], value, terms=64)
    checked_by_nvrtc(s.func, registers=64)


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
