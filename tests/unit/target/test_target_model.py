from dataclasses import replace

import numpy as np
import pytest

from tilewright.ir import F32, F64, Binary, Const, Index, Load, Seq, run_function, store, var
from tilewright.support import TargetError
from tilewright.target import (
    AARCH64_NEON,
    AARCH64_SVE,
    X86_AVX2,
    X86_AVX512,
    Instruction,
    MemoryLevel,
    ParallelLevel,
    Placement,
    clear,
    contraction,
    copy,
    element,
    find_instruction,
    find_operation,
    find_target,
    lane_semantics,
    stage_of,
    target_names,
)
from tilewright.target.x86_avx2 import INSTRUCTIONS as X86_AVX2_ROWS

TABLES = [X86_AVX512, X86_AVX2, AARCH64_NEON, AARCH64_SVE]


@pytest.mark.parametrize("name", target_names())
def test_a_target_has_one_name(name):
    assert find_target(name).name == name


def test_this_machine_has_one_name():
    assert target_names()[0] == "cpu"
    with pytest.raises(TargetError, match="no target 'host'"):
        find_target("host")


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_tables_are_found_by_name_and_are_consistent(table):
    assert find_target(table.name) is table
    assert table.name in target_names()
    assert table.memory[-1].name == "memory"
    assert table.memory[-1].size is None
    assert [level.latency for level in table.memory] == sorted(level.latency for level in table.memory)
    assert table.lanes(F32) == 2 * table.lanes(F64) == table.preferred_vector_bits // 32
    for instruction in table.instructions:
        # a contraction of full vectors: each operand fills registers of at most the vector width
        assert instruction.products > 0
        assert table.instruction(instruction.name) is instruction


def test_unknown_names_suggest_a_near_one():
    with pytest.raises(TargetError, match="did you mean 'x86_avx512'"):
        find_target("x86_avx51")
    with pytest.raises(TargetError, match=r"no memory level 'l9'.*\n.*l1"):
        X86_AVX512.level("l9")
    with pytest.raises(TargetError, match="did you mean 'vpdpbusd'"):
        X86_AVX512.instruction("vpdpbusds")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": 0}, "units"),
        ({"vector_bits": 384}, "power of two"),
        ({"preferred_vector_bits": 1024}, "exceed"),
        ({"vector_registers": 0}, "8 vector registers"),
        ({"fma_latency": 0}, "FMA"),
        ({"far_requests": (0, -1)}, "far_requests must not be negative"),
        ({"page_walk": -1.0}, "page_walk must not be negative"),
        ({"stream_gain": 0.0}, "stream_gain and past_share must be positive"),
        ({"shared_issue": (2.0, 0.0)}, "shared_issue must be positive"),
        ({"memory": ()}, "memory level"),
        ({"memory": (X86_AVX512.memory[1], X86_AVX512.memory[0])}, "grow outwards"),
        ({"memory": (X86_AVX512.memory[3], X86_AVX512.memory[0])}, "grow outwards"),
        ({"memory": (X86_AVX512.memory[0],) * 2}, "same name"),
        ({"features": frozenset()}, "needs avx512vnni"),
        ({"missing_features": frozenset({"avx2"})}, "both present and missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_target_validates_itself(change, message):
    with pytest.raises(TargetError, match=message):
        replace(X86_AVX512, **change)


@pytest.mark.parametrize(
    "change",
    [{"size": 0}, {"line": 48}, {"latency": 0}, {"bandwidth": -1}, {"shared_by": 0}, {"whole": 512}],
    ids=str,
)
def test_a_memory_level_validates_itself(change):
    fields = {"name": "l1", "size": 1024, "line": 64, "latency": 4, "bandwidth": 64, **change}
    with pytest.raises(TargetError, match="'l1'"):
        MemoryLevel(**fields)


def test_an_instruction_validates_itself():
    good = X86_AVX512.instruction("vpdpbusd")
    assert good.products == 64 and good.accumulates and good.factors == ("a", "b")
    result, a, b = (element(o.name, o.axes, o.dtype) for o in good.operands)
    with pytest.raises(TargetError, match="unknown axis 'k'"):
        replace(good, stage=contraction((("lane", 16),), result, a, b))
    with pytest.raises(TargetError, match="distinct"):
        replace(good, stage=contraction((("lane", 16), ("lane", 4), ("k", 4)), result, a, b))
    with pytest.raises(TargetError, match="per_cycle"):
        replace(good, per_cycle=0)
    with pytest.raises(TargetError, match="'c' is placed, and is none of its operands"):
        replace(good, placements=(("c", Placement()),))
    with pytest.raises(TargetError, match="group and alignment of a must be positive"):
        replace(good, placements=(("a", Placement(group=0)),))
    with pytest.raises(TargetError, match="axis 'k' must go from 0 to a positive number"):
        replace(good, stage=contraction((("lane", 16), ("k", 0)), result, a, b))
    with pytest.raises(TargetError, match="'a' is read at two places"):
        replace(good, stage=contraction((("lane", 16), ("k", 4)), result, a, element("a", ("k",), b.dtype)))
    with pytest.raises(TargetError, match="has no operand 'c'"):
        good.operand("c")
    with pytest.raises(TargetError, match="count"):
        ParallelLevel(kind="vector", count=0)


def test_what_an_instruction_does_is_read_off_its_stage():
    axes = (("m", 4), ("n", 4))
    t, s = element("t", ("m", "n"), F32), element("s", ("m", "n"), F32)
    moves = Instruction(name="move", stage=copy(axes, t, s))
    assert not moves.is_contraction and not moves.accumulates and moves.source.name == "s"
    with pytest.raises(TargetError, match="'move' is no contraction: it has no factors"):
        _ = moves.a
    zeros = Instruction(name="zeros", stage=clear(axes, t))
    assert zeros.source is None and zeros.depth == 1
    rows = stage_of("sum", (*axes, ("k", 8)), t, Binary("add", t, element("x", ("m", "n", "k"), F32)))
    total = Instruction(name="total", stage=rows)
    assert (total.depth, total.accumulates, [o.name for o in total.operands]) == (8, True, ["t", "x"])
    window = Load("x", (var("m") + var("d"),), F32)
    slide = stage_of("slide", (("m", 4), ("d", 3)), element("t", ("m",), F32), window)
    assert Instruction(name="slide", stage=slide).operand("x").axes == ("m", "d")
    assert run_function(lane_semantics(moves), {"s": np.ones((4, 4), "f4")})["t"].sum() == 16


def test_chains_of_stages():
    """A product, then a bias and a maximum with zero: what is between is no operand."""
    axes = (("m", 2), ("n", 2), ("k", 4))
    p, a, b = element("p", ("m", "n"), F32), element("a", ("m", "k"), F32), element("b", ("k", "n"), F32)
    biased = Binary("add", p, element("bias", ("n",), F32))
    last = stage_of("relu", axes[:2], element("r", ("m", "n"), F32), Binary("max", biased, Const(0.0, F32)))
    first = replace(
        stage_of("p", axes, p, Binary("add", p, Binary("mul", a, b))),
        init=store("p", p.indices, Const(0.0, F32)),
    )
    row = Instruction(name="dense", stage=first, epilogue=(last,))
    assert [o.name for o in row.operands] == ["r", "a", "b", "bias"] and not row.is_contraction
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(s).astype("f4") for n, s in (("a", (2, 4)), ("b", (4, 2)), ("bias", 2))}
    made = run_function(lane_semantics(row), given)["r"]
    wanted = np.maximum(given["a"] @ given["b"] + given["bias"], 0)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(TargetError, match="stage 'relu' is not a single assignment"):
        replace(row, epilogue=(replace(last, body=Seq((last.body, last.body))),))
    deep = element("a", ("m", "k") * 5, F32)
    with pytest.raises(TargetError, match="'a' has more than 8 dimensions"):
        replace(row, stage=contraction(axes, p, deep, b), epilogue=())
    apart = replace(last, iters=(replace(last.iters[0], hi=Index(3)), last.iters[1]))
    with pytest.raises(TargetError, match="two stages disagree on the axis 'm'"):
        replace(row, epilogue=(apart,))


def test_digests_are_of_meaning_and_code_not_of_costs():
    row = X86_AVX512.instruction("vpdpbusd")
    assert replace(row, per_cycle=1).digest == row.digest
    assert replace(row, emission=None).digest != row.digest
    assert X86_AVX2_ROWS[0].digest != row.digest  # fewer lanes


def test_instructions_on_tiles_validate_themselves():
    good = find_instruction("tdpbf16ps")
    assert (good.products, good.depth, good.together) == (16 * 16 * 32, 32, 2)
    with pytest.raises(TargetError, match="'tdpbf16ps': a partial axis or one of lanes is none of its axes"):
        replace(good, partial=("m", "q"))
    moves = tuple(find_operation(name) for name in ("tilezero_f32", "tilestored_f32"))
    with pytest.raises(TargetError, match="'tilezero_f32' needs amx-tile"):
        replace(X86_AVX512, moves=moves)
    features = X86_AVX512.features | {"amx-tile"}
    assert replace(X86_AVX512, moves=moves, features=features, tiles=8).moves == moves
    with pytest.raises(TargetError, match="same name"):
        replace(X86_AVX512, moves=moves[:1] * 2, features=features)
    with pytest.raises(TargetError, match="there is no instruction 'tilezero_f32'"):
        find_instruction("tilezero_f32")


def test_llvm_features_are_sorted_and_signed():
    target = replace(X86_AVX2, missing_features=frozenset({"avxvnni", "avx512f"}))
    assert target.llvm_features == "+avx2,+bmi2,+f16c,+fma,-avx512f,-avxvnni"


def test_fingerprints_tell_machines_apart():
    one = replace(X86_AVX512, units=1)
    assert one.parallel[0] == ParallelLevel(kind="parallel", count=1)
    assert one.fingerprint != X86_AVX512.fingerprint
    assert replace(X86_AVX512, fma_latency=5).fingerprint != X86_AVX512.fingerprint


def test_every_operand_of_an_instruction_spans_its_lanes_first():
    dot = next(each for each in X86_AVX512.instructions if each.lanes)
    result, b = (element(o.name, o.axes, o.dtype) for o in (dot.result, dot.b))
    a = element("a", ("k", "lane"), dot.a.dtype)
    with pytest.raises(TargetError, match="a does not span lane first"):
        replace(dot, stage=contraction(dot.axes, result, a, b))
