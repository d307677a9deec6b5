"""Element-wise stages whose operands lie across the result: right in tiles of all sizes."""

from dataclasses import replace

import pytest
from tests.unit.plan.contraction.test_cache_blocking import machine
from tests.unit.plan.loops import along, extent
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import Index, IndexMap, blocks, var
from tilewright.lang import ops
from tilewright.lower import lower
from tilewright.plan import threads as sharing
from tilewright.plan.elementwise import nest as elementwise
from tilewright.plan.rows import nest as rows
from tilewright.plan.rows.match_rows import shared_depth
from tilewright.strategies import default_schedule


@pytest.fixture(autouse=True)
def tiles_however_small(monkeypatch):
    """Where it would not pay."""
    monkeypatch.setattr(elementwise, "MIN_TILED_ELEMENTS", 0)
    monkeypatch.setattr(sharing, "MIN_PARALLEL_ELEMENTS", 0)


def tiled(s):
    """Whether vectors of some stage are turned: its innermost loop is expanded, inside of lanes."""
    kinds = ([s.loop(loop).kind.name for loop in s.loops(name)[-2:]] for name in s.blocks())
    return ["vector", "unroll"] in list(kinds)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(32, 64), (33, 65), (70, 131), (129, 40)])
def test_transposed(shape, threads):
    x = t(*shape, name="X")
    y = lang.compute(shape[::-1], lambda i, j: x[j, i] * 2.0, name="Y")
    assert tiled(check(lang.program([x], [y]), threads=threads))


def test_lines_of_the_next_tile_are_asked_for_where_stores_wait_for_them():
    def asked(n, **facts):
        x = t(n, n, name="X")
        program = lang.program([x], [lang.compute((n, n), lambda i, j: x[j, i], name="Y")])
        s = default_schedule(program, Machine(replace(machine(2048, 10 * 1024), **facts), 2))
        return {value for _, value in hints(s)}

    assert asked(1000, page_walk=50) == {"Y+64:1"}
    assert asked(1000) == set()
    assert asked(400, page_walk=50) == set()  # stays near
    assert asked(1700, page_walk=50) == set()  # goes past the caches


def test_two_operands_one_of_them_across():
    a, b = t(37, 70, name="A"), t(70, 37, name="B")
    y = lang.compute((70, 37), lambda i, j: a[j, i] + b[i, j], name="Y")
    assert tiled(check(lang.program([a, b], [y])))


def test_channels_last():
    x = t(2, 40, 3, 35, name="X")
    y = lang.compute((2, 3, 35, 40), lambda n, h, w, c: x[n, c, h, w], name="Y")
    assert tiled(check(lang.program([x], [y])))


def test_short_axes_are_read_where_they_are():
    x = t(100, 7, name="X")
    y = lang.compute((7, 100), lambda i, j: x[j, i], name="Y")
    assert not tiled(check(lang.program([x], [y])))


def in_blocks(program):
    """The program with its large tensors in blocks of 16 channels."""

    def block(b):
        if b.shape[-1] == Index(1):
            return b
        axes = [f"d{at}" for at in range(len(b.shape))]
        places = (var("d0"), var("d1") // 16, *map(var, axes[2:]), var("d1") % 16)
        shape = (b.shape[0], b.shape[1] // 16, *b.shape[2:], Index(16))
        return b.with_(layout=IndexMap(tuple(axes), places, shape))

    return replace(
        program, inputs=tuple(map(block, program.inputs)), outputs=tuple(map(block, program.outputs))
    )


@pytest.mark.few(5)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("channels", "width"), [(32, 40), (48, 7), (64, 35)])
def test_vectors_run_along_blocks_of_channels(channels, width, threads):
    x, gate = t(1, channels, 5, width, name="X"), t(1, channels, 1, 1, name="G")
    y = lang.compute((1, channels, 5, width), lambda n, c, h, w: x[n, c, h, w] * gate[n, c, 0, 0], name="Y")
    s = check(in_blocks(lang.program([x, gate], [y])), threads=threads)
    assert s.loops("Y")[-1] == along(s, "Y", "c")[-1] and " in 0:16 vector" in str(s)
    assert not tiled(s)


def test_a_slice_of_blocked_channels_is_copied_along_them():
    x = t(1, 64, 50, name="X")
    y = lang.compute((1, 32, 50), lambda n, c, w: x[n, c + 32, w], name="Y")
    s = check(in_blocks(lang.program([x], [y])))
    assert s.loops("Y")[-1] == along(s, "Y", "c")[-1]


def test_few_outer_iterations_are_joined_by_parts_of_the_next_loop():
    x = t(3, 40, 64, name="X")
    y = lang.compute((3, 40, 64), lambda i, j, k: lang.exp(x[i, j, k]), name="Y")
    s = check(lang.program([x], [y]))
    parallel, own, vector = s.loops("Y")
    assert [s.loop(parallel).extent.as_int(), s.loop(own).extent.as_int()] == [12, 10]
    assert f"{parallel} in 0:12 parallel" in str(s) and f"{vector} in 0:64 vector" in str(s)


def softmax(rows_, columns):
    x = t(rows_, columns, name="X")
    return lang.program([x], [ops.softmax(x, axis=-1, name="Y")])


@pytest.mark.few(5)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("height", "together"), [(96, 8), (36, 4), (37, 1), (8, 1)])
def test_short_rows_are_computed_several_at_once(height, together, threads):
    s = check(softmax(height, 33), threads=threads)
    _, *own = along(s, "Y", 0)
    assert ([extent(s, loop) for loop in own] or [1])[-1] == (together if threads == 2 or height != 8 else 2)


def test_long_rows_are_computed_one_by_one():
    s = check(softmax(96, 16 * rows.SHORT_ROW * 2))
    assert len(along(s, "Y", 0)) == 1


def test_exponentials_are_kept_where_the_result_goes():
    s = check(softmax(16, 600))
    (loop,) = [f for place in blocks(s.func.body) for f in place.loops if dict(f.hints).get("in_place")]
    assert dict(loop.hints)["in_place"] not in {b.name for b in lower(s.func).body.allocated}


def hints(s):
    return {
        (loop, value)
        for name in s.blocks()
        for loop in s.loops(name)
        for key, value in s.loop(loop).hints
        if key == "prefetch"
    }


def test_rows_from_afar_are_asked_for_ahead(monkeypatch):
    assert hints(check(softmax(12, 300))) == set()
    monkeypatch.setattr(rows, "last_cache", lambda target: 1 << 12)
    # the row's exponentials are the last to read it; seven rows are 2,100 elements
    assert {value for _, value in hints(check(softmax(12, 300)))} == {"X+2100"}
    x = t(12, 4000, name="X")
    k = lang.reduce_axis(4000, "k")
    total = lang.compute((12,), lambda i: lang.sum(x[i, k], axis=k), name="S")
    y = lang.compute((12, 4000), lambda i, j: x[i, j] / total[i], name="Y")
    assert {value for _, value in hints(check(lang.program([x], [y])))} == {"X+4000"}


@pytest.mark.few(6)
@pytest.mark.parametrize("columns", [256, 259, 300, 1029])
@pytest.mark.parametrize("height", [3, 8])
def test_what_is_stored_is_summed_in_the_same_pass(height, columns):
    s = check(softmax(height, columns + 16 * rows.SHORT_ROW))
    assert "Y_sum" in s.blocks()
    assert s.loops("Y_exp")[-1] in s.loops("Y_sum")
    assert s.loops("Y_exp")[-1] not in s.loops("Y_sum_init")


def test_a_second_reduction_takes_a_pass_of_its_own():
    x = t(5, 700, name="X")
    k, m = lang.reduce_axis(700, "k"), lang.reduce_axis(700, "m")
    e = lang.compute((5, 700), lambda i, j: lang.exp(x[i, j]), name="E")
    total = lang.compute((5,), lambda i: lang.sum(e[i, k], axis=k), name="S")
    most = lang.compute((5,), lambda i: lang.max(e[i, m], axis=m), name="M")
    y = lang.compute((5, 700), lambda i, j: e[i, j] / total[i] + most[i], name="Y")
    s = check(lang.program([x], [y]))
    shared = [name for name in ("S", "M") if s.loops("E")[-1] in s.loops(name)]
    assert len(shared) == 1


@pytest.mark.parametrize("made", [False, True], ids=["sum", "made of the sum"])
@pytest.mark.parametrize("inner", [7, 5])
def test_rows_are_not_done_again_along_an_axis_that_they_do_not_move_with(inner, made):
    """Also where the axis that is reduced is as long as the one after it."""
    x, k = t(4, 6, 7, inner, name="X"), lang.reduce_axis(7, "k")
    shape = (4, 6, 1, inner)
    total = lang.compute(shape, lambda a, b, c, d: lang.sum(lang.exp(x[a, b, k, d]), axis=k), name="S")
    if made:
        old = total
        total = lang.compute(shape, lambda a, b, c, d: lang.log(old[a, b, c, d]), name="L")
    y = lang.compute((4, 6, 7, inner), lambda a, b, c, d: x[a, b, c, d] - total[a, b, 0, d], name="Y")
    program = lang.program([x], [y])
    *before, last = program.stages
    assert shared_depth(before, last) == 2
    s = check(program)
    assert s.loops("Y")[2] not in s.loops("S")


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("shape", [(4096,), (1009,), (1, 640), (1, 1, 37), (2, 513)])
def test_threads_share_a_single_row(shape, threads):
    x = t(*shape, name="X")
    s = check(lang.program([x], [lang.compute(shape, lambda *i: x[i] * 2.0, name="Y")]), threads=threads)
    assert "parallel" in str(s)
    assert (len(along(s, "Y", -1)) > 1) == (shape[0] < threads or len(shape) == 1)


def test_several_sums_of_one_row_are_shared_by_threads():
    """What follows shares an axis of one element with them alone: inside of that, one thread would work."""
    x, w = t(1, 400, 400, name="X"), t(400, 2, name="W")
    k = lang.reduce_axis(400, "k")
    sums = lang.compute((1, 400, 2), lambda n, i, j: lang.sum(x[n, i, k] * w[k, j], axis=k), name="S")
    turned = lang.compute((1, 2, 400), lambda n, j, i: sums[n, i, j] + 1, name="Y")
    s = check(lang.program([x, w], [turned]), interpret=False)
    assert s.loops("S")[0] not in s.loops("Y")


@pytest.mark.parametrize("threads", [1, 2])
def test_scatters_find_a_place_once_for_all_that_they_write_there(threads):
    """Sum and count of each bin: the bin is looked up once an element, and both are written."""
    x = t(24, 40, name="X")

    def splat(grid, k, y, i):
        cell = (k, y, lang.clamp(lang.cast(x[y, i] + 4, "i32"), 0, 8))
        return lang.write(cell, grid[cell] + lang.select(k == 0, x[y, i], 1.0))

    empty = lang.stage(lambda k, y, b: lang.const(0, "f32"), name="empty")
    grid = lang.update(
        empty, [lang.axis(2, "k"), lang.axis(24, "y"), lang.ordered_axis(40, "i")], splat, name="grid"
    )
    out = lang.stage(lambda k, y, b: grid[k, y, b] * 1.0, name="out")
    s = check(lang.program([x], out, region=[2, 24, 9], name="bins"), threads=threads)
    loops = s.loops("grid_update")
    assert s.loop(loops[-1]).kind.name == "unroll" and s.loop(loops[-1]).extent.as_int() == 2
    assert loops[-2].startswith("i")
