"""Transformations pushed by failures: the paper's examples; rewritten programs equal their sources."""

import numpy as np

from tilewright.build import pack, unpack
from tilewright.ir import I8, I32, U8, run_function, structural_hash
from tilewright.lang import evaluate
from tilewright.mapping import TRANSFORMATIONS, find_mappings, search_mappings, tensorized
from tilewright.target import BUILT_IN, INTERPRETED
from unit.mapping.kernels import FREE_ROWS, conv, gemm, matmul, separable


def inputs(program):
    rng = np.random.default_rng(3)
    out = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        if b.dtype.is_float:
            out[b.name] = rng.normal(size=shape).astype(b.dtype.numpy)
        else:
            out[b.name] = rng.integers(b.dtype.min_value, b.dtype.max_value + 1, shape).astype(b.dtype.numpy)
    return out


def check_equal(source, other):
    given = inputs(source)
    (wanted,), (made,) = evaluate(source, given).values(), evaluate(other, given).values()
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-4)
    else:
        np.testing.assert_array_equal(made, wanted)


def straight(found, stage):
    return [m.program_axes() for m in found.mappings if m.stage == stage and not m.exchanged]


def test_separable_depthwise():
    """Listing 3: the mapper says that a product stands where a sum should; factoring mends that."""
    program = separable()
    outcome = search_mappings(program, matmul())
    assert any((f.expected, f.found) == ("+=", "*=") for f in outcome.failures)
    factored = next(
        t
        for t in outcome.found
        if [s.primitive for s in t.steps] == ["factor_out"] and t.steps[0].args[1] == (2,)
    )
    assert straight(factored, "C_part0") == [
        {"m": ("bb",), "n": ("r",), "k": ("di",)},
        {"m": ("bb",), "n": ("r",), "k": ("dj",)},
    ]
    assert straight(factored, "C") == [
        {"m": ("bb",), "n": ("kk",), "k": ("r",)},
        {"m": ("i",), "n": ("kk",), "k": ("r",)},
        {"m": ("j",), "n": ("kk",), "k": ("r",)},
    ]
    for each in outcome.found:
        check_equal(program, each.program)
    # all channels of the second part as one axis: the large product that the reconstruction names
    whole = [
        t
        for t in outcome.found
        if {"k": ("q_r",)}.items() <= {(a, x) for m in straight(t, "C") for a, x in m.items()}
    ]
    assert whole and {s.primitive for s in whole[0].steps} == {"factor_out", "fuse_iterators", "layout_fuse"}


def test_signed_bytes_as_unsigned_ones():
    """Where only unsigned by signed bytes are multiplied: exact, over the whole range, as instructions."""
    program = gemm(6, 8, 16, types=("i32", "i8", "i8"))
    outcome = search_mappings(program, BUILT_IN["tdpbusd"])
    assert not find_mappings(program, BUILT_IN["tdpbusd"]).mappings
    first = outcome.found[0]
    assert [s.primitive for s in first.steps] == ["shift_factor"]
    for each in outcome.found:
        check_equal(program, each.program)
    s = tensorized(first.schedule, first.mappings[0])
    assert "tdpbusd(" in str(s)
    given = inputs(program)
    (wanted,) = evaluate(program, given).values()
    packed = {name: pack(a, s.func.buffer(name)) for name, a in given.items()}
    ((name, made),) = run_function(s.func, packed, instructions=INTERPRETED).items()
    np.testing.assert_array_equal(unpack(made, s.func.buffer(name)), wanted)


def test_windows_become_rows():
    """A strided convolution: copies give spatial axes single steps."""
    program = conv(1, stride=2)
    before = {tuple(m.program_axes()["m"]) for m in find_mappings(program, matmul()).mappings}
    outcome = search_mappings(program, matmul())
    gathered = [t for t in outcome.found if any(s.primitive == "gather_operand" for s in t.steps)]
    after = {tuple(m.program_axes()["m"]) for t in gathered for m in t.mappings}
    assert after > before and ("j",) in after - before
    for each in outcome.found:
        check_equal(program, each.program)


def test_programs_that_map_as_they_are_come_first():
    outcome = search_mappings(conv(1), matmul())
    assert outcome.found[0].steps == ()
    assert len([m for m in outcome.found[0].mappings if not m.exchanged]) == 3


def test_budgets():
    assert search_mappings(separable(), matmul(), programs=1).programs == 1
    assert not search_mappings(separable(), matmul(), steps=0).found
    one = search_mappings(separable(), matmul(), steps=1)
    assert {len(t.steps) for t in one.found} == {1}


def test_programs_seen_before_are_dropped():
    outcome = search_mappings(separable(), matmul())
    again = search_mappings(separable(), matmul())
    assert [(t.steps, t.mappings) for t in outcome.found] == [(t.steps, t.mappings) for t in again.found]
    hashes = [structural_hash(t.program) for t in outcome.found]
    assert len(set(hashes)) == len(hashes)


def test_what_can_never_match_has_failures_alone():
    outcome = search_mappings(gemm(types=("f32", "bf16", "bf16")), matmul(types=(I32, U8, I8)))
    assert not outcome.found and outcome.failures
    assert {f.place for f in outcome.failures} >= {"type"}


def test_without_transformations():
    outcome = search_mappings(separable(), matmul(**FREE_ROWS), transformations=())
    assert not outcome.found and outcome.programs == 1
    assert len({t.name for t in TRANSFORMATIONS}) == 6
