"""Teams that copy for loops: right in every order drawn, found where wrong, refused where none fit."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.build import lowered_for
from tilewright.codegen import emit_kernels
from tilewright.ir import (
    LOWERED,
    DeadlockError,
    Exec,
    ExecutionError,
    Sync,
    Team,
    locate,
    parse_function,
    print_function,
    run_function,
    verify,
)
from tilewright.lower import form_teams
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import INTERPRETED

K, N = 24, 6


def sums(slots=3, turn=False, threads=4):
    """Rows of two blocks, each the sum of a matrix's rows weighed by a vector: both are copied in slices."""
    a, x = lang.placeholder((2, N, K), name="A"), lang.placeholder((K,), name="X")
    k = lang.reduce_axis(K, "k")
    c = lang.compute((2, N), lambda b, i: lang.sum(a[b, i, k] * x[k], axis=k), name="C")
    s = Schedule(lang.program([a, x], [c])).bind("b", "block.x").split("k", 4).reorder("k_o", "i", "k_i")
    s = s.cache("A", "k_o", scope="shared", name="As").cache("X", "k_o", scope="shared", name="Xs")
    if turn:
        s = s.swizzle("As", 4, vector=1)
    s = s.decompose_init("C", "k_o").split("i", (threads,), names=("i_o", "i_t"))
    s = s.split("i_init", (threads,), names=("z_o", "z_t")).bind(("i_t", "z_t"), "thread.x")
    return s.annotate("k_o", "teams", str(slots))


def data():
    rng = np.random.default_rng(3)
    given = {"A": rng.integers(-4, 5, (2, N, K)), "X": rng.integers(-4, 5, K)}
    given = {name: x.astype(np.float32) for name, x in given.items()}
    return given, given["A"] @ given["X"]


@pytest.mark.parametrize(("slots", "turn"), [(1, False), (2, True), (3, False), (9, True)])
def test_loops_whose_tiles_a_team_copies(slots, turn):
    func = lowered_for(sums(slots, turn).func, "cuda")
    verify(func, LOWERED)
    assert parse_function(print_function(func)) == func
    assert [p.node.name for p in locate(func.body, Team)] == ["copy", "compute"]
    given, want = data()
    for seed in range(3):
        np.testing.assert_array_equal(run_function(func, given, seed=seed)["C"], want)


def test_other_languages_copy_where_the_loop_says():
    for language in ("c", "opencl"):
        func = lowered_for(sums().func, language)
        assert not list(locate(func.body, Team))
        given, want = data()
        np.testing.assert_array_equal(run_function(func, given)["C"], want)


@pytest.mark.parametrize("op", ["acquire", "put", "get", "release"])
def test_each_word_counts(op):
    """What is left out is missed: as a conflict, an item out of turn, or an end that never comes."""
    text = print_function(lowered_for(sums(2).func, "cuda"))
    lines = [line for line in text.splitlines(keepends=True) if not line.strip().startswith(f"{op}(")]
    func, (given, _) = parse_function("".join(lines)), data()
    for seed in range(3):
        with pytest.raises((ExecutionError, DeadlockError)):
            run_function(func, given, seed=seed)


def test_products_of_warpgroups_release_a_step_later():
    """Units read an item while the next one is waited for; it is released after that."""
    func = lowered_for(product().func, "cuda")
    items = [(p.node.op, str(p.node.item)) for p in locate(func.body, Sync)]
    assert items[-3:] == [("get", "k_o"), ("release", "k_o - 1"), ("release", "1")]
    assert sum(1 for _ in locate(func.body, Exec)) == 1
    rng = np.random.default_rng(0)
    given = {"A": rng.integers(-3, 4, (64, 32)), "B": rng.integers(-3, 4, (8, 32))}
    given = {name: x.astype(np.float16) for name, x in given.items()}
    got = run_function(func, given, instructions=INTERPRETED)["C"]
    np.testing.assert_array_equal(got, given["A"].astype(np.float32) @ given["B"].T.astype(np.float32))


def product():
    """64 x 8 results of a block by one instruction in each of two steps, the second factor transposed."""
    a, b = lang.placeholder((64, 32), "f16", name="A"), lang.placeholder((8, 32), "f16", name="B")
    k = lang.reduce_axis(32, "k")
    c = lang.compute(
        (64, 8),
        lambda i, j: lang.sum(lang.cast(a[i, k], "f32") * lang.cast(b[j, k], "f32"), axis=k),
        name="C",
    )
    s = Schedule(lang.program([a, b], [c])).split("i", 64).split("k", 16)
    s = s.reorder("i_o", "k_o", "i_i", "j", "k_i").bind("i_o", "block.x")
    s = s.cache("C", "i_o", mode="accumulate", scope="register", name="acc")
    s = s.cache("A", "k_o", scope="shared", name="As").cache("B", "k_o", scope="shared", name="Bs")
    for i, j, terms in (
        ("i_i", "j", ["k_i"]),
        ("acc_init_i", "acc_init_j", []),
        ("acc_out_i", "acc_out_j", []),
    ):
        s = s.split(i, 16, names=[f"{i}_w", f"{i}_x"]).split(f"{i}_x", 8, names=[f"{i}_r", f"{i}_g"])
        s = s.split(j, 8, names=[f"{j}_e", f"{j}_x"]).split(f"{j}_x", 2, names=[f"{j}_l", f"{j}_c"])
        s = s.reorder(f"{i}_w", f"{i}_g", f"{j}_l", f"{i}_r", f"{j}_e", f"{j}_c", *terms)
        s = s.fuse(f"{i}_w", f"{i}_g", names=[f"{i}_q"]).fuse(f"{i}_q", f"{j}_l", names=[f"{i}_t"])
    s = s.bind(("i_i_t", "acc_init_i_t", "acc_out_i_t"), "thread.x")
    return s.tensorize("i_i_r", "wgmma_m64n8k16_f16").annotate("k_o", "teams", "2")


def refused(change, match):
    with pytest.raises(ScheduleError, match=match):
        lowered_for(change.func, "cuda")


def test_loops_that_no_team_copies_for():
    a = lang.placeholder((8, 4), name="A")
    c = lang.compute((8, 4), lambda i, j: a[i, j] * 2, name="C")
    s = Schedule(lang.program([a], [c]))
    refused(
        s.cache("A", "i", scope="shared", name="As").annotate("i", "teams", "2"), "below a loop over blocks"
    )
    s = s.split("i", 4).bind("i_o", "block.x")
    refused(s.annotate("i_i", "teams", "2"), "does not begin with copies")
    inner = s.cache("A", "i_i", scope="shared", name="As").bind("j", "thread.x")
    refused(
        inner.unroll("i_i") and inner.partition("i_i", 1).annotate("i_i_1", "teams", "2"),
        "not counted from 0",
    )


COPIED = """
function("f", outputs=[Y])
X = f32[8, 4]
Y = f32[8, 4]
for b in thread("block.x", 1):
    for k in range(2, hints={"teams": "2"}):
        T = alloc(f32[8, 4], scope="shared", layout=index_map([d0, d1], [d0 - 4*k, d1], [4, 4]))
        for i in range(4):
            with block("T"):
                r = par(0, 8, i + 4*k)
                T[r, 1] = X[r, 1]
        for i1 in range(4):
            with block("Y"):
                r = par(0, 8, i1 + 4*k)
                Y[r, 1] = T[r, 1]
"""
USE = COPIED[COPIED.index("        for i1") :]
#: A second part of the tile, and a use that writes it after it was used.
PART = COPIED[COPIED.index("        for i in") : COPIED.index("        for i1")]
PART = PART.replace("i in", "i2 in").replace("i + 4*k", "i2 + 4*k + 1").replace('"T"', '"T2"')
LATER = USE + USE.replace("i1", "i3").replace('"Y"', '"Z"').replace("Y[r, 1] = T[r, 1]", "T[r, 1] = X[r, 1]")
WRONG = [
    ("X[r, 1]", "Y[r, 1]", "copies from 'Y', which the block writes"),
    (USE, LATER, "writes 'T' where it uses it"),
    ("[d0 - 4*k, d1]", "[(d0 + k) % 4, d1]", "moves 'T' so that its tiles lie differently"),
    (USE, PART + USE, "fills 'T' by parts"),
]


@pytest.mark.parametrize(("old", "new", "match"), WRONG)
def test_copies_that_cannot_run_ahead(old, new, match):
    assert form_teams(parse_function(COPIED)) != parse_function(COPIED)
    with pytest.raises(ScheduleError, match=match):
        form_teams(parse_function(COPIED.replace(old, new)))


def test_loops_under_conditions():
    lines = COPIED.splitlines()
    at = next(n for n, line in enumerate(lines) if "for k in" in line)
    inside = "\n".join([*lines[:at], "    if b + 0*1 >= 0:", *("    " + line for line in lines[at:])])
    with pytest.raises(ScheduleError, match="is under a condition"):
        form_teams(parse_function(inside))


CHANGES = [
    ('thread("thread.x", 128)', 'thread("thread.x", 64)', "done by the 128 threads of a warpgroup together"),
    ('f32[64, 8], scope="register"', 'f32[64, 8], scope="shared"', "sums in registers"),
    ("", "", "do not lie evenly"),
]


@pytest.mark.parametrize(("old", "new", "match"), CHANGES)
def test_products_that_no_warpgroup_does(old, new, match):
    text = print_function(lowered_for(product().func, "cuda"))
    assert old in text
    with pytest.raises(ScheduleError, match=match):
        emit_kernels(parse_function(text.replace(old, new) if old else text), "cuda")
