"""What the exact checker passes, the interpreter passes too: random damage to random schedules.

A random program is scheduled by a few random steps, then its loops are changed in some way that primitives
never would. Where the checker finds nothing wrong, the loops must still compute what the program does.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from hypothesis import assume, given, settings, strategies as st

from property.ir_programs import cases
from property.proposals import PROPOSERS
from tilewright.ir import (
    PARALLEL,
    SERIAL,
    Block,
    Const,
    For,
    If,
    LoopFunction,
    Seq,
    Store,
    locate,
    map_loads,
    replace_at,
    run_function,
    run_program,
)
from tilewright.poly import check_legal, list_function
from tilewright.schedule import PRIMITIVES, Schedule
from tilewright.support import InternalError, ScheduleError, compare

#: Steps on loops; the instances of an opaque block are not those of the blocks in it.
OPAQUE = ("blockize", "tensorize")
STEPS = sorted(n for n in PROPOSERS if PRIMITIVES[n].phase == "loop" and n not in OPAQUE)


def damages(func: LoopFunction, inlined: bool):
    """All small changes of a function: in words, the path, and the node that replaces what is there.

    What statements do with the values they read is taken for granted where stages were ``inlined`` into them:
    that two of the values are exchanged would not be noticed.
    """
    for place in locate(func.body, (Seq, For, Block, If)):
        s, path = place.node, place.path
        match s:
            case Seq() if len(s.stmts) > 1:
                for n in range(len(s.stmts) - 1):
                    swapped = list(s.stmts)
                    swapped[n], swapped[n + 1] = swapped[n + 1], swapped[n]
                    yield f"swap parts {n} and {n + 1}", path, Seq(tuple(swapped))
                yield "drop the first part", path, Seq(s.stmts[1:])
            case For():
                if s.kind == SERIAL:
                    yield f"parallel {s.var}", path, replace(s, kind=PARALLEL)
                yield f"one less of {s.var}", path, replace(s, hi=s.hi - 1)
                yield f"{s.var} starts late", path, replace(s, lo=s.lo + 1)
                inner = s.body
                if isinstance(inner, For) and s.var not in (inner.lo.vars | inner.hi.vars):
                    turned = replace(inner, body=replace(s, body=inner.body))
                    yield f"interchange {s.var} and {inner.var}", path, turned
            case Block():
                for n, b in enumerate(s.bind):
                    late = (*s.bind[:n], b + 1, *s.bind[n + 1 :])
                    yield f"{s.name}: {s.iters[n].name} one further", path, replace(s, bind=late)
                    if n:
                        turned = (*s.bind[: n - 1], b, s.bind[n - 1], *s.bind[n + 1 :])
                        yield f"{s.name}: exchange bindings", path, replace(s, bind=turned)
                if s.where:
                    yield f"{s.name} without condition", path, replace(s, where=())
                if s.init is not None:
                    yield f"{s.name} without init", path, replace(s, init=None)
                    for what, init in _other_values(s.init):
                        yield f"{s.name}: {what}", path, replace(s, init=init)
                for what, body in _other_values(s.body):
                    yield f"{s.name}: {what}", path, replace(s, body=body)
                if not inlined:
                    yield from ((f"{s.name}: {what}", path, b) for what, b in _exchanged_loads(s))
            case If():
                yield "always", path, s.then
            case _:
                pass


def _other_values(s):
    """A store with other constants, or with the constants of its writes exchanged."""
    if isinstance(s, Store):
        constants = [n for n, w in enumerate(s.writes) if isinstance(w.value, Const)]
        for n in constants:
            value = s.writes[n].value
            yield f"another constant {n}", _with_value(s, n, Const(value.value + 1, value.dtype))
        for n, m in pairwise(constants):
            a, b = s.writes[n].value, s.writes[m].value
            if a.dtype == b.dtype:
                yield f"exchange constants {n} and {m}", _with_value(_with_value(s, n, b), m, a)


def _with_value(s, n, value):
    return Store((*s.writes[:n], replace(s.writes[n], value=value), *s.writes[n + 1 :]))


def _exchanged_loads(block):
    """A block that loads one buffer where it loaded another and the other way round."""
    loads = {ld.buffer: (ld.dtype, len(ld.indices)) for ld in block.reads}
    for a, b in pairwise(sorted(loads)):
        if loads[a] == loads[b]:
            other = {a: b, b: a}
            turned = map_loads(
                block.body, lambda ld, other=other: replace(ld, buffer=other.get(ld.buffer, ld.buffer))
            )
            yield f"exchange loads of {a} and {b}", replace(block, body=turned)


def runs_the_same(case, func):
    """Whether the interpreter accepts the loops and they give what the program gives."""
    arrays = case.inputs()
    expected = run_program(case.program, arrays, case.params)
    for seed in range(2):
        try:
            actual = run_function(func, arrays, case.params, seed=seed)
        except InternalError:
            return False
        for name, want in expected.items():
            exact = case.exact or want.dtype.kind in "iu"
            close = np.array_equal if exact else partial(compare, terms=case.terms)
            if not close(actual[name], want):
                return False
    return True


def test_damaged_loops_that_pass_are_right():
    counts = Counter()
    thorough = settings.get_current_profile_name() == "deep"

    @settings(max_examples=300 if thorough else 60)
    @given(data=st.data())
    def run(data):
        start = data.draw(
            st.sampled_from([(), (("extremes",),), (("argmax",),), (("unordered",),)]), label="start"
        )
        case = data.draw(cases(start=start, stages=(1, 3)), label="case")
        schedule = Schedule(case.program)
        reference = list_function(schedule.func, case.params)
        for _ in range(data.draw(st.integers(0, 4), label="steps")):
            name = data.draw(st.sampled_from(STEPS), label="primitive")
            proposal = PROPOSERS[name](data.draw, schedule)
            if proposal is not None:
                args, kwargs = proposal
                try:
                    schedule = schedule.apply(name, *args, **kwargs)
                except ScheduleError:
                    counts["refused"] += 1
        inlined = any(step.primitive == "inline" for step in schedule.trace.steps)
        found = list(damages(schedule.func, inlined))
        assume(found)
        what, path, node = found[data.draw(st.integers(0, len(found) - 1), label="damage")]
        func = schedule.func.with_body(replace_at(schedule.func.body, path, node))
        violations = check_legal(reference, func, case.params)
        right = runs_the_same(case, func)
        counts[bool(violations), right] += 1
        assert violations or right, f"{what}:\n{Schedule(func)}"
        symbolic = check_legal(reference, func, case.params, mode="isl")
        assert bool(symbolic) == bool(violations), f"{what}:\n{Schedule(func)}{violations}\n{symbolic}"

    run()
    print(dict(counts))
    # the damage is mostly found, and mostly shows
    assert counts[True, False] > counts[True, True]
