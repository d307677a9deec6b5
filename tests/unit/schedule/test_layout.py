"""Layout primitives: the paper's examples, padding, and random sequences that leave results unchanged."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from tilewright import lang
from tilewright.ir import (
    Index,
    IndexMap,
    Iter,
    evaluate_index,
    floordiv,
    imin,
    mod,
    parse_program,
    run_function,
    stmt_loads,
    stmt_writes,
    to_function,
    var,
    verify,
    verify_program,
)
from tilewright.schedule import Schedule, Step, argument_map, index_map, index_texts
from tilewright.schedule.layout.arrays import pack_argument, unpack_argument
from tilewright.schedule.layout.inverse import inverse_of
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import arguments, conv, gemm


def assert_same_packed(s, seed=0):
    """The schedule's function computes what its program does, on packed arguments."""
    program = s.source
    if s.program is not None:
        verify_program(s.program)
    verify(s.func)
    reference = to_function(program)
    arrays = arguments(reference, seed)
    expected = run_function(reference, arrays)
    steps = s.trace.steps
    got = run_function(s.func, {n: pack_argument(a, n, steps) for n, a in arrays.items()}, seed=seed)
    for name, value in expected.items():
        np.testing.assert_array_equal(unpack_argument(got[name], name, value.shape, steps), value)


def _copy(shape, name="T"):
    X = lang.placeholder(shape, name="X")
    T = lang.compute(shape, lambda *i: X[i] * 2, name=name)
    Y = lang.compute(shape, lambda *i: T[i] + 1, name="Y")
    return lang.program([X], [Y])


def _shape(s, name):
    return [str(n) for n in s.program.buffer(name).shape]


def test_channels_last_blocks_of_the_paper():
    """NOHW -> N (O/ot) H W ot: split dimension 1 by [O/ot, ot], reorder [1, 2, 4, 5, 3] counted from 1."""
    s = Schedule(_copy((2, 8, 3, 5))).layout_split("T", 1, (2, 4)).layout_reorder("T", (0, 1, 3, 4, 2))
    assert _shape(s, "T") == ["2", "2", "3", "5", "4"]
    stage = s.program.stage("T")
    assert [it.name for it in stage.iters] == ["i", "j_o", "k", "l", "j_i"]
    assert str(stage.body.writes[0].value.a) == "X[i, j_i + 4*j_o, k, l]"
    (load,) = _loads(s, "Y")
    assert [str(x) for x in load.indices] == ["i", "j//4", "k", "l", "j%4"]
    assert_same_packed(s)


def test_the_flat_reblocking_of_the_paper():
    """NHWO: fuse dims 2-4, split by [O/4, 4, H*W], reorder [1, 2, 4, 3], counted from 1."""
    n, h, w, o = 2, 3, 2, 8
    s = Schedule(_copy((n, h, w, o))).layout_fuse("T", 1, 3).layout_split("T", 1, (o // 4, 4, h * w))
    s = s.layout_reorder("T", (0, 1, 3, 2))
    assert _shape(s, "T") == ["2", "2", "6", "4"]
    (load,) = _loads(s, "Y")
    for point in np.ndindex(n, h, w, o):
        flat = point[1] * w * o + point[2] * o + point[3]
        at = [evaluate_index(x, dict(zip("ijkl", point, strict=True))) for x in load.indices]
        assert at == [point[0], flat // (h * w * 4), flat % (h * w), flat // (h * w) % 4]
    assert_same_packed(s)


@pytest.mark.parametrize("tensor", ["X", "T", "Y"])
def test_a_split_that_does_not_divide_pads(tensor):
    s = Schedule(_copy((3, 10))).layout_split(tensor, 1, (-1, 4))
    assert _shape(s, tensor) == ["3", "3", "4"]
    assert_same_packed(s)


@pytest.mark.parametrize(("tensor", "dim"), [*((t, d) for t in "ABCD" for d in (0, 1)), ("b", 0)])
def test_layouts_of_a_contraction(tensor, dim):
    s = Schedule(gemm(5, 6, 7, epilogue=True))
    assert_same_packed(s.layout_split(tensor, dim, (-1, 4)))
    assert_same_packed(s.layout_pad(tensor, dim, 1, 2))
    assert_same_packed(s.layout_unfold(tensor, dim, 3, 2))


def test_padding_is_zero():
    s = Schedule(gemm(2, 3, 2)).layout_pad("C", 1, 1, 2)
    arrays = arguments(s.func)
    got = run_function(s.func, arrays)["C"]
    assert got.shape == (2, 6)
    assert not got[:, [0, 4, 5]].any()
    assert np.array_equal(got[:, 1:4], arrays["A"] @ arrays["B"])


def test_unfold_of_the_paper():
    X = lang.placeholder((5,), name="X")
    p = lang.program([X], [lang.compute((5,), lambda i: X[i] * 2, name="Y")])
    s = Schedule(p).layout_unfold("X", 0, 3, 2)
    packed = pack_argument(np.arange(1, 6, dtype=np.float32), "X", s.trace.steps)
    assert packed.tolist() == [[1, 2, 3], [3, 4, 5]]
    assert_same_packed(s)


@pytest.mark.parametrize(("window", "stride", "tile"), [(3, 1, 5), (3, 2, 7), (2, 2, 4), (3, 1, 3)])
def test_unfold_under_a_sliding_window_needs_no_remainder(window, stride, tile):
    n = 9
    X = lang.placeholder((stride * (n - 1) + window,), name="X")
    r = lang.reduce_axis(window, "r")
    Y = lang.compute((n,), lambda i: lang.sum(X[stride * i + r], axis=r), name="Y")
    q = (tile - window) // stride + 1
    s = Schedule(lang.program([X], [Y])).layout_unfold("X", 0, tile, stride * q)
    (load,) = [ld for ld in _loads(s, "Y") if ld.buffer == "X"]
    assert "r" not in load.indices[0].vars
    assert_same_packed(s)


def _loads(s, stage):
    return stmt_loads(s.program.stage(stage).body)


def test_elements_that_whole_tiles_hold_are_found_without_a_minimum():
    """Tiles of 3 every 2 elements: each but the last is in the tile that begins at it, or before it."""
    X = lang.placeholder((5,), name="X")
    s = Schedule(lang.program([X], [lang.compute((4,), lambda i: X[i] * 2, name="Y")]))
    s = s.layout_unfold("X", 0, 3, 2)
    (load,) = _loads(s, "Y")
    assert [str(i) for i in load.indices] == ["i//2", "i%2"]
    assert_same_packed(s)


def test_blocked_convolution_with_an_overlapped_input():
    """Conv, bias, ReLU in the layout O/4 H/2 W 4, its padded input unfolded into rows of a tile."""
    p = conv(8, 3, 6, 5)
    s = Schedule(p)
    for t in ("Y", "Z"):
        s = s.layout_split(t, 0, (-1, 4)).layout_split(t, 2, (-1, 2)).layout_reorder(t, (0, 2, 3, 4, 1))
    s = s.layout_pad("X", 1, 1, 1).layout_unfold("X", 1, 4, 2)
    s = s.layout_split("W", 0, (-1, 4)).layout_reorder("W", (0, 2, 3, 4, 1)).layout_split("b", 0, (-1, 4))
    assert _shape(s, "Z") == ["2", "3", "2", "5", "4"]
    assert _shape(s, "X") == ["3", "3", "4", "5"]
    (load,) = [ld for ld in _loads(s, "Y") if ld.buffer == "X"]
    assert [str(x) for x in load.indices] == ["ic", "y_o", "kh + y_i", "kw + x - 1"]
    assert not any("//" in str(ld) or "%" in str(ld) for ld in _loads(s, "Y") + _loads(s, "Z"))
    assert_same_packed(s)
    z = s.loops("Z")
    s = s.reverse_compute_at("Z", s.loops("Y")[2])
    assert z and len(s.loops("Z")) == 8
    assert_same_packed(s)


@pytest.mark.parametrize("symbolic", [1, 7, 8])
def test_blocks_of_a_symbolic_size(symbolic):
    n = lang.param("n")
    X = lang.placeholder((n, 6), name="X")
    T = lang.compute((n, 6), lambda i, j: X[i, j] * 2, name="T")
    Y = lang.compute((n,), lambda i: T[i, 0] + T[i, 5], name="Y")
    p = lang.program([X], [Y])
    s = Schedule(p).layout_split("T", 0, (-1, 4)).layout_reorder("T", (0, 2, 1))
    arrays = arguments(to_function(p), n=symbolic)
    a = run_function(to_function(p), arrays, {"n": symbolic})
    b = run_function(s.func, arrays, {"n": symbolic})
    np.testing.assert_array_equal(a["Y"], b["Y"])


def test_unpad_and_fold_are_the_inverses_of_pad_and_unfold():
    s = Schedule(conv(8, 3, 6, 5))
    for t in "XWY":
        assert s.layout_pad(t, 1, 1, 2).layout_unpad(t, 1, 1, 2).program == s.program
        unfolded = s.layout_unfold(t, 1, 2, 1)
        back = unfolded.layout_fold(t, 1, 1)
        assert back.program.buffer(t).shape == s.program.buffer(t).shape
        assert_same_packed(unfolded)
        assert_same_packed(back)


def test_zeros_of_both_dimensions_can_be_taken_away_from_one():
    s = Schedule(_copy((3, 10)))
    back = s.layout_pad("Y", 0, 0, 2).layout_pad("Y", 1, 1, 0).layout_unpad("Y", 0, 0, 2)
    assert back.program.buffer("Y").shape == s.layout_pad("Y", 1, 1, 0).program.buffer("Y").shape
    assert_same_packed(back)


def test_elements_at_an_index_that_wraps_may_be_read():
    """``i8[k] < 5`` holds of 200 as well: it says nothing about the element that is read."""
    X = lang.placeholder((250,), name="X")
    T = lang.compute((250,), lambda i: X[i] * 2, name="T")
    Y = lang.compute(
        (250,), lambda i: lang.select(lang.to_scalar(i, "i8") < lang.to_scalar(i * 0 + 5, "i8"), T[i], 0.0)
    )
    with pytest.raises(ScheduleError, match="reads 'T' at i in dimension 0"):
        Schedule(lang.program([X], [Y])).layout_unpad("T", 0, 0, 50)


@pytest.mark.parametrize(("dtype", "zero"), [("f16", 0.0), ("i32", 0), ("u8", 0), ("bool", False)])
def test_zeros_of_padding_are_of_the_type(dtype, zero):
    X = lang.placeholder((4,), dtype, name="X")
    s = Schedule(lang.program([X], [lang.compute((4,), lambda i: X[i], name="Y")])).layout_pad("Y", 0, 1, 2)
    (value,) = (w.value for w in s.program.stage("Y").body.writes)
    assert type(value.b.value) is type(zero) and value.b.value == zero
    assert_same_packed(s)


def test_both_branches_of_a_stage_follow_the_layout():
    text = """
program("p")
X = input(f32[6, 4])
Y = output(f32[6, 4])
with stage("Y"):
    i = par(0, 6)
    j = par(0, 4)
    if i - 2 >= 0:
        Y[i, j] = X[i, j]
    else:
        Y[i, j] = X[i, j] * f32(2.0)
"""
    s = Schedule(parse_program(text)).layout_reorder("Y", (1, 0))
    assert [w for w, _ in stmt_writes(s.program.stage("Y").body)] == ["Y", "Y"]
    assert_same_packed(s)


def test_a_fuse_after_a_split_that_does_not_divide_and_its_padding_taken_away():
    """64 by 48 are 2 x 48; fused again they are 96, of which 32 are padding."""
    s = Schedule(_copy((2, 64)))
    for t in "XTY":
        fused = s.layout_split(t, 1, (-1, 48)).layout_fuse(t, 1, 2)
        assert _shape(fused, t) == ["2", "96"]
        assert_same_packed(fused)
        back = fused.layout_unpad(t, 1, 0, 32)
        assert _shape(back, t) == ["2", "64"]
        assert_same_packed(back)


def test_a_tensor_follows_its_map_as_primitives_would():
    """Placed in blocks and adopted, or split and reordered: the same program."""
    s = Schedule(conv(8, 3, 6, 5))
    for t, dims in (("Y", 3), ("Z", 3)):
        places = ("d0//4", *(f"d{n}" for n in range(1, dims)), "d0%4")
        placed = s.layout_place(t, places)
        assert index_texts(placed.program.buffer(t).layout) == places
        a = placed.layout_adopt(t)
        b = s.layout_split(t, 0, (-1, 4)).layout_reorder(t, (0, 2, 3, 1))
        assert a.program == b.program
        assert_same_packed(a)
        assert placed.layout_place(t, ()).program == s.program


def test_maps_of_arguments_agree_however_they_came_about():
    """Placed, placed and adopted, split and reordered, or set on loops: one map from the first indices."""
    p = _copy((3, 8))
    declared = p.outputs[0]
    s, places = Schedule(p), ("d1//4", "d0", "d1%4")
    same = [
        s.layout_place("Y", places),
        s.layout_place("Y", places).layout_adopt("Y"),
        s.layout_split("Y", 1, (2, 4)).layout_reorder("Y", (1, 0, 2)),
        s.layout_split("Y", 1, (2, 4)).layout_place("Y", ("d1", "d0", "d2")),
        s.set_layout("Y", places),
    ]
    found = {argument_map(declared, each.trace.steps, each.buffers()["Y"]) for each in same}
    assert len(found) == 1
    assert found != {argument_map(declared, (), declared)}
    with pytest.raises(ScheduleError, match="several times"):
        argument_map(declared, s.layout_unfold("Y", 1, 3, 2).trace.steps, declared)


@st.composite
def changes(draw):
    """A shape, and primitives on it that a map can say."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    sizes, found = list(shape), []
    for _ in range(draw(st.integers(1, 4))):
        d = draw(st.integers(0, len(sizes) - 1))
        match draw(st.sampled_from(["split", "reorder", "fuse", "pad"])):
            case "split":
                n = draw(st.integers(1, 4))
                found.append(("split", d, (-1, n)))
                sizes[d : d + 1] = [-(-sizes[d] // n), n]
            case "reorder":
                p = draw(st.permutations(range(len(sizes))))
                found.append(("reorder", tuple(p)))
                sizes = [sizes[n] for n in p]
            case "fuse" if d + 1 < len(sizes):
                found.append(("fuse", d, 2))
                sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
            case "pad":
                found.append(("pad", d, draw(st.integers(0, 2)), draw(st.integers(0, 2))))
                sizes[d] += sum(found[-1][2:])
            case _:
                pass
    return shape, tuple(found)


@example(((3,), (("split", 0, (-1, 2)), ("pad", 1, 1, 0))))
@given(changes())
def test_sequences_are_one_map_that_reads_backwards(made):
    """A map says where primitives put elements; its inverse gives their indices, or refuses."""
    shape, found = made
    layout = index_map(tuple(map(Index, shape)), found)
    steps = [Step(f"layout_{name}", ("T", *args)) for name, *args in found]
    array = np.arange(1, np.prod(shape) + 1).reshape(shape)
    packed = pack_argument(array, "T", steps)
    assert [n.as_int() for n in layout.shape] == list(packed.shape)
    for point in np.ndindex(*shape):
        env = dict(zip(layout.dims, point, strict=True))
        assert packed[tuple(evaluate_index(x, env) for x in layout.exprs)] == array[point]
    try:
        inverse = inverse_of(layout, tuple(map(Index, shape)))
    except ScheduleError as error:
        assert "cannot be read backwards" in str(error)
        return
    for place in np.ndindex(*packed.shape):
        back = [evaluate_index(x, {}) for x in inverse(tuple(map(Index, place)))]
        inside = all(0 <= x < n for x, n in zip(back, shape, strict=True))
        assert packed[place] == (array[tuple(back)] if inside else 0)


@pytest.mark.parametrize(
    "found",
    [
        (("split", 1, (2, 4)), ("reorder", (0, 1, 3, 4, 2))),
        (("fuse", 1, 3), ("split", 1, (2, 4, 15)), ("reorder", (0, 1, 3, 2))),
        (("split", 1, (-1, 3)), ("pad", 1, 1, 0), ("fuse", 2, 3)),
        (("fuse", 1, 3), ("split", 1, (5, 4, 6)), ("reorder", (0, 1, 3, 2))),
    ],
)
def test_common_maps_read_backwards(found):
    shape = (Index(2), Index(8), Index(3), Index(5))
    layout = index_map(shape, found)
    inverse = inverse_of(layout, shape)
    for point in np.ndindex(2, 8, 3, 5):
        at = layout.apply(tuple(map(Index, point)))
        assert [evaluate_index(x, {}) for x in inverse(at)] == list(point)


@st.composite
def sequences(draw):
    """Random layout primitives on random tensors of a small program."""
    kind = draw(st.sampled_from(["gemm", "conv", "copy"]))
    p = {
        "gemm": lambda: gemm(3, 4, 5, epilogue=True),
        "conv": lambda: conv(3, 2, 3, 4),
        "copy": lambda: _copy((3, 4, 2)),
    }[kind]()
    s = Schedule(p)
    for _ in range(draw(st.integers(1, 5))):
        tensors = [b.name for b in s.program.buffers]
        t = draw(st.sampled_from(tensors))
        shape = [n.as_int() for n in s.program.buffer(t).shape]
        d = draw(st.integers(0, len(shape) - 1))
        match draw(st.sampled_from(["split", "split", "reorder", "fuse", "pad", "unfold", "adopt", "back"])):
            case "split":
                s = s.layout_split(t, d, (-1, draw(st.integers(1, 4))))
            case "reorder":
                s = s.layout_reorder(t, tuple(draw(st.permutations(range(len(shape))))))
            case "fuse" if d + 1 < len(shape):
                s = s.layout_fuse(t, d, 2)
            case "pad":
                s = s.layout_pad(t, d, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
            case "unfold" if np.prod(shape) < 200:
                tile = draw(st.integers(1, shape[d]))
                stride = draw(st.integers(1, tile))
                s = s.layout_unfold(t, d, tile, stride)
                if draw(st.booleans()):
                    # copies that padding may tell apart are not folded
                    with suppress(ScheduleError):
                        s = s.layout_fold(t, d, stride)
            case "adopt":
                n = draw(st.integers(1, 4))
                s = s.layout_place(
                    t, (f"d{d}//{n}", *(f"d{e}" for e in range(len(shape)) if e != d), f"d{d}%{n}")
                )
                s = s.layout_adopt(t)
            case "back":
                before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
                s = s.layout_pad(t, d, before, after).layout_unpad(t, d, before, after)
            case _:
                pass
    return s


@given(sequences())
def test_random_sequences_leave_results_unchanged(s):
    assert_same_packed(s)


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("no tensor 'Q'", lambda s: s.layout_split("Q", 0, (1, 2))),
        ("no dimension 2", lambda s: s.layout_split("T", 2, (1, 2))),
        ("do not hold dimension 1", lambda s: s.layout_split("T", 1, (2, 2))),
        ("cannot be split into", lambda s: s.layout_split("T", 1, (-1, -1))),
        ("is no permutation", lambda s: s.layout_reorder("T", (0, 0))),
        ("2 dimensions from 1 on cannot be fused", lambda s: s.layout_fuse("T", 1, 2)),
        ("cannot be padded by -1", lambda s: s.layout_pad("T", 0, -1, 0)),
        ("cannot be padded by 0 and -1", lambda s: s.layout_pad("T", 0, 0, -1)),
        ("lose elements", lambda s: s.layout_unfold("T", 0, 2, 3)),
        ("larger than dimension 0", lambda s: s.layout_unfold("T", 0, 9, 3)),
        ("are no tiles every 11", lambda s: s.layout_fold("T", 0, 11)),
        ("may give the copies", lambda s: s.layout_fold("T", 0, 3)),
        ("0 and 10 elements cannot be taken", lambda s: s.layout_unpad("T", 1, 0, 10)),
        ("reads 'T' at j in dimension 1", lambda s: s.layout_unpad("T", 1, 0, 1)),
        ("may write more than zeros", lambda s: s.layout_unpad("Y", 1, 1, 0)),
        ("no tensor 'Q'", lambda s: s.layout_place("Q", ())),
        ("several elements of dimension 'd1'", lambda s: s.layout_place("T", ("d0", "d1//4"))),
        ("no index map to adopt", lambda s: s.layout_adopt("T")),
        ("layout_adopt", lambda s: s.layout_place("T", ("d1", "d0")).layout_pad("T", 0, 1, 1)),
    ],
)
def test_refusals(text, make, same_text):
    with pytest.raises(ScheduleError, match=text) as caught:
        make(Schedule(_copy((3, 10))))
    same_text(caught.value)


TWICE = tuple(f(var("a") * 6 + var("b"), 4) for f in (floordiv, mod))
OVERLAPPING = tuple(f(var("a") * 4 + var("b"), 12) for f in (floordiv, mod))
MIXED = tuple(f(floordiv(var("a"), 2) + 3 * var("b"), 6) for f in (floordiv, mod))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("symbolic extents", IndexMap(("a",), (var("a"),), (var("n"),))),
        ("is no number of digits", IndexMap(("a",), (var("a") * 2,), (Index(12),))),
        ("digits of .* overlap", IndexMap(("a", "b"), (var("a") * 4 + var("b"),), (Index(26),))),
        ("padding inside", IndexMap(("a",), (floordiv(var("a"), 3), mod(var("a"), 3)), (Index(2), Index(4)))),
        ("is no digit of an index", IndexMap(("a",), (imin(var("a"), 3),), (Index(4),))),
        (
            "is no digit of an index",
            IndexMap(("a", "b"), (*MIXED, mod(var("a"), 2)), tuple(map(Index, (3, 6, 2)))),
        ),
        ("leave out a part", IndexMap(("a",), (floordiv(var("a"), 3),), (Index(2),))),
        ("leave out a part", IndexMap(("a",), (mod(var("a"), 3),), (Index(3),))),
        ("every index once", IndexMap(("a", "b"), (var("a"), *TWICE), (Index(6), Index(9), Index(4)))),
        ("holds one place of 2", IndexMap(("a",), (var("a"), Index(0)), (Index(6), Index(2)))),
        ("is no number of indices", IndexMap(("a", "b"), OVERLAPPING, (Index(3), Index(12)))),
    ],
)
def test_maps_that_do_not_read_backwards(text, found):
    with pytest.raises(ScheduleError, match=text):
        inverse_of(found, (Index(6),) * len(found.dims))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("primitive 'unfold' has no index map", (("unfold", 0, 3, 2),)),
        ("takes elements away", (("pad", 0, 1, 1), ("unpad", 0, 2, 0))),
    ],
)
def test_sequences_without_a_map(text, found, same_text):
    with pytest.raises(ScheduleError, match=text) as caught:
        index_map((Index(6), Index(4)), found)
    same_text(caught.value)


def test_what_several_stages_make_keeps_its_padding():
    """A tensor of which each stage writes a part."""
    s = Schedule(_copy((3, 10)))
    program = s.program
    part = replace(
        program.stages[0],
        name="P",
        iters=(Iter("i", Index(0), Index(2), "par"), *program.stages[0].iters[1:]),
    )
    parts = replace(program, stages=(part, *program.stages))
    with pytest.raises(ScheduleError, match="does not define 'T' element by element"):
        Schedule(parts).layout_unpad("T", 1, 0, 0)


def test_copies_that_differ_cannot_be_folded():
    with pytest.raises(ScheduleError, match="hold different copies"):
        pack_argument(np.arange(6).reshape(2, 3), "T", [Step("layout_fold", ("T", 0, 2))])
