"""What primitives refuse of functions written out as text: nests that no program of the language starts with.

Each names the culprit and prints the function with it marked.
"""

import re

import pytest

from tilewright.ir import parse_program
from tilewright.schedule import Schedule as S
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import blur, stencil
from unit.schedule.written_loops import copy, written


def _text(body, buffers="T"):
    return written(body, 16, buffers)


def _strided():
    """A loop of step 2 around another."""
    return _text("""
for h in range(4, step=2):
    for j in range(4):
        with block("C"):
            h = par(0, 4, h)
            j = par(0, 4, j)
            C[4*h + j] = X[4*h + j]
""")


def _ordered_sum():
    return _text("""
for t in range(4):
    for k in range(4):
        with block("C"):
            t = ord(0, 4, t)
            k = red(0, 4, k)
            with init:
                C[t] = f32(0.0)
            C[t] = C[t] + X[k]
""")


def _inner_sum():
    """The running value is allocated inside of the loops around the reduction."""
    return _text("""
for j in range(4):
    T = alloc(f32[16])
    for k in range(4):
        with block("T"):
            j = par(0, 4, j)
            k = red(0, 4, k)
            with init:
                T[j] = f32(0.0)
            T[j] = T[j] + X[k]
    with block("C"):
        j = par(0, 4, j)
        C[j] = T[j]
""", "")  # fmt: skip


def _sliding(target, layout=""):
    """A producer in the loop ``j`` that reads three neighbours of what it makes."""
    storage = f"T = alloc(f32[16]{', ' + layout if layout else ''})"
    return _text(f"""
for j in range(4):
    {storage}
    for k in range(3):
        with block("T"):
            i = par(0, 6, j + k)
            {target} = X[i]
    with block("C"):
        i = par(0, 4, j)
        C[i] = T[i] + T[i + 2]
""", "")  # fmt: skip


#: `T` is made from `U`, which ends before `C` reads `T`.
_NARROW = (
    "with alloc(f32[16]) as U:\n"
    + copy("U", "U", "X[i]", "h", indent=4)
    + copy("T", "T", "U[i]", "i", indent=4)
    + copy("C", "C", "T[i]", "j")
)

REFUSALS = {
    # steps
    "fuse in steps": (lambda: _strided().fuse("h", "j"), "only loops of step 1 are fused", "", ["h", "j"]),
    "compute what nobody reads": (
        lambda: _text(copy("T", "T", "X[i]", "h") + copy("C", "C", "X[i]", "j")).compute_at("T", "j"),
        "nothing inside loop 'j' reads what 'T' computes",
        "",
        ["T", "j"],
    ),
    "compute what decides how far it goes": (
        lambda: _text(
            """
for h in range(4):
    with block("S"):
        i = par(0, 4, h)
        T[i] = i32(2)
for i in range(4):
    for k in range(3):
        with block("T"):
            i = par(0, 4, i)
            k = ord(0, int(T[i]), k)
            T[i] = T[i] - i32(1)
for j in range(4):
    with block("C"):
        j = par(0, 4, j)
        C[j] = X[j + int(T[j])]
""",
            "T = alloc(i32[4])\n",
        ).compute_at("T", "j"),
        "the domain of 'T' depends on what it changes",
        "at an outer loop",
        ["T", "j"],
    ),
    "blockize in steps": (lambda: _strided().blockize("j"), "'h' has step 2", "", ["h", "j"]),
    # decompose_init
    "decompose an ordered block": (
        lambda: _ordered_sum().decompose_init("C", "k"),
        "block 'C' has the ordered iterator 't'",
        "",
        ["C"],
    ),
    "decompose around the allocation": (
        lambda: _inner_sum().decompose_init("T", "j"),
        "'T' is allocated inside of 'j'",
        "hoist_alloc",
        ["j", "T"],
    ),
    "decompose a rolled sum": (
        lambda: (
            S(stencil(4, 5))
            .compute_at("T", "C_y")
            .slide("T", "C_y")
            .roll("T", 0, 3)
            .decompose_init("T", "C_y")
        ),
        "'T' is a rolled buffer: initialising ahead overwrites live values",
        "inside of the loops",
        ["T", "C_y"],
    ),
    # roundup
    "round up a packed buffer": (
        lambda: (
            _text(copy("T", "T", "f32(1.0)", "i") + copy("C", "C", "T[i]", "j"), "T = alloc(f32[4])\n")
            .set_layout("T", ("d0//2", "d0%2"))
            .split("i", 3, tail="roundup")
        ),
        "'i' cannot be rounded up for block 'T': 'T' has a layout of its own",
        "another tail",
        ["i", "T"],
    ),
    "round up a rolled buffer": (
        lambda: (
            S(blur(6, taps=2))
            .compute_at("T", "C_i")
            .slide("T", "C_i")
            .roll("T", 0, 2)
            .split("T_first_i", 3, tail="roundup")
        ),
        "'T_first_i' cannot be rounded up for block 'T_first': 'T' is a rolled buffer",
        "another tail",
        ["T_first_i", "T_first"],
    ),
    "round up into what another stage wrote": (
        lambda: _text(
            copy("B", "T", "f32(2.0)", "k", at="i + 3") + copy("A", "T", "f32(1.0)", "i", extent=3)
        ).split("i", 2, tail="roundup"),
        "'i' cannot be rounded up for block 'A': 'B' writes 'T' too",
        "another tail",
        ["i", "A"],
    ),
    "round up to an end that data tells": (
        lambda: _text(
            copy("T", "T", "f32(1.0)", "i", at="i + int(load(i32, N, 0))"),
            "N = buffer(i32[1])\nT = alloc(f32[16])\n",
        ).split("i", 3, tail="roundup"),
        "'i' cannot be rounded up for block 'T': the end of 'T' in dimension 0 is not known",
        "another tail",
        ["i", "T"],
    ),
    # compute_at
    "compute what is computed later": (
        lambda: _text(copy("C", "C", "T[i]", "j") + copy("T", "T", "X[i]", "i")).compute_at("T", "j"),
        "'T' is computed after loop 'j'",
        "",
        ["j", "T"],
    ),
    "compute parts that differ": (
        lambda: _text(
            copy("T", "T", "X[i]", "i").replace('block("T")', 'block("T", stage="T")')
            + copy("U", "T", "X[i] + X[i]", "k", bind="k").replace('block("U")', 'block("U", stage="T")')
            + copy("C", "C", "T[i]", "j")
        ).compute_at("T", "j"),
        "stage 'T' has blocks that compute different things: 'T' and 'U'",
        "",
        ["T", "U"],
    ),
    "compute where an input is not": (
        lambda: _text(_NARROW).compute_at("T", "j"),
        "buffer 'U', which 'T' needs, is not allocated around loop 'j'",
        "hoist_alloc",
        ["U", "T", "j"],
    ),
    "inline where an input is not": (
        lambda: _text(_NARROW).inline("T"),
        "'U', which 'T' reads, is not allocated around 'C'",
        "hoist_alloc",
        ["U", "T", "C"],
    ),
    "compute more of an input than is there": (
        lambda: S(blur(8)).split("C_i", 4).compute_at("T", "C_i_o").cache("T", "C_i_o", pad=(4,)),
        "'T' would read [4*C_i_o, +8) of 'T', of which only [4*C_i_o, +6) is computed inside of 'C_i_o'",
        "further out",
        ["C_i_o"],
    ),
    # reverse_compute_at
    "follow into a condition": (
        lambda: _text("""
for h in range(16):
    with block("T"):
        i = par(0, 16, h)
        T[i] = X[i]
for g in range(2):
    if g - 1 >= 0:
        for i in range(4):
            with block("U"):
                i = par(0, 8, 4*g + i)
                T[i] = X[i]
    for j in range(4):
        with block("C"):
            i = par(0, 8, 4*g + j)
            C[i] = T[i]
""").reverse_compute_at("C", "i"),
        "loop 'i' runs under a condition, 'C' does not",
        "around the condition",
        ["C", "i"],
    ),
    "follow in parts of their own conditions": (
        lambda: _text("""
for g in range(8):
    for i in range(4):
        with block("T"):
            i = par(0, 4, i)
            T[i] = X[i]
    for j in range(2):
        with block("C"):
            i = par(0, 4, j)
            where(5 - g >= 0)
            C[i] = T[i]
    for k in range(2):
        with block("D", stage="C"):
            i = par(0, 4, k + 2)
            C[i] = T[i]
""").reverse_compute_at("C", "i"),
        "the parts of 'C' run under different conditions",
        "",
        ["C"],
    ),
    "follow too often": (
        lambda: _text(
            """
for i in range(4):
    for h in range(3):
        with block("T"):
            i = par(0, 4, i)
            h = par(0, 3, h)
            T[i, h] = X[i]
for j in range(4):
    with block("C"):
        i = par(0, 4, j)
        C[i] = T[i, 0]
""",
            "T = alloc(f32[4, 3])\n",
        ).reverse_compute_at("C", "h"),
        "'C' would run more than once for different 'h'",
        "",
        ["C", "h"],
    ),
    "follow over an earlier definition": (
        lambda: _text(
            copy("T", "T", "X[i]", "i") + copy("U", "U", "C[i]", "l") + copy("C", "C", "T[i]", "j")
        ).reverse_compute_at("C", "i"),
        "'U' uses 'C', which 'C' would then have defined earlier",
        "",
        ["C", "U"],
    ),
    # slide and roll
    "slide in a layout": (
        lambda: _sliding("T[i]", "layout=index_map([a], [a//4, a%4], [4, 4])").slide("T", "j"),
        "buffer 'T' has a layout of its own",
        "",
        ["T"],
    ),
    "slide in strides": (
        lambda: _sliding("T[2*i]").slide("T", "j"),
        "'T' does not write 'T' at single iterators",
        "",
        ["T"],
    ),
    "slide unevenly": (
        lambda: _sliding("T[i + i//2]").slide("T", "j"),
        "cannot slide 'T': dimension 0 of 'T' is accessed at i + i//2, not at one iterator",
        "",
        ["T"],
    ),
    "roll what no loop slides through": (
        lambda: S(blur(8)).compute_at("T", "C_i").roll("T", 0, 3),
        "buffer 'T' is not allocated right around a serial loop that slides through it",
        "hoist_alloc or slide",
        ["T"],
    ),
    # stage
    "stage a scatter": (
        lambda: _text(copy("C", "C", "X[i]", "i", at="int(load(i32, N, i))"), "N = buffer(i32[4])\n").cache(
            "C", "i", mode="write"
        ),
        "the part of 'C' that is defined is no box",
        "",
        ["C", "i"],
    ),
    "stage what was never started": (
        lambda: _text("""
for i in range(4):
    for k in range(4):
        with block("C"):
            i = par(0, 4, i)
            k = red(0, 4, k)
            C[i] = C[i] + X[k]
""").cache("C", "i", mode="accumulate"),
        "'C' is not defined before loop 'i', so there is nothing to load",
        "decompose_init first",
        ["C", "i"],
    ),
}


def _marked(error):
    return [error.program.splitlines()[n].strip() for n in error.marked]


@pytest.mark.parametrize("what", REFUSALS)
def test_refusal(what, same_text):
    action, message, hint, marked = REFUSALS[what]
    with pytest.raises(ScheduleError) as caught:
        action()
    error = caught.value
    assert message in error.what
    assert hint in (error.hint or "")
    lines = _marked(error)
    for name in marked:
        assert any(re.search(rf'\bfor {name} in |block\("{name}"|^{name} = |as {name}:', x) for x in lines), (
            name,
            lines,
        )
    same_text(error)


# ---- programs ----


def _program(*stages):
    text = 'program("p")\nX = input(f32[4])\nC = output(f32[4])\nT = temp(f32[4])\nU = temp(f32[4])\n'
    for name, target, value in stages:
        text += f'with stage("{name}"):\n    i = par(0, 4)\n    {target}[i] = {value}\n'
    return S(parse_program(text))


def test_inlining_a_stage_whose_input_changes_names_both():
    s = _program(("U", "U", "X[i]"), ("T", "T", "U[i]"), ("V", "U", "X[i] + X[i]"), ("C", "C", "T[i] + U[i]"))
    with pytest.raises(ScheduleError, match="stage 'V' changes 'U', which 'T' reads"):
        s.inline_stage("T")


def test_inlining_one_of_several_definitions_names_the_tensor():
    s = _program(("T", "T", "X[i]"), ("U", "T", "X[i] + X[i]"), ("C", "C", "T[i]"))
    with pytest.raises(ScheduleError, match="several stages write 'T'"):
        s.inline_stage("U")


def test_cloning_names_what_stands_in_the_way():
    chain = _program(("T", "T", "X[i]"), ("U", "U", "T[i]"), ("C", "C", "U[i] + U[i]"))
    with pytest.raises(ScheduleError, match="stage 'U' is the only reader of 'T'") as caught:
        chain.clone_stage("T", "U")
    assert caught.value.hint == "it needs no copy"
    with pytest.raises(ScheduleError, match="stage 'C' reads nothing that 'T' computes"):
        chain.clone_stage("T", "C")
    twice = _program(("T", "T", "X[i]"), ("U", "T", "X[i] + X[i]"), ("C", "C", "T[i]"))
    with pytest.raises(ScheduleError, match="several stages write 'T': a copy of 'U' alone would not be it"):
        twice.clone_stage("U", "C")


def test_padding_what_is_defined_under_a_condition():
    text = """
program("p")
X = input(f32[4])
C = output(f32[4])
T = temp(f32[4])
with stage("T"):
    i = par(0, 4)
    if i >= 0:
        T[i] = X[i]
with stage("C"):
    i = par(0, 4)
    C[i] = T[i]
"""
    with pytest.raises(ScheduleError, match="stage 'T' is not a plain definition of 'T'"):
        S(parse_program(text.lstrip())).layout_pad("T", 0, 1, 1)
