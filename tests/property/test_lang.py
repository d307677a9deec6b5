"""Random programs of the language: evaluator and interpreter agree, and so do its fast and slow paths."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from property.lang_programs import KINDS, lang_cases
from tilewright import lang
from tilewright.ir import parse_program, print_program, run_program, structurally_equal, verify_program
from tilewright.lang.evaluation import contraction, stages


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_evaluator_agrees_with_the_interpreter(kind, data):
    case = data.draw(lang_cases(kinds=(kind, kind, "pointwise", "transpose"), stages=(1, 3), largest=5))
    arrays = case.inputs(data.draw(st.integers(0, 99), label="seed"))
    verify_program(case.program)
    case.check(run_program(case.program, arrays, case.params), arrays)


@given(case=lang_cases())
def test_programs_round_trip_through_text(case):
    again = parse_program(print_program(case.program))
    assert structurally_equal(again, case.program)


@given(case=lang_cases())
def test_small_chunks_change_nothing(case):
    arrays = case.inputs()
    whole = lang.evaluate(case.program, arrays, case.params)
    case.check(whole, arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "CHUNK", 5)
        patch.setattr(contraction, "SMALLEST", 1)
        patch.setattr(contraction, "OPERAND_LIMIT", 6)
        pieces = lang.evaluate(case.program, arrays, case.params)
    case.check(pieces, arrays)
    assert all(pieces[n].dtype == whole[n].dtype for n in whole)


@given(case=lang_cases(dtypes=("i8", "u8", "i64", "f64", "f16", "bf16"), largest=4, stages=(1, 2)))
def test_other_element_types(case):
    arrays = case.inputs()
    expected = run_program(case.program, arrays, case.params)
    found = lang.evaluate(case.program, arrays, case.params)
    for name, want in expected.items():
        assert found[name].dtype == want.dtype
        if case.exact:
            np.testing.assert_array_equal(found[name], want)
