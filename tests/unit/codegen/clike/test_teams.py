"""Teams in CUDA text: who waits for what, and what no kernel can say."""

import re

import pytest

from devices import HAVE_NVRTC
from tilewright.codegen import compile_cuda, emit_kernels
from tilewright.ir import parse_function
from tilewright.support import ScheduleError, TargetError

#: A team copies slices of 8 rows, another adds them up; {loads} is what fills a slice.
TEXT = """
function("sums", outputs=[Y])
X = f32[2, 40, 32]
Y = f32[2, 32]
for b in thread("block.x", 2):
    T = alloc(f32[3, 8, 32], scope="shared", align=1024)
    with teams(channel("ring", 3)):
        with team("copy", 32):
            for k in range(5):
                acquire("ring", k)
                {loads}
                put("ring", k)
        with team("add", 64):
            for i0 in thread("thread.x", 32):
                Y[b, i0] = f32(0.0)
            for k1 in range(5):
                get("ring", k1)
                for r1 in range(8):
                    for i1 in thread("thread.x", 32):
                        Y[b, i1] = Y[b, i1] + T[k1 % 3, r1, i1]
                release("ring", k1)
"""
BOX = """for r in range(8, hints={"box": ""}):
                    for i in range(32):
                        T[k % 3, r, i] = X[b, r + 8*k, i]"""
BY_THREADS = """for i in thread("thread.x", 32):
                    for r in range(8):
                        T[k % 3, r, i] = X[b, r + 8*k, i]"""


def emitted(loads=BOX, *changes):
    text = TEXT.format(loads=loads)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return emit_kernels(parse_function(text), "cuda")


def compiled(source):
    if HAVE_NVRTC:
        made = compile_cuda(source.text, "sm_90a")
        assert not any(used.spilled or used.stack for used in made.resources.values())
        assert not made.warnings


def test_a_box_is_copied_by_one_thread():
    source = emitted()
    (entry,) = source.kernels
    (said,) = entry.maps
    assert (said.buffer, said.shape, said.box, said.swizzle) == (0, (2, 40, 32), (1, 8, 32), 0)
    assert [str(n) for n in entry.grid.threads] == ["96", "1", "1"]
    body = source.text.partition("__global__")[2]
    # one thread arrives where boxes do, a warp's first where threads read
    assert re.search(r"tw_ring_init\(&tw_full_ring\[n\], 1\)", body)
    assert re.search(r"tw_ring_init\(&tw_empty_ring\[n\], 1\)", body)
    assert "tw_box_3(&T_[(int)((unsigned int)k_ % 3u) * 256]" in body and ", 1024, 0, (k_ * 8), b_)" in body
    assert "__syncthreads" in body and body.count("#pragma unroll 1") == 2
    compiled(source)


def test_threads_copy_what_is_no_box():
    source = emitted(BY_THREADS, ('team("copy", 32', 'team("copy", 64'))
    assert not source.kernels[0].maps
    body = source.text.partition("__global__")[2]
    assert "if (tw_thread < 32)" in body
    # units that read by themselves see what threads stored
    assert body.index("fence.proxy.async", body.index("tw_thread")) < body.index("tw_ring_arrive(&tw_full")
    compiled(source)


def test_registers_of_teams():
    source = emitted(
        BOX, ('"copy", 32', '"copy", 128, registers=24'), ('"add", 64', '"add", 128, registers=240')
    )
    assert "setmaxnreg.dec.sync.aligned.u32 24" in source.text
    # threads begin with 65536 / 256 registers, at most 255
    assert "setmaxnreg.dec.sync.aligned.u32 240" in source.text and "__launch_bounds__(256, 1)" in source.text
    compiled(source)
    for change in (('"copy", 32', '"copy", 32, registers=24'), ('"copy", 32', '"copy", 512, registers=240')):
        with pytest.raises(ScheduleError, match="registers of 65536"):
            emitted(BOX, change)


def test_barriers_are_a_teams():
    source = emitted(
        BY_THREADS,
        (
            '                put("ring", k)',
            '                barrier("shared")\n                put("ring", k)',
        ),
    )
    assert "bar.sync 1, 32" in source.text
    few = [
        ('thread.x", 32):\n                    for r', 'thread.x", 16):\n                    for r'),
        ("r + 8*k, i]", "r + 8*k, i] + X[b, r + 8*k, i + 16]"),
    ]
    with pytest.raises(ScheduleError, match="a team of 16 threads waits for each other"):
        emitted(
            BY_THREADS,
            *few,
            (
                '                put("ring", k)',
                '                barrier("shared")\n                put("ring", k)',
            ),
        )


NO_BOX = [
    [("f32[2, 40, 32]", "f32[2, 40, 33]")],
    [("X[b, r + 8*k, i]", "X[b, r + 8*k, i] + f32(0.0)")],
    [("X[b, r + 8*k, i]", "X[b, i, r]")],
]


def test_a_row_is_a_box():
    """Loops around boxes stay loops."""
    source = emitted(BOX, ("X[b, r + 8*k, i]", "X[b, 2*r, i]"))
    assert source.kernels[0].maps[0].box == (1, 1, 32) and "tw_box_3(&T_[r_ * 32" in source.text


@pytest.mark.parametrize("changes", NO_BOX)
def test_copies_that_no_map_says(changes):
    with pytest.raises(ScheduleError, match="no box that a tensor map can say"):
        emitted(BOX, *changes)


def test_what_else_is_refused():
    with pytest.raises(ScheduleError, match="team 'add' has 16 threads"):
        emitted(BOX, ('"add", 64', '"add", 16'))
    with pytest.raises(TargetError, match="OpenCL C has no teams of threads"):
        emit_kernels(parse_function(TEXT.format(loads=BOX)), "opencl")
