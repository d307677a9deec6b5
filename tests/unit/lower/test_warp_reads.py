"""Reads of warps: the box of all threads, whatever one of them names."""

from tilewright.ir import Exec, parse_function
from tilewright.lower.warp_reads import with_reads_of_warps

NEST = """
function("f", outputs=[C])
C = f32[16, 8]
acc = alloc(f32[16, 8], scope="register")
As = alloc(f16[16, 32], scope="shared")
Bs = alloc(f16[32, 8], scope="shared")
for k in range(2):
    for t in thread("thread.x", {threads}):
        with block("C"):
            k = red(0, 2, k)
            t = par(0, {threads}, t)
            execute("mma_m16n8k16_f16", {result}, {first}, {second})
"""
RESULT = 'window("rw", acc[t//4, 2*(t%4)], 9, 2, axes=((0, 2, 8), (1, 2, 1),))'
SECOND = 'window("r", Bs[16*k, 2*(t%4)], 16, 2, axes=((0, 16, 1), (1, 2, 1),))'
FIRST = 'window("r", As[{row}, 16*k], 9, 16, axes=((0, 2, 8), (1, 16, 1),))'


def windows(first, threads=32):
    text = NEST.format(threads=threads, result=RESULT, first=first, second=SECOND)
    func = with_reads_of_warps(parse_function(text))
    found = func.body
    while not isinstance(found, Exec):
        found = found.body
    return [(w.buffer, tuple(map(str, w.offsets)), tuple(w.extents), bool(w.axes)) for w in found.windows]


def test_factors_are_read_by_all_threads():
    own, first, second = windows(FIRST.format(row="t//4"))
    assert own == ("acc", ("t//4", "2*(t%4)"), (9, 2), True)  # results are of one thread
    assert first == ("As", ("0", "16*k"), (16, 16), False)
    assert second == ("Bs", ("16*k", "0"), (16, 8), False)


def test_rows_may_go_down():
    _, first, _ = windows(FIRST.format(row="7 - t//4"))
    assert first == ("As", ("0", "16*k"), (16, 16), False)
