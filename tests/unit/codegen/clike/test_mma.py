"""Products by matrix units: right on the interpreter, compiled by NVRTC, refused where no warp does them."""

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.codegen import emit_kernels
from tilewright.ir import (
    F16,
    F32,
    ZERO,
    Alloc,
    Along,
    Const,
    Exec,
    For,
    IndexMap,
    LoopFunction,
    Window,
    buffer,
    dtype_of,
    floordiv,
    index,
    run_function,
    seq,
    store,
    thread,
    var,
)
from tilewright.lower import insert_barriers
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import A100, INTERPRETED, V100

KINDS = [
    ("mma_m16n8k16_f16", "f16", "f32", 16),
    ("mma_m16n8k16_bf16", "bf16", "f32", 16),
    ("mma_m16n8k32_i8", "i8", "i32", 32),
]


def scheduled(instr, factor, total, depth, m=32, n=16, k=64):
    """A block of 32 threads for each 16 x 8 results, their sums in shared memory."""
    a, b = lang.placeholder((m, k), factor, name="A"), lang.placeholder((k, n), factor, name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute(
        (m, n), lambda i, j: lang.sum(lang.cast(a[i, r], total) * lang.cast(b[r, j], total), axis=r), name="C"
    )
    s = Schedule(lang.program([a, b], [c], name="product"))
    s = s.split("i", 16).split("j", 8).split("k", depth).reorder("i_o", "j_o", "k_o", "i_i", "j_i", "k_i")
    s = s.bind("i_o", "block.y").bind("j_o", "block.x")
    s = s.cache("C", "j_o", mode="accumulate", scope="shared", name="acc").tensorize("i_i", instr)
    for nest in ("acc_init", "acc_out"):
        s = s.fuse(f"{nest}_i", f"{nest}_j", names=[f"{nest}_e"])
        s = s.split(f"{nest}_e", 32, names=[f"{nest}_q", f"{nest}_l"])
    return s


@pytest.mark.parametrize(("instr", "factor", "total", "depth"), KINDS)
def test_products(instr, factor, total, depth):
    s = scheduled(instr, factor, total, depth).bind(("acc_init_l", "acc_out_l"), "thread.x")
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (32, 64)).astype(dtype_of(factor).numpy)
    b = rng.integers(-3, 4, (64, 16)).astype(dtype_of(factor).numpy)
    got = run_function(insert_barriers(s.func), {"A": a, "B": b}, instructions=INTERPRETED)["C"]
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))
    text = checked_by_nvrtc(s.func, registers=96)
    assert f"tw_{instr}(&acc_[0], 8, 1, &A_[" in text and "mma.sync.aligned" in text
    # all threads come to it: only what is one thread's stands under a condition
    assert "if (" not in text.partition("__global__")[2]


def test_a_warp_is_asked_for():
    s = scheduled(*KINDS[0])
    with pytest.raises(ScheduleError, match="done by a whole warp"):
        kernel_source(s.bind(("acc_init_q", "acc_out_q"), "thread.x").func, "cuda")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("instr", "factor", "total", "depth"), KINDS)
def test_where_no_warp_does_them_one_thread_does(instr, factor, total, depth, language):
    s = scheduled(instr, factor, total, depth).bind(("acc_init_l", "acc_out_l"), "thread.x")
    rng = np.random.default_rng(2)
    a = rng.integers(-3, 4, (32, 64)).astype(dtype_of(factor).numpy)
    b = rng.integers(-3, 4, (64, 16)).astype(dtype_of(factor).numpy)
    got = on_device(s.func, language)({"A": a, "B": b})["C"]
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


def test_devices_list_what_they_have():
    products = {kind[0] for kind in KINDS}
    assert products < {row.name for row in A100.instructions}
    assert not products & {row.name for row in V100.instructions}
    assert "warp_add_f32" in {row.name for row in V100.instructions}


def by_hand(c, around=lambda s: s):
    """An instruction whose result is the buffer ``c``, beside a loop of 32 threads."""
    axes = {"c": (16, 8), "a": (16, 16), "b": (16, 8)}
    windows = tuple(
        Window(name, (var("o") if name == "c" else ZERO, ZERO), n, "rw" if name == "c" else "r",
               (Along(0, n[0]), Along(1, n[1])))
        for name, n in axes.items()
    )  # fmt: skip
    threads = For("t", ZERO, index(32), store("z", (var("t"),), Const(0.0, F32)), thread("thread.x"))
    body = For("o", ZERO, index(4), Exec("mma_m16n8k16_f16", windows))
    given = [buffer("a", (16, 16), F16), buffer("b", (16, 8), F16), buffer("z", (32,), F32)]
    if c.scope == "global":
        given.append(c)
    return LoopFunction("f", (), tuple(given), ("z",), around(seq(threads, body)))


def test_operands_that_an_instruction_cannot_take():
    private = buffer("c", (20, 8), F32, "local")
    with pytest.raises(ScheduleError, match="takes 'c' from shared or global memory"):
        block = lambda s: For("b", ZERO, index(1), Alloc(private, s), thread("block.x"))  # noqa: E731
        emit_kernels(by_hand(private, block), "cuda")
    thirds = IndexMap(("i", "j"), (floordiv(var("i"), 3), var("j")), (index(7), index(8)))
    with pytest.raises(ScheduleError, match="elements of 'c' do not lie evenly"):
        uneven = buffer("c", (20, 8), F32).with_(layout=thirds)
        emit_kernels(by_hand(uneven, lambda s: For("b", ZERO, index(1), s, thread("block.x"))), "cuda")
