"""Nests in files: loaded and called, they do what the nest did that was saved."""

import numpy as np
import pytest

import tilewright
from tilewright.devices import load_fixed
from tilewright.runtime import NestSignature
from tilewright.support import ArtefactError, InputError

TEXT = """
static const double W[3] = {0.25, 0.5, 0.25};
double f(int n, int m, const double *A, double B[n][m], double gain, float *last) {
  for (int i = 0; i < n; i++)
    for (int j = 1; j < m - 1; j++)
      for (int k = 0; k < 3; k++) B[i][j] += gain * W[k] * A[i * m + j + k - 1];
  last[0] = gain;
  return B[n - 1][m - 2];
}
"""
SIZES = {"n": 4, "m": 9}


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "k.c").write_text(TEXT)
    nest = tilewright.compile(str(tmp_path / "k.c"), sizes=SIZES, threads=2)
    nest.save(tmp_path / "k.tw")
    return nest, tmp_path / "k.tw"


def drawn():
    rng = np.random.default_rng(0)
    return rng.random((4, 9)), rng.random((4, 9)), np.zeros(3, np.float32)


def test_a_loaded_nest_does_what_the_saved_one_does(saved):
    nest, path = saved
    loaded = tilewright.load(path, threads=2)
    assert isinstance(loaded, tilewright.SavedNest) and loaded.order == ("A", "B", "gain", "last")
    assert {i.name for i in loaded.reads} == {"A", "gain"} and {i.name for i in loaded.writes} == {
        "B",
        "last",
    }
    assert "f" in repr(loaded) and loaded.threads == 2
    calls = (
        lambda f, a, b, x: f(a, b, 1.5, x),
        lambda f, a, b, x: f(a.reshape(-1), gain=1.5, last=x, B=b),
    )
    for call in calls:
        A, B, last = drawn()
        C, D, other = drawn()
        assert call(nest, A, B, last) == call(loaded, C, D, other) == B[3, 7]
        assert np.array_equal(B, D) and last.tolist() == other.tolist() == [1.5, 0, 0]
    A, B, last = drawn()
    turned = np.asfortranarray(B)
    loaded(A, turned, 1.5, last)
    nest(A, B, 1.5, last)
    assert np.array_equal(turned, B)


def test_arguments_that_do_not_fit_are_named(saved):
    f = tilewright.load(saved[1])
    A, B, last = drawn()
    fixed = B.copy()
    fixed.flags.writeable = False
    cases = [
        ((A, B, 1.0, last, 2), {}, r"takes 4 arguments, got 5"),
        ((A, B), {"A": A}, "'A' of 'f' is given twice"),
        ((A, B, 1.0), {"other": last}, "has no argument 'other'"),
        ((A, B, 1.0), {}, "the argument 'last' is missing"),
        ((A, B[:3], 1.0, last), {}, r"must be an array 'B': float64\[4, 9\]"),
        ((A.astype("f4"), B, 1.0, last), {}, r"must be an array 'A': float64\[36\]"),
        ((A[:3], B, 1.0, last), {}, r"must be an array 'A': float64\[36\]"),
        ((A.T, B, 1.0, last), {}, "'A' is read through a pointer: its rows must lie in order"),
        ((A, fixed, 1.0, last), {}, "'B' is written: it must be an array that may be written"),
        ((B, B, 1.0, last), {}, "'B' share memory"),
        ((A, B, "x", last), {}, r"must be an array 'gain': float64\[\]"),
    ]
    for given, named, match in cases:
        with pytest.raises(InputError, match=match):
            f(*given, **named)


def test_what_takes_models_says_that_this_is_a_nest(saved):
    with pytest.raises(InputError, match=r"k\.tw' is a saved nest"):
        load_fixed(saved[1])


@pytest.mark.parametrize(
    "damage",
    [
        {"order": ["A", "B", "gain"]},
        {"order": ["A", "B", "gain", "last", "last"]},
        {"result": "B"},
        {"result": 3},
        {"pointers": ["gain"]},
        {"pointers": "A"},
    ],
)
def test_a_signature_that_does_not_fit_the_plan_is_refused(saved, damage, monkeypatch):
    nest, path = saved
    whole = NestSignature.as_data
    monkeypatch.setattr(NestSignature, "as_data", lambda self: {**whole(self), **damage})
    nest.save(path)
    with pytest.raises(ArtefactError, match=r"manifest of .* is malformed"):
        tilewright.load(path)
