"""Ranges: what is proved holds at every point, simplification keeps values, the usual cases are decided."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from random_ir import indices
from tilewright.ir import (
    I64,
    ZERO,
    FloorDiv,
    Iter,
    Load,
    MinMax,
    Mod,
    Opaque,
    Param,
    Stage,
    eq0,
    evaluate_index,
    floordiv,
    ge0,
    imax,
    imin,
    index,
    int_range,
    lower,
    mod,
    most_iterations,
    prove_ge0,
    prove_lt,
    prove_pred,
    seq,
    simplify,
    simplify_pred,
    span,
    union_span,
    upper,
    var,
)

N = Param("n", 1, 40, 2)
n = index(N)
i, j, k = (var(v) for v in "ijk")


def points(env, params):
    """All points of an environment whose later bounds may depend on earlier variables."""

    def visit(names, at):
        if not names:
            yield at
            return
        lo, hi = (evaluate_index(b, at) for b in env[names[0]])
        for v in range(lo, hi + 1):
            yield from visit(names[1:], {**at, names[0]: v})

    yield from visit(list(env), dict(params))


@st.composite
def environments(draw):
    """Three nested variables with small, possibly negative, possibly triangular or symbolic ranges."""
    env = {}
    for v in "ijk":
        lo = index(draw(st.integers(-6, 6)))
        choice = draw(st.integers(0, 4))
        if choice == 0 and env:
            lo = lo + var(draw(st.sampled_from(list(env))))
        extent = index(draw(st.integers(1, 5)))
        hi = lo + extent - 1
        if choice == 1 and env:
            hi = var(draw(st.sampled_from(list(env)))) + draw(st.integers(0, 4))
        if choice == 2:
            hi = floordiv(n, 2) + lo
        env[v] = (lo, hi)
    return env


ATOMS = indices(("i", "j", "k"), 2)
CASES = given(ATOMS, environments(), st.integers(1, 5).map(lambda x: 2 * x))


def values(x, env, size):
    return [evaluate_index(x, at) for at in points(env, {"n": size})]


def fix(x):
    """The strategies have parameters of their own: the first gets the bounds of N, the other a number."""
    out = index(x.const)
    for atom, c in x.terms:
        match atom:
            case Param():
                new = n if atom.name == "n" else index(8)
            case FloorDiv(arg, d):
                new = floordiv(fix(arg), d)
            case Mod(arg, d):
                new = mod(fix(arg), d)
            case MinMax(op, args):
                new = (imin if op == "min" else imax)(*map(fix, args))
            case _:
                new = index(atom)
        out = out + new * c
    return out


@settings(max_examples=100)
@CASES
def test_integer_bounds_hold(x, env, size):
    found = values(fix(x), env, size)
    if not found:
        return
    lo, hi = int_range(fix(x), env)
    assert lo is None or lo <= min(found)
    assert hi is None or hi >= max(found)
    if prove_ge0(fix(x), env):
        assert min(found) >= 0
    if prove_lt(fix(x), index(3), env):
        assert max(found) < 3


@settings(max_examples=100)
@CASES
def test_simplification_keeps_values(x, env, size):
    x = fix(x)
    y = simplify(x, env)
    for at in itertools.islice(points(env, {"n": size}), 60):
        assert evaluate_index(y, at) == evaluate_index(x, at)


@settings(max_examples=100)
@given(
    ATOMS, environments(), st.integers(1, 5).map(lambda x: 2 * x), st.sets(st.sampled_from("ijk"), min_size=1)
)
def test_symbolic_bounds_and_spans_hold(x, env, size, inner):
    x = fix(x)
    # variables that are eliminated may not bound ones that stay
    if any(v in b.vars for name, bounds in env.items() if name not in inner for b in bounds for v in inner):
        return
    up, low, box = upper(x, env, inner), lower(x, env, inner), span(x, env, inner)
    for at in itertools.islice(points(env, {"n": size}), 60):
        value = evaluate_index(x, at)
        assert up is None or value <= evaluate_index(up, at)
        assert low is None or value >= evaluate_index(low, at)
        if box is not None:
            start = evaluate_index(box.lo, at)
            assert start <= value < start + evaluate_index(box.extent, at)
    for bound in (up, low) if box is None else (up, low, box.lo):
        assert bound is None or not bound.vars & inner
    assert box is None or not box.extent.vars


@settings(max_examples=100)
@given(st.lists(ATOMS, min_size=2, max_size=3), environments(), st.integers(1, 5).map(lambda x: 2 * x))
def test_unions_hold_all_their_parts(xs, env, size):
    spans = [span(fix(x), env, ("k",)) for x in xs]
    if None in spans:
        return
    whole = union_span(spans, {v: b for v, b in env.items() if v != "k"})
    if whole is None:
        return
    for at in itertools.islice(points(env, {"n": size}), 60):
        start = evaluate_index(whole.lo, at)
        for x in xs:
            assert start <= evaluate_index(fix(x), at) < start + evaluate_index(whole.extent, at)


@settings(max_examples=100)
@given(
    st.lists(ATOMS, min_size=1, max_size=3),
    environments(),
    st.integers(1, 5).map(lambda x: 2 * x),
    st.booleans(),
)
def test_simplified_predicates_say_the_same(xs, env, size, eq):
    pred = tuple((eq0 if eq and m == 0 else ge0)(fix(x)) for m, x in enumerate(xs))

    def holds(p, at):
        return all((v := evaluate_index(c.index, at)) >= 0 and (c.op == "ge" or v == 0) for c in p)

    short = simplify_pred(pred, env)
    assert len(short) <= len(pred)
    for at in itertools.islice(points(env, {"n": size}), 60):
        assert holds(pred, at) == holds(short, at)
    if prove_pred(pred, env):
        assert all(holds(pred, at) for at in itertools.islice(points(env, {"n": size}), 60))


TILE = {"io": (ZERO, index(15)), "ii": (ZERO, index(3)), "s": (ZERO, index(2))}
io, ii, s = var("io"), var("ii"), var("s")


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (floordiv(4 * io + ii, 4), "io"),
        (mod(4 * io + ii, 4), "ii"),
        (floordiv(4 * io + ii, 8), "io//2"),
        (mod(4 * io + ii, 8), "ii + 4*(io%2)"),
        (floordiv(8 * io + 4 * s + ii, 4), "2*io + s"),
        (mod(64 * io + 16 * s + 2 * ii + 1, 16), "2*ii + 1"),
        (mod(ii - 4, 8), "ii + 4"),
        (imin(ii, 7), "ii"),
        (imax(ii, -1), "ii"),
        (imin(4 * io + ii, 63), "ii + 4*io"),
        (imin(4 * io + ii, 60), "min(60, ii + 4*io)"),
        (mod(mod(ii, 4), 12), "ii"),
    ],
)  # fmt: skip
def test_the_usual_simplifications(x, expected):
    assert str(simplify(x, TILE)) == expected


def test_the_usual_proofs():
    assert prove_lt(4 * io + ii, index(64), TILE)
    assert not prove_lt(4 * io + ii, index(63), TILE)
    assert prove_ge0(63 - 4 * io - ii, TILE)
    # the same variable in two terms, once inside of a division
    assert prove_ge0(io - 4 * floordiv(io, 4), TILE)
    assert prove_lt(io - 4 * floordiv(io, 4), index(4), TILE)
    # a symbolic loop: the last tile starts inside
    tiles = {"t": (ZERO, floordiv(n + 3, 4) - 1)}
    assert prove_ge0(n - 1 - 4 * var("t"), tiles)
    assert prove_lt(imin(4 * var("t") + 3, n - 1), n, tiles)
    # triangular
    assert prove_ge0(i - j, {"i": (ZERO, index(9)), "j": (ZERO, i)})
    assert prove_pred((ge0(i - j), eq0(i - i)), {"i": (ZERO, index(9)), "j": (ZERO, i)})


def test_footprints_of_a_stencil():
    env = {"t": (ZERO, index(7)), "h": (ZERO, index(7)), "r": (ZERO, index(2))}
    box = span(8 * var("t") + var("h") + var("r") - 1, env, ("h", "r"))
    assert (str(box.lo), str(box.extent)) == ("8*t - 1", "10")
    strided = span(16 * var("t") + 2 * var("h") + var("r"), env, ("h", "r"))
    assert (str(strided.lo), str(strided.extent)) == ("16*t", "17")
    clamped = span(imax(imin(8 * var("t") + var("h"), 50), 0), env, ("h",))
    assert clamped.extent == index(8)
    assert span(index(Opaque(Load("x", (var("h"),), I64))), env, ("h",)) is None
    assert union_span([box, box], env) == box


def test_arguments_of_minima_are_dropped_where_there_are_few_cases():
    """Bounds of many loops with many arguments each leave more cases than anybody can go through."""
    loops = {f"x{n}": (imax(var("a"), var("b")), imin(N, var("c"))) for n in range(7)}
    at = {name: (ZERO, index(9)) for name in "abc"}
    redundant = imin(var("x0"), var("x0") + 3)
    assert simplify(redundant + 0, at | {"x0": loops["x0"]}) == var("x0")
    several = imin(var("x0"), var("x1"), var("x0") + 3)
    assert simplify(several, at | {k: loops[k] for k in ("x0", "x1")}) == imin(var("x0"), var("x1"))
    assert simplify(several, at | loops) == several


def test_iterations_are_counted_at_most():
    iters = (Iter("i", ZERO, index(9), "par"), Iter("r", ZERO, i + 1, "red"), Iter("s", index(4), i, "red"))
    stage = Stage("s", iters, seq())
    assert [most_iterations(stage, kind) for kind in ("par", "red", "ord")] == [9, 36, 1]
    assert most_iterations(replace(stage, iters=(Iter("r", index(9), index(4), "red"),)), "red") == 0
    with pytest.raises(ValueError, match="no bound"):
        most_iterations(replace(stage, iters=(Iter("r", ZERO, var("q"), "red"),)), "red")
