"""Random programs under random schedules, printed as C, against the reference."""

import numpy as np
from hypothesis import given, settings, strategies as st

from c_kernel import CKernel
from property.ir_programs import cases
from property.lang_programs import lang_cases
from property.test_native import DTYPES, scheduled
from tilewright.ir import run_program
from tilewright.support import assert_close

EXAMPLES = 60 if settings.get_current_profile_name() == "deep" else 10


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_programs_of_the_ir(data):
    case = data.draw(cases(), label="case")
    schedule = scheduled(data, case.program)
    arrays = case.inputs(data.draw(st.integers(0, 3), label="seed"))
    expected = run_program(case.program, arrays, case.params)
    actual = CKernel(schedule.func)(arrays, case.params)
    for name, want in expected.items():
        if case.exact or want.dtype.kind in "iu":
            np.testing.assert_array_equal(actual[name], want)
        else:
            assert_close(actual[name], want, terms=case.terms)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_programs_of_the_language(data):
    case = data.draw(lang_cases(dtypes=(*DTYPES, "f16", "bf16"), largest=9), label="case")
    schedule = scheduled(data, case.program)
    arrays = case.inputs(data.draw(st.integers(0, 3), label="seed"))
    case.check(CKernel(schedule.func)(arrays, case.params), arrays)
