"""Results upon arguments: whatever :func:`may_overwrite` allows gives the results of separate memory.

Random programs under random schedules; for every pair of a result and an argument that is allowed, the
function runs in the interpreter with one buffer in place of the two.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from property.ir_programs import cases
from property.proposals import PROPOSERS
from property.unfiltered import prepared
from tilewright import lang
from tilewright.ir import run_function, stmt_loads
from tilewright.schedule import PRIMITIVES, Schedule, may_overwrite, rename_buffers
from tilewright.support import ScheduleError
from tilewright.target import INTERPRETED

EXAMPLES = {"deep": 300, "dev": 30}
HITS = 100
#: Steps whose results differ by rounding, or that want arguments in other layouts.
LOOPS = sorted(n for n in PROPOSERS if PRIMITIVES[n].phase == "loop")


@st.composite
def like_shaped(draw):
    """A chain of stages on square matrices that read elements here, there, or in sums."""
    n = draw(st.integers(1, 5), label="size")
    known = [lang.placeholder((n, n), name=name) for name in "xy"]
    inputs = list(known)
    for stage in range(draw(st.integers(1, 3), label="stages")):
        one = draw(st.sampled_from(known), label="one")
        two = draw(st.sampled_from(known), label="two")
        kind = draw(st.sampled_from(["here", "here", "across", "row", "sum"]), label="kind")
        k = lang.reduce_axis(n, "k")

        def value(i, j, one=one, two=two, kind=kind, k=k, n=n):
            if kind == "sum":
                return lang.sum(one[i, k] * two[k, j], axis=k)
            other = {"here": two[i, j], "across": two[j, i], "row": two[n - 1 - i, j]}[kind]
            return one[i, j] * 2.0 + other

        known.append(lang.compute((n, n), value, name=f"s{stage}"))
    outputs = known[2:][-draw(st.integers(1, 2), label="outputs") :]
    return lang.program(inputs, outputs)


def _share(func, result, argument):
    """The function with one buffer for both, which is read before it is written."""
    body = rename_buffers(func.body, {result: argument})
    buffers = tuple(b for b in func.buffers if b.name != result)
    outputs = tuple(argument if name == result else name for name in func.outputs)
    return replace(func, buffers=buffers, outputs=outputs, inouts=(*func.inouts, argument), body=body)


def _check(schedule, arrays, params, counts):
    func = prepared(schedule.func)
    want = None
    for result in func.outputs:
        for argument in [b.name for b in func.buffers if b.name not in func.outputs]:
            counts["pairs"] += 1
            if not may_overwrite(schedule, result, argument):
                continue
            if func.buffer(result).dtype != func.buffer(argument).dtype:
                continue  # the memory of one type as another is nothing that the interpreter has
            counts["allowed"] += 1
            read = {ld.buffer for ld in stmt_loads(func.body)}
            counts["read"] += argument in read
            if want is None:
                want = run_function(func, arrays, params, instructions=INTERPRETED)
            given = {name: a.copy() for name, a in arrays.items()}
            got = run_function(_share(func, result, argument), given, params, instructions=INTERPRETED)
            message = f"{result} upon {argument}\n{schedule.trace}{schedule}"
            for name in func.outputs:
                shared = got[argument if name == result else name].view(want[name].dtype)
                np.testing.assert_array_equal(shared, want[name], err_msg=message)


def _walk(data, schedule, steps):
    for _ in range(steps):
        name = data.draw(st.sampled_from(LOOPS), label="primitive")
        proposal = PROPOSERS[name](data.draw, schedule)
        if proposal is None:
            continue
        try:
            schedule = schedule.apply(name, *proposal[0], **proposal[1])
        except ScheduleError:
            continue
    return schedule


def test_random_results_in_place(record_property):
    counts = Counter()
    profile = settings.get_current_profile_name()

    @settings(max_examples=EXAMPLES.get(profile, 30))
    @given(data=st.data())
    def run(data):
        schedule = Schedule(data.draw(like_shaped(), label="program"))
        schedule = _walk(data, schedule, data.draw(st.integers(0, 4), label="steps"))
        rng = np.random.default_rng(7)
        arrays = {
            b.name: rng.integers(-4, 5, [x.as_int() for x in b.shape]).astype(b.dtype.numpy)
            for b in schedule.func.buffers
            if b.name not in schedule.func.outputs
        }
        _check(schedule, arrays, {}, counts)

    run()
    record_property("counts", dict(counts))
    if profile == "deep":
        assert counts["read"] >= HITS, counts
        assert counts["pairs"] - counts["allowed"] >= HITS, counts


def test_random_programs_in_place():
    @settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 30))
    @given(data=st.data())
    def run(data):
        case = data.draw(cases(stages=(1, 3)), label="case")
        schedule = _walk(data, Schedule(case.program), data.draw(st.integers(0, 4), label="steps"))
        _check(schedule, case.stored(case.inputs(), schedule), case.params, Counter())

    run()
