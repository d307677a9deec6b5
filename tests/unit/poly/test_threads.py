"""Which threads do what, to both modes of the judge: axes, where loops begin, what every thread runs."""

import pytest

from tilewright.ir import ExecutionError, parse_function, run_function
from tilewright.poly import check_legal
from unit.lower.test_barriers import arrays_of

HEAD = """
function("f", outputs=[Y])
X = f32[2, 8]
Y = f32[2, 8]
for b in thread("block.x", 2):
"""
#: Eight elements by eight threads, then the last four of them by loops that begin at 4.
LATER = (
    HEAD
    + """    S = alloc(f32[8], scope="shared")
    for i in thread("thread.x", 8):
        with block("S"):
            n = par(0, 2, b)
            a = par(0, 8, i)
            S[a] = X[n, a]
    {barrier}
    for j in thread("thread.x", {lo}, {hi}):
        with block("Y"):
            n = par(0, 2, b)
            a = par(0, 8, j)
            Y[n, a] = S[a]
"""
)
#: One thread fills, all threads read into memory of their own.
EVERYONE = (
    HEAD
    + """    S = alloc(f32[8], scope="shared")
    acc = alloc(f32[8], scope="local")
    for i in range(8):
        with block("S"):
            n = par(0, 2, b)
            a = par(0, 8, i)
            S[a] = X[n, a]
    {barrier}
    for k in range(8):
        with block("acc"):
            n = par(0, 2, b)
            a = par(0, 8, k)
            acc[a] = S[-a + 7]
    for m in range(8):
        with block("Y"):
            n = par(0, 2, b)
            a = par(0, 8, m)
            Y[n, a] = acc[a]
    for t in thread("thread.x", 4):
        with block("Z"):
            a = par(0, 4, t)
            R = alloc(f32[4], scope="local")
            R[a] = f32(0.0)
"""
)
#: Each thread reads back what it wrote, in a loop over one axis more.
AXES = (
    HEAD
    + """    S = alloc(f32[8], scope="shared")
    for i in thread("thread.y", 8):
        for one in thread("thread.x", 1):
            with block("S"):
                n = par(0, 2, b)
                a = par(0, 8, i + one)
                S[a] = X[n, a]
    for j in thread("thread.y", 8):
        with block("Y"):
            n = par(0, 2, b)
            a = par(0, 8, j)
            Y[n, a] = S[a]
"""
)


def races(text):
    """Whether the list mode, the symbolic one and the interpreter find one."""
    func = parse_function("\n".join(line for line in text.lstrip().splitlines() if line.strip()) + "\n")
    found = []
    for mode in ("list", "isl"):
        found.append(any(v.kind == "race" for v in check_legal(func, func, mode=mode)))
    try:
        run_function(func, arrays_of(func), complete=False)
        found.append(False)
    except ExecutionError as error:
        assert "race" in str(error)
        found.append(True)
    return found


@pytest.mark.parametrize(("lo", "hi", "other"), [(0, 8, False), (4, 8, True), (0, 3, False)])
def test_threads_are_counted_from_where_their_loop_begins(lo, hi, other):
    assert races(LATER.format(lo=lo, hi=hi, barrier="")) == [other] * 3
    assert races(LATER.format(lo=lo, hi=hi, barrier='barrier("shared")')) == [False] * 3


def test_what_fills_memory_of_each_thread_is_run_by_all():
    assert races(EVERYONE.format(barrier="")) == [True] * 3
    assert races(EVERYONE.format(barrier='barrier("shared")')) == [False] * 3


def test_threads_are_the_same_whichever_axes_spread_a_statement():
    assert races(AXES) == [False] * 3
