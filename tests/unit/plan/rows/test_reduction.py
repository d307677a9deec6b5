"""Reductions along memory: right for rows, dot products and whole tensors of all sizes."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.native_kernel import STATED, Native
from tests.unit.plan.contraction.test_cache_blocking import guest, machine
from tests.unit.plan.loops import accumulates, along, extent
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import F32
from tilewright.plan import threads as sharing
from tilewright.plan.rows import (
    chunks as lane_chunks,
    lanes as lane_nests,
    match as lane_match,
    reduction as lanes,
    row_tiling as lane_rows,
)
from tilewright.schedule import with_layout
from tilewright.strategies import default_schedule


@pytest.fixture(autouse=True)
def parallel_however_small(monkeypatch):
    """Split for all threads, where it would not pay."""
    monkeypatch.setattr(lanes, "MIN_PARALLEL_ELEMENTS", 0)
    monkeypatch.setattr(lane_nests, "MIN_PARALLEL_ELEMENTS", 0)
    monkeypatch.setattr(sharing, "MIN_PARALLEL_ELEMENTS", 0)


def product(m, n, k, *, transposed=False, bias=False):
    a = t(m, k, name="A")
    b = t(n, k, name="B") if transposed else t(k, n, name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute(
        (m, n), lambda i, j: lang.sum(a[i, r] * (b[j, r] if transposed else b[r, j]), axis=r), name="C"
    )
    if not bias:
        return lang.program([a, b], [c])
    d = t(m, name="D")
    y = lang.compute((m, n), lambda i, j: lang.maximum(c[i, j] + d[i], 0), name="Y")
    return lang.program([a, b, d], [y])


def used(s):
    return any(name.endswith("_lanes") for name in s.blocks())


@pytest.mark.few(15)
@pytest.mark.parametrize("k", [32, 45, 131])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("m", [1, 2, 19])
def test_products_of_few_columns(m, n, k):
    assert used(check(product(m, n, k), interpret=False))


def test_more_results_in_a_vector_than_lanes_in_a_register():
    """Sums along few elements are in short registers: a vector of results is not joined from these."""
    x, w = t(2, 5, 11, 11, name="X"), t(11, 11, name="W")
    b, c = lang.reduce_axis(5, "b"), lang.reduce_axis(11, "c")
    y = lang.compute((11, 2), lambda i, j: lang.sum(x[j, b, c, i] * w[i, c], axis=[b, c]), name="Y")
    assert used(check(lang.program([x, w], [y]), interpret=False))


@pytest.mark.few(4)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_threads_and_epilogue(threads, transposed):
    s = check(product(37, 3, 100, transposed=transposed, bias=True), threads=threads)
    assert used(s)


@pytest.mark.few(6)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("m", "n", "k", "chunked"),
    [
        (48, 4, 256, True),
        (96, 2, 224, True),  # chunks of 7 steps, twice
        (48, 3, 176, True),  # the last chunk is shorter
        (24, 4, 128, True),
        (50, 4, 256, False),  # rows that tiles do not divide
        (48, 4, 250, False),  # a reduction that vectors do not divide
    ],
)
def test_chunks_of_the_reduction_for_blocks_of_rows(m, n, k, chunked, threads, monkeypatch):
    monkeypatch.setattr(lane_match, "MAX_PICKED_ROWS", 0)
    monkeypatch.setattr(lane_chunks, "KEPT_SHARE", 0.0)
    monkeypatch.setattr(lane_chunks, "CHUNK_SHARE", 1 / 32)
    s = check(product(m, n, k), threads=threads)
    assert accumulates(s) == chunked
    assert used(s)


@pytest.mark.parametrize("threads", [2, 3])
def test_each_thread_lays_the_operand_for_itself(threads, monkeypatch):
    monkeypatch.setattr(lane_match, "MAX_PICKED_ROWS", 0)
    own = re.compile(rf"for \w+ in 0:{threads} parallel:\n        alloc C_panels")
    assert own.search(str(check(product(48, 2, 64), threads=threads)))
    # unequal parts: the operand is laid once, before
    assert not own.search(str(check(product(49, 2, 64), threads=threads)))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_few_results_share_the_reduction(threads):
    s = check(product(2, 2, 1001), threads=threads)
    assert used(s)
    assert any(name.endswith("_part") for name in s.blocks())


@pytest.mark.few(20)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("k", [128, 333, 1000])
@pytest.mark.parametrize(("m", "n"), [(1, 2), (1, 4), (4, 4), (9, 4), (7, 3), (30, 2)])
def test_few_columns_are_read_where_they_are(m, n, k, threads):
    s = check(product(m, n, k), threads=threads, interpret=False)
    assert used(s)
    assert not any(name.endswith("_panels") for name in s.blocks())


def test_columns_that_many_rows_use_are_copied_along_the_reduction():
    assert any(
        name.endswith("_panels")
        for name in default_schedule(product(65, 4, 512), Machine(STATED, 2)).blocks()
    )


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "k"), [(19, 256), (8, 300), (1, 500)])
def test_long_rows_of_one_column_come_one_at_a_time(m, k, threads, monkeypatch):
    monkeypatch.setattr(lane_rows, "LONG_ROW", 200)
    # one stream is read faster than several in turns
    target = replace(STATED, stream_gain=2.0)
    s = check(product(m, 1, k), threads=threads, interpret=False, target=target)
    assert used(s)
    (sums,) = (name for name in s.blocks() if name.endswith("_lanes"))
    assert all(extent(s, loop) == 1 for loop in along(s, sums, "i")[1:])


REDUCTIONS = {
    "rows": ((13, 70), (1,)),
    "last of three": ((3, 5, 67), (2,)),
    "last two": ((7, 5, 33), (1, 2)),
    "first and last": ((9, 5, 33), (0, 2)),
    "all": ((11, 3, 50), (0, 1, 2)),
    "vector": ((1009,), (0,)),
}


@pytest.mark.few(15)
@pytest.mark.parametrize("fold", [lang.sum, lang.max, lang.min, lang.prod])
@pytest.mark.parametrize("case", REDUCTIONS)
def test_reductions_of_one_operand(case, fold):
    shape, over = REDUCTIONS[case]
    x = t(*shape, name="X")
    reds = {d: lang.reduce_axis(shape[d], f"r{d}") for d in over}
    kept = [d for d in range(len(shape)) if d not in over]

    def element(*i):
        place = {**dict(zip(kept, i, strict=True)), **reds}
        return fold(x[tuple(place[d] for d in range(len(shape)))], axis=list(reds.values()))

    y = lang.compute(tuple(shape[d] for d in kept), element, name="Y")
    program = lang.program([x], [y])
    assert used(check(program, tolerance=1e-4))


def test_mean_with_an_epilogue():
    x = t(9, 200, name="X")
    k = lang.reduce_axis(200, "k")
    total = lang.compute((9,), lambda i: lang.sum(x[i, k] * x[i, k], axis=k), name="S")
    y = lang.compute((9,), lambda i: lang.sqrt(total[i] / 200), name="Y")
    assert used(check(lang.program([x], [y])))


def test_values_that_are_not_numbers_stay_so():
    x = t(4, 64, name="X")
    k = lang.reduce_axis(64, "k")
    program = lang.program([x], [lang.compute((4,), lambda i: lang.max(x[i, k], axis=k), name="Y")])
    values = np.zeros((4, 64), np.float32)
    values[2, 33] = np.nan
    made = Native(default_schedule(program, Machine(STATED, 2)).func)({"X": values})["Y"]
    assert np.isnan(made[2])
    assert not np.isnan(made[[0, 1, 3]]).any()


def extremum(rows, columns, fold=lang.max):
    x, k = t(rows, columns, name="X"), lang.reduce_axis(columns, "k")
    return lang.program([x], [lang.compute((rows,), lambda i: fold(x[i, k], axis=k), name="Y")])


def test_extrema_ask_for_what_the_second_cache_level_cannot_hold():
    here = machine(1024, 32 * 1024)
    hints = {
        shape: str(default_schedule(extremum(*shape), Machine(here, 2)))
        for shape in [(256, 4096), (4096, 2048), (64, 64)]
    }
    # a sixth of the first level, a quarter from about main memory
    assert "prefetch=X+1365:1:" in hints[256, 4096] and "prefetch=X+2048:1:" in hints[4096, 2048]
    assert "prefetch" not in hints[64, 64]
    assert "prefetch" not in str(default_schedule(extremum(256, 4096, lang.sum), Machine(here, 2)))


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ((8448, 4, 2816), "prefetch=A+16896,A+16896,A+16896,A+16896:"),  # six rows of 2816, four columns
        ((4608, 4, 1536), "prefetch=A+6144,A+12288:"),  # nearly all of the last level, in chunks: two tiles
        ((1024, 4, 4096), None),  # in chunks, from the third level
        ((6144, 1, 2048), "prefetch=A+8192,A+8192:"),  # four rows, of one set; less than twice the caches
        ((512, 2, 500000), "prefetch=A@8,A@8,A@8,A@8:"),  # rows longer than the second cache level
        ((3072, 4, 1024), None),  # from the third level
    ],
)
def test_what_comes_from_memory_is_asked_for(shape, asked):
    text = str(default_schedule(product(*shape), Machine(guest(8 * 1024, 32 * 1024), 2)))
    if asked is None:
        assert "prefetch" not in text
    else:
        assert asked in text


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ((6144, 1, 2048), None),  # one product a vector
        ((3072, 4, 1024), None),  # what the rows share stays in the first level
        ((7680, 4, 2560), "prefetch=A+341:1:"),  # six rows, a quarter of the first level ahead together
        ((7680, 2, 2048), "prefetch=A+2048:1:"),  # one row
        ((1024, 4, 4096), "prefetch=A+16384:1:"),  # in chunks: the next tile
        ((7168, 4, 1024), "prefetch=A+4096:1:"),  # columns stay in the first level, rows hardly in the last
    ],
)
def test_a_core_that_fetches_ahead_itself_is_asked_for_little(shape, asked):
    text = str(default_schedule(product(*shape), Machine(machine(1024, 32 * 1024, requests=(0, 0)), 2)))
    assert "_lanes" in text
    if asked is None:
        assert "prefetch" not in text
    else:
        assert asked in text


@pytest.mark.parametrize(
    ("shape", "lanes", "rows", "asked"),
    [
        ((512, 1, 512), 64, 1, None),  # from the second level
        ((512, 2, 512), 64, 1, None),
        ((512, 4, 512), 16, 4, None),  # as many products as lines take to come, either way
        ((3072, 1, 1024), 64, 1, "prefetch=A+1365:1:"),  # from the third, a sixth of 32 KiB ahead
        ((3072, 2, 1024), 64, 1, "prefetch=A+1365:1:"),
        ((3072, 4, 1024), 16, 4, None),
        ((6144, 4, 1024), 64, 1, "prefetch=A+2048:1:"),  # from nearly all of it
        ((4608, 1, 1536), 16, 8, None),
        ((6144, 2, 2048), 128, 1, "prefetch=A+2048:1:"),  # larger
        ((512, 2, 128), 16, 8, None),  # short rows
    ],
)
def test_rows_one_after_the_other_where_one_stream_is_faster(shape, lanes, rows, asked):
    here = replace(machine(1024, 32 * 1024, requests=(0, 0)), stream_gain=2.0)
    s = default_schedule(product(*shape), Machine(here, 2))
    (partial,) = (s.block(name) for name in s.blocks() if name.endswith("_lanes"))
    assert partial.iters[-2].extent.as_int() == lanes
    assert s.loop("C_lanes_i").extent.as_int() == rows
    assert ("prefetch" not in str(s)) if asked is None else (asked in str(s))


@pytest.mark.parametrize(("m", "n", "k"), [(37, 1, 300), (40, 2, 512), (33, 2, 1000), (50, 4, 345)])
def test_rows_one_after_the_other_compute_the_same(m, n, k, monkeypatch):
    here = replace(STATED, stream_gain=2.0)
    monkeypatch.setattr(lane_rows, "FAR", 0.0 if n == 4 else 0.5)
    monkeypatch.setattr(lane_match, "MAX_PICKED_ROWS", 0)
    assert used(check(product(m, n, k), target=here, interpret=False))


def test_rows_from_memory_in_chunks_where_the_target_wants_them():
    here = machine(1024, 32 * 1024, requests=(0, 0))
    program = product(7680, 4, 2560)
    assert not accumulates(default_schedule(program, Machine(here, 2)))
    s = default_schedule(program, Machine(replace(here, shared_issue=(2.4, 1.75)), 2))
    assert accumulates(s)
    (block,) = (name for name in s.blocks() if name.endswith("_lanes"))
    (k,) = (it.name for it in s.block(block).iters if it.kind == "red")
    # 40 KiB of columns in chunks of a sixth of 32 KiB
    assert extent(s, along(s, block, k)[-1]) == 160 // 8


@pytest.mark.few(16)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", [lang.sum, lang.max])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("parts", ["half", "whole", "more"])
def test_short_rows_of_several_axes(parts, n, op, threads):
    """Rows of less than two vectors, of an image say: the axes around them give the vectors."""
    lanes_of = STATED.lanes(F32)
    width = {"half": lanes_of // 2, "whole": lanes_of, "more": lanes_of + lanes_of // 4}[parts]
    x = t(n, 5, 6, width, name="X")
    axes = [lang.reduce_axis(size, f"r{at}") for at, size in enumerate((5, 6, width))]
    y = lang.compute((n,), lambda i: op(x[(i, *axes)], axis=axes), name="Y")
    assert used(check(lang.program([x], [y]), threads=threads, interpret=False))


def test_rows_of_few_elements_are_left():
    # lines that do not lie one after the other, else they are one
    x = t(64, STATED.lanes(F32) // 2, name="X")
    axes = [lang.reduce_axis(64, "r0"), lang.reduce_axis(STATED.lanes(F32) // 2 - 1, "r1")]
    y = lang.compute((1,), lambda i: lang.sum(x[tuple(axes)], axis=axes), name="Y")
    assert not used(check(lang.program([x], [y]), interpret=False))


def test_windows_that_slide_are_left():
    x = t(3, 40, 80, name="X")
    axes = [lang.reduce_axis(STATED.lanes(F32), f"r{at}") for at in range(2)]
    y = lang.compute(
        (3, 9, 40), lambda c, i, j: lang.max(x[c, i + axes[0], j + axes[1]], axis=axes), name="Y"
    )
    assert not used(check(lang.program([x], [y]), interpret=False))


@pytest.mark.few(9)
@pytest.mark.parametrize("fold", [lang.sum, lang.max])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("part", [1, 2])
def test_whole_values_that_are_stored_in_blocks(part, blocks, threads, fold):
    """Blocks of a vector or of half one; none where the channels of a block are fewer."""
    size = STATED.lanes(F32) // part
    x = t(1, blocks * size, 5, 6, name="X")
    axes = [lang.reduce_axis(n, f"r{at}") for at, n in enumerate((1, blocks * size, 5, 6))]
    y = lang.compute((), lambda: fold(x[tuple(axes)], axis=axes), name="Y")
    program = lang.program([x], [y])
    stored = with_layout(program.inputs[0], ("d0", f"d1//{size}", "d2", "d3", f"d1%{size}"))
    assert used(check(replace(program, inputs=(stored,)), threads=threads))
    narrow = with_layout(program.inputs[0], ("d0", "d1//2", "d2", "d3", "d1%2"))
    assert not used(check(replace(program, inputs=(narrow,)), threads=threads))


def test_threads_share_an_axis_of_which_there_is_more_than_one():
    x = t(1, 96, 16, name="X")
    axes = [lang.reduce_axis(n, f"r{at}") for at, n in enumerate((1, 96, 16))]
    y = lang.compute((), lambda: lang.sum(x[tuple(axes)], axis=axes), name="Y")
    assert "in 0:2 parallel" in str(check(lang.program([x], [y]), threads=2))
