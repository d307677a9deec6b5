"""Chains of contractions with reductions of rows between them: found, and right at all sizes."""

import numpy as np
import pytest

from native_kernel import STATED, Native
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, verify
from tilewright.lang import ops
from tilewright.plan import AUTO, EXACT
from tilewright.plan.contraction import sharing
from tilewright.plan.contraction.gather import gather_operands
from tilewright.plan.fused import nests as chain_nests
from tilewright.plan.fused.chain import find_chain
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule


def attention(heads, rows, keys, features, *, mask=True, causal=False, transposed=True, batch=1):
    """Attention of heads that lie apart in one tensor, as models have it."""
    q, v = (
        lang.placeholder((batch, n, heads, features), name=name) for name, n in (("Q", rows), ("V", keys))
    )
    shape = (batch, keys, heads, features) if transposed else (batch, heads, features, keys)
    k, m = lang.placeholder(shape, name="K"), lang.placeholder((batch, 1, 1, keys), name="M")
    f, r = lang.reduce_axis(features, "f"), lang.reduce_axis(keys, "r")
    scores = lang.compute(
        (batch, heads, rows, keys),
        lambda b, h, i, j: lang.sum(q[b, i, h, f] * (k[b, j, h, f] if transposed else k[b, h, f, j]), axis=f),
        name="S",
    )

    def masked(b, h, i, j):
        s = scores[b, h, i, j] / 3.0
        s = s + m[b, 0, 0, j] if mask else s
        return lang.select(j <= i, s, -1e30) if causal else s

    weights = ops.softmax(lang.compute(scores.shape, masked, name="masked"))
    out = lang.compute(
        (batch, rows, heads, features),
        lambda b, i, h, j: lang.sum(weights[b, h, i, r] * v[b, r, h, j], axis=r),
        name="O",
    )
    return lang.program([q, k, v, *([m] if mask else [])], [out])


def chain_of(program):
    s = gather_operands(inline_stages(Schedule(program)), STATED, ())
    return find_chain(s.program, STATED)


def check(program, threads, *, interpret=True, accuracy=AUTO):
    """Run the default schedule on both machines, compare with the reference; returns it."""
    rng = np.random.default_rng(7)
    arrays = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }
    wanted = lang.evaluate(program, arrays)
    s = default_schedule(program, Machine(STATED, threads), accuracy=accuracy)
    verify(s.func)
    results = [Native(s.func)(arrays)]
    if interpret:
        results.append(run_function(s.func, arrays, seed=2))
    for got in results:
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=2e-6 * max(1, np.abs(value).max()))
    return s


def is_one_nest(s):
    """Whether one loop over tiles of rows holds all of the work."""
    around = {}
    for name in s.blocks():
        around.setdefault((*s.loops(name), "")[0], set()).add(s.block(name).stage)
    return "" not in around and any(len(stages) > 1 for stages in around.values())


@pytest.mark.parametrize(
    ("rows", "keys", "features"),
    [
        (1, 1, 16),
        (1, 128, 64),
        (7, 7, 64),
        (127, 127, 26),
        (128, 128, 26),
        (129, 129, 64),
        (30, 257, 20),
    ],
)
def test_attention_at_odd_lengths(rows, keys, features):
    check(attention(2, rows, keys, features), 2, interpret=rows * keys < 1000)


@pytest.mark.few(2)
@pytest.mark.parametrize(("heads", "threads"), [(1, 2), (3, 2), (3, 3), (2, 1)])
def test_heads_and_threads(heads, threads):
    check(attention(heads, 24, 40, 16, batch=1), threads, interpret=threads == 3)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("mask", "causal", "transposed"), [(False, True, True), (True, False, False), (True, True, True)]
)
def test_masks_and_layouts_of_keys(mask, causal, transposed):
    program = attention(2, 30, 48, 16, mask=mask, causal=causal, transposed=transposed, batch=2)
    assert chain_of(program) is not None
    s = check(program, 2, interpret=mask and causal)
    assert is_one_nest(s)


def test_the_rows_are_stored_by_tiles():
    s = default_schedule(attention(4, 128, 128, 64), Machine(STATED, 2))
    stored = [line for line in str(s).splitlines() if "alloc" in line and "128, 128" in line]
    assert not stored
    assert str(s).count("parallel") == 1


def test_a_product_after_a_product_is_no_chain():
    a, b, c = (lang.placeholder((32, 32), name=name) for name in "abc")
    program = lang.program([a, b, c], [ops.matmul(ops.matmul(a, b), c)])
    assert chain_of(program) is None
    check(program, 2, accuracy=EXACT)


def test_a_reduction_over_the_other_axis_is_no_chain():
    a, b, c = (lang.placeholder((32, 32), name=name) for name in "abc")
    program = lang.program([a, b, c], [ops.matmul(ops.softmax(ops.matmul(a, b), 0), c)])
    assert chain_of(program) is None
    check(program, 2, accuracy=EXACT)


def test_a_masked_row_of_nothing_stays_nan():
    program = attention(1, 4, 32, 16)
    arrays = {b.name: np.ones([e.as_int() for e in b.shape], np.float32) for b in program.inputs}
    arrays["M"][:] = -np.inf
    out = Native(default_schedule(program, Machine(STATED, 1)).func)(arrays)["O"]
    assert np.isnan(out).all()


def test_rows_that_threads_cannot_share_are_no_chain(caplog):
    with caplog.at_level("INFO", "tilewright"):
        check(attention(1, 31, 48, 32), 2, interpret=False)
    assert "1 x 31 rows cannot be shared by 2 threads" in caplog.text


@pytest.mark.few(3)
@pytest.mark.parametrize(("heads", "rows", "threads"), [(3, 53, 2), (5, 197, 2), (4, 61, 3)])
@pytest.mark.parametrize("transposed", [True, False])
def test_heads_that_threads_cannot_share_evenly(heads, rows, threads, transposed, caplog, monkeypatch):
    """Tiles are shared instead; the rows that none divides have a nest of their own."""
    monkeypatch.setattr(sharing, "MIN_PARALLEL_PRODUCTS", 0)
    with caplog.at_level("INFO", "tilewright"):
        s = check(
            attention(heads, rows, 38, 16, transposed=transposed), threads, interpret=rows < 60 and transposed
        )
    assert "step by step" not in caplog.text
    around = [s.loops(name) for name in s.blocks() if s.block(name).stage == "O"]
    tops = {next(loop for loop in loops if s.loop(loop).extent.as_int() > 1) for loops in around}
    assert len(tops) == 2 and "parallel" in {s.loop(loop).kind.name for loop in tops}


def test_products_without_a_register_tile_are_no_chain(monkeypatch, caplog):
    found = chain_nests.is_tileable

    def unpacked(*args, packed=True):
        return None if packed else found(*args, packed=False)

    monkeypatch.setattr(chain_nests, "is_tileable", unpacked)
    with caplog.at_level("INFO", "tilewright"):
        check(attention(2, 30, 48, 32), 2, interpret=False)
    assert "has no register tile" in caplog.text
