"""Rewrites that the mapper's failures ask for: equal to their sources, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import Iter, Load, parse_program, print_program, var, verify_program
from tilewright.lang import evaluate
from tilewright.schedule import Schedule, replay
from tilewright.support import ScheduleError


def products(types=("i32", "i8", "i8")):
    total, left, right = types
    a, b, v = (
        lang.placeholder(s, t, name=n)
        for s, t, n in (((4, 8), left, "A"), ((8, 6), right, "B"), ((6,), right, "v"))
    )
    k = lang.reduce_axis(8, "k")

    def term(i, j):
        if total == "f32":
            return lang.sum(a[i, k] * b[k, j] * v[j], k)
        return lang.sum(lang.cast(a[i, k], total) * lang.cast(b[k, j], total), k)

    return lang.program([a, b, v] if total == "f32" else [a, b], [lang.compute((4, 6), term, name="C")])


FLOATS = products(("f32", "f32", "f32"))
BYTES = products()


def windows():
    x, w = lang.placeholder((4, 6), name="X"), lang.placeholder((6, 5), name="W")
    q, r = lang.reduce_axis(3, "q"), lang.reduce_axis(2, "r")
    return lang.program(
        [x, w],
        [lang.compute((4, 5), lambda i, k: lang.sum(x[i, 2 * q + r] * w[2 * q + r, k], (q, r)), name="C")],
    )


def over_k(value):
    """A sum over k of what three matrices and a vector give."""
    a, b, d = (lang.placeholder((4, 4), name=n) for n in "ABD")
    v, k = lang.placeholder((4,), name="V"), lang.reduce_axis(4, "k")

    def term(i, j):
        return lang.sum(value(a[i, k], b[k, j], d[i, k], v[k]), axis=k)

    return lang.program([a, b, d, v], [lang.compute((4, 4), term, name="C")])


def scaled():
    return over_k(lambda a, b, d, v: a * b * d * 3 * v)


def sums():
    return over_k(lambda a, b, d, v: (a + d) * (b + v) + d * v + v)


def long_sums():
    return over_k(lambda a, b, d, v: (a + b) * (a + d) * (b + d) * (a + v) * (b + v))


MADE = {
    "factor": (FLOATS, lambda s: s.factor_out("C", (2,), "T")),
    "factor two": (FLOATS, lambda s: s.factor_out("C", (2,), "T").gather_operand("C", 1, ("j",), "V")),
    "factor constants": (scaled(), lambda s: s.factor_out("C", (), "T")),
    "split terms": (sums(), lambda s: s.split_terms("C", "T", False)),
    "split terms apart": (sums(), lambda s: s.split_terms("C", "T", True)),
    "shift a": (BYTES, lambda s: s.shift_factor("C", 0, "U")),
    "shift b": (BYTES, lambda s: s.shift_factor("C", 1, "U")),
    "fuse results": (FLOATS, lambda s: s.fuse_iterators("C", "i", "j")),
    "fuse sums": (windows(), lambda s: s.fuse_iterators("C", "q", "r")),
    "fuse otherwise": (windows(), lambda s: s.fuse_iterators("C", "r", "q")),
}


@pytest.mark.parametrize("case", MADE)
def test_equal_to_the_source(case):
    program, steps = MADE[case]
    s = steps(Schedule(program, verify=True))
    rng = np.random.default_rng(0)
    given = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        given[b.name] = (
            rng.normal(size=shape).astype("f4")
            if b.dtype.is_float
            else rng.integers(-128, 128, shape).astype("i1")
        )
    (wanted,), (made,) = evaluate(program, given).values(), evaluate(s.program, given).values()
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-4 if wanted.dtype.kind == "f" else 0)
    verify_program(s.program)
    assert replay(program, s.trace.to_json()).program == s.program


def bounded(axis):
    """The products with a range of an axis that depends on another one."""
    stage = BYTES.stages[0]
    iters = tuple(Iter(it.name, it.lo, var("i"), it.kind) if it.name == axis else it for it in stage.iters)
    return replace(BYTES, stages=(replace(stage, iters=iters),))


def maxima():
    x, k = lang.placeholder((4, 8), name="X"), lang.reduce_axis(8, "k")
    return lang.program([x], [lang.compute((4,), lambda i: lang.max(x[i, k], axis=k), name="C")])


REFUSALS = {
    "no sum": (lambda: Schedule(maxima()).factor_out("C", (0,), "T"), "is no sum of products from zero"),
    "all factors": (
        lambda: Schedule(FLOATS).factor_out("C", (0, 1, 2), "T"),
        "are none or all factors of stage",
    ),
    "no factor": (lambda: Schedule(FLOATS).factor_out("C", (), "T"), "are none or all factors of stage"),
    "all axes": (
        lambda: Schedule(FLOATS).factor_out("C", (0,), "T"),
        "depend on all reduction axes of stage",
    ),
    "taken": (lambda: Schedule(FLOATS).factor_out("C", (2,), "A"), "the name 'A' is taken"),
    "a range": (
        lambda: Schedule(ranged("hi")).factor_out("C", (1,), "T"),
        "the range of an axis of stage 'C' depends",
    ),
    "where a range begins": (
        lambda: Schedule(ranged("lo")).factor_out("C", (1,), "T"),
        "the range of an axis of stage 'C' depends",
    ),
    "no bytes": (lambda: Schedule(FLOATS).shift_factor("C", 0, "U"), "is no factor of signed bytes"),
    "unsigned": (
        lambda: Schedule(products(("i32", "u8", "i8"))).shift_factor("C", 0, "U"),
        "is no factor of signed bytes",
    ),
    "a range of bytes": (
        lambda: Schedule(bounded("k")).shift_factor("C", 0, "U"),
        "the range of an axis of stage",
    ),
    "one product": (lambda: Schedule(FLOATS).split_terms("C", "T", False), "sums 1 products: from 2 to 16"),
    "too many products": (lambda: Schedule(long_sums()).split_terms("C", "T", True), "sums 32 products"),
    "terms of no sum": (lambda: Schedule(maxima()).split_terms("C", "T", True), "is no sum from zero"),
    "taken terms": (lambda: Schedule(sums()).split_terms("C", "V 1", True), "the name 'V 10' is taken or no"),
    "no axis": (lambda: Schedule(FLOATS).fuse_iterators("C", "i", "q"), "stage 'C' has no axis 'q'"),
    "two kinds": (lambda: Schedule(FLOATS).fuse_iterators("C", "i", "k"), "cannot be one axis"),
    "one axis": (lambda: Schedule(FLOATS).fuse_iterators("C", "i", "i"), "cannot be one axis"),
    "nothing": (lambda: Schedule(nothing()).fuse_iterators("C", "i", "j"), "cannot be one axis"),
}


def nothing():
    a = lang.placeholder((4, 0), name="A")
    return lang.program([a], [lang.compute((4, 0), lambda i, j: a[i, j] + 1.0, name="C")])


def ranged(end):
    """A sum with a factor that its inner axis does not move, and a range of that axis by another."""
    a, b = lang.placeholder((4, 8), name="A"), lang.placeholder((4,), name="B")
    k = lang.reduce_axis(8, "k")
    program = lang.program([a, b], [lang.compute((4,), lambda i: lang.sum(a[i, k] * b[i], k), name="C")])
    stage = program.stages[0]
    iters = tuple(replace(it, **{end: var("i")}) if it.name == "k" else it for it in stage.iters)
    return replace(program, stages=(replace(stage, iters=iters),))


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, same_text):
    steps, message = REFUSALS[case]
    with pytest.raises(ScheduleError) as caught:
        steps()
    assert message in str(caught.value)
    same_text(caught.value)


def test_factors_are_told_by_elements():
    """Both uses of an operand leave the first sum together."""
    assert isinstance(FLOATS.stages[0].operands[2], Load)
    s = Schedule(FLOATS).factor_out("C", (2,), "T")
    assert [st.name for st in s.program.stages] == ["T", "C"]
    assert not s.program.stage("C").is_reduction


def test_axes_that_a_range_depends_on_stay_apart():
    x, k = lang.placeholder((4, 4), name="X"), lang.reduce_axis(4, "k")
    rows = lang.compute((4, 4), lambda i, j: lang.sum(x[i, k], axis=k), name="Y")
    text = print_program(lang.program([x], [rows])).replace("k = red(0, 4)", "k = red(0, j + 1)")
    with pytest.raises(ScheduleError, match="the range of an axis of stage 'Y' depends on 'i' or 'j'"):
        Schedule(parse_program(text)).fuse_iterators("Y", "i", "j")
