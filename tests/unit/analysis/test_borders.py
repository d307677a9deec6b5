"""Borders: the affine piece in the middle of a range is what the index is, wherever it says that it is."""

import random

import pytest

from tilewright.analysis import Middle, decided, inside, period, piece
from tilewright.ir import (
    I64,
    Compare,
    OfIndex,
    Param,
    evaluate_index,
    floordiv,
    imax,
    imin,
    index,
    mod,
    var,
)

x, y = var("x"), var("y")
ENV = {"y": (index(0), index(9)), "x": (index(0), index(99))}
AROUND = Middle.of(ENV)


def bordered(rng, depth=3):
    if not depth or rng.random() < 0.2:
        return x * rng.choice((-2, -1, 1, 1, 1, 2)) + y * rng.choice((0, 1)) + rng.randint(-9, 120)
    inner = bordered(rng, depth - 1)
    match rng.choice(("min", "max", "mod", "div", "fold")):
        case "mod":
            return mod(inner, rng.randint(98, 220))
        case "div":
            return floordiv(inner, rng.randint(98, 220)) + inner
        case "fold":
            return imin(inner, -inner + rng.randint(0, 200))
        case op:
            return (imin if op == "min" else imax)(inner, rng.randint(-5, 105))


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_what_they_stand_for(seed):
    rng = random.Random(seed)
    inside = 0
    for _ in range(12):
        i = bordered(rng)
        found = piece(i, "x", AROUND)
        other = index(rng.randint(-5, 105))
        op = rng.choice(("ge", "gt", "le", "lt", "eq", "ne"))
        said = decided(Compare(op, OfIndex(i, I64), OfIndex(other, I64)), "x", AROUND)
        for at in ({"x": a, "y": b} for a in range(100) for b in range(0, 10, 3)):
            value = evaluate_index(i, at)
            if found is not None and all(evaluate_index(c, at) >= 0 for c in found[1]):
                inside += 1
                assert evaluate_index(found[0], at) == value, f"{i}: {found[0]} at {at}"
            if said is not None and all(evaluate_index(c, at) >= 0 for c in said[1]):
                right = getattr(value, f"__{op}__")(evaluate_index(other, at))
                assert said[0] == right, f"{op}({i}, {other}) at {at}"
    assert inside


def test_remainders_that_change_often_stay_what_they_are():
    assert piece(mod(x, 16), "x", AROUND) == (mod(x, 16), ())
    assert piece(floordiv(x, 2), "x", AROUND) == (floordiv(x, 2), ())
    assert piece(mod(x + 98, 100), "x") is None  # nothing is known of ranges


def test_mirrors_over_open_sizes():
    n = Param("n", 2, 4096)
    env = {"x": (index(0), index(n) - 1)}
    mirrored = imin(imax(x - 1, 1 - x), (index(n) - 1) * 2 - imax(x - 1, 1 - x))
    found = piece(mirrored, "x", Middle.of(env))
    assert found is not None and str(found[0]) == "x - 1"


def test_indices_away_from_borders():
    mirrored = imin(imax(x - 3, 3 - x), 99)
    assert str(inside(imax(y - 1, 0) * 100 + mirrored, "x", ENV)) == "x + 100*max(0, y - 1) - 3"
    assert inside(mirrored, "y", ENV) == mirrored


def test_wrapped_rows_of_channels_over_open_sizes():
    n, steep = Param("n", 4, 1 << 20), 1 << 20
    i = floordiv(x, 3) - 2
    low = imax(i, imin(i + index(n), i * -steep - 1))
    wrapped = imin(low, imax(low - index(n), (index(n) - low) * steep - 1))
    found = piece(wrapped, "x", Middle.of({"x": (index(0), index(n) * 3 - 1)}))
    assert found is not None and str(found[0]) == "x//3 - 2"
    for size in (4, 7, 50):
        for at in range(3 * size):
            given = {"x": at, "n": size}
            column = at // 3 - 2
            value = column + size if column < 0 else column
            assert evaluate_index(wrapped, given) == value
            if all(evaluate_index(c, given) >= 0 for c in found[1]):
                assert value == column
            else:
                assert at < 6 + 3


def test_rows_of_channels_are_clamped_as_rows_are():
    column, channel = imin(imax(floordiv(x, 3) - 2, 0), 32), mod(x, 3)
    found = piece(column, "x", AROUND)
    assert found is not None and str(found[0]) == "x//3 - 2"
    assert [str(c) for c in found[1]] == ["x - 6", "-x + 104"]
    assert str(inside(column * 3 + channel, "x", ENV)) == "x - 6"


@pytest.mark.parametrize("seed", range(20))
def test_periods_are_steps_after_which_all_has_moved_alike(seed):
    rng = random.Random(seed)
    i = x * rng.randint(-3, 3) + y
    for _ in range(rng.randint(1, 3)):
        i = (floordiv if rng.random() < 0.5 else mod)(
            i + rng.randint(-9, 9), rng.randint(2, 6)
        ) + i * rng.choice((0, 1))
    i = i + imin(mod(x, rng.randint(2, 6)), rng.randint(0, 5))
    found = period(i, "x")
    assert found is not None
    steps, moved = found
    for at in ({"x": a, "y": b} for a in range(30) for b in (0, 1, 7)):
        later = evaluate_index(i, at | {"x": at["x"] + steps})
        assert later - evaluate_index(i, at) == moved, f"{i}: {found} at {at}"
    assert period(imax(x, 3), "x") is None
