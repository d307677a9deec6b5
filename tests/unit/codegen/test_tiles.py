"""Code of tile registers: which there are, how they are configured, what is kept in them, and refusals.

Texts and assembly are of a target with AMX, on any machine; what runs needs this one to have it.
"""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.build import pack
from tilewright.codegen import assembly, emit_kernel
from tilewright.ir import TILE, parse_function, run_function
from tilewright.lower import lower
from tilewright.support import ScheduleError
from tilewright.target import INTERPRETED, X86_AVX512
from tilewright.target.x86_amx import INSTRUCTIONS, MOVES, TILES
from unit.schedule.loop.test_tensorize_tiles import (
    HAS_TILES,
    KINDS,
    arrays,
    check,
    grouped,
    product,
    tiled,
)

#: The table's AVX-512 machine with tiles.
AMX = replace(
    X86_AVX512,
    llvm_cpu="sapphirerapids",
    features=X86_AVX512.features | {"amx-tile", "amx-bf16", "amx-int8"},
    instructions=(*INSTRUCTIONS, *X86_AVX512.instructions),
    moves=MOVES,
    tiles=TILES,
)


def text_of(func):
    return emit_kernel(lower(func), triple=AMX.llvm_triple, vector_bits=512).text


def configurations(text):
    """The shape of each register, rows and bytes of a row, of every configuration in a module."""
    found = {}
    for name, content in re.findall(
        r'@(tw_tiles\d+) = internal constant \[64 x i8\] c"(.*?)", align 64', text
    ):
        data = bytes.fromhex(content.replace("\\", ""))
        assert len(data) == 64
        # palette 1, row 0, nothing reserved
        assert data[:16] == bytes([1, *[0] * 15]) and not any(data[32:48]) and not any(data[56:])
        widths = [int.from_bytes(data[16 + 2 * n : 18 + 2 * n], "little") for n in range(8)]
        found[name] = list(zip(data[48:56], widths, strict=True))
        assert all(1 <= rows <= 16 and 1 <= width <= 64 for rows, width in found[name])
    return found


def calls(text, name):
    """The registers of each call of an intrinsic."""
    found = re.findall(rf"call void @llvm\.x86\.{name}\((.*?)\)", text)
    return [tuple(int(n) for n in re.findall(r"i8 (\d+)", call)) for call in found]


def squares(rows, columns, wide=4, high=3, deep=8):
    """Products of ``rows`` times ``columns`` tiles that are summed up together."""
    program = product(2 * rows * high, columns * wide, 2 * deep, "tdpbf16ps")
    s = (
        grouped(program, "tdpbf16ps")
        .split("i", high * rows)
        .split("i_i", high)
        .split("j", wide)
        .split("k", deep)
    )
    s = s.reorder("i_o", "k_o", "i_i_o", "j_o", "i_i_i", "j_i", "k_i")
    s = s.cache("C", at="i_o", scope=TILE, mode="write", name="T")
    s = s.decompose_init("C", "k_o").unroll("i_i_o").unroll("j_o").tensorize("i_i_i", "tdpbf16ps")
    for block, instr in (("C_init", "tilezero_f32"), ("T_out", "tilestored_f32")):
        loops = [x for x in s.loops(block) if x != "i_o"]
        if len(loops) == 2:
            a, b = loops
            s = s.split(a, high).split(b, wide)
            loops = [f"{a}_o", f"{b}_o", f"{a}_i", f"{b}_i"]
        s = s.reorder(*loops)
        for name in loops[:2]:
            if s.loop(name).kind.name == "serial":
                s = s.unroll(name)
        s = s.tensorize(loops[2], instr)
    return s


def test_registers_and_their_shapes():
    s = tiled(product(6, 8, 16, "tdpbf16ps"), "tdpbf16ps", 3, 4, 8)
    text = text_of(s.func)
    ((name, shapes),) = configurations(text).items()
    # the result of 3 rows of 4 f32, its operands of 3 rows of 8 bf16 and of 4 groups for 4 columns
    (total,), (stored,) = calls(text, "tilezero"), calls(text, "tilestored64")
    ((summed, a, b),) = calls(text, "tdpbf16ps")
    assert total == stored == (summed,)
    assert (shapes[summed], shapes[a], shapes[b]) == ((3, 16), (3, 16), (4, 16))
    assert len({summed, a, b}) == 3
    assert text.count(f"call void @llvm.x86.ldtilecfg(ptr @{name})") == 1
    assert text.count("call void @llvm.x86.tilerelease()") == 1


def test_bytes_fill_whole_rows():
    s = tiled(product(16, 16, 64, "tdpbusd"), "tdpbusd", 16, 16, 64)
    (shapes,) = configurations(text_of(s.func)).values()
    assert shapes == [(16, 64)] * 8


def test_loads_are_shared():
    """Two by two results: four loads a step, and no more than eight registers."""
    s = squares(2, 2)
    text = text_of(s.func)
    assert len(calls(text, "tdpbf16ps")) == 4
    assert len(calls(text, "tileloadd64")) == 4
    used = {
        n for name in ("tdpbf16ps", "tilezero", "tilestored64") for call in calls(text, name) for n in call
    }
    assert used <= set(range(8)) and len(used) == 8
    check(s, arrays(s.source))


def test_lines_of_later_products_are_asked_for_once():
    """What tiles of the next step take: 6 rows of 32 bytes of A, and 4 of B, which tiles share."""
    s = squares(2, 2)
    asked = {hint: text_of(s.annotate("k_o", "prefetch", hint).func) for hint in ("A+64:1", "B+64", "C+64")}
    counts = {hint: text.count("call void @llvm.prefetch") for hint, text in asked.items()}
    assert counts == {"A+64:1": 3, "B+64": 2, "C+64": 0}
    check(s.annotate("k_o", "prefetch", "A+64:1,B+64:1"), arrays(s.source))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (3, 1), (2, 3), (1, 6)])
def test_results_side_by_side(rows, columns):
    s = squares(rows, columns)
    text = text_of(s.func)
    results = {call[0] for call in calls(text, "tdpbf16ps")}
    operands = {n for call in calls(text, "tdpbf16ps") for n in call[1:]}
    assert len(results) == rows * columns and not results & operands
    assert {n for (n,) in calls(text, "tilezero")} == {n for (n,) in calls(text, "tilestored64")} == results
    assert results | operands <= set(range(8))
    check(s, arrays(s.source))


@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (4, 1), (2, 2), (1, 6), (3, 2)])
def test_operands_of_one_shape_have_registers_of_their_own(rows, columns):
    """A product whose operands were one register, or its result's, would be an illegal instruction."""
    s = squares(rows, columns, wide=16, high=16, deep=32)
    products = calls(text_of(s.func), "tdpbf16ps")
    assert len(products) == rows * columns and all(len(set(call)) == 3 for call in products)
    if HAS_TILES:
        given = arrays(s.source)
        wanted = given["A"].astype("f8") @ given["B"].astype("f8")
        given["B"] = pack(given["B"], s.func.buffer("B"))
        np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=1e-3)


def test_operands_of_one_shape_take_two_registers_at_least():
    with pytest.raises(ScheduleError, match="T takes 7 tile registers, and its products 2 more at least"):
        text_of(squares(1, 7, wide=16, high=16, deep=32).func)


def test_too_many_results():
    with pytest.raises(
        ScheduleError, match="T takes 8 tile registers, and its products 2 more at least"
    ) as caught:
        text_of(squares(2, 4).func)
    assert "smaller" in caught.value.hint


def test_a_copy_that_is_written_is_loaded_again():
    """Operands stay in registers only as long as memory is what it was."""
    s = tiled(product(3, 8, 16, "tdpbf16ps"), "tdpbf16ps", 3, 4, 8).unroll("k_o").unroll("j_o")
    # the rows of A are the same for both columns, but other registers were needed between
    assert 6 <= len(calls(text_of(s.func), "tileloadd64")) <= 8
    check(s, arrays(s.source))


@pytest.mark.parametrize("kind", KINDS)
def test_instructions_of_the_assembly(kind):
    s = tiled(product(32, 32, 128, kind), kind, 16, 16, dict(KINDS_DEPTH)[kind])
    found = assembly(text_of(s.func), AMX)
    for instruction in ("ldtilecfg", "tilezero", "tileloadd", kind, "tilestored", "tilerelease"):
        assert instruction in found
    registers = {int(n) for n in re.findall(r"%tmm(\d+)", found)}
    assert registers and max(registers) < 8
    # the compiler saves and restores none
    assert "tilestored" not in found.split("tilestored", 2)[-1]


KINDS_DEPTH = (("tdpbf16ps", 32), *((f"tdpb{types}d", 64) for types in ("us", "ss", "su", "uu")))


HEAD = """function("main", outputs=[C])
A = bf16[16, 16]
B = buffer(bf16[16, 8], layout=index_map([r, c], [r//2, c, r%2], [8, 8, 2]))
C = f32[16, 8]
"""


def _axes(rows, columns):
    """Both dimensions of a matrix as axes of a window, element by element."""
    return f"axes=((0, {rows}, 1), (1, {columns}, 1))"


def part(name, rows, *, first="0", deep=16, bind=""):
    """Statements for ``rows`` rows of C from ``first`` on, summed up in a tile called ``name``."""
    tile = f"{name}[0, 0], {rows}, 8, {_axes(rows, 8)}"
    bind = bind and "\n        " + bind
    return f"""with seq:
    {name} = alloc(f32[{rows}, 8], scope="tile")
    with block("{name}_clear"):{bind}
        execute("tilezero_f32", window("w", {tile}))
    for {name}_k in range({16 // deep}):
        with block("{name}_sum"):{bind and bind.replace("        ", "            ")}
            k = red(0, {16 // deep}, {name}_k)
            execute("tdpbf16ps", window("rw", {tile}), \
window("r", A[{first}, {deep}*k], {rows}, {deep}, {_axes(rows, deep)}), \
window("r", B[{deep}*k, 0], {deep}, 8, {_axes(deep, 8)}))
    with block("{name}_store"):{bind}
        execute("tilestored_f32", window("w", C[{first}, 0], {rows}, 8, {_axes(rows, 8)}), \
window("r", {tile}))
"""


def function(*parts, head=HEAD):
    return parse_function(head + "".join(parts).replace("\\\n", ""))


def within(loop, text):
    return loop + "\n" + "".join(f"    {line}\n" for line in text.replace("\\\n", "").splitlines())


def run_both(func):
    """In the interpreter and, where this machine has tiles, as code: C is A times B."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((16, 16), (16, 8)))
    given = {"A": a, "B": b.reshape(8, 2, 8).transpose(0, 2, 1).copy()}
    wanted = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(
        run_function(func, given, instructions=INTERPRETED)["C"], wanted, rtol=0, atol=1e-4
    )
    if HAS_TILES:
        np.testing.assert_allclose(Native(func)(given)["C"], wanted, rtol=0, atol=1e-4)


def test_allocations_of_one_shape_share_a_configuration():
    func = function(part("T", 8), part("U", 8, first="8"))
    text = text_of(func)
    assert len(configurations(text)) == 1
    assert text.count("call void @llvm.x86.ldtilecfg") == 1
    run_both(func)


def test_a_tail_fits_into_the_configuration():
    """Five shapes of two allocations are eight registers, with one each at least."""
    func = function(part("T", 12), part("U", 4, first="12"))
    text = text_of(func)
    (shapes,) = configurations(text).values()
    first, second = calls(text, "tdpbf16ps")
    for (total, a, b), rows in ((first, 12), (second, 4)):
        assert (shapes[total], shapes[a], shapes[b]) == ((rows, 32), (rows, 32), (8, 32))
    run_both(func)


def test_tails_that_do_not_fit_have_configurations_of_their_own():
    """Each loads its own and puts the function's back."""
    rows = (1, 2, 3, 4, 6)
    starts = [sum(rows[:n]) for n in range(len(rows))]
    func = function(
        *(part(f"T{n}", size, first=str(at)) for n, (size, at) in enumerate(zip(rows, starts, strict=True)))
    )
    text = text_of(func)
    found = configurations(text)
    assert len(found) > 1
    order = re.findall(r"call void @llvm\.x86\.(ldtilecfg\(ptr @tw_tiles\d+|tdpbf16ps\(.*?\))", text)
    current, outer, seen = None, None, []
    for call in order:
        if call.startswith("ldtilecfg"):
            current = call.split("@")[1]
            outer = outer or current
        else:
            total, a, b = (int(n) for n in re.findall(r"i8 (\d+)", call))
            shapes = found[current]
            assert shapes[a] == shapes[total] and shapes[b] == (8, 32)
            seen.append(shapes[total][0])
    assert seen == list(rows)
    # what a function leaves is its own again
    assert current == outer
    run_both(func)


@pytest.mark.parametrize(
    "loops", [["for i in parallel(1):"], ["for v in range(1):", "for i in parallel(v + 1):"]]
)
def test_a_parallel_loop_of_one_iteration_is_done_in_place(loops):
    text = part("T", 16, first="4*b", bind="b = par(0, 1, i)")
    for loop in reversed(loops):
        text = within(loop, text)
    func = function(text)
    code = text_of(func)
    assert len(configurations(code)) == code.count("call void @llvm.x86.ldtilecfg") == 1
    assert code.count("call void @llvm.x86.tilerelease()") == 1
    run_both(func)


def test_a_parallel_body_has_a_configuration_of_its_own():
    """And the thread that did a part of it takes the function's own up again."""
    inside = part("T", 4, first="4*b + 4", bind="b = par(0, 2, i)")
    func = function(part("S", 4), within("for i in parallel(2):", inside), part("U", 4, first="12"))
    text = text_of(func)
    main = text[text.index("define i32 @main") :]
    assert text.count("call void @llvm.x86.tilerelease()") == 2
    assert main.count("call void @llvm.x86.ldtilecfg") == 2
    run_both(func)


ODD_HEAD = HEAD.replace(
    "A = bf16[16, 16]", "A = buffer(bf16[16, 16], layout=index_map([r, c], [c, r], [16, 16]))"
)
FLAT_HEAD = HEAD.replace(
    "buffer(bf16[16, 8], layout=index_map([r, c], [r//2, c, r%2], [8, 8, 2]))", "bf16[16, 8]"
)
CLEAR = 'execute("tilezero_f32", window("w", T[0, 0], 8, 8, axes=((0, 8, 1), (1, 8, 1))))'
VECTOR = """T = alloc(f32[4, 1], scope="tile")
for i in vector(4):
    with block("a"):
        i = par(0, 4, i)
        execute("tilezero_f32", window("w", T[i, 0], 1, 1, axes=((0, 1, 1), (1, 1, 1))))
"""
CHOSEN = """T = alloc(f32[4, 8], scope="tile")
for i in range(2):
    with block("a"):
        i = par(0, 2, i)
        execute("tilezero_f32", window("w", T[2*i, 0], 2, 8, axes=((0, 2, 1), (1, 8, 1))))
with block("b"):
    execute("tilezero_f32", window("w", T[0, 0], 2, 8, axes=((0, 2, 1), (1, 8, 1))))
"""
OVERLAPPING = """T = alloc(f32[4, 8], scope="tile")
with block("a"):
    execute("tilezero_f32", window("w", T[0, 0], 4, 8, axes=((0, 4, 1), (1, 8, 1))))
with block("b"):
    execute("tilezero_f32", window("w", T[1, 0], 4, 8, axes=((0, 4, 1), (1, 8, 1))))
"""
REFUSALS = {
    "one in another": (
        part("T", 8) + within("", part("U", 8, first="8")).replace("\\n\\n", "\\n"),
        HEAD,
        "tiles of U are allocated where others are",
    ),
    "elements": (
        part("T", 8).replace(CLEAR, "T[0, 0] = f32(0.0)"),
        HEAD,
        "T is in tiles: all that uses it must be instructions, on parts of one size",
    ),
    "parts of two sizes": (
        part("T", 8).replace(CLEAR, CLEAR.replace("8, 8, axes=((0, 8", "4, 8, axes=((0, 4")),
        HEAD,
        "T is in tiles: all that uses it must be instructions, on parts of one size",
    ),
    "no instruction": (
        'T = alloc(f32[8, 8], scope="tile")\nwith block("a"):\n    C[0, 0] = f32(0.0)\n',
        HEAD,
        "T is in tiles: all that uses it must be instructions",
    ),
    "memory": (
        part("T", 8).replace('scope="tile"', 'scope="local"'),
        HEAD,
        "tilezero_f32 works on tiles, and T is in none",
    ),
    "vector loop": (VECTOR, HEAD, "tilezero_f32 does whole tiles: it cannot be in a vector loop"),
    "chosen at run time": (CHOSEN, HEAD, "tiles of T are chosen by 2*i, 0, not by constants"),
    "overlapping": (OVERLAPPING, HEAD, "tilezero_f32: windows of T overlap"),
    "columns apart": (
        part("T", 8),
        ODD_HEAD,
        "tdpbf16ps: the elements of A that it takes together do not lie together in memory",
    ),
    "no groups": (
        part("T", 8),
        FLAT_HEAD,
        "tdpbf16ps: the elements of B that it takes together do not lie together in memory",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, same_text):
    text, head, message = REFUSALS[case]
    with pytest.raises(ScheduleError) as caught:
        text_of(function(text, head=head))
    assert message in str(caught.value)
    same_text(caught.value)


def test_operands_in_registers():
    """What tensorize could still match: an operand that is moved to registers afterwards."""
    s = tiled(product(1, 4, 8, "tdpbf16ps"), "tdpbf16ps", 1, 4, 8)
    s = s.cache("A", at="k_o", scope="register", mode="read", name="a")
    for name in s.loops("a")[-2:]:
        s = s.unroll(name) if s.loop(name).kind.name == "serial" else s
    with pytest.raises(ScheduleError, match="tdpbf16ps uses a, which is in registers"):
        text_of(s.func)


def test_sizes_known_when_running():
    """Rows of each picture lie at a known distance, pictures do not."""
    n = lang.param("N", multiple_of=4)
    A, B = lang.placeholder((2, n, 8), "bf16", name="A"), lang.placeholder((8, 8), "bf16", name="B")
    k = lang.reduce_axis(8, "k")

    def term(p, i, j):
        return lang.sum(lang.cast(A[p, i, k], "f32") * lang.cast(B[k, j], "f32"), k)

    program = lang.program([A, B], [lang.compute((2, n, 8), term, name="C")])
    s = tiled(program, "tdpbf16ps", 4, 8, 8)
    assert len(calls(text_of(s.func), "tdpbf16ps")) == 1
    rng = np.random.default_rng(4)
    for size in (4, 12) if HAS_TILES else ():
        a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((2, size, 8), (8, 8)))
        made = Native(s.func)({"A": a, "B": pack(b, s.func.buffer("B"))}, {"N": size})["C"]
        np.testing.assert_array_equal(made, a.astype("f4") @ b.astype("f4"))
