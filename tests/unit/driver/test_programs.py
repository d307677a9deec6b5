"""Programs and schedules compiled to the objects that models become."""

import numpy as np
import pytest

import tilewright
from tilewright import lang
from tilewright.ir import program_at, to_function
from tilewright.runtime import SizeRange
from tilewright.schedule import Schedule
from tilewright.support import InputError, assert_close

RNG = np.random.default_rng(7)


def layer(rows=24, width=40, hidden=32):
    X = lang.placeholder((rows, width), name="X")
    W = lang.placeholder((width, hidden), name="W")
    k = lang.reduce_axis(width, "k")
    C = lang.compute((rows, hidden), lambda i, j: lang.sum(X[i, k] * W[k, j], axis=k), name="C")
    Y = lang.compute((rows, hidden), lambda i, j: lang.relu(C[i, j]), name="Y")
    return lang.program([X, W], [Y, C], name="layer")


def arrays(program):
    return [RNG.standard_normal([n.as_int() for n in b.shape]).astype(b.dtype.numpy) for b in program.inputs]


def check(program, inputs, outputs, terms=64):
    want = lang.evaluate(program, inputs)
    for b, got in zip(program.outputs, outputs, strict=True):
        assert_close(got, want[b.name], magnitude=np.abs(want[b.name]).max() + 1, terms=terms)


def test_a_program_becomes_the_object_that_a_model_becomes(tmp_path):
    program = layer()
    x, w = inputs = arrays(program)
    made = tilewright.compile(program, threads=2)
    assert [i.name for i in made.inputs] == ["X", "W"] and [o.name for o in made.outputs] == ["Y", "C"]
    check(program, inputs, made(x, w))
    (only,) = made.run(["C"], {"X": x, "W": w})
    assert np.array_equal(only, made(x, w)[1])
    assert made.profile({"X": x, "W": w}, repeats=1).rows[0].flops > 0
    assert made.explain()[0]["nodes"] == ["layer"]
    assert {form: bool(made.emit(form)) for form in ("c", "llvm", "asm")}
    with pytest.raises(InputError, match="no form 'rust'"):
        made.emit("rust")
    made.save(tmp_path / "layer.tw")
    for got, want in zip(tilewright.load(tmp_path / "layer.tw")(x, w), made(x, w), strict=True):
        assert np.array_equal(got, want)


def test_constants_of_a_program_are_packed():
    program = layer()
    x, w = arrays(program)
    made = tilewright.compile(program, constants={"W": w})
    assert [i.name for i in made.inputs] == ["X"]
    check(program, [x, w], made(x))
    with pytest.raises(InputError, match="no input 'V'"):
        tilewright.compile(program, constants={"V": w})
    with pytest.raises(InputError, match=r"the constant 'W' must be f32 of shape \[40, 32\]"):
        tilewright.compile(program, constants={"W": w[1:]})


def test_a_schedule_is_compiled_as_it_stands():
    program = layer()
    inputs = arrays(program)
    s = Schedule(program).split("i", 8).parallel("i_o")
    made = tilewright.compile(s, threads=2)
    assert made.explain()[0]["schedule"] == s.trace.to_python()
    assert not made.plan().units
    check(program, inputs, made(*inputs))
    with pytest.raises(InputError, match="must be one of a program"):
        tilewright.compile(Schedule(to_function(program)))


def test_arguments_whose_layout_a_schedule_changes_are_taken_as_they_lie():
    program = layer()
    x, w = inputs = arrays(program)
    made = tilewright.compile(Schedule(program).layout_reorder("W", (1, 0)))
    assert made.inputs[1].shape == (32, 40)
    check(program, inputs, made(x, np.ascontiguousarray(w.T)))
    packed = tilewright.compile(Schedule(program).layout_reorder("W", (1, 0)), constants={"W": w})
    check(program, inputs, packed(x))


def test_results_are_written_where_the_caller_says():
    program = layer()
    x, w = arrays(program)
    made = tilewright.compile(program)
    want = made(x, w)
    mine = [np.empty_like(a) for a in want]
    got = made(x, w, out=mine)
    assert all(a is b for a, b in zip(got, mine, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(mine, want, strict=True))
    (only,) = made.run(["C"], {"X": x, "W": w}, out=[mine[1]])
    assert only is mine[1] and np.array_equal(only, want[1])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty(3), "out is a list"),
        ([np.empty((24, 32), np.float32)], "out has 1 arrays for 2 outputs"),
        ([None, None], "cannot be written to NoneType"),
        ([np.empty((24, 31), np.float32)] * 2, r"cannot be written to float32\[24, 31\]"),
        ([np.empty((32, 24), np.float32).T] * 2, "row-major and writeable"),
        ([np.empty((24, 32), np.float32)] * 2, "shares memory"),
    ],
)
def test_arrays_that_results_cannot_be_written_to(out, message):
    program = layer()
    # one array twice is shared memory
    out = [out[0], out[0]] if message == "shares memory" else out
    with pytest.raises(InputError, match=message):
        tilewright.compile(program)(*arrays(program), out=out)


def stencil():
    H, W = lang.param("H", hi=4096), lang.param("W", hi=4096)
    A = lang.placeholder((H + 2, W + 1), name="A")
    B = lang.compute((H, W), lambda y, x: (A[y, x] + A[y + 1, x + 1] + A[y + 2, x]) * 0.25, name="B")
    return lang.program([A], [B], name="stencil")


def test_symbolic_sizes_are_read_off_the_arrays(tmp_path):
    program = stencil()
    made = tilewright.compile(program, threads=2)
    assert made.sizes == ("H", "W") and "stencil" in repr(made)
    for h, w in ((1, 1), (5, 33), (64, 200), (509, 7)):
        a = RNG.standard_normal((h + 2, w + 1)).astype(np.float32)
        check(program_at(program, {"H": h, "W": w}), [a], made(a))
        assert np.array_equal(made.bind({"A": a}).run()[0], made(a)[0])
        out = np.empty((h, w), np.float32)
        assert made(a, out=[out])[0] is out and np.array_equal(out, made(a)[0])
    fixed = made.at(H=509, W=7)
    fixed.save(tmp_path / "stencil.tw")
    assert np.array_equal(tilewright.load(tmp_path / "stencil.tw")(a)[0], made(a)[0])
    assert made.profile({"A": a}, repeats=1).rows[0].flops == 509 * 7 * 3
    assert "vectorize" in made.explain()[0]["schedule"]
    assert "stencil" in made.emit("c")


@pytest.mark.parametrize("threads", [1, 2])
def test_all_sizes_are_saved(tmp_path, threads):
    made, path = tilewright.compile(stencil(), threads=threads), tmp_path / "stencil.tw"
    made.save(path)
    saved = tilewright.load(path)
    assert str(saved.inputs[0]) == "'A': float32[H + 2, W + 1]"
    assert saved.sizes == {"H": SizeRange(1, 4096), "W": SizeRange(1, 4096)}
    for h, w in ((1, 1), (4096, 3), (5, 33), (64, 200), (509, 7)):
        a = RNG.standard_normal((h + 2, w + 1)).astype(np.float32)
        assert np.array_equal(saved(a)[0], made(a)[0])
    assert saved.sample_feeds(H=3, W=4)["A"].shape == (5, 5)
    with pytest.raises(InputError, match="the size 'H' is 0"):
        saved(np.zeros((2, 5), np.float32))


def test_sizes_of_several_inputs_agree_when_loaded(tmp_path):
    n, m = lang.param("n", hi=64), lang.param("m", hi=64)
    a, b = lang.placeholder((2 * n, m), name="a"), lang.placeholder((n, m), name="b")
    c = lang.compute((n, m), lambda i, j: a[2 * i, j] + a[2 * i + 1, j] * b[i, j], name="c")
    made = tilewright.compile(lang.program([a, b], [c], name="pairs"))
    made.save(tmp_path / "pairs.tw")
    saved = tilewright.load(tmp_path / "pairs.tw")
    one, two = (RNG.standard_normal(shape).astype(np.float32) for shape in ((14, 5), (7, 5)))
    assert np.array_equal(saved(one, two)[0], made(one, two)[0])
    with pytest.raises(InputError, match=r"axis 0 of 'a' has 14 elements, not 2\*n: 'n' is 6 by axis"):
        saved(one, two[:6])
    with pytest.raises(InputError, match=r"axis 0 of 'a' has 13 elements, not 2\*n"):
        saved(one[:13], two)


K = lang.param("k", hi=8)


@pytest.mark.parametrize(
    ("size", "extents", "share"),
    [
        (lang.param("n"), lambda n: (n, 64), 1),
        (lang.param("n", hi=64, multiple_of=4), lambda n: (n, 64), 1),
        (lang.param("n", hi=64), lambda n: (n, n + K), 1),
        (lang.param("n", hi=64), lambda n: (n, 8), 2),
    ],
    ids=["any", "steps", "sums", "halves"],
)
def test_sizes_that_depend_on_one_another_are_saved(tmp_path, size, extents, share):
    x, z = lang.placeholder(extents(size), name="x"), lang.placeholder((K,), name="z")
    rows, columns = extents(size)
    y = lang.compute((rows // share, columns), lambda i, j: x[i, j] + z[0], name="y")
    tilewright.compile(lang.program([x, z], [y], name="row")).save(tmp_path / "row.tw")
    saved = tilewright.load(tmp_path / "row.tw")
    for n, k in ((8, 3), (64, 8), (12, 1)):
        whole = [
            n if dim == "n" else int(str(dim)) if str(dim).isdigit() else n + k
            for dim in saved.inputs[0].shape
        ]
        a = RNG.standard_normal(whole).astype(np.float32)
        b = RNG.standard_normal(k).astype(np.float32)
        assert np.array_equal(saved(a, b)[0], (a + b[0])[: n // share])


def test_products_of_sizes_are_no_dimension_of_a_file(tmp_path):
    n = lang.param("n", hi=64)
    x = lang.placeholder(((n + 1) // 2, 8), name="x")
    y = lang.compute(((n + 1) // 2, 8), lambda i, j: x[i, j] + 1.0, name="y")
    z = lang.placeholder((n,), name="z")
    with pytest.raises(InputError, match="a file says sums of sizes"):
        tilewright.compile(lang.program([x, z], [y], name="row")).save(tmp_path / "row.tw")
    assert not list(tmp_path.iterdir())


def test_sizes_that_do_not_fit():
    made = tilewright.compile(stencil())
    with pytest.raises(InputError, match="no size 'D'"):
        made.at(D=3)
    with pytest.raises(InputError, match="the size W cannot be read"):
        made.at(H=3)
    with pytest.raises(InputError, match="the size W must be an integer"):
        made.at(H=3, W=2.0)
    with pytest.raises(InputError, match="the size H = 5000 is not"):
        made.at(H=5000, W=3)
    with pytest.raises(InputError, match="the program takes 1 inputs, got 2"):
        made(np.zeros((3, 3)), np.zeros((3, 3)))
    with pytest.raises(InputError, match="mapping from names to arrays"):
        made.run(None, [np.zeros((3, 3))])


def test_sizes_may_be_settled_when_compiling():
    program = stencil()
    made = tilewright.compile(program, shapes={"H": 6, "W": 9})
    a = RNG.standard_normal((8, 10)).astype(np.float32)
    check(program_at(program, {"H": 6, "W": 9}), [a], made(a))
    with pytest.raises(InputError, match="has no size 'K'"):
        tilewright.compile(program, shapes={"K": 6})
    with pytest.raises(InputError, match="this schedule is made for all sizes"):
        tilewright.compile(Schedule(program), shapes={"H": 6, "W": 9})
    with pytest.raises(InputError, match="a plan needs a program of fixed sizes"):
        tilewright.compile(program, plan=made.plan())
    found = tilewright.compile(program, strategy="edits")
    check(program_at(program, {"H": 6, "W": 9}), [a], found(a))
    with pytest.raises(InputError, match="needs a program without symbolic sizes"):
        tilewright.compile(program, constants={"A": a})


def test_programs_are_for_cpus_in_their_own_precision():
    with pytest.raises(InputError, match="compiled for CPUs"):
        tilewright.compile(layer(), precision="bf16")


def test_assumptions_are_checked_when_called():
    n, m = lang.param("n", hi=64), lang.param("m", hi=64)
    A, B = lang.placeholder((n,), name="A"), lang.placeholder((m,), name="B")
    C = lang.compute((n,), lambda i: A[i] + B[i], name="C")
    made = tilewright.compile(lang.program([A, B], [C], assumes=[m >= n]))
    short, long = np.ones(3, np.float32), np.ones(5, np.float32)
    assert np.array_equal(made(short, long)[0], short * 2)
    with pytest.raises(InputError, match="it assumes"):
        made(long, short)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", [(8, 100), (4, 1000), (1, 5000), (64, 64)])
def test_reductions_of_half_precision_are_made_in_f32_and_rounded_once(dtype, shape):
    X = lang.placeholder(shape, name="X", dtype=dtype)
    k = lang.reduce_axis(shape[1], "k")
    sums = lang.compute((shape[0],), lambda i: lang.sum(X[i, k] * X[i, k], axis=k), name="S")
    largest = lang.compute((shape[0],), lambda i: lang.max(X[i, k], axis=k), name="M")
    program = lang.program([X], [sums, largest])
    given = RNG.standard_normal(shape).astype(program.inputs[0].dtype.numpy)
    made, most = tilewright.compile(program, threads=1)(given)
    exact = (given.astype(np.float64) ** 2).sum(1)
    assert made.dtype == given.dtype
    assert (
        np.abs(made.astype(np.float64) - exact)
        <= exact * np.float64(2.0**-8 if dtype == "bf16" else 2.0**-11)
    ).all()
    assert np.array_equal(most, given.max(1))


def test_programs_of_inputs_with_strides_are_compiled_and_saved(tmp_path):
    X = lang.placeholder((2, 4, 5), name="X", strides=(1, 16, 2))
    program = lang.program([X], [lang.compute((4, 5), lambda y, x: X[0, y, x] - X[1, y, x], name="Y")])
    image = np.arange(4 * 8 * 2, dtype=np.float32).reshape(4, 8, 2) ** 2
    view = image[:, :5].transpose(2, 0, 1)
    model = tilewright.compile(program)
    assert model.inputs[0].strides == (1, 16, 2)
    model.save(tmp_path / "m.tw")
    for each in (model, tilewright.load(tmp_path / "m.tw")):
        (found,) = each.run(None, {"X": view})
        np.testing.assert_array_equal(found, view[0] - view[1])
        (found,) = each.run(None, {"X": view.copy()})
        np.testing.assert_array_equal(found, view[0] - view[1])
