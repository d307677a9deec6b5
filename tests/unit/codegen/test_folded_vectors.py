"""Vector loops that store and fold what they store: accumulators as in reductions, one pass."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.schedule import Schedule


def folded(columns, *, fold=lang.sum):
    """Y = 2 X, and the sum of each row of it, in one loop."""
    x = lang.placeholder((3, columns), name="X")
    y = lang.compute((3, columns), lambda i, j: x[i, j] * 2, name="Y")
    k = lang.reduce_axis(columns, "k")
    total = lang.compute((3,), lambda i: fold(y[i, k], axis=k), name="S")
    s = Schedule(lang.program([x], [y, total])).reverse_compute_at("S", "j").decompose_init("S", "j")
    return s.vectorize("j")


@pytest.mark.parametrize("columns", [16, 40, 128, 200, 777])
@pytest.mark.parametrize(("fold", "wanted"), [(lang.sum, np.sum), (lang.max, np.max)])
def test_both_results_are_right(columns, fold, wanted):
    x = np.random.default_rng(columns).integers(-9, 9, (3, columns)).astype(np.float32)
    got = Native(folded(columns, fold=fold).func)({"X": x})
    np.testing.assert_array_equal(got["Y"], 2 * x)
    np.testing.assert_array_equal(got["S"], wanted(2 * x, axis=1))


def test_the_loop_has_four_accumulators_and_no_second_pass():
    text = Native(folded(4096).func, 512).text.text
    assert text.count("phi <16 x float>") == 4
    assert text.count("= load <16 x float>") == 4  # a turn: four of X; what has just been stored is known
