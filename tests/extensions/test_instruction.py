"""A new instruction of a known class of operands is a row: default schedules use it where a table has it."""

from dataclasses import replace

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.build import pack
from tilewright.cost import Machine, execution_cycles, multiply_add_cycles
from tilewright.ir import BF16, F32, I16, I32, run_function, verify
from tilewright.plan import plan_from_json, plan_unit
from tilewright.plan.contraction.instructions import instruction_uses
from tilewright.plan.contraction.match import contraction_of
from tilewright.target import X86_AVX512, Emission, Instruction, Placement, contraction, element, interpreted

BITS = (128, 256, 512)


def lane_row(name, a, b, total, intrinsic, word, **costs):
    """Sums of products of neighbours, lane by lane, written down here."""
    left, right = (element(n, ("at", "pair"), dtype) for n, dtype in (("x", a), ("y", b)))
    axes = (("at", 16), ("pair", total.bits // a.bits))
    return Instruction(
        name=name,
        stage=contraction(axes, element("z", ("at",), total), left, right),
        placements=(("x", Placement(broadcast=("at",))), ("y", Placement(broadcast=("at",)))),
        emission=Emission(intrinsic=intrinsic, form="lanes", word=word, bits=BITS),
        lanes=("at",),
        **costs,
    )


ROWS = {
    "words": lane_row("pairs_of_words", I16, I16, I32, "llvm.x86.avx512.vpdpwssd.{bits}", "i32", per_cycle=2),
    "halves": lane_row(
        "pairs_of_halves", BF16, BF16, F32, "llvm.x86.avx512bf16.dpbf16ps.{bits}", "bfloat", per_cycle=2
    ),
}
NEEDS = {"words": {"avx512vnni"}, "halves": {"avx512bf16"}}
TYPES = {"words": ("i16", "i16", "i32"), "halves": ("bf16", "bf16", "f32")}


def program(kind, m=5, n=48, k=32):
    a, b, total = TYPES[kind]
    A, B = lang.placeholder((m, k), a, name="A"), lang.placeholder((k, n), b, name="B")
    r = lang.reduce_axis(k, "r")
    C = lang.compute(
        (m, n), lambda i, j: lang.sum(lang.cast(A[i, r], total) * lang.cast(B[r, j], total), r), name="C"
    )
    return lang.program([A, B], [C])


def table(*rows):
    return replace(X86_AVX512, instructions=rows, features=X86_AVX512.features | {"avx512bf16"})


@pytest.mark.parametrize("constants", [(), ("B",)], ids=["given", "constant"])
@pytest.mark.parametrize("kind", ROWS)
def test_a_row_alone_speeds_up_programs(kind, constants):
    row, given = ROWS[kind], program(kind, 64, 48, 64)
    without = plan_unit(given, Machine(table(), 1), constants)
    planned = plan_unit(given, Machine(table(row), 1), constants)
    assert row.name not in str(without.schedule)
    s = planned.schedule
    assert f"{row.name}(" in str(s)
    verify(s.func)
    # the plan says which row by what mapping, and how operands must lie; files keep it
    use = next(n.choice.instruction for n in planned.plan.nests if n.root == "C")
    assert (use.instruction, use.digest, use.axis) == (row.name, row.digest, "r")
    assert dict(use.axes) == {"at": "j", "pair": "r"} and use.layouts
    assert plan_from_json(planned.plan.to_json()) == planned.plan
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.integers(-9, 9, [e.as_int() for e in b.shape]) for b in given.inputs}
    wanted = arrays["A"] @ arrays["B"]
    packed = {n: pack(a.astype(given.buffer(n).dtype.numpy), s.func.buffer(n)) for n, a in arrays.items()}
    if NEEDS[kind] <= HOST.features:
        np.testing.assert_array_equal(Native(s.func, operations=s.operations)(packed)["C"], wanted)


def test_interpreted():
    row, given = ROWS["words"], program("words")
    s = plan_unit(given, Machine(table(row), 1), ("B",)).schedule
    rng = np.random.default_rng(1)
    arrays = {b.name: rng.integers(-9, 9, [e.as_int() for e in b.shape]).astype("i2") for b in given.inputs}
    packed = {n: pack(a, s.func.buffer(n)) for n, a in arrays.items()}
    made = run_function(s.func, packed, instructions=interpreted([row]))["C"]
    np.testing.assert_array_equal(made, arrays["A"].astype("i4") @ arrays["B"].astype("i4"))


def test_the_cheapest_row_is_taken():
    slow = replace(ROWS["words"], name="slow", per_cycle=0.7)
    for rows in ((slow, ROWS["words"]), (ROWS["words"], slow)):
        target = table(*rows)
        c = contraction_of(program("words"), program("words").stage("C"), target)
        prices = {p.use.instruction: p.cycles for p in instruction_uses(c, target)}
        assert prices["slow"] > prices["pairs_of_words"]
        assert "pairs_of_words(" in str(plan_unit(program("words"), Machine(target, 1), ("B",)).schedule)


def test_no_row_where_multiply_adds_are_cheaper():
    slow = replace(ROWS["halves"], per_cycle=0.9)
    c = contraction_of(program("halves"), program("halves").stage("C"), table(slow))
    assert instruction_uses(c, table(slow)) == ()
    executions = 5 * (48 // 16) * (32 // 2)
    assert multiply_add_cycles(5 * 48 * 32, F32, F32, table(slow)) < execution_cycles(slow, executions)
    assert "pairs_of_halves(" not in str(
        plan_unit(program("halves"), Machine(table(slow), 1), ("B",)).schedule
    )
