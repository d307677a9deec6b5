"""What the loop primitives refuse: what, why, what to do, and the program with the place marked."""

import pytest

from tilewright import lang
from tilewright.ir import (
    F32,
    TILE,
    Access,
    Block,
    Const,
    For,
    Iter,
    LoopFunction,
    Store,
    buffer,
    index,
    parse_function,
    store,
    var,
)
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.loop_programs import chain, elementwise, matmul


def _scan():
    X = lang.placeholder((4, 6), name="X")
    return lang.program(
        [X],
        [
            lang.scan(
                (4, 6), lambda y, b, t: lang.select(t == 0, 0.0, y[b, t - 1]) + X[b, t], axis=1, name="Y"
            )
        ],
    )


def _rows_of_scans():
    X = lang.placeholder((4, 6), name="X")
    sums = lang.scan(
        (4, 6), lambda y, b, t: lang.select(t == 0, 0.0, y[b, t - 1]) + X[b, t], axis=1, name="Y"
    )
    return lang.program([X], [lang.compute((4, 6), lambda b, t: sums[b, t] * 2, name="Z")])


def _two_ordered():
    X = lang.placeholder((6,), name="X")
    return lang.program(
        [X], [lang.scan((6,), lambda y, t: lang.select(t == 0, 0.0, y[t - 1]) + X[t], name="Y")]
    )


def _stencil():
    X = lang.placeholder((9,), name="X")
    T = lang.compute((9,), lambda i: X[i] + 1, name="T")
    return lang.program([X], [lang.compute((7,), lambda i: T[i] + T[i + 1] + T[i + 2], name="Y")])


def _staged():
    return S(elementwise(10, 8)).cache("X", "i", scope="shared", name="T")


def _line():
    X = lang.placeholder((9,), name="X")
    return lang.program([X], [lang.compute((9,), lambda i: X[i] + 1, name="Y")])


def _total():
    X = lang.placeholder((9,), name="X")
    k = lang.reduce_axis(9, "k")
    T = lang.compute((), lambda: lang.sum(X[k], axis=k), name="T")
    return lang.program([X], [lang.compute((9,), lambda i: X[i] - T[()], name="Y")])


_TILED = """
function("f", outputs=[Y])
X = f32[12]
Y = f32[12]
for o in range(3):
    T = alloc(f32[12], scope="shared", layout=index_map([__0], [{at}], [4]))
    for a in range(4):
        with block("T"):
            i = par(0, 12, a + 4*o)
            T[{to}] = {value}
    for b in range(4):
        with block("Y"):
            i = par(0, 12, b + 4*o)
            {then}
"""
_MORE = """    for c in range(4):
        with block("U"):
            i = par(0, 12, c + 4*o)
            T[i] = X[i]
"""
_READS_BACK = _TILED.lstrip().format(at="__0 - 4*o", to="i", value="Y[i]", then="Y[i] = T[i]")
_CHANGED = _TILED.lstrip().format(at="__0 - 4*o", to="i", value="X[i]", then="Y[i] = T[i]") + _MORE
_STILL = _TILED.lstrip().format(at="__0", to="i%4", value="X[i]", then="Y[i] = T[i%4]")


def _symbolic():
    n = lang.param("n")
    return elementwise(n, n)


def _triangle():
    """`for i: for j in range(i + 1)`, as imported loop nests have them."""
    a = buffer("A", (8, 8), F32)
    block = Block(
        "S", "S", (Iter("i", index(0), index(8), "par"), Iter("j", index(0), index(8), "par")),
        (var("i"), var("j")), store("A", (var("i"), var("j")), Const(0.0, F32)),
    )  # fmt: skip
    body = For("i", index(0), index(8), For("j", index(0), var("i") + 1, block))
    return LoopFunction("tri", (), (a,), ("A",), body)


def _bare():
    a = buffer("A", (8,), F32)
    return LoopFunction(
        "bare", (), (a,), ("A",),
        For("i", index(0), index(8), Store((Access("A", (var("i"),), Const(0.0, F32)),))),
    )  # fmt: skip


def _strided():
    a = buffer("A", (8,), F32)
    block = Block(
        "S",
        "S",
        (Iter("i", index(0), index(8), "par"),),
        (var("i"),),
        store("A", (var("i"),), Const(0.0, F32)),
    )
    return LoopFunction("strided", (), (a,), ("A",), For("i", index(0), index(8), block, step=2))


def S(source):
    return Schedule(source)


#: What is done, and what the message says.
REFUSALS = {
    "unknown loop": (lambda: S(matmul()).split("ii", 2), "there is no loop 'ii'", "did you mean 'i'?"),
    "a block for a loop": (lambda: S(matmul()).unroll("C"), "'C' is a block, not a loop", "name a loop"),
    "unknown block": (lambda: S(matmul()).decompose_init("D", "k"), "there is no block 'D'", "blocks"),
    "a loop for a block": (
        lambda: S(matmul()).decompose_init("k", "k"),
        "'k' is a loop, not a block",
        "name a block",
    ),
    "taken name": (
        lambda: S(matmul()).split("i", 2, names=("j", "x")),
        "the name 'j' is taken",
        "choose another",
    ),
    "number of names": (
        lambda: S(matmul()).split("i", 2, names=("x",)),
        "2 names are needed, 1 are given",
        "",
    ),
    "unknown primitive": (
        lambda: S(matmul()).apply("splitt", "i"),
        "there is no primitive 'splitt'",
        "'split'",
    ),
    # split
    "factor 0": (lambda: S(matmul()).split("i", 0), "'i' cannot be split by 0", "integers from 1"),
    "no factors": (lambda: S(matmul()).split("i", ()), "'i' cannot be split by []", "integers from 1"),
    "split of a step": (lambda: S(_strided()).split("i", 2), "'i' has step 2", "step 1"),
    "split of lanes": (
        lambda: S(elementwise()).vectorize("j").split("j", 2),
        "'j' is a vector loop",
        "before",
    ),
    "split of lowered code": (lambda: S(_bare()).split("i", 2), "statements outside of blocks", "before"),
    "peel of lowered code": (
        lambda: S(_bare()).peel("i", "first"),
        "peel: 'i' holds statements outside",
        "before",
    ),
    "shift of a reduction": (
        lambda: S(matmul()).split("k", 2, tail="shift"),
        "it feeds the reduction iterator 'k'",
        "another tail",
    ),
    "shift around a reduction": (
        lambda: S(matmul()).split("i", 2, tail="shift"),
        "block 'C' accumulates into 'C'",
        "another tail",
    ),
    "shift around a scan": (
        lambda: S(_scan()).split("b", 3, tail="shift"),
        "block 'Y' has ordered iterators",
        "another tail",
    ),
    "shift of too little": (
        lambda: S(_symbolic()).split("i", 4, tail="shift"),
        "'i' may have fewer than 4 iterations",
        "larger lower bound",
    ),
    "shift of a parallel loop": (
        lambda: S(elementwise()).parallel("i").split("i", 4, tail="shift"),
        "'i' is parallel",
        "before",
    ),
    "shift around two blocks": (
        lambda: S(_stencil()).compute_at("T", "Y_i", keep_storage=True).split("Y_i", 4, tail="shift"),
        "block 'Y' reads 'T', which 'T' writes in the same loop",
        "another tail",
    ),
    "roundup of a reduction": (
        lambda: S(matmul()).split("k", 4, tail="roundup"),
        "it feeds the red iterator 'k' as k",
        "another tail",
    ),
    "roundup past an input": (
        lambda: S(chain()).split("i", 4, tail="roundup"),
        "the block would read X[i] out of bounds",
        "another tail",
    ),
    "roundup of an output": (
        lambda: S(chain()).split("i", 5, tail="roundup").split("Y_i", 4, tail="roundup"),
        "the block would read T[i] out of bounds",
        "another tail",
    ),
    # reorder, fuse, tile
    "reorder of strangers": (lambda: S(chain()).reorder("i", "Y_i"), "'Y_i' is not inside of 'i'", ""),
    "reorder of one twice": (lambda: S(matmul()).reorder("i", "i"), "'i' is named twice", ""),
    "reorder of an imperfect nest": (
        lambda: S(matmul()).decompose_init("C", "k").reorder("k", "j"),
        "a sequence of statements stands between 'j' and 'k'",
        "the perfect parts",
    ),
    "reorder of a triangle": (
        lambda: S(_triangle()).reorder("j", "i"),
        "the bounds of 'j' depend on 'i'",
        "triangular",
    ),
    "reorder of a parallel loop": (
        lambda: S(elementwise()).parallel("i").reorder("j", "i"),
        "'i' is a parallel loop",
        "before they get a kind",
    ),
    "reorder of an ordered axis": (
        lambda: S(_two_ordered()).split("t", 2).reorder("t_i", "t_o"),
        "'t_o' and 't_i' run ordered iterators of block 'Y': their order must stay",
        "",
    ),
    "reorder across a dependence": (
        lambda: (
            S(_stencil())
            .split("Y_i", 2)
            .compute_at("T", "Y_i_i", keep_storage=True)
            .reorder("Y_i_i", "Y_i_o")
        ),
        "exchanging 'Y_i_o' and 'Y_i_i' may change the order in which 'T' and 'Y' use 'T'",
        "compute_at",
    ),
    "fuse of strangers": (
        lambda: S(matmul()).fuse("i", "k"),
        "'k' is not directly inside of 'i'",
        "neighbours",
    ),
    "fuse of a triangle": (lambda: S(_triangle()).fuse("i", "j"), "the bounds of 'j' depend on 'i'", ""),
    "fuse with a symbolic loop": (
        lambda: S(_symbolic()).fuse("i", "j"),
        "the extent of 'j' is n, not a positive constant",
        "split the symbolic",
    ),
    "fuse of unlike loops": (
        lambda: S(elementwise()).parallel("i").fuse("i", "j"),
        "a parallel and a serial loop cannot be fused",
        "before",
    ),
    "tile of too few": (
        lambda: S(matmul()).tile(("i", "j"), (2,)),
        "2 loops and 1 factors are given",
        "one factor",
    ),
    "tile with peel": (
        lambda: S(matmul()).tile(("i",), (2,), tail="peel"),
        "cannot be peeled all at once",
        "innermost",
    ),
    # partition, peel
    "cuts out of order": (lambda: S(matmul()).partition("i", (3, 1)), "'i' cannot be cut at [3, 1]", "rise"),
    "cuts from both ends": (
        lambda: S(matmul()).partition("i", (-1, 2)),
        "'i' cannot be cut at [-1, 2]",
        "rise",
    ),
    "tail of a whole loop": (
        lambda: S(matmul()).partition("i", "tail"),
        "no condition on a block of 'i' ends with its last iterations",
        "a number",
    ),
    "partition of lanes": (
        lambda: S(elementwise()).vectorize("j").partition("j", 2),
        "'j' is a vector loop of step 1",
        "before",
    ),
    "peel of lanes": (
        lambda: S(elementwise()).vectorize("j").peel("j", "last"),
        "'j' is a vector loop of step 1",
        "before",
    ),
    # kinds
    "parallel reduction": (
        lambda: S(matmul()).parallel("k"),
        "'k' runs the reduction iterator 'k' of block 'C'",
        "rfactor",
    ),
    "parallel scan": (
        lambda: S(_scan()).parallel("t"),
        "'t' runs the ordered iterator 't' of block 'Y'",
        "rfactor",
    ),
    "parallel twice": (lambda: S(matmul()).parallel("i").parallel("i"), "'i' is already a parallel loop", ""),
    "parallel in parallel": (
        lambda: S(matmul()).parallel("i").parallel("j"),
        "'j' is inside of the parallel loop 'i'",
        "fuse",
    ),
    "parallel overlap": (
        lambda: S(elementwise()).split("i", 4, tail="shift").parallel("i_o"),
        "iterations of 'i_o' may touch the same elements of 'Y' in 'Y'",
        "another loop",
    ),
    "parallel recomputation": (
        lambda: S(_stencil()).compute_at("T", "Y_i", keep_storage=True).parallel("Y_i"),
        "iterations of 'Y_i' may touch the same elements of 'T'",
        "inside of the loop",
    ),
    "parallel writes of registers": (
        lambda: S(chain()).set_scope("T", "local").parallel("i"),
        "block 'T' writes 'T', of scope local, allocated outside of 'i'",
        "inside of the loop",
    ),
    "warps beside x": (
        lambda: S(matmul()).bind("i", "thread.x").bind("j", "thread.lane"),
        "'j' cannot be on thread.lane where 'i' is on thread.x",
        "warps and lanes",
    ),
    "a copy by no threads": (
        lambda: _staged().cooperative_copy("T", (0,)),
        "'T' cannot be copied by (0,) threads",
        "positive numbers",
    ),
    "a copy without loops": (
        lambda: _staged().bind("T_j", "thread.x").cooperative_copy("T", (2,)),
        "no serial loops are around 'T' alone",
        "cache a tile",
    ),
    "a copy of a symbolic row": (
        lambda: S(_symbolic()).cooperative_copy("Y", (2,)),
        "has n iterations, not a constant number, for threads to share",
        "constant size",
    ),
    "vectors that do not fit": (
        lambda: _staged().cooperative_copy("T", (2,), vector=3),
        "rows of 8 elements are no whole number of vectors of 3",
        "divisor",
    ),
    "one stage": (lambda: _staged().pipeline("i", 1), "a pipeline of 1 stages", "2 or more"),
    "a pipeline of a parallel loop": (
        lambda: S(elementwise()).parallel("i").pipeline("i", 2),
        "'i' is a parallel loop of step 1, and has no next iteration",
        "serial",
    ),
    "a pipeline without tiles": (
        lambda: S(elementwise()).pipeline("i", 2),
        "the body of 'i' does not begin with statements that fill",
        "cache",
    ),
    "a pipeline of what it makes": (
        lambda: Schedule(parse_function(_READS_BACK)).pipeline("o", 2),
        "what fills the tiles of 'o' uses 'Y', which the loop writes",
        "what is there before",
    ),
    "a pipeline of tiles that are changed": (
        lambda: Schedule(parse_function(_CHANGED)).pipeline("o", 2),
        "'T' is written where it is used",
        "read only",
    ),
    "a pipeline of one tile": (
        lambda: Schedule(parse_function(_STILL)).pipeline("o", 2),
        "'o' does not move the tile 'T' along one dimension",
        "cached at",
    ),
    "a pipeline of scans": (
        lambda: S(_rows_of_scans()).compute_at("Y", "Z_b").pipeline("Z_b", 2),
        "block 'Y' fills its tile in order, over what earlier tiles left",
        "filled independently",
    ),
    "a pipeline of windows": (
        lambda: S(_stencil()).cache("T", "Y_i", scope="shared", name="W").pipeline("Y_i", 2),
        "tiles of 'W' overlap from one iteration of 'Y_i' to the next",
        "slide and roll",
    ),
    "rows no longer": (lambda: _staged().pad_stride("T", 0), "rows cannot be 0 elements longer", "1 or more"),
    "rows of a line": (
        lambda: S(_line()).cache("X", scope="shared", name="T").pad_stride("T", 1),
        "'T' has one dimension",
        "two dimensions",
    ),
    "a swizzle of nobody": (lambda: _staged().swizzle("U", 2), "there is no buffer 'U'", "T"),
    "a swizzle of an argument": (lambda: _staged().swizzle("X", 2), "'X' is an argument", "cache a copy"),
    "a swizzle of tile registers": (
        lambda: S(_line()).cache("X", scope=TILE, name="Q").swizzle("Q", 2),
        "'Q' is in tile registers",
        "cache a copy",
    ),
    "a swizzle of three groups": (
        lambda: _staged().swizzle("T", 3),
        "'T' cannot have 3 groups of 1 elements",
        "power of two",
    ),
    "a swizzle of short rows": (
        lambda: _staged().swizzle("T", 4, vector=4),
        "rows of 'T' (8 elements) are no whole number of 4 groups of 4",
        "multiple",
    ),
    "a swizzle of one number": (
        lambda: S(_total()).swizzle("T", 2),
        "rows of 'T' (1 elements) are no whole number of 2 groups of 1",
        "two dimensions",
    ),
    "virtual threads of a block": (
        lambda: S(elementwise()).virtual_threads(("i",), "block.x", 2),
        "block.x is no axis of threads",
        "thread.x",
    ),
    "virtual threads that do not fit": (
        lambda: S(elementwise(9, 4)).virtual_threads(("i",), "thread.x", 2),
        "'i' has 9 iterations: they do not go round 2 threads",
        "divisor",
    ),
    "shared memory of one thread": (
        lambda: S(chain()).bind("Y_i", "thread.x").cache("T", "Y_i", scope="shared"),
        "shared buffer 'T_shared' would hold what one iteration of 'Y_i' uses",
        "allocate it outside",
    ),
    "unknown axis": (lambda: S(matmul()).bind("i", "warp.x"), "there is no axis 'warp.x'", "block.x"),
    "axis twice": (
        lambda: S(matmul()).bind("i", "block.x").bind("j", "block.x"),
        "a loop around 'j' already has the axis",
        "",
    ),
    "axis twice, from outside": (
        lambda: S(matmul()).bind("j", "thread.x").bind("i", "thread.x"),
        "a loop inside 'i' already has the axis",
        "",
    ),
    "blocks inside of threads": (
        lambda: S(matmul()).bind("i", "thread.x").bind("j", "block.x"),
        "'j' on block.x inside of 'i' on thread.x: blocks hold threads",
        "bind the outer loops",
    ),
    "threads around blocks": (
        lambda: S(matmul()).bind("j", "block.x").bind("i", "thread.x"),
        "'i' on thread.x around 'j' on block.x: blocks hold threads",
        "bind the outer loops",
    ),
    "an element of several threads": (
        lambda: S(chain()).set_scope("T", "local").bind("i", "thread.x"),
        "an element of 'T' would have several threads of thread.x, by blocks 'T' and 'Y'",
        "bind all loops",
    ),
    "lanes of a scan": (
        lambda: S(_scan()).vectorize("t"),
        "runs the ordered iterator 't'",
        "parallel iterator",
    ),
    "lanes that initialise": (
        lambda: S(matmul()).vectorize("k"),
        "which still has its initialisation",
        "decompose_init('C', ...)",
    ),
    "lanes in lanes": (
        lambda: S(elementwise()).vectorize("j").vectorize("i"),
        "the vector loop 'j' is inside of it",
        "",
    ),
    "lanes around threads": (
        lambda: S(elementwise()).parallel("j").vectorize("i"),
        "the parallel loop 'j' is inside of it",
        "",
    ),
    "lanes that pass values": (
        lambda: S(_stencil()).compute_at("T", "Y_i", keep_storage=True).vectorize("Y_i"),
        "lanes of 'Y_i' may touch the same elements of 'T' in 'T'",
        "one of the blocks",
    ),
    "lanes that overlap": (
        lambda: S(elementwise()).split("i", 4, tail="shift").vectorize("i_o"),
        "lanes of 'i_o' may touch the same elements of 'Y' in 'Y'",
        "do not overlap",
    ),
    "unroll of lanes": (
        lambda: S(elementwise()).vectorize("j").unroll("j"),
        "'j' is already a vector loop",
        "",
    ),
    "unroll of a symbolic loop": (lambda: S(_symbolic()).unroll("i"), "not a constant number", "split it"),
    "unknown hint": (lambda: S(matmul()).annotate("i", "fast"), "there is no hint 'fast'", "outline"),
    "stores that are not there": (
        lambda: S(matmul()).annotate("i", "nontemporal", "C,A"),
        "the loop 'i' does not write 'A'",
        "it writes C",
    ),
    "a hint without its number": (
        lambda: S(matmul()).annotate("i", "unroll", "twice"),
        "'unroll' takes a number from 1 on, not 'twice'",
        "",
    ),
    "a hint with a value too many": (
        lambda: S(matmul()).annotate("i", "outline", "2"),
        "'outline' takes no value, not '2'",
        "",
    ),
    "a hint that asks for anything": (
        lambda: S(matmul()).annotate("i", "prefetch", "A,B@soon"),
        "'prefetch' takes 'A', 'A@8', 'A@spread', 'A+4096' or 'A+4096:1', not 'B@soon'",
        "",
    ),
    "a hint that asks for nothing": (
        lambda: S(matmul()).annotate("i", "prefetch", "A,BB@2"),
        "there is no buffer 'BB' to ask for ahead",
        "B",
    ),
    "a hint that names no buffer": (
        lambda: S(matmul()).annotate("i", "nontemporal", ""),
        "'nontemporal' takes names of buffers, by commas, not ''",
        "",
    ),
    "an intermediate that is not read": (
        lambda: S(chain()).annotate("Y_i", "in_place", "Y"),
        "the loop 'Y_i' does not read 'Y'",
        "it reads T",
    ),
    # decompose_init
    "nothing to decompose": (
        lambda: S(chain()).decompose_init("T", "i"),
        "block 'T' has no initialisation",
        "",
    ),
    "decompose elsewhere": (
        lambda: S(matmul()).split("k", 4, tail="peel").decompose_init("C", "k_t"),
        "block 'C' is not inside of 'k_t'",
        "",
    ),
    "decompose inside of the reduction": (
        lambda: S(matmul()).reorder("k", "j").decompose_init("C", "j"),
        "also runs in 'k', outside of 'j'",
        "outermost",
    ),
    "decompose a rest": (
        lambda: S(matmul(5, 6, lang.param("n"))).split("k", 4, tail="peel").decompose_init("C_t", "k_t"),
        "not at its first value 0",
        "the copy of the block that runs first",
    ),
    "decompose a mixed loop": (
        lambda: S(matmul()).fuse("j", "k").decompose_init("C", "j_k"),
        "'j_k' runs parallel and reduction iterators of block 'C' at once",
        "before fusing",
    ),
    # blockize, set_scope
    "blockize with an initialisation": (
        lambda: S(matmul()).blockize("j"),
        "block 'C' still has its initialisation",
        "decompose_init first",
    ),
    "blockize of lanes that add up": (
        lambda: S(matmul()).decompose_init("C", "k").vectorize("k").blockize("k"),
        "the lanes of 'k' add up one result",
        "leave the loop serial",
    ),
    "blockize of threads": (
        lambda: S(elementwise()).parallel("j").blockize("i"),
        "the parallel loop 'j' would be hidden",
        "inside of it",
    ),
    "scope of an argument": (
        lambda: S(chain()).set_scope("X", "local"),
        "'X' is an argument",
        "cache a copy",
    ),
    "scope of a stranger": (lambda: S(chain()).set_scope("Q", "local"), "there is no buffer 'Q'", ""),
    "no scope": (lambda: S(chain()).set_scope("T", "const"), "'const' is no scope", "register"),
    "private scope of shared data": (
        lambda: S(chain()).parallel("i").set_scope("T", "local"),
        "the parallel loop 'i' inside of its allocation",
        "inside",
    ),
}


#: What is wrong is an argument that is in no line of the program.
NOWHERE = {
    "a swizzle of nobody",
    "unknown loop",
    "unknown block",
    "taken name",
    "number of names",
    "unknown primitive",
    "tile of too few",
    "scope of a stranger",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusal(what, same_text):
    action, message, hint = REFUSALS[what]
    with pytest.raises(ScheduleError) as caught:
        action()
    error = caught.value
    assert message in error.what
    assert hint in (error.hint or "")
    assert str(error).startswith(error.what)
    assert error.marked or what in NOWHERE
    same_text(error)


def test_the_program_is_printed_with_the_place_marked():
    with pytest.raises(ScheduleError) as caught:
        S(matmul()).split("i", 2).parallel("k")
    error = caught.value
    rows = error.program.splitlines()
    assert [rows[n].strip() for n in error.marked] == ["for k in range(7):", 'with block("C"):']
    assert ">>             for k in range(7):" in str(error)
    assert parse_function(error.program) == S(matmul()).split("i", 2).func
