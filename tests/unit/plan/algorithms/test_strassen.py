"""Strassen's method in default schedules: right with every epilogue, and chosen where it pays."""

from dataclasses import replace

import numpy as np
import pytest
from tests.native_kernel import STATED, Native

from tilewright import lang
from tilewright.build import pack
from tilewright.cost import Machine
from tilewright.ir import CONST, F32, run_function
from tilewright.lang import ops
from tilewright.plan import EXACT
from tilewright.plan.algorithms.strassen import StrassenChoice, choose_strassen, strassen_nest
from tilewright.schedule import Schedule, derived_constants, replay
from tilewright.strategies import default_schedule
from tilewright.target import X86_AVX512
from tilewright.target.x86_cores import core
from tilewright.tiling import apply

LANES = STATED.lanes(F32)
# which method pays follows from the memory, and from tile registers: the same everywhere
TARGET = replace(STATED, units=2, memory=core("znver5").applied(X86_AVX512).memory)


def product(m, n, k, epilogue="none", batch=0):
    lead = (batch,) if batch else ()
    a, b = lang.placeholder((*lead, m, k), name="A"), lang.placeholder((k, n), name="B")
    inputs = [a, b]
    c = ops.matmul(a, b, name="C")
    if epilogue != "none":
        bias = lang.placeholder((n,), name="bias")
        inputs.append(bias)
        y = lang.compute((*lead, m, n), lambda *at: c[at] + bias[at[-1]], name="Y")
        if epilogue == "gelu":
            bottom = y
            y = lang.compute((*lead, m, n), lambda *at: lang.gelu(bottom[at]), name="Z")
        if epilogue == "residual":
            r = lang.placeholder((*lead, m, n), name="R")
            inputs.append(r)
            y = lang.compute((*lead, m, n), lambda *at: c[at] + bias[at[-1]] + r[at], name="Z")
        c = y
    program = lang.program(inputs, [c])
    known = ("B", "bias")
    return replace(
        program, inputs=tuple(x.with_(scope=CONST) if x.name in known else x for x in program.inputs)
    )


def primitives(s):
    return [step.primitive for step in s.trace.steps]


def check(program, s, *, interpret=False):
    rng = np.random.default_rng(0)
    arrays = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    wanted = lang.evaluate(program, arrays)
    derived = derived_constants(s)
    given = {
        b.name: pack(derived[b.name].compute(arrays["B"]) if b.name in derived else arrays[b.name], b)
        for b in s.func.buffers
        if b.name not in s.func.outputs
    }
    for got in [Native(s.func)(given), *([run_function(s.func, given, seed=1)] if interpret else [])]:
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5 * np.abs(value).max())
    assert str(replay(s.source, s.trace)) == str(s)


@pytest.mark.few(2)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "n", "epilogue"), [(96, 600, "gelu"), (192, 301, "residual")])
def test_threads_share_rows_where_panels_do_not_divide(m, n, epilogue, threads, monkeypatch):
    monkeypatch.setattr("tilewright.plan.algorithms.strassen.MARGIN", 0.5)
    program = product(m, n, 310, epilogue)
    s = default_schedule(program, Machine(TARGET, threads))
    choice = choose_strassen(program, program.stage("C"), Machine(TARGET, threads))
    assert choice is not None
    assert choice.height == m // 2 // threads
    assert "strassen" in primitives(s)
    check(program, s)


@pytest.mark.few(6)
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(
    ("epilogue", "batch"), [("none", 0), ("bias", 1), ("gelu", 1), ("residual", 0), ("gelu", 4), ("none", 3)]
)
def test_default_schedules_with_epilogues(epilogue, batch, threads):
    program = product(128, 768, 768, epilogue, batch)
    s = default_schedule(program, Machine(TARGET, threads))
    assert "strassen" in primitives(s)
    check(program, s)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("m", "pairs", "k", "rows", "vectors", "threads"),
    [(4, 2, 6, 2, 1, 2), (6, 1, 10, 3, 2, 1), (2, 3, 2, 1, 1, 1), (10, 2, 34, 5, 2, 2)],
)
def test_small_and_odd_extents_on_the_interpreter(m, pairs, k, rows, vectors, threads, monkeypatch):
    program = product(m, pairs * 2 * vectors * LANES, k, "bias")
    stage = program.stage("C")
    match = lang.match_product(program, stage)
    assert match is not None
    choice = StrassenChoice(match, rows, vectors, LANES)
    monkeypatch.setattr("tilewright.plan.algorithms.strassen.sharing", lambda stage, n: n)
    s = Schedule(program).strassen("C", choice.width, choice.weights)
    nest = strassen_nest(s.program, choice, s.program.stage("Y"), Machine(TARGET, threads))
    check(program, apply(s, [nest]), interpret=True)


@pytest.mark.few(3)
@pytest.mark.parametrize(("batch", "height", "threads"), [(3, 1, 2), (2, 2, 2), (0, 1, 2), (2, 1, 1)])
def test_blocks_of_rows_and_several_matrices_on_the_interpreter(batch, height, threads, monkeypatch):
    program = product(4, 2 * LANES + 3, 6, "bias", batch)
    match = lang.match_product(program, program.stage("C"))
    assert match is not None
    assert match.count == max(batch, 1)
    choice = StrassenChoice(match, height, 1, LANES, height)
    monkeypatch.setattr("tilewright.plan.algorithms.strassen.sharing", lambda stage, n: n)
    s = Schedule(program).strassen("C", choice.width, choice.weights, height, choice.copies)
    nest = strassen_nest(s.program, choice, s.program.stage("Y"), Machine(TARGET, threads))
    check(program, apply(s, [nest]), interpret=True)


def chosen(m, n, k, threads=2, batch=0):
    program = product(m, n, k, batch=batch)
    return choose_strassen(program, program.stage("C"), Machine(TARGET, threads))


def test_chosen_where_it_pays():
    found = chosen(128, 768, 768)
    assert found is not None
    assert 64 % found.rows == 0
    assert chosen(128, 3072, 768) is not None
    assert chosen(128, 768, 3072) is not None


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (127, 768, 768),  # does not divide
        (128, 768, 767),
        (2, 768, 768),  # memory decides
        (128, 768, 48),  # sums and additions cost more than they save
    ],
)
def test_direct_elsewhere(m, n, k):
    assert chosen(m, n, k) is None
    if m * n * k < 1 << 27:
        assert "strassen" not in primitives(default_schedule(product(m, n, k), Machine(TARGET, 2)))


def test_rows_in_blocks_where_not_all_stay_in_cache():
    few, many = chosen(256, 768, 3072), chosen(8192, 768, 3072)
    assert few is not None
    assert many is not None
    last = max(level.size for level in TARGET.memory if level.size is not None)
    assert few.height == 256 // 4
    last = max(level.size for level in TARGET.memory if level.size is not None)
    # rows of two threads and sums of as many, in half of the cache: as many as that holds
    kept = 4 * (2 * 2 * many.height) * 3072 * 2
    assert kept <= last / 2 < 2 * kept


def test_threads_share_left_matrices_or_the_rows_of_each():
    both, odd = chosen(128, 768, 768, batch=16), chosen(128, 768, 768, batch=3)
    assert both is not None
    assert odd is not None
    assert (both.height, odd.height) == (64, 32)
    assert chosen(126, 768, 768, batch=3) is None


@pytest.mark.parametrize(
    ("m", "n", "k", "batch"),
    [(128, 768, 768, 0), (2048, 768, 768, 0), (8192, 768, 3072, 0), (128, 768, 768, 16), (128, 768, 768, 3)],
)
def test_the_model_counts_all_rows(m, n, k, batch):
    """In blocks, and of several matrices: methods are compared by the cycles of the whole product."""
    found = chosen(m, n, k, batch=batch)
    assert found is not None
    direct = max(1, batch) * m * n * k / (TARGET.lanes(F32) * TARGET.fma_per_cycle * 2)
    assert 7 / 8 < found.cycles / direct < 1.05


def test_threads_that_share_neither_panels_nor_rows_take_the_direct_method():
    assert chosen(128, 768, 768, threads=1) is not None
    assert chosen(128, 768, 768, threads=5) is None
    assert chosen(2, 4096, 4000, threads=3) is None  # fewer rows than threads


def test_threads_share_rows_where_reading_all_weights_hides(monkeypatch):
    found = chosen(128, 768, 768)
    assert found is not None
    assert (found.height, found.copies) == (32, False)
    monkeypatch.setattr("tilewright.plan.algorithms.strassen.panels_hidden", lambda target, rows: False)
    found = chosen(128, 768, 768)
    assert found is not None
    assert (found.height, found.copies) == (0, True)
    program = product(128, 768, 768, "bias")
    check(program, default_schedule(program, Machine(TARGET, 2)))


def test_off_is_the_direct_method():
    assert "strassen" not in primitives(
        default_schedule(product(128, 768, 768), Machine(TARGET, 2), accuracy=EXACT)
    )
    assert "strassen" not in primitives(
        default_schedule(product(128, 768, 768), Machine(TARGET, 2), accuracy=EXACT)
    )


def test_an_activation_that_reads_the_sum_twice_stays_in_registers():
    s = default_schedule(product(128, 96, 64, "gelu"), Machine(TARGET, 2))
    assert "block C(" in str(s)
    assert "alloc Y" not in str(s)


def test_products_inside_of_chains_stay_direct():
    """A product whose rows are normalised and multiplied again, all in one program."""
    x, a, b = (
        lang.placeholder(shape, name=name)
        for shape, name in (((64, 256), "X"), ((256, 256), "A"), ((256, 256), "B"))
    )
    first = ops.matmul(x, a, name="C")
    k = lang.reduce_axis(256, "k")
    squares = lang.compute((64,), lambda i: lang.sum(first[i, k] * first[i, k], axis=k), name="S")
    scaled = lang.compute((64, 256), lambda i, j: first[i, j] / lang.sqrt(squares[i] + 1.0), name="N")
    program = lang.program([x, a, b], [ops.matmul(scaled, b, name="Y")])
    inputs = tuple(i if i.name == "X" else i.with_(scope=CONST) for i in program.inputs)
    s = default_schedule(replace(program, inputs=inputs), Machine(TARGET, 2))
    steps = [(step.primitive, step.args[0]) for step in s.trace.steps]
    assert ("strassen", "C") not in steps
