"""Cases that the schedule fuzzer found, kept."""

from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.ir import CONST, Block, imin, index, int_lower, int_upper, locate, replace_at, var
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.loop_programs import check, matmul, scheduled


def _judged(s, params=None):
    """The exact checker and the interpreter agree with the schedule."""
    assert check_legal(Schedule(s.source).func, s.func, params) == []
    return check(s, params)


def _then(first, second):
    """`T = first(X)`, `Y = second(T)` on 6 x 5 elements."""
    X = lang.placeholder((6, 5), name="X")
    T = lang.compute((6, 5), lambda i, j: first(X, i, j), name="T")
    return lang.program([X], [lang.compute((6, 5), lambda i, j: second(T, i, j), name="Y")])


def _product(a, b, i, j):
    k = lang.reduce_axis(a.shape[1], "k")
    return lang.sum(a[i, k] * b[k, j], axis=k)


def test_a_triangular_reduction_follows_a_rounded_axis():
    X = lang.placeholder((3, 5), name="X")
    k = lang.reduce_axis(5, "k")
    T = lang.compute((3, 5), lambda i, j: lang.sum(X[i, k], axis=k, where=k <= j), name="T")
    s = scheduled(lang.program([X], [lang.compute((3, 5), lambda i, j: T[i, j] + 1, name="Y")]))
    try:
        s = s.split("j", 4, tail="roundup")
    except ScheduleError:
        return
    _judged(s)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 4)])
def test_padding_that_no_stage_defines_is_copied_with_the_rest(sizes):
    """The stage of a triangular sum keeps its axes, so nothing writes the padding of its layout."""
    n, m = lang.param("n"), lang.param("m")
    X = lang.placeholder((n, m), name="X")

    def sums(T, name):
        def element(i, j):
            k = lang.reduce_axis((0, j + 1), "k")
            return lang.sum(T[i, k], axis=k)

        return lang.compute((n, m), element, name=name)

    T = sums(X, "T")
    s = scheduled(lang.program([X], [sums(T, "Y")])).layout_split("T", 1, (-1, 2))
    params = dict(zip("nm", sizes, strict=True))
    for at in (None, *s.loops("Y")):
        check(s.cache("T", at), params)


def test_a_peeled_reduction_is_rebuilt_once():
    A, B = lang.placeholder((3, 5), name="A"), lang.placeholder((5, 4), name="B")
    k = lang.reduce_axis(5, "k")
    C = lang.compute((3, 4), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = scheduled(lang.program([A, B], [lang.compute((3, 4), lambda i, j: C[i, j] + 1, name="D")]))
    _judged(s.peel("k", "first").compute_at("C_first", "D_i"))


def test_copies_of_a_rolled_window_have_storage_of_their_own():
    s = scheduled(_then(lambda x, i, j: x[i, j] + 1, lambda t, i, j: t[i, j] + t[lang.clamp(i - 1, 0, 5), j]))
    s = s.compute_at("T", "Y_i").partition("Y_i", 2).partition("Y_i_1", 4)
    assert len({b.name for b in s.buffers().values()}) == len(s.buffers())
    _judged(s)


def test_a_staged_tile_with_a_condition_feeds_only_what_it_holds():
    s = scheduled(_then(lambda x, i, j: x[i, j] + 1, lambda t, i, j: t[i, j] * 2))
    s = s.cache("X", "i").tile(("X_local_i", "X_local_j"), (2, 2), tail="mask")
    try:
        s = s.reverse_compute_at("T", "X_local_i_o")
    except ScheduleError:
        return
    _judged(s)


@pytest.mark.parametrize("tail", ["guard", "mask"])
def test_conditions_and_masks_in_staged_tiles_stay_in_bounds(tail):
    n = lang.param("n")
    X = lang.placeholder((n, n), name="X")
    s = scheduled(lang.program([X], [lang.compute((n, n), lambda i, j: X[i, j] + 2, name="Y")]))
    s = s.cache("Y", "i", mode="write").tile(("Y_local_out_i", "Y_local_out_j"), (2, 2), tail=tail)
    try:
        s = s.cache("Y_local", "Y_local_out_i_o")
    except ScheduleError:
        return
    for size in (1, 2, 3):
        _judged(s, {"n": size})


def test_the_output_of_one_part_of_a_range_is_staged():
    s = scheduled(_then(lambda x, i, j: x[i, j] + 1, lambda t, i, j: t[i, j] * 2))
    s = s.inline("T").partition("Y_j", (-4, -3))
    _judged(s.cache("Y", "Y_j_1", mode="write"))


def test_bounds_of_many_minima():
    x = sum((imin(var(f"v{n}"), 3) * (n + 1) for n in range(24)), index(0))
    env = {f"v{n}": (index(0), index(9)) for n in range(24)}
    assert (int_lower(x, env), int_upper(x, env)) == (0, 900)


def test_lanes_of_a_reduction_run_in_any_order():
    _judged(scheduled(matmul()).decompose_init("C", "k").split("k", 4).vectorize("k_i"))


def test_a_consumer_that_moves_keeps_the_conditions_of_shared_loops():
    X = lang.placeholder((1, 1), name="X")
    s = scheduled(lang.program([X], [lang.compute((1, 1), lambda i, j: X[i, j] * 2, name="Y")]))
    s = s.cache("X", "i").cache("X", "X_local_i").reverse_compute_at("X_local", "X_local_1_i")
    s = s.tile(("X_local_i", "X_local_1_i"), (4, 4), tail="mask")
    try:
        s = s.reverse_compute_at("X_local", "X_local_1_j")
    except ScheduleError:
        return
    _judged(s)


def test_a_window_of_an_opaque_block_slides():
    X = lang.placeholder((5, 4), name="X")
    T = lang.compute((5, 4), lambda i, j: X[i, j] + 1, name="T")
    s = scheduled(lang.program([X], [lang.compute((4, 4), lambda i, j: T[i, j] + T[i + 1, j], name="Y")]))
    s = s.blockize("j").compute_at("j_block", "Y_i")
    try:
        s = s.slide("j_block", "Y_i")
    except ScheduleError:
        return
    check(s)


def test_a_staged_result_is_rounded_up():
    X = lang.placeholder((1, 1), name="X")
    s = scheduled(lang.program([X], [lang.compute((1, 1), lambda i, j: X[i * 0, j] * 2, name="Y")]))
    s = s.cache("Y", at="i", mode="write").compute_at("Y", "Y_local_out_i")
    s = s.split(s.loops("Y")[2], 2, tail="roundup")
    _judged(s)
    assert check_legal(Schedule(s.source).func, s.func, mode="isl") == []


def test_a_lost_init_shows_in_a_product_with_an_inlined_factor():
    """The isl mode compared no accumulators where expressions differ, and the list mode only arguments."""
    X, W = lang.placeholder((1, 1), name="X"), lang.placeholder((1, 1), name="W")
    T = lang.compute((1, 1), lambda i, j: X[i, j] + X[i, j], name="T")
    C = lang.compute((1, 1), lambda i, j: _product(T, W, i, j), name="C")
    s = Schedule(lang.program([X, W], [C])).inline("T")
    assert check_legal(Schedule(s.source).func, s.func, mode="isl") == []
    (place,) = (p for p in locate(s.func.body, Block) if p.node.name == "C")
    func = s.func.with_body(replace_at(s.func.body, place.path, replace(place.node, init=None)))
    for mode in ("list", "isl"):
        found = check_legal(Schedule(s.source).func, func, mode=mode)
        assert {v.kind for v in found} == {"flow"}, mode


def test_results_that_are_padded_do_not_take_winograds_method():
    """The rows of the image were made under the condition on the channels of the padded result."""
    X, W = lang.placeholder((1, 2, 3, 4), name="X"), lang.placeholder((1, 2, 3, 3), name="W")
    program = lang.program(
        [X, W], [lang.compute((1, 2), lambda i, j: lang.ops.conv(X, W, name="C")[i, 0, 0, j], name="Y")]
    )
    x, w = program.inputs
    s = Schedule(replace(program, inputs=(x, w.with_(scope=CONST))))
    s = s.layout_pad("C", 1, 0, 1)
    with pytest.raises(ScheduleError, match="no 3x3 convolution"):
        s.winograd("C", 2, "U")


def test_a_scan_whose_rows_are_innermost_keeps_what_it_reads_again():
    """Stored in a tile of each iteration, the element before would be lost; whole scans are stored so."""
    X = lang.placeholder((3, 4), name="X")
    T = lang.scan((3, 4), lambda t, i, j: X[i, j] + lang.select(j >= 1, t[i, j - 1], 0.0), axis=1, name="T")
    Y = lang.compute((3, 4), lambda i, j: T[i, j] + 2, name="Y")
    s = scheduled(lang.program([X], [Y]))
    across = s.reorder("j", "i").reverse_compute_at("Y", "i")
    _judged(across)
    assert "alloc T: f32[3, 4]" in str(across)
    along = s.reverse_compute_at("Y", "i")
    _judged(along)
    assert "alloc T: f32[1, 4]" in str(along)


def test_a_condition_that_loops_imply_moves_with_its_block():
    X = lang.placeholder((3, 4), name="X")
    k = lang.reduce_axis(4, "k")
    T = lang.compute((3, 4), lambda i, j: lang.sum(X[i, k], axis=k, where=k <= j), name="T")
    s = scheduled(lang.program([X], [lang.compute((3, 4), lambda i, j: T[i, j] + 1, name="Y")]))
    box = "0 <= i < 3 and 0 <= j < 4"
    bands = ", ".join(f"{{ T[i, j, k] -> [({v})]; T_init[i, j, k] -> [({v})] }}" for v in "ijk")
    parts = ", ".join(f'{{ filter: "{{ {name}[i, j, k] }}" }}' for name in ("T_init", "T"))
    domain = f"{{ T_init[i, j, k = 0] : {box}; T[i, j, k] : {box} and 0 <= k <= j }}"
    child = f'{{ schedule: "[{bands}]", child: {{ sequence: [ {parts} ] }} }}'
    s = s.import_tree(["T"], f'{{ domain: "{domain}", child: {child} }}')
    _judged(s)
    _judged(s.compute_at("T", s.loops("Y")[0]))
