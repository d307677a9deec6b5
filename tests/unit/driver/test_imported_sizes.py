"""Models that compare sizes: another one at a single size is found, whatever sizes are looked at besides."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests.unit.driver.test_dynamic import encoder
from tests.unit.frontend.test_size_comparisons import SCALED, comparing

import tilewright
from tilewright.driver.imported_sizes import imported, require_affine
from tilewright.driver.range_plan import NoRangePlanError, sizes_to_compare
from tilewright.frontend import read_onnx

SPECIAL = 23


def special():
    """Twice the input where it has 23 rows, else three times."""
    return comparing(helper.make_node("Equal", ["n", "odd"], ["is"]), *SCALED, odd=SPECIAL)


def test_one_size_that_is_another_model_is_found():
    assert (SPECIAL,) not in sizes_to_compare([(17, 32)])
    model = tilewright.compile(special(), threads=1, dynamic={"n": (1, 40)})
    model.prepare()
    assert {ranges: plan is not None for ranges, plan in model._plans.items()} == {
        ((1, 1),): True, ((2, 16),): True, ((17, 32),): False, ((33, 40),): True,
    }  # fmt: skip
    for n in (1, 16, 22, 23, 24, 32, 40):
        x = np.full((n, 4), 3, np.float32)
        np.testing.assert_array_equal(model(x)[0], x * (2 if n == SPECIAL else 3))


def test_too_many_sizes_have_a_plan_each(monkeypatch):
    monkeypatch.setattr("tilewright.driver.dynamic.MOST_SIZES", 14)
    model = tilewright.compile(special(), threads=1, dynamic={"n": (1, 16)})
    model.prepare()
    assert {ranges: plan is not None for ranges, plan in model._plans.items()} == {
        ((1, 1),): True, ((2, 16),): False,
    }  # fmt: skip


def test_sizes_move_numbers_alone():
    read = read_onnx(encoder().SerializeToString())
    found = {(b, n): imported(read.graph({"batch": b, "seq": n})) for b in (2, 3, 5) for n in (17, 18, 23)}
    require_affine(found)
    one = found[3, 18]
    assert one.numbers != found[2, 17].numbers
    broken = replace(one, numbers=(*one.numbers[:-1], one.numbers[-1] + 1))
    with pytest.raises(NoRangePlanError, match=r"not affine"):
        require_affine(found | {(3, 18): broken})
    with pytest.raises(NoRangePlanError, match=r"another one at \(3, 18\)"):
        require_affine(found | {(3, 18): replace(one, same=one.same[1:])})
    with pytest.raises(NoRangePlanError, match=r"a constant of the model is another one at \(3, 18\)"):
        require_affine(found | {(3, 18): replace(one, contents=tuple(a + 1 for a in one.contents))})
