"""Random programs under random schedules, compiled and run between forbidden pages, against the reference.

Cases that failed once are tests of their own in ``unit/codegen`` and ``unit/lower``.
"""

import numpy as np
from hypothesis import given, settings, strategies as st

from native_kernel import HOST, Native
from property.ir_programs import cases
from property.lang_programs import lang_cases
from property.proposals import PROPOSERS
from tilewright.ir import For, locate, run_program
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, assert_close

#: No hardware axes here, and no arguments that are others than the program's.
#: Steps that make loops of threads, which CPUs do not have, and those that change what is computed.
WITHOUT = {
    "bind",
    "cooperative_copy",
    "virtual_threads",
    "bf16x3",
    "store_as",
    "strassen",
    "tensorize",
    "winograd",
}
STEPS = tuple(sorted(set(PROPOSERS) - WITHOUT))
EXAMPLES = 240 if settings.get_current_profile_name() == "deep" else 40


def step(data, schedule):
    """One random step, if it is accepted."""
    name = data.draw(st.sampled_from((*STEPS, "registers", "vectorize", "vectorize")), label="primitive")
    try:
        if name == "registers":
            return registers(data, schedule)
        proposal = PROPOSERS[name](data.draw, schedule)
        if proposal is None:
            return schedule
        args, kwargs = proposal
        return schedule.apply(name, *args, **kwargs)
    except ScheduleError:
        return schedule


def registers(data, schedule):
    """A tile of an argument in registers: staged at a loop below which everything is expanded."""
    proposal = PROPOSERS["cache"](data.draw, schedule)
    if proposal is None:
        return schedule
    (name, loop), kwargs = proposal
    s = schedule.cache(name, loop, scope="register", **kwargs)
    inner = [p.node.var for p in locate(s.loop(loop).body, For)]
    for var in inner:
        node = s.loop(var)
        if node.kind.name == "serial" and node.extent.is_const:
            s = s.unroll(var)
    return s


def scheduled(data, program):
    """A program under up to eight steps."""
    s = Schedule(program)
    for _ in range(data.draw(st.integers(0, 8), label="steps")):
        s = step(data, s)
    return s


def compiled(data, schedule):
    """The function in native code; ``None`` where registers turn out to be addressed at run time."""
    bits = data.draw(st.sampled_from((128, 256, 512)), label="vector bits")
    try:
        return Native(schedule.func, min(bits, HOST.preferred_vector_bits))
    except ScheduleError as error:
        assert "register" in str(error)
        return None


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_programs_of_the_ir(data):
    case = data.draw(cases(), label="case")
    schedule = scheduled(data, case.program)
    native = compiled(data, schedule)
    if native is None:
        return
    arrays = case.inputs(data.draw(st.integers(0, 3), label="seed"))
    expected = run_program(case.program, arrays, case.params)
    actual = native(arrays, case.params, seed=data.draw(st.integers(0, 99), label="order"))
    for name, want in expected.items():
        if case.exact or want.dtype.kind in "iu":
            np.testing.assert_array_equal(actual[name], want)
        else:
            assert_close(actual[name], want, terms=case.terms)


DTYPES = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_programs_of_the_language(data):
    case = data.draw(lang_cases(dtypes=DTYPES, largest=data.draw(st.sampled_from((5, 9, 20)))), label="case")
    schedule = scheduled(data, case.program)
    native = compiled(data, schedule)
    if native is None:
        return
    arrays = case.inputs(data.draw(st.integers(0, 3), label="seed"))
    case.check(native(arrays, case.params, seed=data.draw(st.integers(0, 99), label="order")), arrays)
