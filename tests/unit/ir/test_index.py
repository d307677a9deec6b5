"""Index expressions: every simplification rule on its own, then all of them on random trees and integers."""

import operator

import pytest
from hypothesis import given, settings, strategies as st

from tilewright.ir import (
    I64,
    ZERO,
    Load,
    Opaque,
    Param,
    evaluate_index,
    floordiv,
    imax,
    imin,
    index,
    mod,
    params_of,
    substitute_index,
    var,
)

i, j, k = var("i"), var("j"), var("k")
VARS = ("i", "j", "k")
VALUES = st.integers(-200, 200)


# One row a rule: what is built, and the canonical form it must take.
RULES = [
    # sums
    (lambda: i + 0, "i"),
    (lambda: i - i, "0"),
    (lambda: j + i, "i + j"),
    (lambda: 2 * i + 3 + 4 * i - 5, "6*i - 2"),
    (lambda: (i + j) * -2, "-2*i - 2*j"),
    (lambda: i * index(3), "3*i"),
    (lambda: index(3) * i, "3*i"),
    (lambda: i * 0, "0"),
    (lambda: 5 - i, "-i + 5"),
    # floordiv
    (lambda: floordiv(i, 1), "i"),
    (lambda: floordiv(7, 2), "3"),
    (lambda: floordiv(-7, 2), "-4"),
    (lambda: floordiv(4 * i, 4), "i"),
    (lambda: floordiv(4 * i + 7, 4), "i + 1"),
    (lambda: floordiv(4 * i - 1, 4), "i - 1"),
    (lambda: floordiv(-4 * i + j, 4), "-i + j//4"),
    (lambda: floordiv(i + 9, 4), "(i + 1)//4 + 2"),
    (lambda: floordiv(i - 1, 4), "(i + 3)//4 - 1"),
    (lambda: floordiv(2 * i + 3, 4), "(i + 1)//2"),
    (lambda: floordiv(6 * i + 4, 4), "(3*i)//2 + 1"),
    (lambda: floordiv(2 * i + 1, 6), "i//3"),
    (lambda: floordiv(-2 * i + 1, 4), "(-i)//2"),
    (lambda: floordiv(floordiv(i, 3), 4), "i//12"),
    (lambda: floordiv(floordiv(i, 3) + 5, 4), "(i + 3)//12 + 1"),
    (lambda: floordiv(6 * i + 3 * j, 3), "2*i + j"),
    # mod
    (lambda: mod(i, 1), "0"),
    (lambda: mod(7, 4), "3"),
    (lambda: mod(-7, 4), "1"),
    (lambda: mod(4 * i, 4), "0"),
    (lambda: mod(4 * i + 5, 4), "1"),
    (lambda: mod(5 * i, 4), "i%4"),
    (lambda: mod(i + 7, 4), "(i + 3)%4"),
    (lambda: mod(2 * i, 4), "2*(i%2)"),
    (lambda: mod(2 * i + 3, 4), "2*((i + 1)%2) + 1"),
    (lambda: mod(mod(i, 12), 4), "i%4"),
    (lambda: mod(mod(i, 4), 12), "(i%4)%12"),
    # quotient and remainder of one thing
    (lambda: 4 * floordiv(i, 4) + mod(i, 4), "i"),
    (lambda: mod(i, 4) + 4 * floordiv(i, 4) + j, "i + j"),
    (lambda: 8 * floordiv(i, 4) + 2 * mod(i, 4), "2*i"),
    (lambda: -4 * floordiv(i, 4) - mod(i, 4), "-i"),
    (lambda: 4 * floordiv(4 * i + j, 4) + mod(4 * i + j, 4), "4*i + j"),
    (lambda: 3 * floordiv(i, 4) + mod(i, 4), "3*(i//4) + i%4"),
    (lambda: 2 * floordiv(mod(3 * i + j, 6), 2) + mod(mod(3 * i + j, 6), 2), "(3*i + j)%6"),
    (lambda: 2 * floordiv(mod(i + 2 * j, 6), 2) + mod(i, 2), "(i + 2*j)%6"),
    (lambda: 4 * floordiv(mod(i, 6), 4) + mod(i, 4), "4*((i%6)//4) + i%4"),
    # blocks of 32 in lines of 56: as flat as they lie
    (lambda: 56 * floordiv(32 * mod(i, 98) + j, 56) + mod(32 * i + j, 56), "j + 32*(i%98)"),
    (
        lambda: 3136 * floordiv(i, 98) + 56 * floordiv(32 * mod(i, 98) + j, 56) + mod(32 * i + j, 56),
        "32*i + j",
    ),
    (lambda: 4 * floordiv(3 * mod(i, 6), 4) + mod(3 * i, 4), "4*((3*(i%6))//4) + (3*i)%4"),
    # min and max
    (lambda: imin(i), "i"),
    (lambda: imin(i, i), "i"),
    (lambda: imin(i + 3, i + 1), "i + 1"),
    (lambda: imax(i + 3, i + 1), "i + 3"),
    (lambda: imin(3, 5, 4), "3"),
    (lambda: imin(i, imin(j, k)), "min(i, j, k)"),
    (lambda: imin(j, i), "min(i, j)"),
    (lambda: imin(i, imax(j, k)), "min(i, max(j, k))"),
    (lambda: imax(i, 3, imax(j, 5)), "max(5, i, j)"),
]


@pytest.mark.parametrize(("build", "expected"), RULES, ids=[text for _, text in RULES])
def test_rules(build, expected):
    assert str(build()) == expected


def test_equal_values_are_equal_and_hash_alike():
    a, b = floordiv(4 * i + j + 6, 4), i + floordiv(j + 2, 4) + 1
    assert a == b
    assert hash(a) == hash(b)
    assert a.key == b.key
    assert a != a + 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: floordiv(i, 0), "division of i by 0"),
        (lambda: mod(i, -3), "remainder of i by -3"),
        (lambda: i * j, "product of two non-constant indices"),
        (lambda: imin(), "min of no arguments"),
        (lambda: i.as_int(), "not a constant"),
    ],
)
def test_refusals(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_parts_of_an_index():
    x = 3 * i - j + floordiv(k, 2) + 4
    assert (x.coefficient("i"), x.coefficient("j"), x.coefficient("k")) == (3, -1, 0)
    assert x.vars == {"i", "j", "k"}
    assert i.as_var() == "i"
    assert (i + 1).as_var() is None
    assert index(7).as_int() == 7


# ---- random trees, evaluated as they are written and as they are simplified ----


def trees(depth=4):
    leaves = st.one_of(st.sampled_from(VARS), st.integers(-30, 30))

    def grow(sub):
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-"]), sub, sub),
            st.tuples(st.just("*"), sub, st.integers(-8, 8)),
            st.tuples(st.sampled_from(["//", "%"]), sub, st.integers(1, 24)),
            st.tuples(st.sampled_from(["min", "max"]), sub, sub),
        )

    return st.recursive(leaves, grow, max_leaves=10)


BUILD = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": floordiv,
    "%": mod,
    "min": imin,
    "max": imax,
}
PLAIN = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": min, "max": max,
}  # fmt: skip


def build(tree):
    if isinstance(tree, str):
        return var(tree)
    if isinstance(tree, int):
        return index(tree)
    op, a, b = tree
    return BUILD[op](build(a), b if op in ("*", "//", "%") else build(b))


def value(tree, env):
    if isinstance(tree, str):
        return env[tree]
    if isinstance(tree, int):
        return tree
    op, a, b = tree
    return PLAIN[op](value(a, env), value(b, env))


ENVS = st.fixed_dictionaries(dict.fromkeys(VARS, VALUES))


@settings(max_examples=100)
@given(trees(), ENVS)
def test_canonical_forms_keep_the_value(tree, env):
    assert evaluate_index(build(tree), env) == value(tree, env)


@settings(max_examples=100)
@given(trees())
def test_canonical_forms_are_fixed_points(tree):
    x = build(tree)
    assert substitute_index(x, {v: var("_" + v) for v in VARS}) is not x or not x.vars
    assert (
        substitute_index(
            substitute_index(x, {v: var("_" + v) for v in VARS}), {"_" + v: var(v) for v in VARS}
        )
        == x
    )
    assert substitute_index(x, {"unused": i}) is x
    assert x + 0 is x
    assert x * 1 is x
    assert (x - x) == ZERO
    assert x + x == x * 2
    assert all(c for _, c in x.terms)
    assert [a.key for a, _ in x.terms] == sorted(a.key for a, _ in x.terms)


@settings(max_examples=100)
@given(trees(), trees(), ENVS)
def test_substitution_is_composition(outer, inner, env):
    x, y = build(outer), build(inner)
    assert evaluate_index(substitute_index(x, {"i": y}), env) == value(outer, {**env, "i": value(inner, env)})


@settings(max_examples=100)
@given(trees(), trees())
def test_equality_agrees_with_the_key(a, b):
    x, y = build(a), build(b)
    assert (x == y) == (x.key == y.key)
    if x == y:
        assert hash(x) == hash(y)


def test_opaque_atoms_are_evaluated_and_substituted():
    x = imin(imax(index(Opaque(Load("idx", (i,), I64))), 0), 7) * 2
    assert evaluate_index(x, {"i": 3}, lambda e: 5 if e == Load("idx", (i,), I64) else -1) == 10
    y = substitute_index(x, {"i": j + 1})
    assert y == imin(imax(index(Opaque(Load("idx", (j + 1,), I64))), 0), 7) * 2
    assert y.vars == {"j"}


def test_parameters_are_found_and_kept():
    n = Param("n", 1, 9)
    x = floordiv(index(n) + i, 2) + mod(imin(index(n), j), 3)
    assert params_of(x) == {n}
    assert evaluate_index(x, {"n": 5, "i": 2, "j": 4}) == 3 + 1
    assert substitute_index(x, {"n": i}) is x
