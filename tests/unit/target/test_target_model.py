from dataclasses import replace

import pytest

from tilewright.ir import F32, F64
from tilewright.support import TargetError, digest
from tilewright.target import (
    AARCH64_NEON,
    AARCH64_SVE,
    X86_AVX2,
    X86_AVX512,
    MemoryLevel,
    ParallelLevel,
    find_instruction,
    find_operation,
    find_target,
    target_names,
)

TABLES = [X86_AVX512, X86_AVX2, AARCH64_NEON, AARCH64_SVE]


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
        ({"gaps_level": 0}, "gaps_level must be 1, 2 or 3"),
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
    assert good.products == 64
    with pytest.raises(TargetError, match="unknown axis 'k'"):
        replace(good, axes=(("lane", 16),))
    with pytest.raises(TargetError, match="distinct"):
        replace(good, axes=(("lane", 16), ("lane", 4)))
    with pytest.raises(TargetError, match="per_cycle"):
        replace(good, per_cycle=0)
    with pytest.raises(TargetError, match="count"):
        ParallelLevel(kind="vector", count=0)


def test_instructions_on_tiles_validate_themselves():
    good = find_instruction("tdpbf16ps")
    assert (good.products, good.depth, good.together) == (16 * 16 * 32, 32, 2)
    with pytest.raises(TargetError, match="'tdpbf16ps': a partial axis is none of its axes"):
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
    assert X86_AVX512.fingerprint == digest(X86_AVX512)


def test_every_operand_of_an_instruction_spans_its_lanes_first():
    dot = next(each for each in X86_AVX512.instructions if each.lanes)
    apart = replace(dot.a, axes=tuple(reversed(dot.a.axes)))
    with pytest.raises(TargetError, match=f"{dot.a.name} does not span {', '.join(dot.lanes)} first"):
        replace(dot, a=apart)
