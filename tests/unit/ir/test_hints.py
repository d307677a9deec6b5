"""Hints of loops: reading their values, and what is wrong with them."""

import pytest

from tilewright.ir import (
    HINTS,
    SCHEDULED,
    For,
    Index,
    PrefetchHint,
    Seq,
    hint_problem,
    in_place_hints,
    is_outlined,
    nontemporal_hints,
    parse_function,
    prefetch_hints,
    unroll_factor,
    verify,
)


def loop(**hints):
    return For("i", Index(0), Index(4), Seq(()), hints=tuple(hints.items()))


def test_values_are_read():
    full = loop(
        prefetch="A,B@8,C+4096,D+64:1,E@spread,I@spread:2",
        nontemporal="F,G",
        in_place="H",
        unroll="4",
        outline="",
    )
    assert prefetch_hints(full) == (
        PrefetchHint("A"),
        PrefetchHint("B", ahead=8),
        PrefetchHint("C", further=4096, level=2),
        PrefetchHint("D", further=64, level=1),
        PrefetchHint("E", spread=True),
        PrefetchHint("I", spread=True, level=2),
    )
    assert nontemporal_hints(full) == {"F", "G"} and in_place_hints(full) == {"H"}
    assert unroll_factor(full) == 4 and is_outlined(full)


def test_no_hints_say_nothing():
    plain = loop()
    assert prefetch_hints(plain) == () and nontemporal_hints(plain) == frozenset()
    assert unroll_factor(plain) == 1 and not is_outlined(plain)


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("outline", "", True),
        ("outline", "1", False),
        ("reload", "9/14", True),
        ("reload", "14/14", True),
        ("reload", "15/14", False),
        ("reload", "0/14", False),
        ("reload", "9", False),
        ("unroll", "16", True),
        ("unroll", "0", False),
        ("unroll", "", False),
        ("pipeline", "-1", False),
        ("prefetch", "A+4096:2", True),
        ("prefetch", "A@8:2", False),
        ("prefetch", "A+64:0", False),
        ("prefetch", "A,", False),
        ("prefetch", "", False),
        ("nontemporal", "A,B", True),
        ("nontemporal", "A,", False),
        ("in_place", "A", True),
        ("in_place", "", False),
        ("of another back end", "anything", True),
    ],
)
def test_what_is_wrong_is_said(key, value, good):
    problem = hint_problem(key, value)
    assert (problem == "") is good
    if not good:
        assert repr(key) in problem
    assert key in (*HINTS, "of another back end")


def test_buffers_may_have_moved_away_from_a_hint():
    verify(
        parse_function("""
function("f", outputs=[Y])
Y = f32[4]
for i in range(4, hints={"nontemporal": "gone", "in_place": "gone", "prefetch": "gone@2"}):
    with block("S"):
        i = par(0, 4, i)
        Y[i] = f32(1.0)
"""),
        SCHEDULED,
    )
