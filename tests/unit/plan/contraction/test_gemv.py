"""Sums over rows, and products of few rows with a run-time matrix: right for all sizes."""

import pytest
from tests.unit.plan.contraction.test_cache_blocking import machine
from tests.unit.plan.loops import accumulates
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import threads as sharing
from tilewright.plan.contraction import gemv as streams
from tilewright.strategies import default_schedule


@pytest.fixture(autouse=True)
def streams_however_small(monkeypatch):
    """Where it would not pay."""
    monkeypatch.setattr(streams, "MIN_ELEMENTS", 0)
    monkeypatch.setattr(sharing, "MIN_PARALLEL_ELEMENTS", 0)


def product(m, n, k, *, batch=(), bias=False):
    a, b = t(*batch, m, k, name="A"), t(*batch, k, n, name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute(
        (*batch, m, n), lambda *i: lang.sum(a[(*i[:-1], r)] * b[(*i[:-2], r, i[-1])], axis=r), name="C"
    )
    if not bias:
        return lang.program([a, b], [c])
    d = t(n, name="D")
    y = lang.compute((*batch, m, n), lambda *i: lang.maximum(c[i] + d[i[-1]], 0), name="Y")
    return lang.program([a, b, d], [y])


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 256, 32), (1, 321, 37), (2, 300, 48), (4, 256, 96), (3, 257, 32)]
)
def test_products_of_few_rows(m, n, k):
    assert accumulates(check(product(m, n, k), interpret=False))


@pytest.mark.parametrize(("n", "group"), [(300, 5), (320, 5), (600, 4), (1000, 4)])
def test_whole_panels_have_no_masks(n, group, monkeypatch):
    """Only panels that the last group does not have whole do, in a loop of their own."""
    columns = 64
    monkeypatch.setattr(
        streams, "KEPT_SHARE", group * 4 * columns * 2 / machine(1024, 32 * 1024).memory[0].size
    )
    s = default_schedule(product(2, n, 64), Machine(machine(1024, 32 * 1024), 1))
    assert accumulates(s)
    sums = [s.block(name) for name in s.blocks() if s.block(name).stage == "C" and "init" not in name]
    masked = [b for b in sums if b.where]
    assert len(masked) == (1 if n % columns else 0)
    assert len(sums) - len(masked) == 1


@pytest.mark.parametrize(("m", "n", "k"), [(5, 300, 48), (8, 257, 35)])
def test_more_rows_of_what_comes_from_memory(m, n, k, monkeypatch):
    assert not accumulates(default_schedule(product(m, n, k), Machine(machine(1024, 32 * 1024), 2)))
    monkeypatch.setattr(streams, "exceeds_caches", lambda buffer, target: True)
    assert accumulates(check(product(m, n, k), interpret=False))


@pytest.mark.parametrize(
    ("threads", "batch", "bias"),
    [(1, (), True), (2, (), False), (3, (1,), True), (2, (4,), True), (2, (3,), False), (3, (3,), True)],
)
def test_threads_batches_and_a_reader(threads, batch, bias):
    s = check(product(2, 400, 33, batch=batch, bias=bias), threads=threads, interpret=threads == 2)
    assert accumulates(s)


@pytest.mark.few(6)
@pytest.mark.parametrize("fold", [lang.sum, lang.max, lang.prod])
@pytest.mark.parametrize("shape", [(40, 256), (3, 35, 300), (2, 2, 64, 128)])
def test_sums_over_rows(shape, fold):
    x, k = t(*shape, name="X"), lang.reduce_axis(shape[-2], "k")
    kept = (*shape[:-2], shape[-1])
    y = lang.compute(kept, lambda *i: fold(x[(*i[:-1], k, i[-1])], axis=k), name="Y")
    assert accumulates(check(lang.program([x], [y]), tolerance=1e-4))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(2, 600, 33), (1, 1024, 96)])
def test_groups_whose_results_stay_in_the_first_level(m, n, k, threads, monkeypatch):
    monkeypatch.setattr(streams, "KEPT_SHARE", 0.02)
    assert accumulates(check(product(m, n, k), threads=threads, interpret=False))


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((4, 4096, 4096), "prefetch=B+32768,B+32768:"),  # eight rows
        ((4, 65536, 1024), "prefetch=B+524288,B+524288,B+524288,B+524288:"),
        ((4, 1024, 4096), None),  # from the third level
    ],
)
def test_the_next_rows_are_asked_for_where_they_come_from_memory(shape, hint):
    text = str(default_schedule(product(*shape), Machine(machine(1024, 32 * 1024), 2)))
    assert hint in text if hint else "prefetch" not in text


def test_a_core_that_fetches_ahead_itself_is_not_asked():
    s = default_schedule(product(4, 4096, 4096), Machine(machine(1024, 32 * 1024, requests=(0, 0)), 2))
    assert accumulates(s) and "prefetch" not in str(s)


def test_sums_over_rows_of_what_the_program_itself_makes():
    x = t(4, 64, 300, name="X")
    s = check(lang.program([x], [lang.ops.softmax(x, axis=1, name="Y")]), interpret=False)
    assert accumulates(s)
