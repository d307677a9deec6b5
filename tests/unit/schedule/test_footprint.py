"""Box footprints, and regions of iterations: against enumeration."""

import itertools

import pytest
from hypothesis import given, strategies as st

from tilewright import lang
from tilewright.ir import For, Index, Span, evaluate_index, find, floordiv, imin, index, loop_env, mod, var
from tilewright.schedule import Schedule
from tilewright.schedule.footprint import footprint
from tilewright.schedule.regions import disjoint, uncovered
from unit.schedule.storage_programs import blur, conv, gemm, stencil


def _box(s, loop, buffer, mode="r"):
    place = find(s.func.body, loop)
    return str(footprint(place.node.body, loop_env((*place.loops, place.node)), s.buffers()[buffer], mode))


def test_boxes_of_a_tile():
    s = Schedule(stencil(9, 12)).tile(["C_y", "C_x"], [3, 4])
    assert _box(s, "C_x_o", "T") == "[3*C_y_o, +5) x [4*C_x_o, +6)"
    assert _box(s, "C_y_o", "T") == "[3*C_y_o, +5) x [0, +14)"
    assert _box(s, "C_x_o", "C", "w") == "[3*C_y_o, +3) x [4*C_x_o, +4)"
    assert _box(s, "C_x_i", "T") == "[C_y_i + 3*C_y_o, +3) x [C_x_i + 4*C_x_o, +3)"
    assert _box(s, "C_x_o", "X") == "None"


def test_a_ragged_tile_is_clipped_to_a_smaller_buffer_but_not_cut():
    s = Schedule(stencil(2, 9)).tile(["C_y", "C_x"], [3, 4], tail="mask")
    assert _box(s, "C_x_o", "T") == "[0, +4) x [4*C_x_o, +6)"


def test_symbolic_dimensions_stay_whole():
    H = lang.param("H")
    s = Schedule(stencil(H, 8)).split("C_x", 4)
    t = s.reorder("C_x_o", "C_y", "C_x_i")
    assert _box(t, "C_x_o", "T") == "[0, +H + 2) x [4*C_x_o, +6)"


def test_iterators_past_their_domain_do_not_count():
    s = Schedule(gemm(4, 4, 3)).split("k", 2, tail="mask").split("i", 3, tail="mask")
    s = s.reorder("i_o", "k_o", "k_i", "i_i", "j")
    assert _box(s, "i_o", "A") == "[3*i_o, +3) x [0, +3)"
    assert _box(s, "k_o", "B") == "[2*k_o, +2) x [0, +4)"


def test_fused_and_divided_indices():
    s = Schedule(stencil(6, 8)).tile(["C_y", "C_x"], [3, 4]).fuse("C_y_o", "C_x_o", names=("t",))
    assert _box(s, "t", "T") == "[3*(t//2), +5) x [4*(t%2), +6)"
    p = Schedule(conv(8, 2, 3, 3)).layout_split("Y", 0, (-1, 4))
    p = p.split(p.loops("Z")[0], 4, names=("a", "b"))
    assert _box(p, "a", "Y") == "[a, +1) x [0, +4) x [0, +3) x [0, +3)"


def test_data_dependent_indices_touch_the_whole_dimension():
    X, at = lang.placeholder((9,), name="X"), lang.placeholder((4,), "i32", name="at")
    Y = lang.compute((4,), lambda i: X[lang.clamp(at[i], 0, 8)], name="Y")
    s = Schedule(lang.program([X, at], [Y]))
    assert _box(s, "i", "X") == "[0, +9)"
    assert _box(s, "i", "at") == "[i, +1)"


def test_padding_reaches_over_the_border():
    s = Schedule(conv(2, 3, 8, 9)).split("y", 2).reorder("y_o", "o", "y_i")
    assert _box(s, "y_o", "X") == "[0, +3) x [2*y_o - 1, +4) x [0, +9)"


@pytest.mark.parametrize("n", [1, 5, 9])
def test_a_box_holds_every_touched_element(n):
    """Enumerated: each load of T inside an iteration lies in that iteration's box."""
    for tail in ("guard", "peel"):
        s = Schedule(blur(n)).split("C_i", 4, tail=tail)
        for outer in [v for v in ("C_i_o", "C_i_t") if v in s.func.body.names]:
            place = find(s.func.body, outer)
            env = loop_env((*place.loops, place.node))
            box = footprint(place.node.body, env, s.buffers()["T"], "r")
            for o in range(evaluate_index(place.node.hi, {})):
                lo = evaluate_index(box.spans[0].lo, {outer: o})
                reach = range(lo, lo + box.spans[0].extent.as_int())
                for i in range(4 * o, min(4 * o + 4, n)) if outer == "C_i_o" else [n // 4 * 4 + o]:
                    assert {i, i + 1, i + 2} <= set(reach)


@st.composite
def regions(draw):
    """Up to three loops and a box of up to two dimensions that moves with them."""
    names = "uvw"[: draw(st.integers(1, 3))]
    loops = [
        For(v, index(0), index(draw(st.integers(1, 6))), For("", Index(0), Index(0), None)) for v in names
    ]
    spans = []
    for _ in range(draw(st.integers(1, 2))):
        lo = Index(draw(st.integers(-1, 1)))
        for v in names:
            x = var(v)
            digits = (floordiv(x, 2), mod(x, 2), mod(floordiv(x, 2), 2), floordiv(mod(x, 4), 2), mod(x, 4))
            for _ in range(draw(st.integers(1, 2))):
                piece = draw(st.sampled_from([None, x, x, *digits, imin(x, 1)]))
                if piece is not None:
                    lo = lo + piece * draw(st.integers(1, 4))
        spans.append(Span(lo, Index(draw(st.integers(1, 4)))))
    return loops, spans


def _points(loops):
    for values in itertools.product(*(range(f.hi.as_int()) for f in loops)):
        yield dict(zip((f.var for f in loops), values, strict=True))


def _elements(spans, env):
    lows = [evaluate_index(s.lo, env) for s in spans]
    return set(
        itertools.product(*(range(a, a + s.extent.as_int()) for a, s in zip(lows, spans, strict=True)))
    )


@given(regions())
def test_disjoint_is_only_said_of_disjoint_boxes(region):
    loops, spans = region
    if disjoint(spans, loops) == ():
        boxes = [_elements(spans, env) for env in _points(loops)]
        assert sum(map(len, boxes)) == len(set().union(*boxes))


@given(regions(), st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 8)), min_size=2, max_size=2))
def test_coverage_is_only_said_of_covered_domains(region, domain):
    loops, spans = region
    domain = [(Index(lo), Index(lo + n)) for lo, n in domain[: len(spans)]]
    if uncovered(spans, domain, loops, {}) is None:
        union = set().union(*(_elements(spans, env) for env in _points(loops)))
        assert set(itertools.product(*(range(a.const, b.const) for a, b in domain))) <= union


@pytest.mark.parametrize(("n", "tile", "extent"), [(8, 4, 4), (10, 4, 4), (10, 5, 7), (6, 1, 1), (6, 2, 3)])
def test_tiles_cover_their_domain(n, tile, extent):
    f = For("u", index(0), index(-(-n // tile)), For("", Index(0), Index(0), None))
    spans = [Span(var("u") * tile, Index(extent))]
    assert uncovered(spans, [(Index(0), Index(n))], [f], {}) is None
    assert (disjoint(spans, [f]) == ()) == (extent <= tile)


def test_a_fused_loop_is_seen_through():
    f = For("t", index(0), index(12), For("", Index(0), Index(0), None))
    t = var("t")
    spans = [Span(floordiv(t, 4) * 3, Index(3)), Span(mod(t, 4) * 2, Index(2))]
    assert disjoint(spans, [f]) == ()
    assert uncovered(spans, [(Index(0), Index(9)), (Index(0), Index(8))], [f], {}) is None
    assert disjoint(spans[:1], [f]) == ("t",)


def test_a_digit_written_in_two_ways_is_one():
    f = For("v", index(0), index(4), For("", Index(0), Index(0), None))
    v = var("v")
    spans = [Span(floordiv(mod(v, 4), 2) * 2 + mod(floordiv(v, 2), 2) * 2, Index(2))]  # 0 or 4
    assert uncovered(spans, [(Index(0), Index(4))], [f], {}) is not None
    assert uncovered([Span(spans[0].lo, Index(4))], [(Index(0), Index(8))], [f], {}) is None


def test_digits_of_one_loop_that_overlap_are_not_independent():
    f = For("v", index(0), index(4), For("", Index(0), Index(0), None))
    spans = [Span(floordiv(var("v"), 2) * 3, Index(3)), Span(var("v") * 3, Index(3))]
    assert uncovered(spans, [(Index(0), Index(6)), (Index(0), Index(12))], [f], {}) is not None


def test_one_loop_along_two_dimensions_covers_a_diagonal_alone():
    f = For("v", index(0), index(4), For("", Index(0), Index(0), None))
    spans = [Span(var("v"), Index(1)), Span(var("v"), Index(1))]
    assert uncovered(spans[:1], [(Index(0), Index(4))], [f], {}) is None
    assert uncovered(spans, [(Index(0), Index(4))] * 2, [f], {}) == 1
