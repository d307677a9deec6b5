"""Products of few rows with a large run-time matrix: right for all sizes, and only where it is large."""

from dataclasses import replace

import pytest
from tests.unit.plan.contraction.test_cache_blocking import machine
from tests.unit.plan.contraction.test_split_k import product
from tests.unit.plan.loops import accumulates, along, extent
from tests.unit.strategies.test_default import check

from tilewright.cost import Machine
from tilewright.plan import EXACT
from tilewright.plan.contraction import skinny_gemm as wide
from tilewright.strategies import default_schedule


def chunked(s):
    return accumulates(s) and len(along(s, "C", "k")) == len(along(s, "C", "i")) == 2


@pytest.mark.few(10)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(16, 384, 64), (9, 336, 45), (33, 304, 100), (50, 320, 31), (17, 288, 1024)]
)
def test_all_sizes(m, n, k, threads, bias, monkeypatch):
    monkeypatch.setattr(wide, "FAR_SHARE", 0)
    monkeypatch.setattr(wide, "CHUNK", 48)
    monkeypatch.setattr(wide, "comes_from_memory", lambda buffer, target: True)
    assert chunked(check(product(m, n, k, bias=bias), threads=threads, accuracy=EXACT, interpret=False))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32, 4096, 4096), True),
        ((32, 1024, 4096), True),
        ((32, 1024, 1024), False),  # near in the last cache level
        ((35, 1504, 2560), False),  # in the last cache level, and its lines in all sets
        ((20, 5000, 3000), False),  # vectors would cross lines
        ((8, 4096, 4096), False),  # a stream
    ],
)
def test_only_large_matrices(shape, expected):
    assert chunked(default_schedule(product(*shape), Machine(machine(1024, 32 * 1024), 2))) == expected


@pytest.mark.parametrize(
    ("rows", "tile"), [(9, (9, 3)), (12, (12, 2)), (16, (16, 1)), (32, (16, 1)), (50, (17, 1))]
)
def test_as_few_tiles_as_there_can_be(rows, tile):
    assert wide.tile_of(rows, wide.TILE_ROWS) == tile


@pytest.mark.parametrize(
    ("shape", "steps"), [((32, 4096, 4096), 32), ((12, 4096, 4096), 32), ((33, 4096, 4096), None)]
)
def test_where_finding_pages_takes_longest_chunks_are_of_few_steps(shape, steps):
    slow = replace(machine(1024, 32 * 1024), page_walk=50)
    s = default_schedule(product(*shape), Machine(slow, 2))
    assert chunked(s) == (steps is not None)
    if steps is not None:
        assert extent(s, along(s, "C", "k")[-1]) == steps


@pytest.mark.parametrize(("m", "n", "k"), [(16, 1104, 64), (9, 1040, 45), (32, 1024, 100)])
def test_sizes_where_finding_pages_takes_longest(m, n, k, monkeypatch):
    monkeypatch.setattr(wide, "FAR_SHARE", 0)
    monkeypatch.setattr(wide, "comes_from_memory", lambda buffer, target: True)
    monkeypatch.setattr(wide, "PAGE", 0)
    assert chunked(check(product(m, n, k), threads=2, accuracy=EXACT, interpret=False))


def test_rows_that_fall_into_one_set_are_copied():
    copied = default_schedule(product(32, 4096, 4096), Machine(machine(1024, 32 * 1024), 2))
    assert "A_copy" in copied.blocks()
    apart = default_schedule(product(32, 4096, 4100), Machine(machine(1024, 32 * 1024), 2))
    assert chunked(apart) and "A_copy" not in apart.blocks()
