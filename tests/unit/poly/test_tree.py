"""Schedule trees: as written, tiled, with producers grafted into tiles; and their loops imported back."""

from itertools import pairwise

import islpy as isl
import numpy as np
import pytest

from tilewright.ir import (
    F32,
    I32,
    For,
    Load,
    Opaque,
    Param,
    Program,
    Stage,
    blocks,
    buffer,
    imin,
    index,
    locate,
    parse_function,
    run_function,
    store,
    to_function,
    var,
)
from tilewright.poly import check_legal
from tilewright.poly.ast_import import import_tree, scratch_marks
from tilewright.poly.dependences import Dependences
from tilewright.poly.extract import extract_model
from tilewright.poly.spaces import Domain, OpaqueIndexError, pairs
from tilewright.poly.tree import (
    Band,
    Order,
    band_facts,
    split_and_tile,
    structure_of,
    tile_and_fuse,
    tree_of,
)
from tilewright.support import ProgramError, ScheduleError
from unit.poly.builders import add, chain, it, ld, matmul, mul, zero
from unit.poly.cases import CASES, overlapped

h, w = var("h"), var("w")


def stencil(src, dst, height, width):
    total = ld(src, h, w)
    for a, b in [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]:
        total = add(total, ld(src, h + a, w + b))
    return Stage(dst, (it("h", height), it("w", width)), store(dst, (h, w), total))


def two_stencils():
    params = Param("H", 1, 1 << 16), Param("W", 1, 1 << 16)
    H, W = map(index, params)
    return to_function(
        Program(
            "two",
            params,
            (buffer("A", (H + 4, W + 4), F32),),
            (buffer("C", (H, W), F32),),
            (buffer("B", (H + 2, W + 2), F32),),
            (stencil("A", "B", H + 2, W + 2), stencil("B", "C", H, W)),
        )
    )


def two_products():
    i, j, k = var("i"), var("j"), var("k")

    def product(name, a, b, m, n, depth):
        update = store(name, (i, j), add(ld(name, i, j), mul(ld(a, i, k), ld(b, k, j))))
        return Stage(
            name, (it("i", m), it("j", n), it("k", depth, "red")), update, store(name, (i, j), zero())
        )

    given = buffer("A", (6, 5), F32), buffer("B", (5, 4), F32), buffer("D", (4, 7), F32)
    stages = product("C", "A", "B", 6, 4, 5), product("E", "C", "D", 6, 7, 4)
    return to_function(
        Program("2mm", (), given, (buffer("E", (6, 7), F32),), (buffer("C", (6, 4), F32),), stages)
    )


@pytest.mark.parametrize("name", [n for n in CASES if n != "overlapped"])
def test_a_tree_as_written_comes_back_the_same(name):
    func = CASES[name]()
    model = extract_model(func)
    assert check_legal(func, import_tree(model, tree_of(model))) == []


def test_storage_inside_of_loops_needs_a_place():
    model = extract_model(overlapped())
    with pytest.raises(ProgramError, match="'B' is allocated inside of loops"):
        import_tree(model, tree_of(model))


def test_structure_of_a_reduction():
    model = extract_model(to_function(matmul()))
    shape = structure_of(model.statements)
    assert isinstance(shape, Band) and len(shape.members) == 3
    assert isinstance(shape.child, Order)
    assert [sorted(names) for names, _ in shape.child.parts] == [["C_init"], ["C"]]


def test_facts_of_bands_come_from_exact_dependences():
    model = extract_model(to_function(matmul()))
    members = structure_of(model.statements).members
    assert band_facts(Dependences(model), members) == (True, (True, True, False))
    model = extract_model(CASES["scan"]())
    assert band_facts(Dependences(model), structure_of(model.statements).members) == (True, (False,))


def test_classical_tiling_of_one_nest():
    func = to_function(matmul(6, 5, 3))
    model = extract_model(func)
    members = structure_of([model.statement("C")]).members
    assert band_facts(Dependences(model), members)[0]
    tree = tile_and_fuse(model, "C", [4, 2], [])
    tiled = import_tree(model, tree.schedule)
    assert tree.extensions == {}
    assert check_legal(func, tiled) == []
    assert len([n for n in tiled.body.names if n.startswith("c")]) >= 4


def test_too_many_tile_sizes_are_refused():
    model = extract_model(to_function(chain()))
    with pytest.raises(ScheduleError, match="no 2 common outer loops"):
        tile_and_fuse(model, "C", [2, 2], [])
    node = tree_of(model, ["C"]).get_root().child(0)
    with pytest.raises(ScheduleError, match="2 tile sizes for a band of 1"):
        split_and_tile(node, [2, 2])


def test_extension_of_overlapping_tiles():
    """Tile o needs B[o .. o + 3] of the chain: formulas 4 and 6 with tile size 2 and three points read."""
    model = extract_model(to_function(chain()))
    tree = tile_and_fuse(model, "C", [2], ["B"])
    assert pairs(tree.extensions["B"]) == {((o,), (p,)) for o in (0, 2, 4) for p in range(o, o + 4)}
    assert tree.recomputes == {"B": True}


@pytest.mark.parametrize("parallel", [False, True])
def test_overlapped_tiles_of_a_symbolic_stencil(parallel):
    func = two_stencils()
    model = extract_model(func)
    tree = tile_and_fuse(model, "C", [4, 5], ["B"], parallel=parallel)
    assert [(b.buffer, b.extents) for b in boxes(model, tree)] == [("B", (index(6), index(7)))]
    fused = import_tree(model, tree.schedule)
    for height, width in [(1, 1), (3, 6), (4, 5), (5, 7), (6, 11)]:
        assert check_legal(func, fused, {"H": height, "W": width}) == []
    a = np.random.default_rng(0).integers(-9, 9, (10, 15)).astype(np.float32)
    sizes = {"H": 6, "W": 11}
    one, two = run_function(func, {"A": a}, sizes), run_function(fused, {"A": a}, sizes)
    assert np.array_equal(one["C"], two["C"])


def test_a_reduction_fused_into_rows_is_not_recomputed():
    func = two_products()
    model = extract_model(func)
    tree = tile_and_fuse(model, "E", [2], ["C"])
    assert tree.recomputes == {"C": False, "C_init": False}
    assert check_legal(func, import_tree(model, tree.schedule)) == []
    both = tile_and_fuse(model, "E", [2, 3], ["C"])
    assert both.recomputes == {"C": True, "C_init": True}
    assert check_legal(func, import_tree(model, both.schedule)) == []


def test_producers_of_one_tile_run_in_the_order_of_the_program():
    """D from C from B from A, all but D fused: each tile makes B, then C, then D."""
    x = var("x")
    sizes = {"A": 16, "B": 14, "C": 12, "D": 10}
    names = list(sizes)
    stages = tuple(
        Stage(
            dst,
            (it("x", sizes[dst]),),
            store(dst, (x,), add(ld(src, x), add(ld(src, x + 1), ld(src, x + 2)))),
        )
        for src, dst in pairwise(names)
    )
    a, *temps, d = (buffer(n, (sizes[n],), F32) for n in names)
    func = to_function(Program("three", (), (a,), (d,), tuple(temps), stages))
    model = extract_model(func)
    tree = tile_and_fuse(model, "D", [4], ["B", "C"])
    fused = import_tree(model, tree.schedule)
    assert check_legal(func, fused) == []
    order = [b.node.stage for b in blocks(fused.body)]
    assert order == ["B", "C", "D"] * (len(order) // 3)


def test_a_producer_used_elsewhere_is_not_fused():
    x = var("x")
    p = chain()
    other = Stage("D", (it("x", 8),), store("D", (x,), ld("B", x)))
    q = Program(p.name, (), p.inputs, (*p.outputs, buffer("D", (8,), F32)), p.temps, (*p.stages, other))
    with pytest.raises(ScheduleError, match="'B' is also read by block 'D'"):
        tile_and_fuse(extract_model(to_function(q)), "C", [2], ["B"])


def test_a_dependence_that_turns_back_forbids_tiling():
    """A[t, x] from A[t - 1, x - 1 .. x + 1]: rectangles of (t, x) are not allowed."""
    t, x = var("t"), var("x")
    body = store("A", (t + 1, x + 1), add(ld("A", t, x), add(ld("A", t, x + 1), ld("A", t, x + 2))))
    st = Stage("S", (it("t", 5, "ord"), it("x", 6)), body)
    p = Program("jacobi", (), (), (buffer("A", (6, 8), F32),), (), (st,))
    with pytest.raises(ScheduleError, match="cannot be tiled"):
        tile_and_fuse(extract_model(to_function(p)), "S", [2, 2], [])


def test_producers_of_what_no_tile_reads_are_refused():
    """Two stages write halves of one buffer; the tiles read the second half only."""
    x = var("x")
    stages = tuple(
        Stage(name, (it("x", 4),), store("B", (x + lo,), ld("A", x + lo)))
        for name, lo in (("P", 0), ("Q", 4))
    )
    c = Stage("C", (it("x", 4),), store("C", (x,), ld("B", x + 4)))
    program = Program("halves", (), (buffer("A", (8,), F32),), (buffer("C", (4,), F32),),
                      (buffer("B", (8,), F32),), (*stages, c))  # fmt: skip
    model = extract_model(to_function(program))
    with pytest.raises(ScheduleError, match="no tile of 'C' needs anything of block 'P'"):
        tile_and_fuse(model, "C", [2], ["P"])


def test_refusals_name_the_stage_or_the_buffer():
    model = extract_model(to_function(chain()))
    with pytest.raises(ScheduleError, match="there is no stage 'Z'") as caught:
        tile_and_fuse(model, "Z", [2], [])
    assert caught.value.hint == "name a stage of the function"
    with pytest.raises(ScheduleError, match="the outermost loop of stage 'S' carries a dependence"):
        tile_and_fuse(extract_model(_running_sum()), "S", [2], [], parallel=True)
    x = var("x")
    stages = (
        Stage("A", (it("x", 8),), store("A", (x,), ld("X", x))),
        Stage("C", (it("x", 8),), store("C", (x,), ld("X", x))),
    )
    p = Program(
        "apart", (), (buffer("X", (8,), F32),), (buffer("C", (8,), F32),), (buffer("A", (8,), F32),), stages
    )
    with pytest.raises(ScheduleError, match="no tile of 'C' reads 'A'"):
        tile_and_fuse(extract_model(to_function(p)), "C", [2], ["A"])
    again = Stage("A", (it("x", 8), it("y", 2)), store("A", (x,), ld("X", x)))
    use = Stage("C", (it("x", 8),), store("C", (x,), ld("A", x)))
    q = Program("again", (), p.inputs, p.outputs, p.temps, (again, use))
    with pytest.raises(ScheduleError, match="block 'A' writes elements several times") as caught:
        tile_and_fuse(extract_model(to_function(q)), "C", [2], ["A"])
    assert "single assignment" in caught.value.hint


def _running_sum():
    x = var("x")
    st = Stage("S", (it("x", 8, "ord"),), store("A", (x + 1,), add(ld("A", x), ld("A", x))))
    return to_function(Program("sum", (), (), (buffer("A", (9,), F32),), (), (st,)))


def test_a_tile_whose_part_begins_at_a_fraction_has_a_box():
    n = Param("n", 1, 64)
    size, x = index(n), var("x")
    stages = (
        Stage("B", (it("x", size, lo=size // 2),), store("B", (x,), ld("X", x))),
        Stage("C", (it("x", size * 2, lo=size),), store("C", (x,), ld("B", x // 2))),
    )
    p = Program(
        "half",
        (n,),
        (buffer("X", (size,), F32),),
        (buffer("C", (size * 2,), F32),),
        (buffer("B", (size,), F32),),
        stages,
    )
    func = to_function(p)
    model = extract_model(func)
    tree = tile_and_fuse(model, "C", [3], ["B"])
    ((box,),) = scratch_marks(model, tree.schedule)
    assert box.extents == (index(2),) and box.origin == (var("o0") // 2,)
    fused = import_tree(model, tree.schedule)
    for n in (1, 2, 5, 8):
        assert check_legal(func, fused, {"n": n}) == []


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_pyramids_have_boxes(levels):
    """Down by averages of four, up by nearest neighbours: rates of a half and of two."""
    x, y = var("x"), var("y")
    size = 24
    stages, temps, source = [], [], "A"
    for level in range(1, levels + 1):
        size //= 2
        name = f"D{level}"
        total = ld(source, 2 * y, 2 * x)
        for a, b in ((0, 1), (1, 0), (1, 1)):
            total = add(total, ld(source, 2 * y + a, 2 * x + b))
        stages.append(Stage(name, (it("y", size), it("x", size)), store(name, (y, x), total)))
        temps.append(buffer(name, (size, size), F32))
        source = name
    for level in range(levels, 0, -1):
        size *= 2
        name = f"U{level}"
        near = ld(source, y // 2, x // 2)
        other = ld(source, imin((y + 1) // 2, size // 2 - 1), x // 2)
        body = store(name, (y, x), add(mul(near, near), other))
        stages.append(Stage(name, (it("y", size), it("x", size)), body))
        temps.append(buffer(name, (size, size), F32))
        source = name
    out = temps.pop()
    func = to_function(
        Program("pyramid", (), (buffer("A", (24, 24), F32),), (out,), tuple(temps), tuple(stages))
    )
    model = extract_model(func)
    tree = tile_and_fuse(model, "U1", [8, 5], [s.name for s in stages[:-1]], parallel=True)
    assert {b.buffer for b in boxes(model, tree)} == {b.name for b in temps}
    assert check_legal(func, import_tree(model, tree.schedule)) == []


def test_a_part_of_symbolic_extent_has_a_box():
    func = two_stencils()
    model = extract_model(func)
    tree = tile_and_fuse(model, "C", [4], ["B"])
    (box,) = boxes(model, tree)
    width = index(model.params[1])
    assert box.extents == (index(6), width + 2)
    assert check_legal(func, import_tree(model, tree.schedule), {"H": 6, "W": 3}) == []


def boxes(model, tree):
    """The storage of a tree's only mark."""
    (found,) = scratch_marks(model, tree.schedule)
    return found


def test_full_tiles_have_constant_bounds_and_loops_begin_at_zero():
    func = two_stencils()
    model = extract_model(func)
    fused = import_tree(model, tile_and_fuse(model, "C", [4, 5], ["B"], parallel=True).schedule)
    loops = [place.node for place in locate(fused.body, For)]
    assert all(loop.lo == index(0) and loop.step == 1 for loop in loops)
    nests = [place for place in blocks(fused.body) if place.node.stage == "C"]
    full = [place for place in nests if all(loop.hi.is_const for loop in place.loops[2:])]
    assert len(full) == 1 and [loop.hi.const for loop in full[0].loops[2:]] == [4, 5]
    assert len(nests) > 1


def test_a_tile_of_one_iteration_has_no_loop():
    func = to_function(chain(H=9))
    model = extract_model(func)
    tiled = import_tree(model, tile_and_fuse(model, "C", [4], []).schedule)
    nests = [place for place in blocks(tiled.body) if place.node.stage == "C"]
    assert [[loop.hi.const for loop in place.loops] for place in nests] == [[2, 4], []]
    assert check_legal(func, tiled) == []


def test_blocks_with_loops_of_their_own_are_not_imported():
    from_text = parse_function(
        """
function("f", outputs=[C])
X = f32[4, 3]
C = f32[4, 3]
for i in range(4):
    with block("C"):
        i = ord(0, 4, i)
        for j in range(3):
            C[i, j] = X[i, j]
""".lstrip()
    )
    model = extract_model(from_text)
    with pytest.raises(ProgramError, match="block 'C' has loops inside of its body"):
        import_tree(model, tree_of(model))


def test_bounds_and_indices_that_depend_on_data_have_no_model():
    text = """
function("f", outputs=[C])
N = i32[4]
C = f32[4]
for i in range(int(N[0])):
    with block("C"):
        i = par(0, 4, i)
        C[i] = f32(0.0)
"""
    with pytest.raises(ProgramError, match="the bounds of loop i depend on data"):
        extract_model(parse_function(text.lstrip()))
    with pytest.raises(OpaqueIndexError, match=r"the index .* depends on data") as caught:
        Domain("S", ("i",)).aff(index(Opaque(Load("N", (var("i"),), I32))))
    assert "clamp" in caught.value.hint


def test_other_stages_stay_in_front():
    x = var("x")
    p = chain()
    first = Stage("A2", (it("x", 8),), store("A2", (x,), mul(ld("A", x), ld("A", x))))
    second = Stage("B", (it("x", 8),), store("B", (x,), ld("A2", x)))
    temps = (buffer("A2", (8,), F32), *p.temps)
    func = to_function(Program("three", (), p.inputs, p.outputs, temps, (first, second, p.stages[1])))
    model = extract_model(func)
    tree = tile_and_fuse(model, "C", [2], ["B"])
    fused = import_tree(model, tree.schedule)
    assert check_legal(func, fused) == []
    assert isinstance(tree.schedule, isl.Schedule)
