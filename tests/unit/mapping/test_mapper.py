"""The mapper: known counts, equal to enumeration; what it refuses and why."""

import itertools
from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.ir import (
    F32,
    I8,
    I32,
    U8,
    Access,
    Binary,
    Const,
    Iter,
    Seq,
    Stage,
    Store,
    index,
    rename_buffers,
    var,
)
from tilewright.mapping import (
    ConditionNeed,
    CopyNeed,
    LayoutNeed,
    Needle,
    PadNeed,
    find_mappings,
    match,
    three_operand_form,
)
from tilewright.support import ResourceError, TargetError
from tilewright.target import BUILT_IN, Instruction, element, stage_of
from unit.mapping.kernels import FREE_ROWS, ROWS, conv, gemm, gemv, matmul, separable, sized

CASES = {
    "gemm": (gemm(), 1, {}),
    "conv1d": (conv(1), 3, {}),
    "conv1d strided": (conv(1, stride=2), 2, {}),
    "conv2d": (conv(2), 7, {}),
    "conv2d dilated": (conv(2, dilation=2), 3, {}),
    "conv2d strided": (conv(2, stride=2), 3, {}),
    "conv2d strided, free rows": (conv(2, stride=2), 7, FREE_ROWS),
    "conv3d": (conv(3, size=2, taps=2), 13, {}),
    "separable": (separable(), 0, {}),
}


def reduction(program):
    return next(s for s in program.stages if s.is_reduction)


@pytest.mark.parametrize("case", CASES)
def test_counts(case):
    """The paper's and those of its reconstruction: as many again with the factors exchanged."""
    program, count, places = CASES[case]
    found = find_mappings(program, matmul(**places))
    straight = [m for m in found.mappings if not m.exchanged]
    assert len(straight) == count
    if not places:
        assert len(found.mappings) == 2 * count
    assert len(set(found.mappings)) == len(found.mappings)
    assert found.nodes < 200
    assert find_mappings(program, matmul(**places)) == found


def enumerated(needle, form, order, strided):
    """Every injective choice of axes for which each operand's rows can be found, tried one by one."""
    (own,) = needle.forms
    first, second = (o.src for o in own.operations[:2])
    theirs = [form.operations[form.initialised + n].src for n in order]
    result = (own.operations[-1].dst, form.operations[-1].dst)
    pairs = [result, (first, theirs[0]), (second, theirs[1])]
    found = set()
    for chosen in itertools.permutations(range(len(form.axes)), len(own.axes)):
        if all(_fits(mine, other, chosen, strided if mine.buffer == "a" else ()) for mine, other in pairs):
            found.add(tuple(form.axes[x] for x in chosen))
    return found


def _fits(mine, other, chosen, strided):
    """Whether some rows, restricted to the chosen columns, are the instruction's, and the others are zero."""
    part = [tuple(row[x] for x in chosen) for row in other.rows]
    for rows in itertools.permutations(range(len(part)), len(mine.rows)):
        left = [part[r] for r in range(len(part)) if r not in rows]
        if any(any(row) for row in left):
            continue
        wanted = [
            tuple(part[r][n] if n in strided and c and part[r][n] > 0 else c for n, c in enumerate(row))
            for r, row in zip(rows, mine.rows, strict=True)
        ]
        if wanted == [part[r] for r in rows]:
            return True
    return False


@pytest.mark.parametrize("case", [c for c in CASES if c != "separable"])
def test_equal_to_enumeration(case):
    program, _, places = CASES[case]
    needle = Needle.of(matmul(**places))
    form = three_operand_form(reduction(program))
    strided = (0,) if places else ()
    for order, exchanged in (((0, 1), False), ((1, 0), True)):
        found = {
            tuple(b.program[0] for b in m.axes)
            for m in find_mappings(program, matmul(**places)).mappings
            if m.exchanged == exchanged
        }
        assert found == enumerated(needle, form, order, strided)


def test_the_third_operation_of_the_separable_convolution():
    """Listing 3 has one product too many, and the mapper says so."""
    program = separable()
    failures = find_mappings(program, matmul()).failures
    assert ("+=", "*=") in {(f.expected, f.found) for f in failures if f.place == "operation"}
    assert any("operation 2: operation: expected +=, found *=" in str(f) for f in failures)


def only(program, instruction, stage=None, **options):
    """The mappings with the factors as they stand."""
    return [m for m in find_mappings(program, instruction, stage, **options).mappings if not m.exchanged]


def test_the_mapped_program_of_listing_6():
    """Images as rows: A and C are transposed by (1, 0, 2), B is read as it is; x and d are loops around."""
    found = only(conv(1), matmul((16, 16, 16)))
    (first,) = [m for m in found if m.program_axes() == {"m": ("i",), "n": ("k",), "k": ("ic",)}]
    assert first.needs == (LayoutNeed("c", "C", (0, 2)), LayoutNeed("a", "A", (0, 2)))
    assert [str(i) for i in first.bound("a").indices] == ["i", "d + j", "ic"]


def test_one_buffer_as_two_operands():
    """Attention of GPT-2: queries and keys lie in one buffer; operands are accesses, not buffers."""
    h, s, d = 2, 4, 8
    x, k = lang.placeholder((s, 3 * h * d), name="QKV"), lang.reduce_axis(d, "k")
    scores = lang.compute(
        (h, s, s), lambda b, i, j: lang.sum(x[i, d * b + k] * x[j, h * d + d * b + k], k), name="S"
    )
    (found,) = only(lang.program([x], [scores]), matmul())
    assert found.program_axes() == {"m": ("i",), "n": ("j",), "k": ("k",)}
    assert found.bound("a").buffer == found.bound("b").buffer == "QKV"
    assert [str(i) for i in found.bound("b").indices] == ["j", "8*b + k + 16"]
    # keys are read across: rows of what is k by n are a buffer's columns
    assert LayoutNeed("b", "QKV", (1, 0)) in found.needs


def test_an_operand_may_not_be_the_result():
    b, k = lang.placeholder((4, 4), name="B"), lang.reduce_axis(4, "k")
    c = lang.compute((4, 4), lambda i, j: lang.sum(b[i, k] * b[k, j], k), name="C")
    (found,) = only(lang.program([b], [c]), matmul())
    stage = reduction(lang.program([b], [c]))
    own = replace(stage, body=rename_buffers(stage.body, {"B": "C"}))
    program = replace(lang.program([b], [c]), stages=(own,))
    failures = find_mappings(program, matmul()).failures
    assert found and not find_mappings(program, matmul()).mappings
    assert "another buffer than the result's" in {f.expected for f in failures}


def test_a_vector_is_a_matrix_of_one_column():
    (found,) = only(gemv(), matmul())
    assert found.program_axes() == {"m": ("i",), "n": (), "k": ("k",)}
    assert dict(found.dims)["b"] == ((0,), ())
    (whole,) = only(gemv(), matmul(partial=()))
    assert PadNeed("n", 4) in whole.needs


@pytest.mark.parametrize(
    ("extents", "partial", "needs"),
    [
        ((4, 4, 4), (), set()),
        ((16, 16, 16), ("m", "n", "k"), set()),
        ((3, 4, 4), (), {PadNeed("m", 3)}),
        ((4, 4, 5), (), {PadNeed("k", 5)}),
        ((4, 4, 5), ("k",), set()),
    ],
)
def test_extents_that_do_not_divide(extents, partial, needs):
    (found,) = only(gemm(), matmul(extents, partial=partial))
    assert {n for n in found.needs if isinstance(n, PadNeed)} == needs


def test_a_sum_that_is_started_is_whole():
    """An instruction that starts its result cannot be in a loop over a part of the reduction."""
    (found,) = only(gemm(k=4), matmul(starts=True))
    assert [s.number for s in found.statements] == [0, 1, 2, 3]
    unmet = find_mappings(gemm(k=8), matmul(starts=True))
    assert not unmet.mappings
    assert any(f.place == "axis k" and f.expected == "at most 4" for f in unmet.failures)
    around = find_mappings(conv(1, taps=2), matmul(starts=True))
    assert not around.mappings
    assert any(f.expected == "no reduction around" for f in around.failures)


def test_maxima_are_not_filled_with_zeros():
    x, k = lang.placeholder((4, 6), name="X"), lang.reduce_axis(6, "k")
    c = lang.compute((4,), lambda i: lang.max(x[i, k], axis=k), name="M")
    r, s = element("r", ("m",), F32), element("s", ("m", "k"), F32)
    stage = stage_of("rowmax", (("m", 4), ("k", 4)), r, Binary("max", r, s))
    program = lang.program([x], [c])
    assert not find_mappings(program, Instruction(name="rowmax", stage=stage)).mappings
    (found,) = only(program, Instruction(name="rowmax", stage=stage, partial=("k",)))
    assert found.program_axes() == {"m": ("i",), "k": ("k",)}
    assert found.needs == (LayoutNeed("s", "X", (0, 1)),)  # rows of six, of which four are a part
    whole = stage_of("rowmax", (("m", 4), ("k", 8)), r, Binary("max", r, s))
    assert not only(program, Instruction(name="rowmax", stage=whole, partial=("k",)))[0].needs


def test_element_types_are_compared():
    bytes_ = matmul(types=(I32, U8, I8))
    assert len(only(gemm(types=("i32", "u8", "i8")), bytes_)) == 1
    signed = find_mappings(gemm(types=("i32", "i8", "i8")), bytes_)
    assert not signed.mappings
    assert any(
        (f.operand, f.place, f.expected, f.found) == ("a", "type", "u8", "i8") for f in signed.failures
    )
    # the other way about it fits with the factors exchanged
    (other,) = find_mappings(gemm(types=("i32", "i8", "u8")), bytes_).mappings
    assert other.exchanged and other.bound("a").buffer == "B"


def test_groups():
    """Of a grouped convolution the channels of one group are an axis; groups are a loop around."""
    program = conv(2, groups=2)
    found = only(program, matmul())
    assert len(found) == 7
    form = three_operand_form(reduction(program))
    assert {form.origins[form.axes.index(m.program_axes()["n"][0])] for m in found} == {("l", 1)}


def padded_conv():
    x, w = lang.placeholder((2, 6, 4), name="X"), lang.placeholder((3, 4, 8), name="W")
    d, c = lang.reduce_axis(3, "d"), lang.reduce_axis(4, "c")
    padded = lang.boundary(x, 0.0)
    y = lang.compute(
        (2, 6, 8), lambda n, i, o: lang.sum(padded[n, i + d - 1, c] * w[d, c, o], (d, c)), name="Y"
    )
    return lang.program([x, w], [y])


def test_padding():
    """Where the mapped axes decide what is padding it is stored; elsewhere it is a condition around."""
    found = {tuple(m.program_axes().values()): m for m in only(padded_conv(), matmul())}
    assert set(found) == {(("n",), ("o",), ("d",)), (("n",), ("o",), ("c",)), (("i",), ("o",), ("c",))}
    rows = found[("i",), ("o",), ("c",)].needs
    assert CopyNeed("a", "X", "padding", ("i",)) in rows
    (condition,) = [n for n in found[("n",), ("o",), ("c",)].needs if isinstance(n, ConditionNeed)]
    assert condition.axes == ("i", "d")


def test_bundles_in_place():
    """A 1x1 convolution: images, rows and columns lie behind one another in both operands that have them."""
    a, b, c = (
        lang.placeholder((2, 3, 4, 8), name="A"),
        lang.placeholder((8, 6), name="B"),
        lang.reduce_axis(8, "c"),
    )
    y = lang.compute((2, 3, 4, 6), lambda n, h, w, o: lang.sum(a[n, h, w, c] * b[c, o], c), name="Y")
    program = lang.program([a, b], [y])
    found = only(program, matmul(**ROWS), bundle=True)
    whole = [m for m in found if m.program_axes()["m"] == ("n", "h", "w")]
    assert len(whole) == 1 and not whole[0].needs and dict(whole[0].dims)["a"] == ((0, 1, 2), (3,))
    assert len(found) == 4  # the three axes alone, and together


def test_bundles_by_copies():
    """Windows: taps and channels as one axis are rows that a copy makes (im2col)."""
    program = conv(2)
    found = only(program, matmul(), bundle=True)
    together = [m for m in found if len(m.program_axes()["k"]) == 3]
    assert together
    (full,) = [m for m in together if len(m.program_axes()["m"]) == 3]
    assert full.program_axes() == {"m": ("i", "j", "k"), "n": ("l",), "k": ("kh", "kw", "ic")}
    assert {n.why for n in full.needs if isinstance(n, CopyNeed) and n.operand == "a"} == {"windows"}
    assert not [n for n in full.needs if isinstance(n, CopyNeed) and n.operand != "a"]


def test_planes_are_no_rows():
    """Channels first: rows and columns of one image lie behind one another, images do not."""
    a, b, c = (
        lang.placeholder((2, 8, 3, 4), name="A"),
        lang.placeholder((6, 8), name="B"),
        lang.reduce_axis(8, "c"),
    )
    y = lang.compute((2, 6, 3, 4), lambda n, o, h, w: lang.sum(a[n, c, h, w] * b[o, c], c), name="Y")
    found = only(lang.program([a, b], [y]), matmul(), bundle=True)
    in_place = [m for m in found if m.program_axes()["m"] == ("h", "w")]
    assert in_place and not any(isinstance(n, CopyNeed) for m in in_place for n in m.needs)
    rows = [m for m in found if m.program_axes()["m"] == ("n", "h", "w")]
    assert {n.why for n in rows[0].needs if isinstance(n, CopyNeed)} == {"rows"}


def test_lanes_may_share_an_operand():
    """Rows of dot products: an operand that the lanes do not move is one word for all."""
    program = gemm(types=("i32", "u8", "i8"))
    found = find_mappings(program, BUILT_IN["vpdpbusd"]).mappings
    assert [m.program_axes() for m in found] == [
        {"lane": ("i",), "k": ("k",)},
        {"lane": ("j",), "k": ("k",)},
    ]
    by_columns = found[1]
    assert LayoutNeed("b", "B", (1, 0)) in by_columns.needs
    assert dict(by_columns.dims)["a"] == ((), (1,))


def dense(bias=True, out=False):
    """A product, a bias and a maximum with zero."""
    a, b = lang.placeholder((4, 8), name="A"), lang.placeholder((8, 6), name="B")
    v, k = lang.placeholder((6,), name="v"), lang.reduce_axis(8, "k")
    c = lang.compute((4, 6), lambda i, j: lang.sum(a[i, k] * b[k, j], k), name="C")
    y = lang.compute((4, 6), lambda i, j: lang.maximum(c[i, j] + v[j], 0.0), name="Y")
    z = lang.compute((4, 6), lambda i, j: lang.maximum(c[j % 4, j] + v[j], 0.0), name="Z")
    return lang.program([a, b, v], [c, y] if out else [y] if bias else [z])


def fused():
    """An instruction that does all of it."""
    first = matmul((4, 4, 8), starts=True)
    c, v, y = element("c", ("m", "n"), F32), element("v", ("n",), F32), element("y", ("m", "n"), F32)
    value = Binary("max", Binary("add", c, v), Const(0.0, F32))
    last = stage_of("relu", (("m", 4), ("n", 4)), y, value)
    return replace(first, name="dense", epilogue=(last,))


def test_chains():
    (found,) = only(dense(), fused())
    assert [s.stage for s in found.statements] == ["C"] * 4 + ["Y"] * 4
    assert {b.operand: b.buffer for b in found.operands} == {"y": "Y", "a": "A", "b": "B", "v": "v"}
    assert found.program_axes() == {"m": ("i",), "n": ("j",), "k": ("k",)}


def test_what_is_between_is_used_by_the_chain_alone():
    found = find_mappings(dense(out=True), fused())
    assert not found.mappings
    assert any(f.place == "readers of C" and f.found == "an output" for f in found.failures)
    assert not find_mappings(dense(bias=False), fused()).mappings


def test_needles_of_programs():
    """Sizes with bounds are axes of which one execution may do less."""
    needle = Needle.of_program("mm", sized())
    assert [(a.name, a.extent, a.partial) for a in needle.axes] == [
        ("i", 16, True),
        ("j", 16, True),
        ("k", 16, True),
    ]
    (found,) = only(gemm(), needle)
    assert [b.program for b in found.axes] == [("i",), ("j",), ("k",)]
    with pytest.raises(TargetError, match="the extent of axis 'i' has no bound"):
        Needle.of_program("mm", sized(1 << 40))


def test_programs_of_any_size():
    """Extents known when running: parts where the instruction may do less, padding where it may not."""
    (found,) = only(sized(), matmul(**ROWS))
    assert [str(b.extents[0]) for b in found.axes] == ["M", "N", "K"] and not found.needs
    (whole,) = only(sized(), matmul(partial=()))
    assert {n.axis for n in whole.needs if isinstance(n, PadNeed)} == {"m", "n", "k"}


def test_failures_name_axes():
    failures = find_mappings(gemm(), matmul()).failures
    assert str(failures[0]).startswith("matmul, stage C: operation")
    only_columns = find_mappings(conv(1, stride=2), matmul()).failures
    assert ("a", "axis m", "steps of 1", "j: steps of 2") in {
        (f.operand, f.place, f.expected, f.found) for f in only_columns
    }


def test_a_stage_without_a_form_is_a_failure():
    x = (Access("x", (var("i"),), Const(0.0, F32)),)
    odd = Stage("S", (Iter("i", index(0), index(4), "par"),), Seq((Store(x), Store(x))))
    program = replace(gemm(), stages=(odd,))
    (failure,) = find_mappings(program, matmul()).failures
    assert failure.place == "stage" and "not a single assignment" in failure.found


def test_a_search_has_a_budget(monkeypatch):
    monkeypatch.setattr(match, "MAX_NODES", 3)
    with pytest.raises(ResourceError, match="takes more than 3 steps"):
        find_mappings(gemm(m=5, n=6, k=7), matmul(types=(F32, F32, F32)))
