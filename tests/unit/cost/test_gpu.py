"""Prices of nests on GPUs: what must be faster than what."""

from dataclasses import replace

import pytest

from tilewright.cost import LATE_COPIES, ProductSize, ProductTiles, nest_seconds, product_seconds
from tilewright.target import A100, H200

LARGE = ProductSize(1, 4096, 4096, 4096, 4, 2 * 4 * 4096**2)
FEW = ProductSize(1, 64, 64, 4096, 4, 2 * 4 * 64 * 4096)
TILES = ProductTiles(128, 128, 8, 8, 8, 2)


@pytest.mark.parametrize("target", [A100, H200], ids=lambda x: x.name)
def test_products(target):
    peak = 2 * target.fma_per_cycle * target.units * target.clock_hz
    seconds = product_seconds(LARGE, TILES, target)
    # a good tile comes near the peak, and never above it
    assert 0.5 < 2 * 4096**3 / peak / seconds < 1
    # small tiles of threads read shared memory too often
    assert product_seconds(LARGE, ProductTiles(32, 32, 8, 2, 2, 2), target) > 1.5 * seconds
    # one block for a whole device waits; more of them, of smaller tiles, do less badly
    assert product_seconds(FEW, ProductTiles(16, 16, 32, 2, 4, 2), target) < product_seconds(
        FEW, ProductTiles(64, 64, 32, 8, 8, 2), target
    )
    # slices copied ahead hide their latency
    assert product_seconds(FEW, replace(TILES, stages=2), target) < product_seconds(
        FEW, replace(TILES, stages=1), target
    )
    assert product_seconds(LARGE, ProductTiles(128, 128, 128, 8, 8, 2), target) == float("inf")


#: Milliseconds of square products of f32 on an H200 (benchmarks/results/h200/gpu.jsonl), by size and tiles.
MEASURED = [
    (512, ProductTiles(32, 64, 32, 4, 8, 2), 0.0229),
    (1024, ProductTiles(64, 64, 32, 8, 8, 1), 0.1016),
    (2048, ProductTiles(128, 128, 32, 8, 8, 1), 0.4456),
    (8192, ProductTiles(128, 128, 32, 8, 8, 1), 27.188),
]


@pytest.mark.parametrize(
    ("n", "tiles", "found"), MEASURED, ids=lambda x: str(x) if isinstance(x, int) else ""
)
def test_products_wait_where_few_warps_are_there(n, tiles, found):
    """Promised were 0.33 to 0.67 of these times before waiting was counted."""
    seconds = product_seconds(ProductSize(1, n, n, n, 4, 8 * n * n), tiles, H200)
    assert 0.6 < seconds * 1e3 / found < 1


def test_windows_cost_instructions():
    plain = ProductSize(1, 256, 3136, 2304, 4, 1 << 22)
    windows = replace(plain, windows=(False, True))
    tiles = ProductTiles(64, 64, 32, 4, 4, 2)
    assert product_seconds(windows, tiles, H200) > 1.2 * product_seconds(plain, tiles, H200)
    # the more results share an element, the less
    large = ProductTiles(128, 64, 32, 4, 8, 2)
    assert product_seconds(windows, large, H200) < product_seconds(windows, tiles, H200)


def test_copies_that_are_waited_for_cost_more():
    at_once = replace(H200, features=H200.features - {LATE_COPIES})
    size, tiles = ProductSize(1, 512, 512, 512, 4, 8 << 18), ProductTiles(32, 64, 32, 4, 8, 2)
    assert product_seconds(size, tiles, at_once) > 1.2 * product_seconds(size, tiles, H200)


def test_nests_that_memory_decides():
    count = 1 << 24

    def seconds(threads, vector):
        return nest_seconds(
            A100,
            blocks=count // threads // vector,
            threads=threads,
            turns=1,
            access_bytes=4 * vector,
            nbytes=8 * count,
        )

    bandwidth = A100.level("memory").bandwidth * A100.units * A100.clock_hz
    assert 8 * count / bandwidth < seconds(128, 4) <= seconds(32, 1)
    assert nest_seconds(
        A100, blocks=1, threads=64, turns=1, access_bytes=4, nbytes=4, shared_bytes=1 << 20
    ) == float("inf")
