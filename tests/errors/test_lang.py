"""Every error of the language: what it says, and that it points at the user's line."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import ir, lang
from tilewright.lang import ops
from tilewright.lang.algorithms import match_winograd, winograd
from tilewright.support import InputError, ProgramError


@pytest.fixture
def u():
    """Things to be wrong about."""
    A = lang.placeholder((4, 6), name="A")
    return SimpleNamespace(
        A=A,
        B=lang.placeholder((6, 5), name="B"),
        D=lang.placeholder((4, 6), "f64", name="D"),
        I=lang.placeholder((4,), "i32", name="I"),
        b=lang.placeholder((4,), "bool", name="b"),
        n=lang.param("n"),
        k=lang.reduce_axis(6, "k"),
        i=lang.axis(4, "i"),
        s=lang.placeholder((), name="s"),
        J=lang.placeholder((4, 6), "i32", name="J"),
        S=lang.placeholder((lang.param("n"),), name="S"),
        X=lang.placeholder((1, 3, 5, 5), name="X"),
        W=lang.placeholder((2, 3, 3, 3), name="W"),
        m=lang.reduce_axis(lang.param("n"), "m"),
    )


def _nested_triangle(u, i):
    t = lang.reduce_axis((0, i + 1), "t")
    return lang.sum(lang.exp(lang.sum(u.A[t, u.k], axis=u.k)), axis=t)


# (what the user writes, what the message says, what the hint says); `u` holds the fixture's tensors
CASES = [
    # indices
    (lambda u: u.A[0], "A has 2 dimensions and is indexed with 1", "its shape is (4, 6)"),
    (lambda u: len(u.s), "s is a scalar: it has no len", "rank is 0"),
    (lambda u: len(u.S), "len of S: its first extent is no number yet", "shape[0]"),
    (
        lambda u: len(lang.stage(lambda i: u.S[i], name="F")),
        "len of F: its first",
        "when the program is made",
    ),
    (lambda u: u.A[0, 1, 2], "A has 2 dimensions and is indexed with 3", "its shape"),
    (lambda u: u.A[0, 1.5], "index 1 of A is float 1.5, not an integer", "axes and integers"),
    (lambda u: u.A[:, 0], "index 0 of A is a slice", "one element"),
    (lambda u: u.A[u.I[0], 0], "index 0 of A depends on data and is not clamped", "lang.clamp(x, 0, n - 1)"),
    (lambda u: u.A[u.A[0, 0], 0], "index 0 of A has type f32", "cast and clamp"),
    (lambda u: u.i * u.k, "the index product (i) * (k) is not affine", "constant integer"),
    (lambda u: u.i // u.k, "the index (i) // (k) is not quasi-affine", "positive constant"),
    (lambda u: u.i % 0, "the index (i) % (0) is not quasi-affine", "positive constant"),
    (lambda u: u.i / 2, "true division of the index i", "use //"),
    (lambda u: u.i // 0.5, "the index (i) // 0.5", "lang.to_scalar"),
    (
        lambda u: lang.compute((4,), lambda i: u.A[lang.cast(u.I[i], "u8"), 0]),
        "index 0 of A, int(",
        "lang.boundary",
    ),
    (lambda u: lang.absd(u.b[0], u.b[1]), "lang.absd of conditions", "lang.cast(x, 'i32')"),
    (lambda u: lang.absd(lang.const(1, "i64"), 2), "lang.absd on values of type i64", "abs(a - b)"),
    (lambda u: lang.avg_round(u.A[0, 0], 1.0), "lang.avg_round on values of type f32", "for integers"),
    (lambda u: lang.lerp(u.I[0], u.I[1], 3), "lang.lerp on values of type i32", "u8 or u16"),
    (lambda u: lang.mux(0, []), "lang.mux of no values", "what to choose from"),
    (lambda u: lang.mux(u.A[0, 0], [1, 2]), "the choice of lang.mux is not an integer", "integer scalar"),
    (lambda u: lang.random(1, u.i, dtype="f64"), "lang.random of type f64", "f32, u32 or i32"),
    (lambda u: lang.random(1, 0.5), "lang.random takes integers besides the seed", "integer scalars"),
    (
        lambda u: lang.scan((4,), lambda t, i: t[i - 1], reverse=True),
        "the scan reads an element of an unnamed tensor (t) that is not known to be made before",
        "larger indices i, e.g. i + 1",
    ),
    (lambda u: list(u.A), "A cannot be iterated over", "A[i, j]"),
    (
        lambda u: lang.compute((4, 6), lambda i, j: u.A[i, j + 1]),
        "index 1 of A, j + 1, runs from 1 to 6 and the extent is 6",
        "lang.boundary",
    ),
    (lambda u: 1 if u.i == 0 else 2, "a scalar has no truth value", "lang.select"),
    (lambda u: u.i and 1, "the index i has no truth value", "lang.select"),
    # types
    (lambda u: u.A[0, 0] + u.D[0, 0], "`+` mixes f32 and f64", "lang.cast(x, 'f32')"),
    (lambda u: u.I[0] + 0.5, "the literal 0.5 among values of type i32", "cast to a float type"),
    (lambda u: u.I[0] + (1 << 40), "the literal 1099511627776 does not fit in i32", "wider"),
    (lambda u: u.I[0] / 2, "true division of values of type i32", "lang.truncdiv"),
    (lambda u: u.A[0, 0] % 2, "% on values of a float type", "lang.floor"),
    (lambda u: u.A[0, 0] & 1, "`&` on values of type f32", "integers or conditions"),
    (lambda u: ~u.A[0, 0], "`~` on a value of type f32", "negates"),
    (lambda u: u.b[0] + u.b[1], "`+` on values of type bool", "& | ~"),
    (lambda u: -u.b[0], "`-` on a value of type bool", "~"),
    (lambda u: u.b[0] << 1, "the number 1 among values of type bool", "True or False"),
    (lambda u: u.b[0] == u.i, "`==` mixes a condition and an index", "compare"),
    (lambda u: lang.exp(u.I[0]), "lang.exp on values of type i32", "lang.cast(x, 'f32')"),
    (lambda u: lang.truncdiv(u.A[0, 0], 2), "lang.truncdiv on values of type f32", "integers"),
    (lambda u: lang.maximum(u.A[0, 0], u.I[0]), "lang.maximum mixes f32 and i32", "convert one"),
    (lambda u: lang.select(u.A[0, 0], 1, 2), "the condition of lang.select is f32", "compare something"),
    (lambda u: lang.cast(u.A[0, 0], "f33"), "there is no element type 'f33'", "one of f64, f32"),
    (lambda u: lang.cast(u.A[0, 0], "i32", "round"), "lang.cast has no mode 'round'", "saturate"),
    (lambda u: lang.cast(u.A[0, 0], "f64", "bits"), "cannot reinterpret f32 as f64", "same number of bits"),
    (lambda u: lang.cast(1.0, "i32"), "lang.cast needs a scalar", "lang.const"),
    (lambda u: lang.to_scalar(u.A[0, 0]), "lang.to_scalar needs an index", "lang.cast"),
    (lambda u: lang.to_scalar(u.i, "bool"), "an index has no value of type bool", "i == 0"),
    # reductions
    (
        lambda u: lang.sum(u.A[0, u.k], axis=u.i),
        "lang.sum over the axis 'i', which is not a reduction axis",
        "lang.reduce_axis",
    ),
    (lambda u: lang.sum(u.A[0, u.k], axis=3), "the axis of lang.sum is 3", "lang.reduce_axis"),
    (lambda u: lang.sum(u.A[0, u.k], axis=()), "lang.sum over no axis", "axis=k"),
    (lambda u: lang.sum(u.A[0, u.k], axis=(u.k, u.k)), "names an axis twice", None),
    (lambda u: lang.sum(u.A[0, u.k] > 0, axis=u.k), "lang.sum of conditions", "lang.any"),
    (lambda u: lang.any(u.A[0, u.k], axis=u.k), "lang.any of values of type f32", "compare"),
    (lambda u: lang.argmax(u.A[0, u.k] > 0, axis=u.k), "lang.argmax of conditions", "cast"),
    (lambda u: lang.sum(u.A[0, u.k], axis=u.k, where=u.A[0, 0]), "`where` of lang.sum is f32", "compare"),
    (
        lambda u: lang.compute((4,), lambda i: u.A[i, u.k]),
        "the reduction axis 'k' is used outside of a reduction over it",
        "lang.sum(…, axis=k)",
    ),
    (
        lambda u: lang.compute((4,), lambda i: lang.sum(u.A[i, u.k], axis=u.k) + u.A[i, u.k]),
        "the reduction axis 'k' is used outside",
        "wrap the term",
    ),
    (
        lambda u: lang.compute((4,), lambda j: u.A[u.i, j]),
        "the axis 'i' does not belong to this definition",
        "the indices that the function is given",
    ),
    # definitions
    (
        lambda u: lang.compute((4, 6), lambda i: u.A[i, 0]),
        "the function's indices are (i) and the shape has 2 dimensions",
        "one index a dimension",
    ),
    (
        lambda u: lang.compute((4,), lambda i: u.A[i, 0], axes=("i", "j")),
        "the axes are (i, j) and the shape has 1 dimension",
        "one index",
    ),
    (lambda u: lang.compute((4,), lambda i: "x"), "is str, not a scalar expression", "A[i, j]"),
    (
        lambda u: lang.compute((4,), lambda i: u.A[i, 0], dtype="f64"),
        "is f32, not f64",
        "lang.cast(x, 'f64')",
    ),
    (lambda u: lang.compute((-1,), lambda i: u.A[0, 0]), "extent 0 of the shape is negative", None),
    (lambda u: lang.compute(("x",), lambda i: u.A[0, 0]), "extent 0 of the shape is 'x'", "lang.param"),
    (lambda u: lang.compute((4,), lambda i: u.A[i, 0], name="a b"), "'a b' cannot name a tensor", "letters"),
    (
        lambda u: lang.compute((4,), lambda i: (u.A[i, 0], u.A[i, 1]), name=("x",)),
        "1 name for 2 tensors",
        None,
    ),
    (lambda u: lang.axis(4, "größe"), "cannot name an axis", "letters"),
    (lambda u: lang.axis((0, 1, 2)), "the range of an axis has 3 parts", "(lo, hi)"),
    (lambda u: lang.param("m", lo=5, hi=3), "symbolic size m: no values in [5, 3]", None),
    # boundaries
    (lambda u: lang.boundary(u.A, mode="mirror"), "lang.boundary has no mode 'mirror'", "reflect"),
    (lambda u: lang.boundary(u.A, 1, mode="clamp"), "mode 'clamp' takes no value", "leave out"),
    (lambda u: lang.boundary(u.A[0, 0]), "lang.boundary of Scalar", "a tensor"),
    (lambda u: lang.boundary(u.I, 0.5), "the literal 0.5 among values of type i32", "cast"),
    # ordered definitions
    (
        lambda u: lang.scan((4,), lambda t, i: t[i] + 1.0),
        "the scan reads an element of an unnamed tensor (t) that is not known to be made before",
        "e.g. i - 1",
    ),
    (
        lambda u: lang.scan((4,), lambda t: 1.0),
        "the function's indices are () and the shape has 1 dimension",
        "fn(t, i, j, …)",
    ),
    (lambda u: lang.scan((4,), lambda t, i: 1.0, axis=2), "axis 2 of a tensor of 1 dimensions", None),
    (
        lambda u: lang.scan((4,), lambda t, i: lang.sum(t[u.k], axis=u.k)),
        "lang.sum reads an unnamed tensor (t), which the definition around it changes",
        "lang.reduce_axis",
    ),
    (
        lambda u: lang.update(u.A, [lang.axis(3, "i")], lambda t, i: lang.write((i, 0), t[i + 1, 0])),
        "the axis 'i' of the update is not ordered",
        "lang.ordered_axis",
    ),
    (
        lambda u: lang.update(u.A, [4], lambda t, i: t[i, 0]),
        "the update has 1 axes, the tensor 2 dimensions",
        "lang.write",
    ),
    (
        lambda u: lang.update(u.A, [u.k], lambda t, k: lang.write((0, k), 1.0)),
        "the update is in no order along the reduction axis 'k', and its result depends on it",
        "lang.ordered_axis",
    ),
    (
        lambda u: lang.update(u.A, [u.k], lambda t, k: lang.write((0, k), t[0, k] + t[0, 0])),
        "the update is in no order along the reduction axis 'k'",
        "lang.maximum",
    ),
    (
        lambda u: lang.stage(lambda y: u.A[y, 0], bounds={"x": (0, 4)}),
        "bounds= names 'x', which is no index of the stage",
        "one of y",
    ),
    (
        lambda u: lang.stage(lambda y: u.A[y, 0], bounds={"y": (4, 4)}),
        "the bounds of 'y' are (4, 4)",
        "the first index and the end",
    ),
    (lambda u: lang.placeholder((4, 3), strides=(3,)), "strides (3) of a shape (4, 3)", "one stride"),
    (lambda u: lang.placeholder((4, 3), strides=(2, 1)), "by the strides (2, 1) elements overlap", "larger"),
    (lambda u: lang.scatter(u.A, u.I, u.A), "lang.scatter of ranks 2, 1 and 2", "agree"),
    (lambda u: lang.scatter(u.A, u.D, u.A), "the indices of lang.scatter are f64", "integers"),
    # programs
    (lambda u: lang.program([u.A], []), "the program has no outputs", "at least one"),
    (lambda u: lang.program([u.A], [u.A]), "the output A is not computed: it is a placeholder", "copy it"),
    (
        lambda u: lang.program([], ops.transpose(u.A)),
        "the program reads A, which is not among its inputs",
        "add it",
    ),
    (lambda u: lang.program([u.A, u.A], ops.transpose(u.A)), "the input A is listed twice", None),
    (
        lambda u: lang.program([ops.transpose(u.A, name="T")], ops.transpose(u.A)),
        "the input T is computed",
        "lang.placeholder",
    ),
    (lambda u: lang.program([u.A], ops.transpose(u.A), name="1st"), "'1st' cannot name a program", "letters"),
    (
        lambda u: lang.program([u.A], ops.transpose(u.A), assumes=[u.n * 2 != 4]),
        "not a linear condition",
        "n >= m",
    ),
    (
        lambda u: lang.program(
            [u.A, lang.placeholder((u.n, lang.param("n", lo=7)), name="X")], ops.transpose(u.A)
        ),
        "the symbolic size n is declared twice",
        "once",
    ),
    (
        lambda u: lang.program(
            [u.A, u.B], ops.add(ops.transpose(u.A, name="T"), ops.transpose(u.A, name="T"))
        ),
        "the name 'T' of a tensor is also that of the tensor of line",
        "another",
    ),
    # operators
    (lambda u: ops.matmul(u.A, u.A), "the matrix product of A and A sums over 6 and 4 elements", "agree"),
    (lambda u: ops.add(u.A, u.B), "the shapes of an element-wise operator do not fit", "agree or be 1"),
    (lambda u: ops.transpose(u.A, (0, 0)), "(0, 0) does not order 2 dimensions", None),
    (lambda u: ops.reshape(u.A, (5, 5)), "a reshape from (4, 6) to (5, 5)", None),
    (lambda u: ops.reduce("median", u.A), "there is no reduction 'median'", "sum"),
    (lambda u: ops.softmax(u.A, 2), "axis 2 of softmax of 2 dimensions", None),
    (lambda u: ops.conv(u.A, u.B), "a convolution of 2 with 2 dimensions", "spatial"),
    # what is left of each of the files
    (lambda u: lang.boundary(u.A, "zero"), "the value outside is str", "a literal or a scalar"),
    (
        lambda u: lang.compute((4,), lambda i: u.A[i, 0], name=("x", "y")),
        "several names for one tensor",
        "return a tuple",
    ),
    (
        lambda u: lang.compute((4,), lambda i: _nested_triangle(u, i)),
        "the inner reduction depends on the axis 't', whose range depends on other axes",
        "a stage of its own",
    ),
    (lambda u: lang.maximum(u.A[0, 0], "x"), "lang.maximum of str", "scalars, indices or literals"),
    (
        lambda u: lang.clamp(u.i, 0, u.I[0]),
        "lang.clamp of an index by something that is no index",
        "integers and axes",
    ),
    (lambda u: lang.logical_and(), "lang.logical_and of nothing", None),
    (lambda u: ops.reduce("sum", u.A, (0, 0)), "an axis of a reduction is named twice: [0, 0]", None),
    (
        lambda u: ops.conv(u.X, lang.placeholder((2, 3, u.n, 3))),
        "the extent of a window is symbolic (n)",
        "a constant",
    ),
    (lambda u: ops.conv(u.X, u.W, padding=(1, 1, 1)), "3 paddings for 2 spatial dimensions", None),
    (lambda u: ops.conv(u.X, u.W, strides=0), "the stride is 0", "a positive integer or 2 of them"),
    (lambda u: ops.matmul(u.A, u.s), "a matrix product of a scalar", "multiply instead"),
    (
        lambda u: ops.conv(u.X, u.W, groups=2),
        "2 groups of 3 input channels for 3, 2 output channels",
        "the groups divide the output channels",
    ),
    (
        lambda u: ops.conv_transpose(u.X, u.W, groups=2),
        "2 groups for 3 input channels and weights of 2",
        None,
    ),
    (lambda u: ops.group_norm(u.X, u.s, u.s, 2), "2 groups do not divide 3 channels", None),
    (lambda u: ops.expand(u.A, (6,)), "A has 2 dimensions and cannot become 1", None),
    (lambda u: ops.expand(u.A, (4, 7)), "extent 6 of A cannot become 7", None),
    (lambda u: ops.concat([u.A, u.B], 0), "B does not fit beside A along dimension 0", None),
    (lambda u: ops.stencil(u.A, {(1,): 1.0}), "a stencil needs offsets of 2 numbers", "(-1, 0)"),
    (lambda u: ops.box_blur(u.X), "a blur of 4 dimensions", "an image of 2"),
    (
        lambda u: lang.update(u.A, [4], lambda t, i, j: t[i, j]),
        "the function's indices are (i, j) and 1 axes are given",
        "one index an axis",
    ),
    (lambda u: lang.update(u.A, [4], lambda t, i: ()), "the update writes nothing", "lang.write"),
    (
        lambda u: lang.update(u.A, [4], lambda t, i: lang.write((i,), 1.0)),
        "is written with 1 indices",
        None,
    ),
    (lambda u: lang.scatter(u.A, u.J, u.A, axis=2), "axis 2 of a tensor of 2 dimensions", None),
    (
        lambda u: lang.scatter(u.A, u.J, u.B),
        "the indices and updates of lang.scatter have different shapes",
        None,
    ),
    (
        lambda u: lang.scatter(u.A, u.J, u.A, reduction="sub"),
        "lang.scatter has no reduction 'sub'",
        "add, mul, max, min",
    ),
    (lambda u: lang.program([3], ops.transpose(u.A)), "an input of the program is int", "placeholders"),
    (lambda u: lang.program([u.A], [3]), "an output of the program is int, not a tensor", None),
    (
        lambda u: lang.argmax(u.A[u.m, u.k], axis=(u.m, u.k)),
        "lang.argmax over several axes of which 'm' has no constant extent",
        "one axis at a time",
    ),
    (lambda u: u.b[0] << u.b[1], "`<<` on values of type bool", "cast to an integer type first"),
    (lambda u: u.A[0, 0] + True, "the literal True among values of type f32", "write a number"),
    (lambda u: lang.axis((0.5, 4)), "the range's start is 0.5, not an index", None),
    (lambda u: lang.axis((0, 4.5)), "the range's end is 4.5, not an index", None),
    # stages without a shape
    (
        lambda u: lang.program([u.A], lang.stage(lambda y, x: u.A[y - 1, x], name="blur"), region=[5, 6]),
        "`blur` reads `A` at y - 1 in [-1, 3], it holds [0, 3]",
        "lang.boundary(A, …)",
    ),
    (
        lambda u: lang.program([u.S], lang.stage(lambda i: u.S[i + 1], name="next"), region=[u.n]),
        "`next` reads `S` at i + 1 in [1, n], it holds [0, n - 1]",
        "lang.boundary(A, …)",
    ),
    (
        lambda u: lang.program([u.A], lang.stage(lambda y, x: u.A[y, x], name="T")),
        "the region of the output T is not known",
        "region=[height, width]",
    ),
    (
        lambda u: lang.program([u.A], lang.compute((4,), lambda i: u.A[i, 0]), region=[4]),
        "region= is given, and every output has a shape",
        "leave out",
    ),
    (
        lambda u: lang.program([u.A], lang.stage(lambda y, x: u.A[y, x], name="T"), region={u.A: [4]}),
        "region= names A, which is no output without a shape",
        None,
    ),
    (
        lambda u: lang.program([u.A], [_stage(u), u.other], region={u.other: [4, 6]}),
        "the region of the output T is not known",
        "name it in region=",
    ),
    (
        lambda u: lang.program([u.A], _stage(u), region=[4]),
        "the region of T has 1 dimensions and the stage 2",
        "an extent, or (first, end)",
    ),
    (
        lambda u: lang.program([u.A], _stage(u), region=[4, 1.5]),
        "the region of T has the dimension 1.5",
        "an extent, or (first, end)",
    ),
    (
        lambda u: lang.program([u.A], _stage(u), region=[4, (3, 1)]),
        "the region of T has the dimension [3, 1), which ends before it begins",
        None,
    ),
    (
        lambda u: lang.program([u.A], [_stage(u), lang.stage(lambda y, x: u.T[y + 1, x])], region=[3, 4]),
        "T is read at [0, 3] in dimension 0, outside of its region [0, 2] as an output",
        "make a copy the output",
    ),
    (
        lambda u: lang.program(
            [u.A, u.I],
            lang.stage(lambda i: _stage(u)[ir.index(ir.Opaque(u.I[i].expr)), 0], name="g"),
            region=4,
        ),
        "`g` reads `T` at int(",
        "lang.clamp(x, first, last)",
    ),
    (lambda u: _stage(u).shape, "the region of T is inferred when the program is made", "lang.compute"),
    (lambda u: _stage(u)[0], "T has 2 dimensions and is indexed with 1", "one index a dimension"),
    (lambda u: lang.boundary(_stage(u)), "lang.boundary of T, whose region is inferred", "the inputs"),
    (lambda u: lang.stage(3), "lang.stage of int", "lambda y, x"),
]


def _stage(u):
    u.T = lang.stage(lambda y, x: u.A[y, x], name="T")
    u.other = lang.stage(lambda y, x: u.A[y, x], name="other")
    return u.T


@pytest.mark.parametrize("case", range(len(CASES)))
def test_message(u, case):
    wrong, message, hint = CASES[case]
    with pytest.raises(ProgramError) as caught:
        wrong(u)
    error = caught.value
    assert message in error.what
    assert (hint in (error.hint or "")) if hint else error.hint is None
    assert error.where.path == __file__
    assert error.where.text.strip() != ""


def test_the_line_is_that_of_the_offending_access(u):
    with pytest.raises(ProgramError) as caught:
        lang.compute(
            (4, 6),
            lambda i, j: (
                u.A[i, j] + u.A[i, j + 3]  # this one
            ),
        )
    assert "this one" in caught.value.where.text


def test_the_line_is_that_of_the_second_definition_of_a_name(u):
    first = lang.compute((4,), lambda i: u.A[i, 0], name="T")
    second = lang.compute((4,), lambda i: first[i], name="T")  # again
    with pytest.raises(ProgramError) as caught:
        lang.program([u.A], second)
    assert "again" in caught.value.where.text


def test_winograd_tiles_have_two_sizes():
    x, w = lang.placeholder((1, 4, 8, 8), name="x"), lang.placeholder((4, 4, 3, 3), name="w")
    program = lang.program([x, w], ops.conv(x, w, name="Y"))
    with pytest.raises(ProgramError, match="no Winograd method for tiles of 3x3") as caught:
        winograd(program, match_winograd(program, program.stage("Y")), 3, "u")
    assert caught.value.hint == "use 2 or 4"


def test_a_symbolic_size_that_no_input_tells_needs_a_value():
    n = lang.param("n")
    A = lang.placeholder((4, 6), name="A")
    program = lang.program([A], lang.compute((n,), lambda i: A[0, 0], name="C"))
    with pytest.raises(InputError, match="the symbolic size n has no value") as caught:
        lang.evaluate(program, {"A": np.zeros((4, 6), np.float32)})
    assert "params={'n'" in caught.value.hint


def test_only_f32_is_rounded_to_tf32():
    x = lang.placeholder((4,), "f16", name="X")
    with pytest.raises(ProgramError, match="tf32 rounds scalars of f32"):
        lang.compute((4,), lambda i: lang.tf32(x[i]), name="Y")
