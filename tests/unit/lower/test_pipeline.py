"""The pipeline keeps what a function computes, pass by pass, and lets hooks watch."""

import numpy as np

from tilewright.ir import LOWERED, SCHEDULED, LoopFunction, print_function, run_function, verify
from tilewright.lower import PIPELINE, lower
from tilewright.schedule import Schedule
from unit.schedule.gpu_programs import shared_matmul, threaded
from unit.schedule.loop_programs import matmul


def _scheduled():
    s = Schedule(matmul()).split("i", 3, tail="mask").split("j", 4)
    return s.reorder("i_o", "j_o", "k", "i_i", "j_i").decompose_init("C", "k").vectorize("j_i")


def test_every_pass_gives_a_valid_function_with_the_same_results():
    func = _scheduled().func
    verify(func, SCHEDULED)
    rng = np.random.default_rng(0)
    outputs = set(func.outputs)
    arrays = {
        b.name: rng.integers(-3, 4, [n.const for n in b.shape]).astype(np.float32)
        for b in func.buffers
        if b.name not in outputs
    }
    expected = run_function(func, arrays)
    seen = []

    def hook(name: str, after: LoopFunction, seconds: float) -> None:
        verify(after)
        assert seconds >= 0
        for key, want in expected.items():
            np.testing.assert_array_equal(run_function(after, arrays)[key], want, err_msg=name)
        seen.append((name, print_function(after)))

    last = lower(func, hooks=[hook])
    verify(last, LOWERED)
    assert [name for name, _ in seen] == [p.name for p in PIPELINE]
    assert seen[-1][1] == print_function(last)


def test_threads_one_after_another_share_a_buffer():
    """Loops over threads that become plain loops: what a thread has to itself stays a part of one buffer."""

    def sums(**options):
        lowered = lower(threaded(shared_matmul(8, 8, 4, block=8, depth=4), 2).func, **options)
        verify(lowered, LOWERED)
        (acc,) = (b for b in lowered.body.allocated if b.name == "acc")
        return [n.as_int() for n in acc.physical_shape]

    assert sums() == [2, 2]
    assert sums(one_by_one=True) == [8, 8]
