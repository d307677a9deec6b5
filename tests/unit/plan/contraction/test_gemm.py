"""Products of matrices that are both given at run time: right with copies in tiles, whatever divides."""

from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.contraction.test_cache_blocking import guest, machine
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.analysis.contraction import match_contraction
from tilewright.cost import Machine
from tilewright.plan import plan_unit
from tilewright.plan.contraction import gemm as products
from tilewright.plan.contraction.gemm import GemmPlan, plan_gemm


@pytest.fixture(autouse=True)
def copies_however_small(monkeypatch):
    """Copy operands, and in small blocks, where it would not pay."""
    monkeypatch.setattr(products, "LARGE_SHARE", 0.0)
    monkeypatch.setattr(products, "MIN_USES", 2)
    monkeypatch.setattr(products, "AGAIN_SHARE", 0.0)
    monkeypatch.setattr(products, "first_ways", lambda target: 0)


def product(m, n, k, *, bias=False, batch=()):
    a, b = t(*batch, m, k, name="A"), t(k, n, name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute((*batch, m, n), lambda *i: lang.sum(a[(*i[:-1], r)] * b[r, i[-1]], axis=r), name="C")
    if not bias:
        return lang.program([a, b], [c])
    d = t(n, name="D")
    y = lang.compute((*batch, m, n), lambda *i: lang.maximum(c[i] + d[i[-1]], 0), name="Y")
    return lang.program([a, b, d], [y])


def copied(s, which="A"):
    return f"{which}_copy" in s.blocks()


def tiled(program, threads, target=STATED):
    """Whether a plan of this rule is taken."""
    nests = plan_unit(program, Machine(target, threads)).plan.nests
    return any(isinstance(nest.choice, GemmPlan) for nest in nests)


SIZES = [(14, 64, 16), (23, 96, 37), (61, 101, 40), (61, 160, 37), (23, 101, 16), (14, 160, 40), (45, 99, 41)]


@pytest.mark.few(5)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_odd_sizes(m, n, k):
    assert copied(check(product(m, n, k), interpret=False))


@pytest.mark.few(6)
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(85, 131, 24), (84, 97, 16), (43, 192, 33)])
def test_parts_of_threads_are_not_whole_tiles(m, n, k, threads, share, monkeypatch):
    monkeypatch.setattr(products, "KEPT_SHARE", share)  # panels or rows are shared
    assert copied(check(product(m, n, k), threads=threads, interpret=False))


@pytest.mark.few(10)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(45, 99, 24), (29, 64, 1024), (29, 33, 1024)])
def test_all_rows_of_a_thread_for_each_panel(m, n, k, threads, bias, monkeypatch):
    monkeypatch.setattr(products, "AGAIN_SHARE", 1.0)
    monkeypatch.setattr(products, "first_ways", lambda target: 4)
    program = product(m, n, k, bias=bias)
    s = check(program, threads=threads, interpret=False)
    assert tiled(program, threads) and not copied(s, "B")
    assert copied(s) == (k == 1024)  # rows 4 KiB apart


@pytest.mark.few(6)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "n"), [(45, 1024), (33, 2048)])
def test_panels_whose_lines_share_sets_are_copied_one_by_one(m, n, threads, bias, monkeypatch):
    monkeypatch.setattr(products, "AGAIN_SHARE", 1.0)
    monkeypatch.setattr(products, "LARGE_SHARE", 1.0)
    monkeypatch.setattr(products, "first_ways", lambda target: 12)
    monkeypatch.setattr(products, "page_cycles", lambda apart, target: 0.0)
    target = replace(STATED, page_walk=50)
    s = check(product(m, n, 520, bias=bias), threads=threads, interpret=False, target=target)
    assert copied(s, "B") and not copied(s)
    assert not tiled(product(m, n + 8, 520), threads, target)


def test_the_tile_is_the_one_whose_rows_fit_into_a_set(monkeypatch):
    monkeypatch.undo()
    zen4 = machine(1024, 32 * 1024)
    zen5 = replace(zen4, memory=(replace(zen4.memory[0], size=48 * 1024), *zen4.memory[1:]))
    tiles = [
        products.product_tile(match_contraction(p, p.stages[0]), target)
        for p in (product(512, 1500, 2048), product(512, 1500, 2816))
        for target in (zen4, zen5)
    ]
    assert [tile.rows for tile in tiles] == [14, 9, 14, 14]


@pytest.mark.parametrize(
    ("shape", "shared", "rows", "columns"),
    [
        ((512, 1500, 2816), "i", False, False),
        ((512, 1500, 2048), "i", True, False),
        ((6144, 1500, 2048), "j", True, True),
        ((6144, 1500, 2816), "j", False, True),
        ((1024, 1024, 1024), "j", True, True),
        ((5124, 700, 2048), "i", True, True),
    ],
)
def test_the_plan_follows_from_the_caches(shape, shared, rows, columns, monkeypatch):
    monkeypatch.undo()
    program = product(*shape)
    c = match_contraction(program, program.stages[0])
    plan = plan_gemm(c, Machine(machine(1024, 32 * 1024), 2))
    assert (plan.shared, plan.rows, plan.columns) == (shared, rows, columns)
    assert (plan.blocks == 1) == (not columns or plan.each)
    assert plan.each == (shape == (1024, 1024, 1024)) != plan.ahead


@pytest.mark.parametrize(
    ("shape", "each"),
    [((512, 1500, 2816), True), ((512, 1504, 2816), False), ((512, 1500, 1024), False)],
    ids=str,
)
def test_panels_whose_rows_begin_within_lines_are_copied_where_others_use_the_last_level(
    shape, each, monkeypatch
):
    monkeypatch.undo()
    program = product(*shape)
    c = match_contraction(program, program.stages[0])
    plan = plan_gemm(c, Machine(guest(8 * 1024, 32 * 1024), 2))
    assert (plan.each, plan.ahead) == (each, not each)
    assert not plan_gemm(c, Machine(machine(1024, 32 * 1024), 2)).each


@pytest.mark.parametrize(("k", "each"), [(2048, True), (128, False)])
def test_panels_are_copied_where_lines_wait_for_their_pages(k, each, monkeypatch):
    monkeypatch.undo()
    slow = replace(machine(1024, 32 * 1024), page_walk=50)
    program = product(40, 1500, k)
    c = match_contraction(program, program.stages[0])
    assert products.is_large_product(program, c, Machine(slow, 2), ()) == (k == 2048)
    assert not products.is_large_product(program, c, Machine(machine(1024, 32 * 1024), 2), ())
    plan = plan_gemm(c, Machine(slow, 2))
    assert (plan.each, plan.ahead) == (each, True)


@pytest.mark.few(6)
@pytest.mark.parametrize("share", [0.0, 0.06])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_blocks_and_epilogue(threads, bias, share, monkeypatch):
    monkeypatch.setattr(products, "ROWS_SHARE", share)
    s = check(product(45, 99, 24, bias=bias), threads=threads, interpret=threads == 2)
    assert copied(s)


def test_a_leading_axis_of_one():
    assert copied(check(product(30, 70, 32, batch=(1,))))


def test_small_products_are_read_in_place(monkeypatch):
    monkeypatch.undo()
    assert not copied(check(product(45, 99, 24), interpret=False))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_single_number_as_a_factor_is_no_matrix(threads):
    a, b = t(name="A"), t(17, 1, name="B")
    r = lang.reduce_axis(1, "k")
    c = lang.compute((2, 17), lambda i, j: lang.sum(a[()] * b[j, r], axis=r), name="C")
    check(lang.program([a, b], [c]), threads=threads)
