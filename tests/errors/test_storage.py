"""What the primitives on computation, storage and layouts refuse, beside what their unit tests show."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.schedule import Schedule as S
from tilewright.schedule.layout.arrays import unpack_argument
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import blur, conv, gemm, stencil
from unit.schedule.written_loops import copy, written

TAIL = copy("C", "C", "T[i]", "j")


def _text(body):
    return written(body + TAIL, 4)


def _conditional():
    return _text("for h in range(1):\n    if h >= 0:\n" + copy("T", "T", "X[i]", "i", indent=8))


def _two_writers():
    return _text(copy("T", "T", "X[i]", "i") + copy("U", "T", "T[i] + X[i]", "k"))


def _changed_input():
    made = copy("A", "U", "X[i]", "h") + copy("T", "T", "U[i]", "i")
    return _text("U = alloc(f32[4])\n" + made + copy("B", "U", "X[i] + X[i]", "k"))


def _two_places():
    return _text("""
for i in range(2):
    with block("T"):
        i = par(0, 2, i)
        T[i], T[i + 2] = X[i], X[i + 2]
""")


def _scalar():
    X, k = lang.placeholder((4,), name="X"), lang.reduce_axis(4, "k")
    T = lang.compute((), lambda: lang.sum(X[k], axis=k), name="T")
    C = lang.compute((4,), lambda j: X[j] - T[()], name="C")
    return S(lang.program([X], [C]))


def _scan():
    X = lang.placeholder((6,), name="X")
    Y = lang.scan((6,), lambda y, t: lang.select(t == 0, 0.0, y[t - 1]) + X[t], name="Y")
    Z = lang.compute((6,), lambda i: Y[i] * 2, name="Z")
    return S(lang.program([X], [Z]))


def _folded():
    X = lang.placeholder((6,), name="X")
    T = lang.compute((2, 3), lambda i, j: X[i * 3 + j] + 1, name="T")
    Y = lang.compute((6,), lambda i: T[i // 3, i % 3] * 2, name="Y")
    return lang.program([X], [Y])


def _flat():
    """T is defined at one index made of two iterators."""
    return _text("""
for i in range(2):
    for k in range(2):
        with block("T"):
            i = par(0, 2, i)
            k = par(0, 2, k)
            T[2*i + k] = X[2*i + k]
""").split("j", 2)


def _pair():
    X = lang.placeholder((6,), name="X")
    T = lang.compute((6,), lambda i: X[i] + 1, name="T")
    U = lang.compute((6,), lambda i: T[i] * 2, name="U")
    V = lang.compute((6,), lambda i: T[i] - U[5 - i], name="V")
    return S(lang.program([X], [V]))


def _rolled():
    return S(blur(8)).compute_at("T", "C_i").slide("T", "C_i").roll("T", 0, 3)


def _tiled():
    return S(stencil(6, 8)).tile(["C_y", "C_x"], [3, 4])


REFUSALS = {
    # compute_at
    "compute in a vector loop": (
        lambda: S(blur(8)).split("C_i", 4).vectorize("C_i_i").compute_at("T", "C_i_i"),
        "loop 'C_i_i' is a vector loop",
        "a loop around it",
    ),
    "compute a scan in tiles": (
        lambda: _scan().compute_at("Y", "i"),
        "'Y' changes 'Y' in order, and in dimension 0, of which a part is needed (i, +1), it stands at",
        "at an outer loop",
    ),
    "compute changes into what stays": (
        lambda: _two_writers().compute_at("T", "j", keep_storage=True),
        "T changes in order, and would change again in each iteration of 'j'",
        "leave out keep_storage",
    ),
    "compute for nobody": (lambda: _pair().compute_at("T", "U_i"), "also read outside of loop", "all its"),
    "compute what a condition guards": (
        lambda: _conditional().compute_at("T", "j"),
        "'T' is computed under a condition",
        "",
    ),
    "compute after an input changed": (
        lambda: _changed_input().compute_at("T", "j"),
        "'B' changes U, which 'T' reads, before loop 'j' is done",
        "",
    ),
    "compute at a sum of iterators": (
        lambda: _flat().compute_at("T", "j_o"),
        "cannot tell which instances of 'T' the loop 'j_o' needs: dimension 0 of 'T' is accessed at",
        "an outer loop",
    ),
    "compute in a layout": (
        lambda: _tiled().cache("X", layout=("d1", "d0"), name="P", scope="global").compute_at("P", "y"),
        "buffer 'P' has a layout of its own",
        "",
    ),
    "compute a reduction again into shared storage": (
        lambda: _tiled().compute_at("T", "C_x_o", keep_storage=True),
        "into storage that they share, which a reduction must not",
        "keep_storage",
    ),
    # reverse_compute_at
    "follow in a vector loop": (
        lambda: _pair().vectorize("i").reverse_compute_at("U", "i"),
        "loop 'i' is a vector loop",
        "",
    ),
    "follow twice": (
        lambda: _pair().reverse_compute_at("U", "i").reverse_compute_at("U", "i"),
        "'U' is computed inside loop 'i' already",
        "",
    ),
    "follow across a stencil": (
        lambda: S(blur(8, taps=2)).reverse_compute_at("C", "i"),
        "'C' reads 'T' beyond what an iteration of 'i' produces",
        "",
    ),
    "follow before another operand": (
        lambda: _pair().reverse_compute_at("V", "i"),
        "'U' writes 'U', which 'V' reads, only after loop 'i'",
        "move that one first",
    ),
    "follow a sum of iterators": (
        lambda: S(stencil(4, 4)).reverse_compute_at("C", "y"),
        "cannot tell which instances of 'C' loop 'y' serves: dimension 0 of 'T' is accessed at r + y",
        "",
    ),
    "follow a partial reduction": (
        lambda: S(gemm(4, 4, 4, epilogue=True)).reorder("k", "i").reverse_compute_at("D", "i"),
        "the reduction into 'C' also runs over 'k'",
        "outside of the reduction",
    ),
    "follow a part": (
        lambda: S(blur(8, taps=1)).partition("i", 3, names=("b",)).reverse_compute_at("C", "b"),
        "are not shown to reach every 'i' of 'C'",
        "completely, in one nest",
    ),
    # inline
    "inline a pair": (
        lambda: _two_places().inline("T"),
        "'T' cannot be inlined: it defines several buffers at once",
        "",
    ),
    "inline two writers": (lambda: _two_writers().inline("T"), "'U' writes 'T' too", ""),
    "inline after a change": (lambda: _changed_input().inline("T"), "'B' changes 'U', which 'T' reads", ""),
    "inline a scan": (lambda: _scan().inline("Y"), "cannot be inlined", ""),
    "inline a sum of iterators": (
        lambda: _flat().inline("T"),
        "its iterator 'i' cannot be told from the element's indices",
        "",
    ),
    # stage
    "cache in a vector loop": (
        lambda: S(blur(8)).vectorize("C_i").cache("T", "C_i"),
        "nothing can be staged in it",
        "",
    ),
    "cache a scalar": (lambda: _scalar().cache("T", "j"), "buffer 'T' is a scalar", ""),
    "cache inner storage": (
        lambda: S(blur(8)).split("C_i", 4).compute_at("T", "C_i_o").cache("T"),
        "buffer 'T' is allocated further in",
        "inside its allocation",
    ),
    "cache to no scope": (
        lambda: S(blur(8)).cache("X", "i", scope="my scope"),
        "no name of a scope",
        "local",
    ),
    "cache what has two places": (
        lambda: _two_places().cache("T", "i", mode="write"),
        "writes 'T' in several places",
        "",
    ),
    "cache of a factor that does not divide": (
        lambda: S(gemm(4, 8, 4)).cache("B", "i", layout=("k", "j%6//4", "j//6")),
        "4 does not divide 6",
        "",
    ),
    "cache in an order of no dimension": (
        lambda: S(gemm(4, 8, 4)).cache("B", "i", layout=("k", "q")),
        "there is no dimension 'q'",
        "the dimensions",
    ),
    # hoist_alloc, slide, roll, rolled buffers
    "hoist a packed buffer": (
        lambda: S(gemm(4, 8, 4)).cache("B", "i", layout=("j", "k"), name="P").hoist_alloc("P"),
        "buffer 'P' has a layout of its own",
        "the outer loop",
    ),
    "roll an argument": (lambda: S(blur(8)).roll("X", 0, 3), "'X' is an argument", ""),
    "roll twice": (lambda: _rolled().roll("T", 0, 4), "buffer 'T' has a layout of its own", ""),
    "roll downwards": (
        lambda: S(_mirrored()).compute_at("T", S(_mirrored()).loops("C")[0]).hoist_alloc("T").roll("T", 0, 2),
        "does not move evenly upwards",
        "",
    ),
    "move a rolled buffer's reader": (
        lambda: _rolled().cache("T", "C_i"),
        "'T' is a rolled buffer",
        "roll it last",
    ),
    "slide in steps that meet": (
        lambda: S(blur(8, taps=1)).compute_at("T", "C_i").slide("T", "C_i"),
        "do not move by a constant",
        "",
    ),
    # layouts
    "fuse symbolic dimensions": (
        lambda: S(stencil(4, lang.param("W"))).layout_fuse("T", 0, 2),
        "have symbolic extents",
        "only the first",
    ),
    "unfold what a scan writes": (
        lambda: _scan().layout_unfold("Y", 0, 3, 2),
        "does not define 'Y' element by element",
        "",
    ),
    "unpack a wrong array": (
        lambda: unpack_argument(
            np.zeros((3, 3)), "C", (4, 4), S(gemm(4, 4, 4)).layout_pad("C", 0, 1, 1).trace.steps
        ),
        "'C' has shape (6, 4) in this layout, the array (3, 3)",
        "",
    ),
    # program phase
    "inline a second writer": (
        lambda: S(gemm(3, 4, 5, epilogue=True)).inline_stage("D"),
        "'D' defines 'D', an argument",
        "",
    ),
    "factor dependent bounds": (
        lambda: S(conv(2, 3, 4, 4)).rfactor("Z", "o", 2),
        "has no reduction axis 'o'",
        "no reduction",
    ),
}


def _mirrored():
    X = lang.placeholder((8,), name="X")
    T = lang.compute((8,), lambda i: X[i] + 1, name="T")
    return lang.program([X], [lang.compute((7,), lambda i: T[7 - i] + T[6 - i], name="C")])


#: What is wrong is an argument, or a stage of the program phase, which has a line of source instead.
NOWHERE = {
    "cache to no scope",
    "cache of a factor that does not divide",
    "cache in an order of no dimension",
    "fuse symbolic dimensions",
    "unfold what a scan writes",
    "unpack a wrong array",
    "inline a second writer",
    "factor dependent bounds",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusal(what, same_text):
    action, message, hint = REFUSALS[what]
    with pytest.raises(ScheduleError) as caught:
        action()
    assert message in caught.value.what
    assert hint in (caught.value.hint or "")
    assert caught.value.marked or what in NOWHERE
    same_text(caught.value)
