"""Products by matrix units on GPUs: right at ragged sizes, in registers, by default where there are units."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.plans import asked_of, chosen

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.cost import Machine, ProductSize, WarpTiles, product_seconds
from tilewright.lang import ops
from tilewright.lower import insert_barriers
from tilewright.plan import RULES, build_unit, plan_from_json, plan_unit, rewritten
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError, assert_close
from tilewright.target import A100, H200, POCL, V100

#: Registers that tiles of the default may take.
MOST_REGISTERS = 200


def product(m, n, k, dtype="f16", other="", *, turned=False, batch=0):
    """``max(A B, 0)``; with ``turned`` the second factor is given by columns."""
    lead, other = (batch,) if batch else (), other or dtype
    a = lang.placeholder((*lead, m, k), dtype, name="A")
    b = lang.placeholder((*lead, n, k) if turned else (*lead, k, n), other, name="B")
    r = lang.reduce_axis(k, "k")
    total = "i32" if dtype in ("i8", "u8") else "f32"

    def factor(e):
        return lang.tf32(e) if dtype == "f32" else lang.cast(e, total)

    def term(*at):
        *outer, i, j = at
        return factor(a[(*outer, i, r)]) * factor(b[(*outer, j, r) if turned else (*outer, r, j)])

    c = lang.compute((*lead, m, n), lambda *at: lang.sum(term(*at), axis=r), name="C")
    return lang.program([a, b], [lang.compute((*lead, m, n), lambda *at: lang.maximum(c[at], 0), name="Y")])


def data(program):
    rng = np.random.default_rng(5)
    found = {}
    for b in program.inputs:
        low = 0 if b.dtype.kind == "uint" else -3
        found[b.name] = rng.integers(low, 4, [e.as_int() for e in b.shape]).astype(b.dtype.numpy)
    return found


def compare(program, schedule, languages, *, turned=False):
    """Small whole numbers: sums are exact in any order."""
    given = data(program)
    a, b = (given[name].astype(np.float64) for name in "AB")
    want = np.maximum(a @ (np.swapaxes(b, -1, -2) if turned else b), 0)
    for language in languages:
        np.testing.assert_array_equal(on_device(schedule.func, language)(given)["Y"], want)


def tiles_of(planned):
    (plan,) = [nest.choice for nest in planned.plan.nests if nest.rule == "gpu_matrix"]
    return plan


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("size", "dtype", "other", "turned", "batch"),
    [
        ((67, 45, 40), "f16", "", False, 0),
        ((33, 17, 20), "bf16", "", True, 2),
        ((31, 37, 19), "f32", "", False, 0),
        ((20, 37, 70), "i8", "", True, 0),
        ((32, 32, 64), "u8", "i8", False, 2),
    ],
    ids=["f16", "bf16", "tf32", "i8", "u8i8"],
)
def test_products_at_ragged_and_prime_sizes(size, dtype, other, turned, batch):
    program = product(*size, dtype, other, turned=turned, batch=batch)
    planned = plan_unit(program, Machine(A100, 1))
    assert tiles_of(planned) and not planned.schedule.notes
    compare(program, planned.schedule, LANGUAGES, turned=turned)
    text = checked_by_nvrtc(planned.schedule.func, registers=MOST_REGISTERS)
    assert "mma.sync.aligned" in text


def test_convolutions_are_products():
    x, w = lang.placeholder((1, 16, 9, 9), "f16", name="X"), lang.placeholder((24, 16, 3, 3), "f16", name="W")
    program = lang.program([x, w], [ops.conv(x, w, padding=1)])
    planned = plan_unit(program, Machine(A100, 1))
    assert tiles_of(planned) and not planned.schedule.notes
    given = data(program)
    plain = plan_unit(program, Machine(POCL, 1))
    want = on_device(plain.schedule.func, "c")(given)
    got = on_device(planned.schedule.func, "c")(given)
    for name, value in want.items():
        assert_close(got[name], value, terms=16 * 9)
    assert "mma.sync.aligned" in checked_by_nvrtc(planned.schedule.func, registers=MOST_REGISTERS)


def test_tiles_are_legal_by_the_exact_judge():
    program = product(16, 16, 16)
    planned = plan_unit(program, Machine(A100, 1))
    before = Schedule(program).replay(planned.plan.rewrites)
    steps = [step for step in planned.schedule.trace.steps if step.primitive != "tensorize"]
    loops = Schedule(program).replay(replace(planned.schedule.trace, steps=tuple(steps)))
    assert not check_legal(before.func, insert_barriers(loops.func))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("target", "dtype", "turned"),
    [
        (A100, "f16", False), (A100, "bf16", True), (A100, "f32", False), (A100, "i8", False),
        # others of its products are of warpgroups
        (H200, "f32", False), (H200, "i8", False),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)  # fmt: skip
def test_registers_are_bounded_and_never_spilled(dtype, turned, target):
    planned = plan_unit(product(1024, 768, 512, dtype, turned=turned), Machine(target, 1))
    tiles = tiles_of(planned)
    text = checked_by_nvrtc(planned.schedule.func, registers=MOST_REGISTERS)
    # slices that are copied ahead take no registers, and fragments of factors are read at once
    assert tiles.stages == 1 or "tw_copy_16(&" in text
    assert "_a_rows(" in text and ("ldmatrix.sync.aligned.m8n8.x2" in text) == (dtype in ("f16", "bf16"))
    assert ("_b_turned(" in text) == (dtype == "f16") and ("_b_rows(" in text) == turned


def test_every_point_of_the_space_is_right():
    program = product(48, 40, 70, "f16")
    plan = plan_unit(program, Machine(A100, 1)).plan
    _, context = rewritten(program, plan, Machine(A100, 1))
    nest = next(n for n in plan.nests if n.rule == "gpu_matrix")
    rule = RULES[nest.rule]
    problem = rule.match(context, nest.root, nest.stages)
    space = rule.space(problem)
    assert space.size > 20
    rng = Random(3)
    for _ in range(4):
        tiles = space.sample(rng)
        other = chosen(program, plan, Machine(A100, 1), tiles, plan.nests.index(nest))
        assert plan_from_json(other.to_json()) == other
        assert rule.seconds(problem, tiles) > 0
        compare(program, build_unit(program, other, Machine(A100, 1)), ["c"])


@pytest.mark.parametrize(
    ("tiles", "reason"),
    [
        (WarpTiles(128, 64, 16, 64, 32), "larger than the matrix"),
        (WarpTiles(32, 64, 16, 64, 32), "does not divide"),
        (WarpTiles(64, 64, 48, 32, 32), "depth is 48|steps of 48"),
        (WarpTiles(64, 64, 16, 16, 8), "1024 threads a block"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(tiles, reason):
    program = product(64, 64, 64)
    plan = plan_unit(program, Machine(A100, 1)).plan
    with pytest.raises(ArtefactError, match=reason):
        build_unit(program, asked_of(plan, tiles, "gpu_matrix"), Machine(A100, 1))


def test_who_has_no_unit_multiplies_by_threads():
    for target, program in ((V100, product(64, 64, 64)), (A100, product(5, 64, 64))):
        rules = [nest.rule for nest in plan_unit(program, Machine(target, 1)).plan.nests]
        assert "gpu_product" in rules and "gpu_matrix" not in rules
    a, b = (lang.placeholder((64, 64), name=name) for name in "AB")
    plain = plan_unit(lang.program([a, b], [ops.matmul(a, b)]), Machine(A100, 1))
    assert [nest.rule for nest in plain.plan.nests] == ["gpu_product"]


def test_what_units_take_costs_what_they_do():
    size = ProductSize(1, 4096, 4096, 4096, 2, 2 * 2 * 4096**2)
    large = product_seconds(size, WarpTiles(128, 128, 32, 64, 32, 2), A100)
    small = product_seconds(size, WarpTiles(32, 32, 32, 16, 16, 2), A100)
    peak = 2 * 4096**3 / (2 * A100.tensor_per_cycle * A100.units * A100.clock_hz)
    assert peak < large < small
