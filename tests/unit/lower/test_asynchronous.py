"""Copies that may arrive at the next barrier: marked where nobody, not even their thread, needs them yet."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang, poly
from tilewright.build import kernel_source
from tilewright.cost import Machine
from tilewright.ir import ASYNCHRONOUS, CONST, Barrier, For, locate, replace_at, seq
from tilewright.lang import ops
from tilewright.lower import insert_barriers, mark_asynchronous
from tilewright.plan import plan_unit
from tilewright.poly import budget
from tilewright.schedule import Schedule
from tilewright.support import ResourceError, assert_close
from tilewright.target import A100


def marked(func):
    """The loops that lowering marks."""
    func = mark_asynchronous(insert_barriers(func))
    return [p.node.var for p in locate(func.body, For) if ASYNCHRONOUS in dict(p.node.hints)]


def staged(read, n=8, steps=3, fill=None):
    """`Y[k, i] = T[read(i)]` with rows of X in shared memory, one thread an element, row after row.

    With ``fill`` in place of elements from the fifth on.
    """
    x = lang.placeholder((steps, n), name="X")
    if fill is not None:
        inner = lambda k, i: lang.select(i < 5, x[k, i], fill)  # noqa: E731
        t = lang.compute((steps, n), lambda k, i: lang.select(k + i < 12, inner(k, i), 1 - fill), name="T")
        y = lang.compute((steps, n), lambda k, i: t[k, read(i)] * 2, name="Y")
        s = Schedule(lang.program([x], [y])).split("Y_k", steps, names=["k_o", "k_i"])
        s = s.compute_at("T", "k_i").set_scope("T", "shared")
        return s.bind("k_o", "block.x").bind((s.loops("T")[-1], "Y_i"), "thread.x")
    y = lang.compute((steps, n), lambda k, i: x[k, read(i)] * 2, name="Y")
    s = Schedule(lang.program([x], [y])).split("k", steps).reorder("k_o", "k_i", "i")
    s = s.cache("X", "k_i", scope="shared", name="T")
    return s.bind("k_o", "block.x").bind((s.loops("T")[-1], "i"), "thread.x")


def test_what_other_threads_read_is_behind_a_barrier():
    (loop,) = marked(staged(lambda i: 7 - i).func)
    assert loop.startswith("T_")


def test_what_the_same_thread_reads_at_once_is_not():
    """No two threads meet: nothing orders a late copy and its use, whatever barriers stand elsewhere."""
    func = staged(lambda i: i).func
    assert marked(func) == []
    p = next(p for p in locate(func.body, For) if p.node.var == "k_i")
    barred = func.with_body(replace_at(func.body, p.path, seq(p.node, Barrier("shared"))))
    assert marked(barred) == []


def test_only_copies_are():
    x = lang.placeholder((8,), name="X")
    t = lang.compute((8,), lambda i: x[i] * 2, name="T")
    y = lang.compute((8,), lambda i: t[7 - i], name="Y")
    s = Schedule(lang.program([x], [y]))
    s = s.split("Y_i", 8, names=["i_o", "i_i"]).compute_at("T", "i_o")
    s = s.set_scope("T", "shared").bind("i_o", "block.x").bind((s.loops("T")[-1], "i_i"), "thread.x")
    assert marked(s.func) == []


@pytest.mark.parametrize("other", [0, 1], ids=["zero", "one"])
def test_borders_arrive_as_zeros(other):
    """What a condition leaves out is a copy as well; only zeros arrive by themselves."""
    func = staged(lambda i: 7 - i, fill=other).func
    (loop,) = marked(func)
    assert loop.startswith("T_")
    text = checked_by_nvrtc(func)
    assert ("tw_copy_4_if(&T_[" in text) == (other == 0)
    given = {"X": np.random.default_rng(3).standard_normal((3, 8), np.float32)}
    want = np.where(np.arange(8) < 5, given["X"], np.float32(other))[:, ::-1] * 2
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(func, language)(given)["Y"], want)


def test_constants_are_copied_late():
    func = staged(lambda i: 7 - i).func
    constants = tuple(b.with_(scope=CONST) if b.name == "X" else b for b in func.buffers)
    (loop,) = marked(replace(func, buffers=constants))
    assert loop.startswith("T_")


def test_products_copy_ahead():
    """Wide copies begin in CUDA's text and arrive before each barrier; loops in C compute the product."""
    a, b = lang.placeholder((128, 128), name="A"), lang.placeholder((128, 128), name="B")
    s = plan_unit(lang.program([a, b], [ops.matmul(a, b)]), Machine(A100, 1)).schedule
    text = checked_by_nvrtc(s.func)
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.startswith("tw_copy_16(&") for line in lines)
    barriers = [at for at, line in enumerate(lines) if line == "__syncthreads();"]
    assert barriers and all(lines[at - 1] == "tw_copies_arrive();" for at in barriers)
    rng = np.random.default_rng(3)
    given = {name: rng.standard_normal((128, 128), np.float32) for name in "AB"}
    (made,) = on_device(s.func, "c")(given).values()
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    assert_close(made, wide["A"] @ wide["B"], magnitude=abs(wide["A"]) @ abs(wide["B"]), terms=128)


def test_languages_without_them_copy_at_once():
    func = staged(lambda i: 7 - i).func
    assert "tw_copy" not in kernel_source(func, "opencl").text
    assert "tw_copies_arrive" in kernel_source(func, "cuda").text


def test_copies_stay_as_they_are_where_isl_needs_too_long(monkeypatch):
    func = insert_barriers(staged(lambda i: 7 - i).func)
    monkeypatch.setattr(poly, "bounded", partial(budget.bounded, operations=10))
    assert mark_asynchronous(func) is func


def test_conflicts_of_threads_that_isl_needs_too_long_for_are_refused(monkeypatch):
    monkeypatch.setattr(poly, "bounded", partial(budget.bounded, operations=10))
    with pytest.raises(ResourceError, match=r"the conflicts between threads of .* are too many: isl gave up"):
        insert_barriers(staged(lambda i: 7 - i).func)
