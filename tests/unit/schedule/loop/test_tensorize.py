"""tensorize: nests matched with instructions; code and interpreter agree with sums in f64."""

from dataclasses import replace

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.build import pack
from tilewright.ir import F32, Binary, Const, Unary, parse_function, print_function, run_function
from tilewright.schedule import Schedule, load_trace, replay
from tilewright.schedule.loop.tensorize import tensorize
from tilewright.support import ArtefactError, ScheduleError
from tilewright.target import (
    BUILT_IN,
    INTERPRETED,
    X86_AVX512,
    Instruction,
    element,
    find_instruction,
    interpreted,
    stage_of,
)
from unit.schedule.loop_programs import arrays

KINDS = {
    "vdpbf16ps": ("bf16", "bf16", "f32", 2),
    "vpdpbusd": ("u8", "i8", "i32", 4),
    "vpdpwssd": ("i16", "i16", "i32", 2),
    "sdot": ("i8", "i8", "i32", 4),
}


def product(m, n, k, kind, exchanged=False):
    """`C[i, j] = sum of A[i, k] * B[k, j]` in the types of an instruction."""
    left, right, total, _ = KINDS[kind]
    A = lang.placeholder((m, k), left, name="A")
    B = lang.placeholder((k, n), right, name="B")
    axis = lang.reduce_axis(k, "k")

    def term(i, j):
        a, b = lang.cast(A[i, axis], total), lang.cast(B[axis, j], total)
        return b * a if exchanged else a * b

    return lang.program([A, B], [lang.compute((m, n), lambda i, j: lang.sum(term(i, j), axis), name="C")])


def grouped(program, kind, verify=True, lanes=16):
    """The products up to the group that an instruction takes, lanes along j."""
    depth = KINDS[kind][3]
    n = program.buffer("B").shape[1].as_int()
    s = Schedule(program, verify=verify).set_layout(
        "B", (f"d1//{lanes}", f"d0//{depth}", f"d1%{lanes}", f"d0%{depth}")
    )
    s = s.split("k", depth)
    if n > lanes:
        s = s.split("j", lanes).reorder("j_o", "i", "k_o", "j_i", "k_i")
    else:
        s = s.reorder("i", "k_o", "j", "k_i")
    return s.decompose_init("C", "k_o").vectorize("j_i" if n > lanes else "j")


def expected(given):
    if given["A"].dtype.kind in "iu":
        # sums of integers wrap
        return (given["A"].astype(np.int64) @ given["B"].astype(np.int64)).astype(np.int32)
    return given["A"].astype(np.float64) @ given["B"].astype(np.float64)


SIZES = [
    (1, 16, 8),
    (3, 32, 16),
    (2, 21, 12),
    (4, 1, 4),
    (3, 3, 8),
    (1, 2, 4),
    (5, 40, 20),
    (2, 7, 4),
    (2, 8, 4),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n", "k", "exchanged"), [*((*s, False) for s in SIZES), (2, 21, 12, True)])
def test_interpreter_and_code(kind, m, n, k, exchanged):
    program = product(m, n, k, kind, exchanged)
    s = grouped(program, kind).tensorize("k_i", kind)
    assert parse_function(print_function(s.func)) == s.func
    given = arrays(program)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    tolerance = 1e-5 * k if KINDS[kind][2] == "f32" else 0
    for seed in range(2):
        made = run_function(s.func, given, seed=seed, instructions=INTERPRETED)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)
    if find_instruction(kind).features <= HOST.features:
        made = Native(s.func)(given)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)


def test_bytes_do_not_saturate():
    """The sum of four products exceeds 16 bits."""
    program = product(1, 16, 4, "vpdpbusd")
    s = grouped(program, "vpdpbusd").tensorize("k_i", "vpdpbusd")
    given = {"A": np.full((1, 4), 255, np.uint8), "B": np.full((4, 16), -128, np.int8)}
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    np.testing.assert_array_equal(run_function(s.func, given, instructions=INTERPRETED)["C"], wanted)
    if find_instruction("vpdpbusd").features <= HOST.features:
        np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)


def test_the_block_keeps_name_stage_and_condition():
    s = grouped(product(2, 21, 4, "vdpbf16ps"), "vdpbf16ps").tensorize("k_i", "vdpbf16ps")
    block = s.block("C")
    assert (block.stage, len(block.where)) == ("C", 1)
    kinds = {it.name: it.kind for it in block.iters}
    assert kinds == {"j_o": "par", "i": "par", "k_o": "red", "j_i": "par"}


def test_several_axes():
    """An instruction with axes of its own, which no lane runs: the loops are found in any order."""
    A = lang.placeholder((4, 8), "bf16", name="A")
    B = lang.placeholder((6, 8), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[i, k], "f32") * lang.cast(B[j, k], "f32"), k), name="C"
    )
    s = Schedule(lang.program([A, B], [C]), verify=True).tile(("i", "j"), (2, 2)).split("k", 4)
    s = s.reorder("i_o", "j_o", "k_o", "k_i", "j_i", "i_i").decompose_init("C", "k_o")
    s = s.tensorize("k_i", "bfmmla")
    given = arrays(s.source)
    made = run_function(s.func, given, instructions=INTERPRETED)["C"]
    np.testing.assert_allclose(made, given["A"].astype("f8") @ given["B"].astype("f8").T, atol=1e-5)


def test_a_trace_replays():
    s = grouped(product(2, 16, 4, "vdpbf16ps"), "vdpbf16ps").tensorize("k_i", "vdpbf16ps")
    assert '.tensorize("k_i", "vdpbf16ps")' in s.trace.to_python().replace("'", '"')


def test_an_instruction_of_its_own_target():
    """A row that no table has: named, resolved and recorded like any other."""
    row = replace(BUILT_IN["vdpbf16ps"], name="my_dot")
    target = replace(X86_AVX512, instructions=(row,), features=X86_AVX512.features | row.features)
    s = Schedule(product(2, 16, 4, "vdpbf16ps"), operations=target.operations)
    s = s.set_layout("B", ("d1//16", "d0//2", "d1%16", "d0%2")).split("k", 2).reorder("i", "k_o", "j", "k_i")
    s = s.decompose_init("C", "k_o").vectorize("j").tensorize("k_i", "my_dot")
    given = arrays(s.source)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    made = run_function(s.func, given, instructions=interpreted(target.operations.values()))["C"]
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-4)
    text = s.trace.to_json()
    assert load_trace(text) == s.trace and dict(s.trace.instructions) == {"my_dot": row.digest}
    assert replay(s.source, text, operations=target.operations).func == s.func
    with pytest.raises(ScheduleError, match="there is no instruction 'my_dot'"):
        replay(s.source, text)
    other = {"my_dot": replace(row, lanes=(), stage=BUILT_IN["bfmmla"].stage, placements=())}
    with pytest.raises(ScheduleError, match="recorded with another instruction 'my_dot'"):
        replay(s.source, text, operations=other)
    with pytest.raises(ArtefactError, match="'instructions' must be names with digests"):
        load_trace(text.replace(f'"{row.digest}"', "1"))


def test_any_stage_of_one_assignment():
    """A row that is no contraction: a clamped sum of two operands, whichever stands first."""
    x, y, r = (element(n, ("m", "n"), F32) for n in "xyr")
    axes = (("m", 2), ("n", 4))
    value = Binary("max", Binary("add", x, y), Const(0.0, F32))
    row = Instruction(name="add_relu", stage=stage_of("add_relu", axes, r, value), partial=("m",))
    A, B = lang.placeholder((4, 8), name="A"), lang.placeholder((4, 8), name="B")
    C = lang.compute((4, 8), lambda i, j: lang.maximum(A[i, j] + B[i, j], 0.0), name="C")
    s = Schedule(lang.program([A, B], [C]), verify=True, operations={row.name: row})
    s = s.tile(("i", "j"), (2, 4)).tensorize("i_i", "add_relu")
    given = {name: a.astype("f4") for name, a in arrays(s.source).items()}
    made = run_function(s.func, given, instructions=interpreted([row]))["C"]
    np.testing.assert_array_equal(made, np.maximum(given["A"] + given["B"], 0))
    D = lang.compute((4, 8), lambda i, j: lang.maximum(A[i, j] - B[i, j], 0.0), name="D")
    s = Schedule(lang.program([A, B], [D]), operations={row.name: row}).tile(("i", "j"), (2, 4))
    with pytest.raises(ScheduleError, match=r"r\[m, n\] = max\(.*\) is needed"):
        s.tensorize("i_i", "add_relu")
    chain = replace(row, epilogue=(stage_of("copy", axes, element("z", ("m", "n"), F32), r),))
    s = Schedule(lang.program([A, B], [C]), operations={row.name: chain}).tile(("i", "j"), (2, 4))
    with pytest.raises(ScheduleError, match="it is more than one assignment of an element"):
        s.tensorize("i_i", "add_relu")


def _f32():
    A, B = lang.placeholder((4, 8), name="A"), lang.placeholder((8, 16), name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute((4, 16), lambda i, j: lang.sum(A[i, k] * B[k, j], k), name="C")
    return Schedule(lang.program([A, B], [C])).split("k", 2).reorder("k_o", "i", "j", "k_i")


BF16 = "vdpbf16ps"
REFUSALS = {
    "unknown": (lambda: _f32().tensorize("k_i", "vdpbf16"), "there is no instruction 'vdpbf16'"),
    "init": (lambda: _f32().tensorize("k_i", BF16), "still has its initialisation"),
    "types": (lambda: _f32().decompose_init("C", "k_o").tensorize("k_i", BF16), "A has elements of f32"),
    "extent": (
        lambda: grouped(product(2, 16, 8, "vpdpbusd"), "vpdpbusd").tensorize("k_i", BF16),
        "its axes are k of 2, the loops k_i of 4",
    ),
    "sum of one factor": (
        lambda: Schedule(_total()).split("k", 2).decompose_init("C", "k_o").tensorize("k_i", BF16),
        "result[lane] = (result[lane] + (cast(a[lane, k], f32, wrap) * cast(b[lane, k], f32, wrap)))",
    ),
    "a condition": (
        lambda: (
            Schedule(product(2, 16, 7, BF16))
            .split("k", 2)
            .reorder("k_o", "i", "j", "k_i")
            .decompose_init("C", "k_o")
            .tensorize("k_i", BF16)
        ),
        "a condition of block 'C' depends on 'k_i'",
    ),
    "a later part": (
        lambda: (
            Schedule(product(2, 16, 4, BF16))
            .decompose_init("C", "k")
            .partition("k", 2)
            .tensorize("k_1", BF16)
        ),
        "'k_1' does not start at 0",
    ),
    "no perfect nest": (
        lambda: _f32().decompose_init("C", "k_o").partition("j", 4).tensorize("k_o", BF16),
        "'k_o' is not a perfect nest around one block",
    ),
    "steps of two": (
        lambda: Schedule(_strided()).split("k", 2).decompose_init("C", "k_o").tensorize("k_i", BF16),
        "'k_i' must move A along one dimension of its own by single elements",
    ),
}


def _total():
    A = lang.placeholder((8,), "bf16", name="A")
    k = lang.reduce_axis(8, "k")
    return lang.program([A], [lang.compute((1,), lambda i: lang.sum(lang.cast(A[k], "f32"), k), name="C")])


def _strided():
    A, B = lang.placeholder((16,), "bf16", name="A"), lang.placeholder((8,), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    return lang.program(
        [A, B],
        [
            lang.compute(
                (1,),
                lambda i: lang.sum(lang.cast(A[2 * k], "f32") * lang.cast(B[k], "f32"), k),
                name="C",
            )
        ],
    )


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, same_text):
    steps, message = REFUSALS[case]
    with pytest.raises(ScheduleError) as caught:
        steps()
    assert message in str(caught.value)
    same_text(caught.value)


def test_operations_of_one_operand_are_told_apart():
    s, t = (element(name, ("m",), F32) for name in "st")
    negated = Instruction(name="negated", stage=stage_of("t", (("m", 4),), t, Unary("neg", s)))

    def tensorized(operation):
        X = lang.placeholder((4,), name="X")
        func = Schedule(lang.program([X], [lang.compute((4,), lambda i: operation(X[i]), name="Y")])).func
        return tensorize(func, "i", "negated", operations={"negated": negated})

    assert 'execute("negated"' in print_function(tensorized(lambda x: -x))
    with pytest.raises(ScheduleError, match=r"t\[m\] = neg\(s\[m\]\) is needed"):
        tensorized(abs)
