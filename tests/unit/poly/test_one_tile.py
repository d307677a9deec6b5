"""One tile with parameters: any sizes compute what the function does, on storage of a tile."""

from itertools import product
from random import Random

import numpy as np
import pytest
from tests.random_pipelines import random_program

from tilewright import lang
from tilewright.frontend.nests import scop
from tilewright.ir import Alloc, function_at, locate, run_function, to_function, verify
from tilewright.poly import allocations_inside, infer_kinds, scalars_in_results, tile_by_tile
from tilewright.poly.child import EndedError
from tilewright.support import ProgramError, ResourceError, ScheduleError
from unit.frontend.nests.polybench import KERNELS, arguments


def one_tile(func, dims=2):
    """The tile of a function that is one group."""
    made = tile_by_tile(func, dims)
    assert not made.between
    (tile,) = made.spaces
    return tile


def run_tiles(tile, given, sizes):
    """All tiles of these sizes: in any order where they are apart, else wave by wave, each in any order."""
    arrays = {n: a.copy() for n, a in given.items()}
    steps = len(tile.origins) - len(sizes)
    widths = (1,) * steps + tuple(sizes)
    counts = [-(-e // t) for e, t in zip(tile.extents, widths, strict=True)]
    rng = Random(sum(sizes))
    numbers = [(n, rng.random()) for n in product(*map(range, counts))]
    wave = (lambda n: 0) if tile.apart else (lambda n: sum(n[steps:]))
    for n, _ in sorted(numbers, key=lambda each: (each[0][:steps], wave(each[0]), each[1])):
        origins = [k * t for k, t in zip(n, widths, strict=True)]
        rest = [min(t, e - o) for o, t, e in zip(origins, widths, tile.extents, strict=True)]
        values = dict(zip((*tile.origins, *tile.sizes), (*origins, *rest[steps:]), strict=True))
        arrays.update(run_function(tile.func, arrays, values))
    return {n: arrays[n] for n in tile.func.outputs}


def run_all(made, given, size):
    """All groups of a function, each in tiles of sizes that ``size`` draws."""
    arrays = dict(given)
    for b in made.between:
        arrays[b.name] = np.full([e.as_int() for e in b.shape], 99, b.dtype.numpy)
    for tile in made.spaces:
        verify(tile.func)
        arrays.update(run_tiles(tile, arrays, [size() for _ in tile.sizes]))
    return arrays


def blur(h=17, w=22):
    x = lang.placeholder((h, w), name="X")
    rows = lang.compute((h - 2, w), lambda i, j: x[i, j] + x[i + 1, j] + x[i + 2, j], name="rows")
    return lang.program(
        [x],
        [lang.compute((h - 2, w - 2), lambda i, j: rows[i, j] + rows[i, j + 1] * rows[i, j + 2], name="out")],
    )


@pytest.mark.parametrize("sizes", [(1, 1), (4, 5), (15, 20), (100, 3)])
def test_sizes_of_tiles_are_arguments(sizes):
    func = to_function(blur())
    tile = one_tile(func)
    verify(tile.func)
    assert tile.extents == (15, 20)
    given = {
        "X": np.random.default_rng(0).uniform(size=(17, 22)).astype(np.float32),
        "out": np.zeros((15, 20), np.float32),
    }
    want = run_function(func, given)
    np.testing.assert_array_equal(run_tiles(tile, given, sizes)["out"], want["out"])


def test_storage_is_that_of_a_tile():
    (place,) = locate(one_tile(to_function(blur())).func.body, Alloc)
    assert [str(e) for e in place.node.buffer.physical_shape] == ["T0", "T1 + 2"]


def test_random_pipelines():
    """Shared producers, borders, sums and other rates among them, in one group and in several."""
    done = several = 0
    for seed in range(40):
        rng = Random(seed)
        func = to_function(random_program(rng, 4))
        try:
            made = tile_by_tile(func, rng.randint(1, 2))
        except (ScheduleError, ProgramError):
            continue
        arrays = np.random.default_rng(seed)
        shapes = {b.name: tuple(e.as_int() for e in b.shape) for b in func.buffers}
        given = {n: arrays.integers(0, 5, shape).astype(np.int32) for n, shape in shapes.items()}
        want = run_function(func, given)
        got = run_all(made, given, lambda rng=rng: rng.randint(1, 5))
        for name in func.outputs:
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"{seed}: {name}")
        done += 1
        several += len(made.spaces) > 1
    assert done > 30 and several > 5


def test_a_nest():
    func = infer_kinds(function_at(scop(KERNELS["gesummv"]).func, {"N": 7}))
    try:
        tile = one_tile(func)
    except ScheduleError as error:
        pytest.fail(str(error))
    given, _ = arguments(func, {"N": 7})
    want = run_function(func, {n: a.copy() for n, a in given.items()})
    for name, got in run_tiles(tile, given, (3,)).items():
        np.testing.assert_allclose(got, want[name])


def test_refusals(monkeypatch):
    n = lang.param("n", 1, 9)
    x = lang.placeholder((n,), name="x")
    with pytest.raises(ScheduleError, match="the sizes of main are open"):
        one_tile(to_function(lang.program([x], [lang.compute((n,), lambda i: x[i] + 1.0, name="o")])))
    durbin = infer_kinds(function_at(scop(KERNELS["durbin"]).func, {"N": 6}))
    with pytest.raises(ScheduleError, match="no loop is parallel, and no two loops may be permuted"):
        one_tile(durbin)

    def ended(question, seconds):
        raise EndedError

    with monkeypatch.context() as without:
        without.setattr("tilewright.poly.groups.asked_apart", ended)
        lu = infer_kinds(function_at(scop(KERNELS["lu"]).func, {"N": 6}))
        with pytest.raises(ScheduleError, match=r"no loop is parallel, and isl's schedule of lu .* ended"):
            one_tile(lu)
    y = lang.placeholder((8,), name="y")
    a = lang.compute((8,), lambda i: y[i] + 1.0, name="a")
    b = lang.compute((8,), lambda i: y[i] * a[7 - i], name="b")
    made = tile_by_tile(to_function(lang.program([y], [a, b])))
    assert [tile.func.outputs for tile in made.spaces] == [("a",), ("b",)]
    with pytest.raises(ResourceError, match="the tile of main is too large"):
        tile_by_tile(to_function(blur()), operations=100)


def check_all(made, func, sizes, *, least):
    """Tiles of drawn sizes, from ``least`` to five, compute what the nest does as it is written."""
    given, _ = arguments(func, sizes)
    want = run_function(func, {n: a.copy() for n, a in given.items()})
    rng = Random(0)
    got = run_all(made, given, lambda: rng.randint(least, 5))
    for output in func.outputs:
        np.testing.assert_allclose(got[output], want[output], rtol=1e-9, err_msg=output)


@pytest.mark.parametrize(
    ("name", "sizes", "groups"),
    [
        ("gemver", {"N": 7}, 3),
        ("2mm", {"NI": 4, "NJ": 5, "NK": 3, "NL": 6}, 2),
        ("covariance", {"M": 4, "N": 5}, 3),
        # scalars that run once
        ("deriche", {"W": 3, "H": 3}, 6),
    ],
)
def test_nests_of_several_groups(name, sizes, groups):
    func = infer_kinds(function_at(scop(KERNELS[name]).func, sizes))
    made = tile_by_tile(func)
    assert len(made.spaces) == groups
    check_all(made, func, sizes, least=1)


@pytest.mark.parametrize(
    ("name", "tiled"),
    [
        ("cholesky", [3]),
        ("lu", [3]),
        ("ludcmp", [3, 1, 2, 1, 0]),
        ("gramschmidt", [1, 2, 2]),
        ("trisolv", [1, 2]),
        ("floyd_warshall", [2]),
        ("nussinov", [2]),
        ("symm", [0, 3]),
        ("trmm", [3, 2]),
        ("fdtd_2d", [3]),
        ("heat_3d", [4]),
        ("jacobi_1d", [2]),
        ("jacobi_2d", [3]),
        ("seidel_2d", [3]),
    ],
)
def test_nests_without_parallel_loops(name, tiled):
    """Factorisations and stencils in time: tiles of isl's permutable loops, in wavefronts."""
    kernel = scop(KERNELS[name]).func
    sizes = {p.name: {"T": 2}.get(p.name, 6) for p in kernel.params}
    func = function_at(kernel, sizes)
    private = scalars_in_results(allocations_inside(func))
    func = infer_kinds(func if private.body.allocated else private)
    made = tile_by_tile(func)
    assert [len(tile.sizes) for tile in made.spaces] == tiled
    check_all(made, func, sizes, least=2)
