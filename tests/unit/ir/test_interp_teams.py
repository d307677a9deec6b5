"""Teams on the interpreter: right rings in any order, and wrong ones found, whichever order is drawn."""

import numpy as np
import pytest

from tilewright.ir import (
    DeadlockError,
    DivergenceError,
    ExecutionError,
    PoisonError,
    RaceError,
    parse_function,
    print_function,
    run_function,
    structurally_equal,
    verify,
)
from tilewright.support import VerificationError

#: Two blocks; one team brings 5 rows of 4 elements through a ring, two others add them up.
TEXT = """
function("sums", outputs=[Y, Z])
X = f32[2, 5, 4]
Y = f32[2, 4]
Z = f32[2, 4]
for b in thread("block.x", 2):
    T = alloc(f32[{slots}, 4], scope="shared")
    with teams(channel("ring", {slots})):
        with team("load", 32, registers=40):
            for k in range(5):
                acquire("ring", k)
                for i in thread("thread.x", 4):
                    T[k % {slots}, i] = X[b, k, i]
                put("ring", k)
        with team("first", 4):
            for i0 in thread("thread.x", 4):
                Y[b, i0] = f32(0.0)
            for k1 in range(5):
                get("ring", k1)
                for i1 in thread("thread.x", 4):
                    Y[b, i1] = Y[b, i1] + T[k1 % {slots}, 3 - i1]
                release("ring", k1)
        with team("second", 2):
            for i2 in thread("thread.x", 2):
                Z[b, 2*i2] = f32(0.0)
                Z[b, 2*i2 + 1] = f32(0.0)
            for k2 in range(5):
                get("ring", k2)
                for i3 in thread("thread.x", 2):
                    Z[b, 2*i3] = Z[b, 2*i3] + T[k2 % {slots}, 2*i3]
                    Z[b, 2*i3 + 1] = Z[b, 2*i3 + 1] + T[k2 % {slots}, 2*i3 + 1]
                release("ring", k2)
"""
X = np.random.default_rng(0).integers(-9, 9, (2, 5, 4)).astype(np.float32)


def function(*faults, slots=2):
    text = TEXT.format(slots=slots)
    for old, new in faults:
        assert old in text
        text = text.replace(old, new)
    return parse_function(text)


def run(func, seed):
    return run_function(func, {"X": X}, seed=seed)


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_rings_bring_every_item(slots):
    func = function(slots=slots)
    verify(func)
    for seed in range(5):
        got = run(func, seed)
        np.testing.assert_array_equal(got["Y"], X.sum(1)[:, ::-1])
        np.testing.assert_array_equal(got["Z"], X.sum(1))


def test_text_and_structure():
    func = function()
    assert parse_function(print_function(func)) == func
    other = function(('"ring"', '"q"'), ('"load"', '"producer"'))
    assert func != other and structurally_equal(func, other)
    assert not structurally_equal(func, function(("registers=40", "registers=48")))
    assert not structurally_equal(func, function(slots=3))


GET, RELEASE, PUT = (
    f'                {op}("ring", {k})\n' for op, k in (("get", "k1"), ("release", "k1"), ("put", "k"))
)
FAULTS = {
    "read before full": [(GET, ""), (RELEASE, "")],
    "overwritten before empty": [(f"% 2, {i}", f"% 1, {i}") for i in ("i]", "3 - i1]", "2*i3")],
    "put too early": [(PUT, ""), ('acquire("ring", k)\n', f'acquire("ring", k)\n{PUT}')],
    "released too early": [(RELEASE, ""), (GET, GET + RELEASE)],
    "the next slot": [("T[k1 % 2", "T[(k1 + 1) % 2")],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_rings_are_found(fault):
    """By their conflicts, whichever order is drawn."""
    for seed in range(8):
        with pytest.raises((RaceError, PoisonError)):
            run(function(*FAULTS[fault]), seed)


def test_each_taker_counts():
    """One of two teams never releases: whoever overwrites the slot waits for both."""
    func = function(('                release("ring", k2)\n', ""))
    for seed in range(4):
        with pytest.raises(
            DeadlockError, match=r"team load.*: second does not release item 0 of ring; team first"
        ):
            run(func, seed)


def test_a_team_that_is_not_served():
    late = [('acquire("ring", k)', 'acquire("ring", k + 1)')]
    with pytest.raises(ExecutionError, match="acquire of item 1 of ring, but item 0 is due"):
        run(function(*late), 0)
    without = [('                acquire("ring", k)\n', "")]
    with pytest.raises(ExecutionError, match="put of item 0 of ring, but there was no acquire"):
        run(function(*without), 0)
    with pytest.raises(DeadlockError, match="load does not put item 5 of ring"):
        run(function(("for k1 in range(5)", "for k1 in range(6)")), 0)
    with pytest.raises(DivergenceError, match=r"team first.* ends after 4 times get of ring"):
        run(function(("k1 in range(5)", "k1 in range(4)")), 0)


def test_barriers_are_the_teams():
    """A barrier in one team orders its threads, and nobody else's."""
    half = (
        "T[k % 2, i] = X[b, k, i]",
        'U[i] = X[b, k, i]\n                barrier("shared")\n'
        '                for j in thread("thread.x", 4):\n'
        '                    T[k % 2, j] = U[3 - j]\n                barrier("shared")',
    )
    alloc = ("    with teams", '    U = alloc(f32[4], scope="shared")\n    with teams')
    for seed in range(4):
        got = run(function(half, alloc), seed)
        np.testing.assert_array_equal(got["Y"], X.sum(1))
    once = (half[0], half[1].rpartition("\n")[0])
    with pytest.raises(RaceError, match="buffer U"):
        run(function(once, alloc), 0)


BROKEN = [
    ([('with team("second"', 'with team("first"')], "two teams have the same name"),
    ([("channel(\"ring\", 2)", 'channel("ring", 0)')], "has 0 slots"),
    ([('put("ring", k)', 'release("ring", k)')], "not filled by one team"),
    ([('get("ring", k1)', 'get("rung", k1)')], "no channel 'rung'"),
    ([('team("load", 32', 'team("load", 0')], "0 threads"),
    ([("for k in range(5)", 'for k in thread("thread.y", 5)')], "not all threads of the team come to"),
    ([('for b in thread("block.x", 2)', 'for b in range(2)')], "below loops over blocks"),
]  # fmt: skip


@pytest.mark.parametrize(("faults", "match"), BROKEN, ids=lambda x: x if isinstance(x, str) else "")
def test_what_the_verifier_says(faults, match):
    with pytest.raises(VerificationError, match=match):
        verify(function(*faults))
