"""The rule of sums of blocks: which stages it takes, its tiles, and that nests compute what programs say."""

import numpy as np
import pytest

from native_kernel import HOST, STATED, Native
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function
from tilewright.plan import RULES, plan_unit
from tilewright.plan.blocks import BlocksPlan, block_nests, find_blocks
from tilewright.plan.rule import Context
from tilewright.schedule import Schedule
from tilewright.support import assert_close
from tilewright.target import AARCH64_NEON, INTERPRETED, X86_AVX2, X86_AVX512
from tilewright.tiling import apply

PANEL, BLOCK, WORD = 32, 16, 8


def _program(rows, columns=64, depth=48, unpacks=True):
    x = lang.placeholder((rows, depth), name="X")
    q = lang.placeholder((columns // PANEL, depth // WORD, PANEL), "i32", name="Q")
    s = lang.placeholder((columns // PANEL, depth // BLOCK, PANEL), name="S")
    g, h = lang.reduce_axis(BLOCK // WORD, "g"), lang.reduce_axis(WORD, "h")
    b = lang.reduce_axis(depth // BLOCK, "b")

    def number(p, b, c):
        word = q[p, b * (BLOCK // WORD) + g, c]
        shifted = (word << lang.to_scalar(28 - 4 * h, "i32")) >> 28 if unpacks else word
        return lang.cast(shifted, "f32")

    d = lang.compute(
        (rows, columns // PANEL, depth // BLOCK, PANEL),
        lambda i, p, b, c: lang.sum(number(p, b, c) * x[i, b * BLOCK + g * WORD + h], axis=(g, h)),
        name="D",
    )
    y = lang.compute(
        (rows, columns),
        lambda i, n: lang.sum(d[i, n // PANEL, b, n % PANEL] * s[n // PANEL, b, n % PANEL], axis=b),
        name="Y",
    )
    z = lang.compute((rows, columns), lambda i, n: y[i, n] + 1.0, name="Z")
    return lang.program([x, q, s], [z])


def _dots(rows, columns=64, depth=96, bits=4):
    """The same of bytes, unpacked to be summed by an instruction."""
    per_byte, block = 8 // bits, 32
    groups = block // per_byte // 4
    x = lang.placeholder((rows, depth), "i8", name="X")
    w = lang.placeholder((columns // PANEL, depth // per_byte // 4, 4 * PANEL), "u8", name="Q")
    s = lang.placeholder((columns // PANEL, depth // block, PANEL), name="S")
    u = lang.compute(
        (columns // PANEL, depth // block, groups, per_byte, 4 * PANEL),
        lambda p, b, g, h, e: (w[p, b * groups + g, e] >> lang.to_scalar(bits * h, "u8")) & (2**bits - 1),
        name="U",
    )
    g, h, j = (lang.reduce_axis(n, name) for n, name in ((groups, "g"), (per_byte, "h"), (4, "j")))

    def dot(i, p, b, c):
        byte, value = u[p, b, g, h, 4 * c + j], x[i, b * block + (g * per_byte + h) * 4 + j]
        return lang.sum(lang.cast(byte, "i32") * lang.cast(value, "i32"), axis=(g, h, j))

    d = lang.compute((rows, columns // PANEL, depth // block, PANEL), dot, name="D")
    b = lang.reduce_axis(depth // block, "b")

    def whole(i, n):
        return lang.sum(
            lang.cast(d[i, n // PANEL, b, n % PANEL], "f32") * s[n // PANEL, b, n % PANEL], axis=b
        )

    return lang.program([x, w, s], [lang.compute((rows, columns), whole, name="Y")])


def _bytes(rows, columns=64, depth=96, bits=4):
    rng = np.random.default_rng(rows)
    return {
        "X": rng.integers(-127, 128, (rows, depth), np.int8),
        "Q": rng.integers(0, 256, (columns // PANEL, depth * bits // 32, 4 * PANEL), np.uint8),
        "S": rng.random((columns // PANEL, depth // 32, PANEL)).astype(np.float32),
    }


def _feeds(rows, columns=64, depth=48):
    rng = np.random.default_rng(rows)
    shape = (columns // PANEL, depth // WORD, PANEL)
    return {
        "X": rng.standard_normal((rows, depth)).astype(np.float32),
        "Q": rng.integers(-(2**31), 2**31, shape).astype(np.int32),
        "S": rng.random((shape[0], depth // BLOCK, PANEL)).astype(np.float32),
    }


def _check(func, feeds, program):
    want = lang.evaluate(program, list(feeds.values()))["Z"]
    magnitude = 8 * np.abs(feeds["X"]).sum(axis=1, keepdims=True) + np.ones_like(want)
    for got in (run_function(func, feeds)["Z"], Native(func)(feeds)["Z"]):
        assert_close(got, want, magnitude=magnitude, terms=feeds["X"].shape[1])


@pytest.mark.parametrize(("rows", "threads"), [(1, 2), (2, 1), (7, 2)])
def test_the_default_plan_computes_what_the_program_says(rows, threads):
    program = _program(rows)
    planned = plan_unit(program, Machine(X86_AVX2, threads))
    assert ("blocks", "Y") in [(nest.rule, nest.root) for nest in planned.plan.nests]
    _check(planned.schedule.func, _feeds(rows), program)


@pytest.mark.parametrize("plan", [BlocksPlan(3, 8), BlocksPlan(5, 16), BlocksPlan(1, 32)], ids=str)
def test_other_tiles_compute_it_too(plan):
    program, rule = _program(5), RULES["blocks"]
    problem = rule.match(Context(program, Machine(X86_AVX2, 1)), "Y", ("D",))
    assert plan.rows in rule.space(problem).options["rows"]
    _check(apply(Schedule(program), rule.trees(problem, plan)).func, _feeds(5), program)


@pytest.mark.parametrize(
    ("target", "one", "many"),
    [(X86_AVX2, (1, 32), (4, 16)), (X86_AVX512, (1, 32), (4, 32)), (AARCH64_NEON, (1, 32), (4, 16))],
)
def test_half_of_the_registers_hold_sums(target, one, many):
    rule = RULES["blocks"]
    for rows, wanted in ((1, one), (9, many)):
        problem = rule.match(Context(_program(rows), Machine(target, 1)), "Y", ("D",))
        plan = rule.default(problem)
        assert (plan.rows, plan.columns) == wanted


def test_only_sums_of_unpacked_blocks_are_taken():
    for program, found in ((_program(2), 1), (_program(2, unpacks=False), 0)):
        assert len(block_nests(Context(program, Machine(X86_AVX2, 1)))) == found
    context = Context(_program(2), Machine(X86_AVX2, 1))
    assert find_blocks(context, context.program.stage("Z")) is None
    # bytes are unpacked for an instruction alone
    for target, found in ((X86_AVX2, 0), (X86_AVX512, 1)):
        assert len(block_nests(Context(_dots(2), Machine(target, 1)))) == found


@pytest.mark.skipif("avx512vnni" not in HOST.features, reason="code of dots is run")
@pytest.mark.parametrize(("rows", "bits", "threads"), [(1, 4, 2), (3, 8, 1), (7, 2, 2), (5, 4, 1)])
def test_sums_of_bytes_are_by_dots(rows, bits, threads):
    program, feeds = _dots(rows, bits=bits), _bytes(rows, bits=bits)
    planned = plan_unit(program, Machine(STATED, threads))
    assert "vpdpbusd" in str(planned.schedule) and "prefetch" in str(planned.schedule)
    want = lang.evaluate(program, list(feeds.values()))["Y"]
    func = planned.schedule.func
    for got in (run_function(func, feeds, instructions=INTERPRETED)["Y"], Native(func)(feeds)["Y"]):
        assert_close(got, want, magnitude=np.full_like(want, 32 * 127 * 2.0**bits), terms=96)
