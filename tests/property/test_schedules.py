"""Random programs under random schedules do what the programs do: the judge of every primitive.

One test for each primitive and tail policy: every example draws a program and a few steps, that primitive
among them, and after each accepted step the exact checker compares the loops with the program; at the end the
shuffling, poisoning, bounds-checking interpreter does so on data. Under the ``ci`` profile each test must see
its primitive accepted at least 50 times, and at least 60% of all proposed steps.
"""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from property.ir_programs import KINDS, cases
from property.proposals import PROPOSERS, TAILS

from tilewright.ir import run_function, run_program, verify
from tilewright.poly import check_legal, list_function
from tilewright.schedule import PRIMITIVES, Schedule, replay
from tilewright.support import ScheduleError, assert_close

REDUCTIONS = ("rowsum", "matmul", "conv", "triangle", "argmax")
HITS = 50
ACCEPTED = 0.6

#: The subject of each test: the step it proposes, and the kinds of the first stage that give it a chance.
SUBJECTS = {
    **{f"split-{t}": ("split", {"tail": t}, None) for t in TAILS},
    "peel-first": ("peel", {"which": "first"}, None),
    "peel-last": ("peel", {"which": "last"}, None),
    **{name: (name, {}, None) for name in PROPOSERS if name not in ("split", "peel")},
}
FIRST = {
    "split-roundup": ("clamped",),
    "split-shift": ("pointwise", "clamped", "padded", "transpose"),
    "decompose_init": REDUCTIONS,
}
STAGES = {"split-roundup": (2, 3), "set_scope": (2, 4)}


def test_every_primitive_has_a_proposer():
    assert set(PROPOSERS) == set(PRIMITIVES)


def attempt(data, schedule, name, counts, **fixed):
    """One proposed step: the new schedule and whether it was accepted; None where there is nothing to propose."""
    proposal = PROPOSERS[name](data.draw, schedule, **fixed)
    if proposal is None:
        return schedule, None
    args, kwargs = proposal
    counts["proposed"] += 1
    try:
        after = schedule.apply(name, *args, **kwargs)
    except ScheduleError:
        counts["refused " + name] += 1
        return schedule, False
    counts["accepted"] += 1
    return after, True


def same(case, schedule, data):
    """Run program and loops on the same data."""
    arrays = case.inputs()
    expected = run_program(case.program, arrays, case.params)
    actual = run_function(
        schedule.func, arrays, case.params, seed=data.draw(st.integers(0, 9), label="order")
    )
    for name, want in expected.items():
        if case.exact or want.dtype.kind in "iu":
            np.testing.assert_array_equal(actual[name], want)
        else:
            assert_close(actual[name], want, terms=case.terms)


@pytest.mark.parametrize("subject", sorted(SUBJECTS))
def test_random_schedules(subject):
    name, fixed, _ = SUBJECTS[subject]
    counts = Counter()
    thorough = settings.get_current_profile_name() == "ci"

    @settings(max_examples=100 if thorough else 10)
    @given(data=st.data())
    def run(data):
        first = FIRST.get(subject, KINDS)
        case = data.draw(cases(first=first, stages=STAGES.get(subject, (1, 4))), label="case")
        schedule = Schedule(case.program)
        reference = list_function(schedule.func, case.params)
        before = data.draw(st.integers(0, 3), label="steps before")
        after = data.draw(st.integers(0, 2), label="steps after")
        others = st.sampled_from(sorted(PROPOSERS))
        plan = [data.draw(others, label="primitive") for _ in range(before)] + [None]
        plan += [data.draw(others, label="primitive") for _ in range(after)]
        counts["cases"] += 1
        for other in plan:
            if other is None:
                for _ in range(3):
                    schedule, accepted = attempt(data, schedule, name, counts, **fixed)
                    if accepted:
                        counts["hits"] += 1
                        break
            else:
                schedule, accepted = attempt(data, schedule, other, counts)
            if accepted:
                verify(schedule.func)
                violations = check_legal(reference, schedule.func, case.params)
                assert not violations, f"{schedule.trace}{schedule}\n" + "\n".join(map(str, violations))
        same(case, schedule, data)
        assert replay(case.program, schedule.trace.to_json()).func == schedule.func

    run()
    print(f"{subject}: {dict(counts)}")
    if thorough:
        assert counts["hits"] >= HITS
    assert counts["accepted"] >= ACCEPTED * counts["proposed"] or not thorough


_ = partial, seed
