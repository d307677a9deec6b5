"""Nests on numpy arrays, in place."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.build import kernel as kernels
from tilewright.driver import Nest
from tilewright.runtime import aligned_empty
from tilewright.strategies import best_by_model, find_strategy
from tilewright.support import InputError, ProgramError

# ruff: noqa: F821 (annotations are read as text; names are those of the mathematics)


@tilewright.scop
def update(A: f64[N, N], x: f64[N], alpha: f64, n: int):
    for i in range(n):
        for j in range(i + 1):
            A[i, j] += alpha * x[i] * x[j]


def expected(A, x, alpha, n):
    out = A.copy()
    for i in range(n):
        out[i, : i + 1] += alpha * x[i] * x[: i + 1]
    return out


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [0, 3, 7])
def test_arrays_change_in_place(order, n):
    rng = np.random.default_rng(0)
    A, x = np.asarray(rng.random((7, 7)), order=order), rng.random(14)[::2]
    want = expected(A, x, 1.5, n)
    update(A, x, 1.5, n=n)
    np.testing.assert_allclose(A, want, rtol=1e-14)


def test_slices_of_larger_arrays_change_in_place():
    big = np.zeros((9, 9))
    x = np.ones(5)
    update(big[2:7, 2:7], x, alpha=2.0, n=5)
    assert big.sum() == 30 and big[2:7, 2:7].sum() == 30


@pytest.mark.parametrize(
    ("arguments", "named", "match"),
    [
        ((), {}, "the argument 'A' is missing"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0, 2), {}, "takes 3 arguments, got 4"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {}, "the size n cannot be read off"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {"n": 1.5}, "the size n must be an integer"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {"m": 1}, "has no argument 'm'"),
        ((np.zeros((2, 2)), np.zeros(3), 1.0), {"n": 1}, "'x' must be f64 of shape"),
        ((np.zeros((2, 2), np.float32), np.zeros(2), 1.0), {"n": 1}, "'A' must be an array of f64"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {"n": 3}, "with N = 2, n = 3, an access of block S0 leaves"),
        (([[0.0]], np.zeros(1), 1.0), {"n": 1}, "the argument 'A' must be an array of f64"),
        ((np.broadcast_to(np.zeros(2), (2, 2)), np.zeros(2), 1.0), {"n": 1}, "an array that may be written"),
    ],
)
def test_wrong_arguments(arguments, named, match):
    with pytest.raises(InputError, match=match):
        update(*arguments, **named)


def test_arrays_that_share_memory_are_refused():
    A, memory = np.zeros((3, 3)), np.zeros(12)
    with pytest.raises(InputError, match="'A' and 'x' share memory"):
        update(A, A[0], 1.0, n=3)
    # interleaved ones do not
    update(A, memory[::4], 1.0, n=3)


def test_strategies_and_sizes_of_nests():
    with pytest.raises(InputError, match="there is no strategy 'fast'"):
        Nest(update.source, strategy="fast")
    with pytest.raises(InputError, match="has no size 'm'"):
        update.scheduled({"m": 3})
    with pytest.raises(InputError, match="the array 'A' would have"):
        update.scheduled({"N": 1 << 30, "n": 3})
    written = Nest(update.source, strategy="as-written").scheduled({"N": 3, "n": 2})
    assert written.notes == ("as it is written",)


def test_later_calls_plan_nothing(monkeypatch):
    """Settings and quotas of the machine are read once a kernel: on tiny arrays they were most of a call."""
    A, x = np.zeros((5, 5)), np.ones(5)
    update(A, x, 1.5, n=5)

    def none() -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(kernels, "read_settings", none)
    monkeypatch.setattr(kernels, "PlanBuilder", none)
    update(A, x, 1.5, n=5)
    np.testing.assert_array_equal(A, np.tril(np.full((5, 5), 3.0)))


FLAT = """
static const double W[3] = {0.25, 0.5, 0.25};
int count = 3;
double total;
void blur(int n, int m, const double *A, double (*B)[m], double gain) {
  for (int i = 0; i < n; i++)
    for (int j = 1; j < m - 1; j++)
      for (int k = 0; k < count; k++) B[i][j] += gain * W[k] * A[i * m + j + k - 1];
}
void other(int n, int first, double x[n + 1]) {
  for (int i = n; i > first; i--) x[i] = x[i - 1];
}
void looked_up(int n, const int *at, const double *x, double y[n]) {
  for (int i = 0; i < n; i++) y[i] = x[at[i]];
}
"""


@pytest.fixture
def flat(tmp_path):
    path = tmp_path / "flat.c"
    path.write_text(FLAT)
    return path


def blurred(A, B, gain):
    out = B.copy()
    out[:, 1:-1] += gain * (A[:, :-2] / 4 + A[:, 1:-1] / 2 + A[:, 2:] / 4)
    return out


def test_c_files_are_compiled_for_sizes_and_called_in_the_order_of_c(flat):
    rng = np.random.default_rng(3)
    A, B = rng.integers(0, 9, (2, 5, 8)) * 1.0
    want = blurred(A, B, 2.0)
    settled = tilewright.compile(f"{flat}:blur", sizes={"n": 5, "m": 8, "count": 3}, threads=2)
    assert settled.order == ("n", "m", "A", "B", "gain", "count") and not settled.open_sizes
    for arguments, named in (
        ((A, B.copy(), 2.0), {}),
        ((5, 8, A.reshape(-1), B.copy(), 2.0, 3), {}),
        ((), {"gain": 2.0, "B": B.copy(), "A": A}),
    ):
        settled(*arguments, **named)
        out = named["B"] if named else arguments[-2 if len(arguments) == 3 else 3]
        np.testing.assert_array_equal(out, want)
    left = tilewright.compile(f"{flat}:blur", sizes={}, strategy="as-written")
    assert left.open_sizes == ("n", "m", "count")
    left(5, 8, A, B, 2.0, 3)
    np.testing.assert_array_equal(B, want)
    x = np.arange(6.0)
    tilewright.compile(f"{flat}:other", sizes={"n": 5})(-1 + 2, x)
    assert x.tolist() == [0, 1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "named", "match"),
    [
        ((1, 2, 3, 4), {}, "takes 2 arguments, got 4"),
        ((0, np.zeros(6)), {"first": 1}, "the argument 'first' of 'other' is given twice"),
        ((0, np.zeros(6)), {"n": 4}, "the nest was compiled for n = 5, got 4"),
        ((0, np.zeros(6)), {"W": np.zeros(3)}, "has no argument 'W'"),
        ((-9, np.zeros(6)), {}, "an access of block S0 leaves the buffer x"),
        ((0, 1.0), {}, "the argument 'x' must be an array of f64"),
    ],
)
def test_wrong_arguments_of_c(flat, arguments, named, match):
    nest = tilewright.compile(f"{flat}:other", sizes={"n": 5})
    with pytest.raises(InputError, match=match) as caught:
        nest(*arguments, **named)
    if "leaves" in match:
        assert str(caught.value.where).startswith(f"{flat}:11:35")


def test_what_pointers_point_at_may_be_larger_but_must_lie_in_order(flat):
    blur = tilewright.compile(f"{flat}:blur", sizes={"count": 3})
    A, B = np.ones((5, 8)), np.zeros((5, 8))
    blur(4, 8, A, B, 1.0)
    assert B[:4, 1:-1].tolist() == [[1.0] * 6] * 4 and not B[4].any()
    with pytest.raises(InputError, match="'A' is read through a pointer: its rows must lie in order"):
        blur(4, 8, A.T, B, 1.0)
    with pytest.raises(InputError, match="'W' is what the file says: it is no argument"):
        blur(4, 8, A, B, 1.0, W=np.zeros(3))
    looked_up = tilewright.compile(f"{flat}:looked_up", sizes={"n": 3})
    y = np.zeros(3)
    looked_up(np.array([1, 0, 1], np.int32), np.array([5.0, 7.0]), y)
    assert y.tolist() == [7, 5, 7]
    with pytest.raises(InputError, match="data decide how far 'x' is read or written"):
        looked_up.at({})
    assert looked_up.at({"x_size": 9}).buffer("x").shape[0].as_int() == 9
    with pytest.raises(InputError, match=r"'A' must be f64 of shape \[40\], got \[32\]"):
        blur(5, 8, A[:4], B, 1.0)


@pytest.mark.parametrize(
    ("model", "options", "match"),
    [
        ("flat.c", {"sizes": {}}, "3 functions that may be meant"),
        ("flat.c:blur", {}, "is a nest in C"),
        ("flat.c:other", {"sizes": {"m": 1}}, "has no size 'm'"),
        ("flat.c:other", {"sizes": {"x": 1}}, "has no size 'x'"),
        ("flat.c:other", {"sizes": {"n": 1.5}}, "the size n must be an integer"),
        (
            "flat.c:other",
            {"sizes": {"n": 3}, "accuracy": "exact"},
            "of the options of models",
        ),
        ("flat.c:other", {"sizes": {"n": 3}, "target": "cuda:sm_90"}, "nests are compiled for CPUs"),
        ("flat.c:other", {"sizes": {"n": 3}, "strategy": "fast"}, "there is no strategy 'fast'"),
        ("flat.py", {"sizes": {}}, "sizes= is for nests"),
    ],
)
def test_what_compilations_of_c_refuse(flat, model, options, match):
    with pytest.raises((InputError, ProgramError), match=match):
        tilewright.compile(str(flat.parent / model), **options)


def test_headers_are_for_c(flat):
    with pytest.raises(InputError, match="the nest 'update' is not in C"):
        update.c_header()
    made = tilewright.compile(f"{flat}:other", sizes={}).c_header()
    assert "\nvoid other(int n, int first, double x[n + 1]);\n" in made


def test_strategies_plan_the_parts_that_are_programs():
    """Others stay as they are by default, and plans of parts are those of the strategy."""

    def both(A: f64[N, N], B: f64[N, N], C: f64[N, N], x: f64[N]):
        for i in range(N):
            for j in range(N):
                for k in range(N):
                    C[i, j] += A[i, k] * B[k, j]
        for i in range(1, N):
            x[i] = x[i - 1] * C[i, i]

    sizes = {"N": 32}
    nests = [tilewright.compile(both, sizes=sizes, threads=1, strategy=s, records="off")
             for s in ("default", find_strategy("construct"))]  # fmt: skip
    plans = [nest.plan() for nest in nests]
    assert plans[0].units.keys() == plans[1].units.keys() and len(plans[0].units) == 2
    made = [best_by_model(find_strategy("construct"), task) for task, _ in nests[0].scheduled({}).parts
            for task in [task.as_program()] if task is not None]  # fmt: skip
    assert [made[0].plan] == [p for p in plans[1].units.values() if p.nests[0].rule != "loops"]
    assert nests[1].strategy == "construct"
    arrays = [{b.name: np.full([32] * len(b.shape), 0.5) for b in nests[0].arguments.buffers} for _ in nests]
    for nest, table in zip(nests, arrays, strict=True):
        nest(**table)
    np.testing.assert_allclose(arrays[0]["x"], arrays[1]["x"])


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_arrays_are_changed_where_they_lie(monkeypatch, offset):
    """Whatever their alignment: what numpy allocates begins 16 bytes behind a page."""

    def copied(a):
        raise AssertionError("an array was copied")

    monkeypatch.setattr("tilewright.runtime.in_place.aligned_copy", copied)
    memory = aligned_empty((40 + 8,), np.dtype(np.float64))
    A = memory[offset : offset + 36].reshape(6, 6)
    A[...], x = 0.0, np.ones(6)
    update(A, x, 2.0, n=6)
    np.testing.assert_array_equal(A, np.tril(np.full((6, 6), 2.0)))


def rows(A: f64[n, m], x: f64[n]):
    for i in range(n):
        for j in range(m):
            x[i] += A[i, j]


@pytest.mark.parametrize(
    "made",
    [
        lambda: tilewright.compile(rows, sizes={"n": 4, "m": 5}, threads=2),
        lambda: tilewright.scop(sizes={"n": 4, "m": 5}, threads=2)(rows),
        lambda: tilewright.compile(rows, sizes={"m": 5}, strategy="as-written"),
    ],
)
def test_functions_of_python_are_compiled_as_files_of_c_are(made):
    nest = made()
    A, x = np.arange(20.0).reshape(4, 5), np.ones(4)
    nest(A, x)
    assert x.tolist() == (1 + A.sum(1)).tolist()
    told = nest.explain({} if "n" in nest.sizes else {"n": 4})
    assert [(a["name"], a["shape"], a["read"], a["written"]) for a in told["arguments"]] == [
        ("A", [4, 5], True, False),
        ("x", [4], True, True),
    ]
    assert told["notes"] and "in range(4)" in told["loops"]
    with pytest.raises(InputError, match=r"'A' must be f64 of shape"):
        nest(A[:, :4], x)


def test_macros_are_for_c():
    with pytest.raises(InputError, match="defines= and headers= are for nests in C"):
        tilewright.compile(rows, sizes={}, defines={"N": "3"})


def test_extents_may_be_formulas(tmp_path):
    """``n * m`` is no affine expression while both are symbols; as numbers they say what arrays must be."""
    path = tmp_path / "k.c"
    path.write_text(
        "void f(int n, int m, const int at[n * m], const double x[n], double y[n][m * m + 1]) {\n"
        "  for (int i = 0; i < n; i++)\n    for (int j = 0; j < m; j++) y[i][m * j] = x[at[i * m + j]];\n}\n"
    )
    at, x, y = np.array([2, 1, 0, 0, 1, 2], np.int32), np.arange(3.0), np.zeros((3, 5))
    nest = tilewright.compile(str(path), sizes={})
    assert nest.open_sizes == ("n", "m")
    nest(3, 2, at, x, y)
    assert y[:, 0].tolist() == [2, 0, 1] and y[:, 2].tolist() == [1, 0, 2]
    nest(3, 2, np.append(at, 7).astype(np.int32), x, y)
    with pytest.raises(InputError, match=r"'at' must be i32 of shape \[6\], got \[5\]"):
        nest(3, 2, at[:5], x, y)
    with pytest.raises(InputError, match=r"'y' must be f64 of shape \[3, 5\], got \[3, 6\]"):
        nest(3, 2, at, x, np.zeros((3, 6)))
