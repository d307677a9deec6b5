"""tensorize with instructions on tiles: matched whole and in part; interpreter and code agree with numpy."""

import ml_dtypes
import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.build import pack
from tilewright.ir import parse_function, print_function, run_function, verify
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import INTERPRETED, find_instruction
from tilewright.target.x86_amx import INSTRUCTIONS, MOVES, TILES
from unit.schedule.loop_programs import arrays

KINDS = {
    "tdpbf16ps": ("bf16", "bf16", "f32", 2),
    "tdpbusd": ("u8", "i8", "i32", 4),
    "tdpbssd": ("i8", "i8", "i32", 4),
    "tdpbsud": ("i8", "u8", "i32", 4),
    "tdpbuud": ("u8", "u8", "i32", 4),
}
HAS_TILES = HOST.tiles > 0
TYPES = {"bf16": ml_dtypes.bfloat16, "u8": np.uint8, "i8": np.int8}


def product(m, n, k, kind, step=1):
    """`C[i, j] = sum of A[step * i, k] * B[k, j]` in the types of an instruction."""
    left, right, total, _ = KINDS[kind]
    A = lang.placeholder(((m - 1) * step + 1, k), left, name="A")
    B = lang.placeholder((k, n), right, name="B")
    axis = lang.reduce_axis(k, "k")

    def term(i, j):
        return lang.sum(lang.cast(A[step * i, axis], total) * lang.cast(B[axis, j], total), axis)

    return lang.program([A, B], [lang.compute((m, n), term, name="C")])


def grouped(program, kind, verify=True):
    """With the groups of the second operand side by side, as the instruction reads them."""
    group = KINDS[kind][3]
    layout = (f"d0//{group}", "d1", f"d0%{group}")
    return Schedule(program, verify=verify).set_layout("B", layout)


def nest(s, high, wide, deep, *, scope="tile"):
    """Parts of the result in tiles, stored once the sum is done."""
    s = s.tile(("i", "j"), (high, wide)).split("k", deep)
    s = s.cache("C", at="j_o", scope=scope, mode="write", name="T")
    return s.reorder("k_o", "i_i", "j_i", "k_i").decompose_init("C", "k_o")


def tiled(program, kind, high, wide, deep, **options):
    """The product by tiles: cleared, summed up and stored by instructions."""
    total = KINDS[kind][2]
    s = nest(grouped(program, kind), high, wide, deep, **options)
    s = s.tensorize(s.loops("C")[-3], kind)
    s = s.tensorize(s.loops("C_init")[-2], f"tilezero_{total}")
    return s.tensorize(s.loops("T_out")[-2], f"tilestored_{total}")


def check(s, given, step=1):
    """Interpreter and, where the machine has tiles, code compute the product."""
    wanted = given["A"][::step].astype(np.float64) @ given["B"].astype(np.float64)
    given = {**given, "B": pack(given["B"], s.func.buffer("B"))}
    tolerance = 1e-5 * given["A"].shape[1] if given["A"].dtype == ml_dtypes.bfloat16 else 0
    for seed in range(2):
        made = run_function(s.func, given, seed=seed, instructions=INTERPRETED)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)
    if HAS_TILES:
        np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=tolerance)


#: Extents of the product, and of the parts of an instruction.
PARTS = [
    ((16, 16, 64), (16, 16, 32)),
    ((6, 8, 16), (3, 4, 8)),
    ((1, 16, 8), (1, 16, 8)),
    ((5, 1, 8), (5, 1, 4)),
    ((2, 2, 4), (1, 1, 4)),
    ((14, 24, 48), (7, 12, 16)),
]


@pytest.mark.few(15)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("sizes", "parts"), PARTS)
def test_interpreter_and_code(kind, sizes, parts):
    program = product(*sizes, kind)
    s = tiled(program, kind, *parts)
    verify(s.func)
    assert parse_function(print_function(s.func)) == s.func
    check(s, arrays(program))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [2, 3])
def test_rows_apart(kind, step):
    """Rows of an operand may lie any distance apart: the window steps over those between."""
    program = product(6, 8, 16, kind, step=step)
    s = tiled(program, kind, 3, 4, 8)
    assert f"A[{3 * step}*i_o:+{2 * step + 1}:{step}, 8*k_o:+8]" in str(s)
    assert f"axes=((0, 3, {step}), (1, 8, 1),)" in print_function(s.func)
    assert parse_function(print_function(s.func)) == s.func
    check(s, arrays(program), step)


def test_operands_are_told_by_their_types_or_axes():
    """Factors in the other order, and the result across: columns of what is `a` become rows."""
    A, B = lang.placeholder((4, 8), "bf16", name="A"), lang.placeholder((8, 6), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(B[k, j], "f32") * lang.cast(A[i, k], "f32"), k), name="C"
    )
    program = lang.program([A, B], [C])
    s = tiled(program, "tdpbf16ps", 4, 6, 8)
    assert "tdpbf16ps(T[" in str(s) and "A[4*i_o:+4, 8*k_o:+8], B[" in str(s)
    check(s, arrays(program))


def test_dimensions_in_any_order():
    """The axes of a window are in the instruction's order, whatever that of the buffer."""
    A, B = lang.placeholder((8, 4), "bf16", name="A"), lang.placeholder((6, 8), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[k, i], "f32") * lang.cast(B[j, k], "f32"), k), name="C"
    )
    program = lang.program([A, B], [C])
    s = Schedule(program, verify=True).set_layout("A", ("d1", "d0"))
    s = nest(s.set_layout("B", ("d1//2", "d0", "d1%2")), 4, 6, 8)
    s = s.tensorize("i_i", "tdpbf16ps")
    s = s.tensorize(s.loops("C_init")[-2], "tilezero_f32").tensorize(s.loops("T_out")[-2], "tilestored_f32")
    text = print_function(s.func)
    assert "axes=((1, 4, 1), (0, 8, 1),)" in text and "axes=((1, 8, 1), (0, 6, 1),)" in text
    assert parse_function(print_function(s.func)) == s.func
    given = arrays(program)
    wanted = given["A"].T.astype("f8") @ given["B"].T.astype("f8")
    given = {name: pack(a, s.func.buffer(name)) for name, a in given.items()}
    made = run_function(s.func, given, instructions=INTERPRETED)["C"]
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5)
    if HAS_TILES:
        np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("known", INSTRUCTIONS, ids=lambda i: i.name)
@pytest.mark.parametrize("part", [{}, {"m": 3}, {"n": 1, "k": 4}, {"m": 1, "n": 5, "k": 8}])
def test_meaning_of_products(known, part):
    extents = {**dict(known.axes), **part}
    rng = np.random.default_rng(1)
    m, n, k = (extents[axis] for axis in ("m", "n", "k"))
    a = rng.integers(0, 9, (m, k)).astype(known.a.dtype.numpy)
    b = rng.integers(0 if known.b.dtype.name == "u8" else -9, 9, (k, n)).astype(known.b.dtype.numpy)
    c = rng.integers(-9, 9, (m, n)).astype(known.result.dtype.numpy)
    wanted = c + a.astype(np.int64) @ b.astype(np.int64)
    INTERPRETED[known.name]([c, a, b], [])
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("move", MOVES, ids=lambda m: m.name)
@pytest.mark.parametrize("shape", [(16, 16), (1, 16), (5, 1)])
def test_meaning_of_moves(move, shape):
    rng = np.random.default_rng(2)
    target, source = rng.integers(1, 99, (2, *shape)).astype(move.result.dtype.numpy)
    kept = source.copy()
    if move.source is None:
        INTERPRETED[move.name]([target], [])
        assert not target.any()
    else:
        INTERPRETED[move.name]([target, source], [])
        np.testing.assert_array_equal(target, kept)
        np.testing.assert_array_equal(source, kept)


def test_the_instructions_are_of_tile_registers():
    for known in (*INSTRUCTIONS, *MOVES):
        assert "amx-tile" in known.features
        assert set(known.partial) == {axis for axis, _ in known.axes}
    assert [find_instruction(name).depth for name in KINDS] == [32, 64, 64, 64, 64]
    assert TILES == 8


def _nest(kind="tdpbf16ps", parts=(3, 4, 8), sizes=(6, 8, 16), **options):
    return nest(grouped(product(*sizes, kind), kind), *parts, **options)


def test_rows_that_overlap():
    """`i` and `k` move A along one dimension together, as taps of a window do: each row begins further on."""
    A, B = lang.placeholder((20,), "bf16", name="A"), lang.placeholder((8, 6), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[i + k], "f32") * lang.cast(B[k, j], "f32"), k), name="C"
    )
    program = lang.program([A, B], [C])
    s = Schedule(program, verify=True).set_layout("B", ("d0//2", "d1", "d0%2"))
    s = nest(s, 4, 6, 8).tensorize("i_i", "tdpbf16ps")
    s = s.tensorize(s.loops("C_init")[-2], "tilezero_f32").tensorize(s.loops("T_out")[-2], "tilestored_f32")
    assert "axes=((0, 4, 1), (0, 8, 1),)" in print_function(s.func)
    assert parse_function(print_function(s.func)) == s.func
    given = arrays(program)
    rows = np.lib.stride_tricks.sliding_window_view(given["A"], 8)[:4]
    wanted = rows.astype("f8") @ given["B"].astype("f8")
    given["B"] = pack(given["B"], s.func.buffer("B"))
    made = run_function(s.func, given, instructions=INTERPRETED)["C"]
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5)
    if HAS_TILES:
        np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=1e-5)


def _two_loops_for_one_dimension():
    """Both operands overlap themselves: that is for rows, not for groups."""
    A, B = lang.placeholder((20,), "bf16", name="A"), lang.placeholder((20,), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[i + k], "f32") * lang.cast(B[j + k], "f32"), k), name="C"
    )
    return nest(Schedule(lang.program([A, B], [C])), 4, 6, 8).tensorize("i_i", "tdpbf16ps")


def _backwards():
    A, B = lang.placeholder((4, 8), "bf16", name="A"), lang.placeholder((8, 6), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[3 - i, k], "f32") * lang.cast(B[k, j], "f32"), k), name="C"
    )
    return nest(Schedule(lang.program([A, B], [C])), 4, 6, 8).tensorize("i_i", "tdpbf16ps")


def _columns_apart():
    """Elements of a row are two apart."""
    A, B = lang.placeholder((4, 16), "bf16", name="A"), lang.placeholder((8, 6), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[i, 2 * k], "f32") * lang.cast(B[k, j], "f32"), k), name="C"
    )
    return nest(Schedule(lang.program([A, B], [C])), 4, 6, 8).tensorize("i_i", "tdpbf16ps")


REFUSALS = {
    "too much": (
        lambda: _nest(parts=(33, 4, 8), sizes=(66, 8, 16)).tensorize("i_i", "tdpbf16ps"),
        "its axes are m of 16, n of 16, k of 32, or less, the loops i_i of 33, j_i of 4, k_i of 8",
    ),
    "too few loops": (
        lambda: _nest().tensorize("j_i", "tdpbf16ps"),
        "its axes are m of 16, n of 16, k of 32, or less, the loops j_i of 4, k_i of 8",
    ),
    "in memory": (
        lambda: _nest(scope="global").tensorize("i_i", "tdpbf16ps"),
        "T is in global scope, result in tile",
    ),
    "no groups": (
        lambda: _nest(parts=(3, 4, 5), sizes=(6, 8, 10)).tensorize("i_i", "tdpbf16ps"),
        "'k_i' must have a multiple of 2 iterations, as b has groups of so many",
    ),
    "groups of four": (
        lambda: _nest("tdpbusd", parts=(3, 4, 6), sizes=(6, 8, 12)).tensorize("i_i", "tdpbusd"),
        "'k_i' must have a multiple of 4 iterations, as b has groups of so many",
    ),
    "one dimension": (
        _two_loops_for_one_dimension,
        "'k_i' must move B along one dimension of its own by single elements",
    ),
    "backwards": (_backwards, "'i_i' must move A along one dimension, by equal steps"),
    "columns apart": (_columns_apart, "'k_i' must move A along one dimension of its own by single elements"),
    "other type": (
        lambda: _nest().tensorize(_nest().loops("C_init")[-2], "tilezero_i32"),
        "T has elements of f32, result is of i32",
    ),
    "a sum is no zero": (
        lambda: _nest(parts=(3, 8, 16)).tensorize("j_i", "tilezero_f32"),
        "result[m, n] = f32(0.0) is needed",
    ),
    "zeros are no copy": (
        lambda: _nest().tensorize(_nest().loops("C_init")[-2], "tilestored_f32"),
        "result[m, n] = source[m, n] is needed",
    ),
    "the other way": (
        lambda: _loaded().tensorize("T_i", "tilestored_f32"),
        "T is in tile scope, result in memory",
    ),
}


def _loaded():
    """A copy to tiles."""
    X = lang.placeholder((4, 4), name="X")
    Y = lang.compute((3, 4, 4), lambda r, i, j: X[i, j] + 1.0, name="Y")
    return Schedule(lang.program([X], [Y])).cache("X", at="r", scope="tile", mode="read", name="T")


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, same_text):
    steps, message = REFUSALS[case]
    with pytest.raises(ScheduleError) as caught:
        steps()
    assert message in str(caught.value)
    same_text(caught.value)


def test_tiles_are_private():
    """Each iteration of a parallel loop has tiles of its own; one that shares them is refused."""
    s = tiled(product(6, 8, 16, "tdpbf16ps"), "tdpbf16ps", 3, 4, 8).parallel("i_o")
    verify(s.func)
    s = nest(grouped(product(6, 8, 16, "tdpbf16ps"), "tdpbf16ps"), 3, 4, 8, scope="global")
    s = s.hoist_alloc("T", None)
    with pytest.raises(ScheduleError, match="of scope tile"):
        s.set_scope("T", "tile").parallel("i_o")


def test_unknown_names_suggest_moves_too():
    with pytest.raises(ScheduleError, match="there is no instruction 'tilezero'") as caught:
        _nest().tensorize("i_i", "tilezero")
    assert "did you mean 'tilezero_" in str(caught.value.hint)
