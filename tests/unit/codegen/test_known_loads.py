"""Loads that the emitter does not repeat: equal addresses, nothing stored there in between."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.schedule import Schedule


def sums(width):
    """C[y, x] = X[y, x] + X[y + 1, x], four rows at a time in vectors of 4."""
    H = lang.param("H")
    X = lang.placeholder((H + 1, width), name="X")
    C = lang.compute((H, width), lambda y, x: X[y, x] + X[y + 1, x], name="C")
    s = Schedule(lang.program([X], [C])).split("y", 4, tail="peel").split("x", 4, tail="peel")
    return s.reorder("y_o", "x_o", "y_i", "x_i").unroll("y_i").vectorize("x_i")


@pytest.mark.parametrize(
    "width", [12, lang.param("W", multiple_of=4)], ids=["constant strides", "symbolic strides"]
)
def test_rows_that_neighbours_share_are_loaded_once(width):
    s = sums(width)
    run = Native(s.func)
    assert run.text.text.count("load <4 x float>") == 5
    X = np.arange(7 * 12, dtype=np.float32).reshape(7, 12)
    sizes = {"H": 6} | ({} if isinstance(width, int) else {"W": 12})
    np.testing.assert_array_equal(run({"X": X}, sizes)["C"], X[:-1] + X[1:])


def test_what_was_stored_in_between_is_loaded_again():
    """y[t, x] = x[t, x] + y[t - 1, x]: rows unrolled, each reads what the one before wrote."""
    W = lang.param("W")
    X = lang.placeholder((4, W), name="X")

    def step(y, t, x):
        return lang.select(t >= 1, y[t - 1, x], 0.0) + X[t, x]

    program = lang.program([X], [lang.scan((4, W), step, axis=0, name="y")])
    s = Schedule(program).unroll("t")
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = Native(s.func)({"X": data}, {"W": 3})["y"]
    np.testing.assert_array_equal(got, np.cumsum(data, axis=0))


@pytest.mark.parametrize("unread", range(8))
def test_addresses_of_two_functions_may_have_one_name(unread):
    """Y[i, k] = X[i, P[1, k]]: P's second row starts where it does before the loop; threads go on from there.

    The inputs that nothing reads move the numbers of the one function against those of the other.
    """
    W = lang.param("W", lo=32)
    P, X = lang.placeholder((2, W), dtype="i64", name="P"), lang.placeholder((3, W), name="X")
    others = [lang.placeholder((1,), name=f"unread{n}") for n in range(unread)]
    Y = lang.compute((3, 32), lambda i, k: X[i, lang.clamp(P[1, k], 0, W - 1)], name="Y")
    s = Schedule(lang.program([*others, P, X], [Y])).vectorize("k").parallel("i")
    x, places = np.arange(3 * 40, dtype=np.float32).reshape(3, 40), np.arange(80).reshape(2, 40) * 7 % 40
    arrays = {"P": places, "X": x, **{o.name: np.zeros(1, np.float32) for o in others}}
    got = Native(s.func, vector_bits=256)(arrays, {"W": 40})["Y"]
    np.testing.assert_array_equal(got, x[:, places[1, :32]])


@pytest.mark.parametrize("first", [True, False])
def test_a_product_that_is_known_is_added_and_not_made_again(first):
    X, W = (lang.placeholder((8,), name=name) for name in "XW")

    def element(i):
        product = X[i] * W[i]
        return lang.select(product > 0, product + 1 if first else 1 + product, product)

    run = Native(Schedule(lang.program([X, W], [lang.compute((8,), element, name="Y")])).func)
    assert run.text.text.count("fmul") == 1 and "llvm.fma" not in run.text.text
    x, w = (np.random.default_rng(n).standard_normal(8, np.float32) for n in (0, 1))
    np.testing.assert_array_equal(run({"X": x, "W": w})["Y"], np.where(x * w > 0, x * w + 1, x * w))
