"""Recurrences on random machines: whatever an approach answers, the streams are right.

Programs are in ``tests/fuzz/test_machines.py``.
"""

import random

import numpy as np
import pytest

from fuzz.machines import Dice, random_machine
from tilewright import lang
from tilewright.mapping.system import Recurrence, execute, schedule_recurrence, time_streams
from tilewright.support import UserError

#: Seeds whose machines have an instruction for each stage, and ways for what it reads.
RIGHT = (1, 2, 3, 5, 10, 11, 12, 13, 15, 19, 23, 24, 25, 26, 27, 28)
#: What others lack.
REFUSED = {
    0: r"stage 'q': no instruction of machine 'random' computes max\(p\[i, j\], f32\(0.0\)\)",
    6: r"stage 'p': no instruction of machine 'random' computes \(x\[i, k\] \* w\[k, j\]\) combined by add",
    8: "stage 'q': machine 'random': no path of moves that stream 's2' issues brings X from 'dram' to 's2c'",
    17: "machine 'random': no stream can do all of a step by itself, which takes matmul_add, relu",
}


def scheduled(seed):
    """A machine, the streams of a recurrence on it, whether its steps read inputs, and its values."""
    rng = np.random.default_rng(seed)
    machine = random_machine(random.Random(seed))
    size, inner = int(rng.integers(1, 7)), int(rng.integers(1, 7))
    x, h = lang.placeholder((size, inner), name="x"), lang.placeholder((size, inner), name="h")
    w, k = lang.placeholder((inner, inner), name="w"), lang.reduce_axis(inner, "k")
    source = x if rng.integers(2) else h
    p = lang.compute((size, inner), lambda i, j: lang.sum(source[i, k] * w[k, j], axis=k), name="p")
    zero = lang.const(0, "f32")
    q = lang.compute((size, inner), lambda i, j: lang.maximum(p[i, j], zero), name="q")
    step = lang.program([x, h, w] if source is x else [h, w], [q])
    if source is x:
        recurrence = Recurrence(lang.program([x, w], [q]), 5, {}, ("x",))
    else:
        recurrence = Recurrence(step, 5, {"q": "h"})
    streams = schedule_recurrence(recurrence, machine, Dice(seed))
    draw = rng.integers(-1, 2, (inner, inner)).astype("f4")
    given, steps = ("x", 5) if source is x else ("h", 6)
    arrays = {"w": draw, given: rng.integers(-1, 2, (steps, size, inner)).astype("f4")}
    return machine, streams, source is x, arrays


@pytest.mark.parametrize("seed", RIGHT)
def test_recurrences(seed):
    machine, streams, of_inputs, arrays = scheduled(seed)
    made = execute(streams, machine, arrays)
    for t in range(5):
        before = arrays["x"][t] if of_inputs else made["h"][t]
        after = made["q"][t] if of_inputs else made["h"][t + 1]
        np.testing.assert_array_equal(after, np.maximum(before @ arrays["w"], 0))
    quick, exact = time_streams(streams, machine), time_streams(streams, machine, exact=True)
    assert quick.cycles == exact.cycles


@pytest.mark.parametrize("seed", REFUSED)
def test_machines_that_lack_something(seed):
    with pytest.raises(UserError, match=REFUSED[seed]):
        scheduled(seed)
