"""One tile with parameters: any sizes compute what the function does, on storage of a tile."""

from random import Random

import numpy as np
import pytest
from tests.random_pipelines import random_program

from tilewright import lang
from tilewright.frontend.nests import scop
from tilewright.ir import Alloc, function_at, locate, run_function, to_function, verify
from tilewright.poly import infer_kinds, tile_by_tile
from tilewright.support import ProgramError, ResourceError, ScheduleError
from unit.frontend.nests.polybench import KERNELS, arguments


def one_tile(func, dims=2):
    """The tile of a function that is one group."""
    made = tile_by_tile(func, dims)
    assert not made.between
    (tile,) = made.spaces
    return tile


def run_tiles(tile, given, sizes):
    """All tiles of these sizes, one after another."""
    arrays = {n: a.copy() for n, a in given.items()}

    def visit(origins):
        n = len(origins)
        if n < len(sizes):
            for o in range(0, tile.extents[n], sizes[n]):
                visit((*origins, o))
            return
        rest = [min(t, e - o) for o, t, e in zip(origins, sizes, tile.extents, strict=True)]
        values = dict(zip((*tile.origins, *tile.sizes), (*origins, *rest), strict=True))
        arrays.update(run_function(tile.func, arrays, values))

    visit(())
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


def test_refusals():
    n = lang.param("n", 1, 9)
    x = lang.placeholder((n,), name="x")
    with pytest.raises(ScheduleError, match="the sizes of main are open"):
        one_tile(to_function(lang.program([x], [lang.compute((n,), lambda i: x[i] + 1.0, name="o")])))
    seidel = infer_kinds(function_at(scop(KERNELS["seidel_2d"]).func, {"N": 6, "T": 2}))
    with pytest.raises(ScheduleError, match="has no parallel loops to tile"):
        one_tile(seidel)
    y = lang.placeholder((8,), name="y")
    a = lang.compute((8,), lambda i: y[i] + 1.0, name="a")
    b = lang.compute((8,), lambda i: y[i] * a[7 - i], name="b")
    made = tile_by_tile(to_function(lang.program([y], [a, b])))
    assert [tile.func.outputs for tile in made.spaces] == [("a",), ("b",)]
    with pytest.raises(ResourceError, match="the tile of main is too large"):
        tile_by_tile(to_function(blur()), operations=100)


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
    given, _ = arguments(func, sizes)
    want = run_function(func, {n: a.copy() for n, a in given.items()})
    rng = Random(0)
    got = run_all(made, given, lambda: rng.randint(1, 5))
    for output in func.outputs:
        np.testing.assert_allclose(got[output], want[output], rtol=1e-9, err_msg=output)
