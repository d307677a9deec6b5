"""Recurrences on random machines: whatever an approach answers, the streams are right.

Programs are in ``tests/fuzz/test_machines.py``.
"""

import random

import numpy as np
import pytest

from fuzz.machines import Dice, random_machine
from machine_programs import arrays_of
from tilewright import lang
from tilewright.mapping.system import Recurrence, execute, schedule_recurrence, time_streams
from tilewright.support import TargetError, UserError


@pytest.mark.parametrize("seed", range(16))
def test_recurrences(seed):
    rng = np.random.default_rng(seed)
    try:
        machine = random_machine(random.Random(seed))
    except TargetError:
        pytest.skip("no machine")
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
    try:
        streams = schedule_recurrence(recurrence, machine, Dice(seed))
    except UserError as error:
        pytest.skip(error.what)
    draw = arrays_of(lang.program([w], [lang.compute((1,), lambda i: w[i, i], name="o")]), seed, -1, 2)["w"]
    arrays = {"w": draw}
    rows = 6 if source is h else 5
    arrays["x" if source is x else "h"] = rng.integers(-1, 2, (rows, size, inner)).astype("f4")
    made = execute(streams, machine, arrays)
    for t in range(5):
        before = arrays["x"][t] if source is x else made["h"][t]
        after = made["q"][t] if source is x else made["h"][t + 1]
        np.testing.assert_array_equal(after, np.maximum(before @ draw, 0))
    quick, exact = time_streams(streams, machine), time_streams(streams, machine, exact=True)
    assert quick.cycles == exact.cycles
