"""Algorithms 1 to 3 of Zhao & Di (MICRO 2020): their worked example, shared producers, nests."""

from dataclasses import replace

import islpy as isl
import pytest

from tilewright.frontend.nests import scop
from tilewright.frontend.nests.python import read_python
from tilewright.ir import (
    F32,
    Binary,
    Program,
    Stage,
    buffer,
    function_at,
    map_blocks,
    run_function,
    store,
    to_function,
    var,
)
from tilewright.poly import check_legal, extract_model, import_tree, infer_kinds
from tilewright.poly.dependences import Dependences
from tilewright.poly.fusion import compose, construct, fuse
from tilewright.poly.groups import conservative_fusion, isl_fusion, isl_schedule, spaces_as_written
from tilewright.poly.spaces import pairs
from tilewright.support import ResourceError, ScheduleError
from unit.frontend.nests.polybench import KERNELS, arguments, run_python
from unit.poly.builders import add, it, ld, mul, zero

h, w, a, b = var("h"), var("w"), var("a"), var("b")


def figure_1(H=6, W=6, KH=3, KW=3):
    """Quantisation, a convolution, a rectifier; A is renamed where the paper overwrites it."""
    oh, ow = H - KH + 1, W - KW + 1
    update = store("C", (h, w), add(ld("C", h, w), mul(ld("Q", h + a, w + b), ld("B", a, b))))
    stages = (
        Stage("Q", (it("h", H), it("w", W)), store("Q", (h, w), mul(ld("A", h, w), ld("A", h, w)))),
        Stage(
            "C",
            (it("h", oh), it("w", ow), it("a", KH, "red"), it("b", KW, "red")),
            update,
            store("C", (h, w), zero()),
        ),
        Stage("R", (it("h", oh), it("w", ow)), store("R", (h, w), Binary("max", ld("C", h, w), zero()))),
    )
    inputs = buffer("A", (H, W), F32), buffer("B", (KH, KW), F32)
    temps = buffer("Q", (H, W), F32), buffer("C", (oh, ow), F32)
    return to_function(Program("fig1", (), inputs, (buffer("R", (oh, ow), F32),), temps, stages))


def planned(func, sizes, fusion=conservative_fusion, **more):
    dependences = Dependences(extract_model(func))
    spaces = fusion(dependences)
    groups = compose(dependences, spaces, sizes, **more)
    return dependences.model, spaces, groups


def names(groups):
    return [(g.live.names, tuple(p.names for p in g.producers)) for g in groups]


def imported(model, groups):
    return import_tree(model, fuse(model, groups))


def test_the_starting_fusion_of_figure_1():
    spaces = conservative_fusion(Dependences(extract_model(figure_1())))
    assert [s.names for s in spaces] == [("Q",), ("C_init", "C", "R")]
    assert [s.parallel for s in spaces] == [2, 2] and all(s.permutable for s in spaces)


def test_formula_6_of_figure_1():
    """Tile (1, 0) of 2x2 needs S0 for 2 <= h <= 5, 0 <= w <= 3; tile (1, 1) the same rows, 2 <= w <= 5."""
    model, _, groups = planned(figure_1(), [2, 2])
    (group,) = groups
    assert names(groups) == [(("C_init", "C", "R"), (("Q",),))]
    assert group.storage == ("Q",) and group.parallel
    instances = pairs(group.extensions["Q"])
    of = lambda tile: {p for t, p in instances if t == tile}  # noqa: E731 (a name for the test only)
    assert of((2, 0)) == {(x, y) for x in range(2, 6) for y in range(4)}
    assert of((2, 2)) == {(x, y) for x in range(2, 6) for y in range(2, 6)}
    assert {t for t, _ in instances} == {(0, 0), (0, 2), (2, 0), (2, 2)}
    assert group.recomputes == {"Q": True}
    assert check_legal(figure_1(), imported(model, groups)) == []


@pytest.mark.parametrize("sizes", [[1, 1], [2, 3], [4], [3, 5], [8, 8]])
def test_sizes_that_no_tile_divides(sizes):
    func = figure_1(9, 10)
    model, _, groups = planned(func, sizes)
    assert check_legal(func, imported(model, groups)) == []


def test_no_tile_sizes_are_fusion_without_tiling():
    func = figure_1()
    model, _, groups = planned(func, [])
    assert names(groups) == [(("C_init", "C", "R"), (("Q",),))]
    assert groups[0].sizes == () and groups[0].storage == ("Q",) and not groups[0].parallel
    assert check_legal(func, imported(model, groups)) == []


def test_spaces_as_written_fuse_the_same_producers():
    func = figure_1()
    model, spaces, groups = planned(func, [2, 2], spaces_as_written)
    assert [s.names for s in spaces] == [("Q",), ("C_init", "C"), ("R",)]
    assert names(groups) == [(("R",), (("Q",), ("C_init", "C")))]
    assert check_legal(func, imported(model, groups)) == []


def test_a_gpu_asks_for_two_parallel_loops():
    text = """
def f(A: f64[8, 8], x: f64[8]):
    for i in range(8):
        for j in range(8):
            x[i] += A[i, j]
"""
    func = read_python(text)
    dependences = Dependences(extract_model(infer_kinds(func)))
    (space,) = spaces_as_written(dependences)
    assert space.coincident == (True, False)
    assert construct(dependences, space, [], [4, 4]).sizes == (4, 4)
    assert construct(dependences, space, [], [4, 4], cap=2).sizes == ()


def two_ends(shift):
    """Two outputs of one intermediate: its first eight elements, and eight from ``shift`` on."""
    x = var("x")
    stages = (
        Stage("P", (it("x", 20),), store("P", (x,), mul(ld("A", x), ld("A", x)))),
        Stage("L", (it("x", 8),), store("L", (x,), add(ld("P", x), ld("P", x + 1)))),
        Stage("M", (it("x", 8),), store("M", (x,), add(ld("P", x + shift), ld("P", x + shift + 1)))),
    )
    outs = buffer("L", (8,), F32), buffer("M", (8,), F32)
    return to_function(
        Program("ends", (), (buffer("A", (20,), F32),), outs, (buffer("P", (20,), F32),), stages)
    )


def test_producers_with_disjoint_parts_are_fused_into_each_live_out():
    """Algorithm 3: P[0..8] for L and P[10..18] for M; P[9] and P[19] are never computed."""
    func = two_ends(10)
    model, _, groups = planned(func, [4])
    assert names(groups) == [(("L",), (("P",),)), (("M",), (("P",),))]
    run = {p for g in groups for _, p in pairs(g.extensions["P"])}
    assert run == {(x,) for x in (*range(9), *range(10, 19))}
    assert check_legal(func, imported(model, groups)) == []


def test_producers_with_common_instances_are_live_out_themselves():
    func = two_ends(5)
    model, _, groups = planned(func, [4])
    assert names(groups) == [(("P",), ()), (("L",), ()), (("M",), ())]
    assert check_legal(func, imported(model, groups)) == []


def test_chains_of_reductions_stay_apart_where_parallelism_would_be_lost():
    """y[j] sums over i what x[i] sums over j: the intermediate of atax has fewer parallel loops inside."""
    func = infer_kinds(scop(KERNELS["atax"]).func)
    model, _, groups = planned(func, [3, 3], spaces_as_written)
    assert all(not g.producers for g in groups)
    assert check_legal(func, imported(model, groups), {"M": 5, "N": 4}) == []


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "name",
    ["gemm", "2mm", "3mm", "gemver", "mvt", "covariance", "bicg", "gesummv", "jacobi_1d", "trisolv", "lu"],
)
def test_polybench_keeps_its_results(name):
    func = infer_kinds(scop(KERNELS[name]).func)
    model, _, groups = planned(func, [2, 3])
    sizes = {p.name: 5 for p in func.params}
    after = imported(model, groups)
    assert check_legal(func, after, sizes) == []
    arrays, _ = arguments(func, sizes)
    want = run_python(KERNELS[name], arrays, sizes)
    out = run_function(after, {n: v.copy() for n, v in arrays.items()}, sizes)
    for key, value in out.items():
        assert abs(value - want[key]).max() < 1e-9


@pytest.mark.parametrize("tiles", [[2], [2, 3]])
def test_two_products_recompute_only_with_two_tile_dimensions(tiles):
    """2mm with its intermediate inside: rows of tiles need rows of it, two dimensions need them again."""
    i, j, k = var("i"), var("j"), var("k")

    def product(name, x, y, m, n, depth):
        update = store(name, (i, j), add(ld(name, i, j), mul(ld(x, i, k), ld(y, k, j))))
        its = (it("i", m), it("j", n), it("k", depth, "red"))
        return Stage(name, its, update, store(name, (i, j), zero()))

    given = buffer("A", (6, 5), F32), buffer("B", (5, 4), F32), buffer("D", (4, 7), F32)
    stages = product("C", "A", "B", 6, 4, 5), product("E", "C", "D", 6, 7, 4)
    outs, temps = (buffer("E", (6, 7), F32),), (buffer("C", (6, 4), F32),)
    func = to_function(Program("2mm", (), given, outs, temps, stages))
    model, _, groups = planned(func, tiles)
    (group,) = groups
    assert set(group.recomputes.values()) == {len(tiles) == 2}
    assert check_legal(func, imported(model, groups)) == []


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("name", "fusion"),
    [
        (n, f)
        for n in ("gemver", "2mm", "seidel_2d")
        for f in ("min", "smart", "max", "hybrid")
        if n != "2mm" or f in ("min", "smart")
    ],
)
def test_baselines_of_isl_are_legal(name, fusion):
    func = infer_kinds(scop(KERNELS[name]).func)
    dependences = Dependences(extract_model(func))
    after = import_tree(dependences.model, isl_schedule(dependences, fusion))
    assert check_legal(func, after, {p.name: 4 for p in func.params}) == []


def test_smartfuse_can_begin():
    func = figure_1()
    model, spaces, groups = planned(func, [2, 2], lambda d: isl_fusion(d, "smart"))
    assert sorted(n for s in spaces for n in s.names) == ["C", "C_init", "Q", "R"]
    assert check_legal(func, imported(model, groups)) == []


def test_a_parallelogram_for_seidel():
    """The written band turns back; isl's skewed one can be tiled."""
    func = infer_kinds(scop(KERNELS["seidel_2d"]).func)
    dependences = Dependences(extract_model(func))
    (written,) = spaces_as_written(dependences)
    (skewed,) = isl_fusion(dependences, "smart")
    assert not written.permutable and skewed.permutable
    sizes = {"T": 3, "N": 6}
    tree = fuse(dependences.model, [construct(dependences, skewed, [], [2, 2, 2], cap=0)])
    assert check_legal(func, import_tree(dependences.model, tree), sizes) == []


def test_refusals():
    func = figure_1()
    dependences = Dependences(extract_model(func))
    with pytest.raises(ScheduleError, match="there is nothing to schedule"):
        fuse(dependences.model, [])
    with pytest.raises(ResourceError, match=r"isl's schedule of fig1 \(maxfuse\): isl gave up after 50"):
        isl_schedule(dependences, "max", operations=50)


def test_a_nest_for_which_isl_has_no_schedule():
    """Dependences of every other point, which it does not carry."""
    text = (
        "def parity(A: f64[8]):\n    for c in range(2):\n        for i in range(1, 7):\n"
        "            if (i + c) % 2 == 0:\n                A[i] = 0.5 * (A[i - 1] + A[i + 1])\n"
    )
    dependences = Dependences(extract_model(infer_kinds(read_python(text))))
    with pytest.raises(ResourceError, match=r"isl's schedule of parity \(maxfuse\): isl found none"):
        isl_schedule(dependences, "max")


def test_a_schedule_that_no_count_stops_is_ended():
    """Smartfuse of trisolv stays below any count of operations, for minutes."""
    dependences = Dependences(extract_model(infer_kinds(scop(KERNELS["trisolv"]).func)))
    with pytest.raises(ResourceError, match="isl was ended after 1 seconds"):
        isl_schedule(dependences, "smart", seconds=1)


def test_a_process_that_cannot_be_started(monkeypatch):
    def refuse():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("os.fork", refuse)
    dependences = Dependences(extract_model(figure_1()))
    with pytest.raises(ResourceError, match="cannot start a process: Resource temporarily unavailable"):
        isl_schedule(dependences, "min")


def test_hybridfuse_keeps_the_outermost_parts_of_smartfuse():
    """Where isl has no maxfuse within the budget a part stays as smartfuse has it."""
    dependences = Dependences(extract_model(infer_kinds(scop(KERNELS["gemver"]).func)))
    smart, hybrid = isl_fusion(dependences, "smart"), isl_fusion(dependences, "hybrid")
    assert [set(s.names) for s in smart] == [set(s.names) for s in hybrid]


def test_names_of_statements_change_nothing():
    """isl solves in the order of names: by some of them it does not end."""
    func = infer_kinds(function_at(scop(KERNELS["lu"]).func, {"N": 40}))

    def renamed(b):
        return replace(b, name=f"T{len(b.iters) * 5 + 7}{b.name}", stage=f"T{len(b.iters) * 5 + 7}{b.name}")

    one, two = (extract_model(f) for f in (func, func.with_body(map_blocks(func.body, renamed))))
    names = [(s.name, t.name) for s, t in zip(one.statements, two.statements, strict=True)]
    found, other = (str(isl_schedule(Dependences(m), "min")) for m in (one, two))
    for old, new in names:
        other = other.replace(new, old)
    assert isl.Schedule(other).get_map().is_equal(isl.Schedule(found).get_map())
