"""Whatever an approach answers, the streams are right: only their time may suffer."""

import numpy as np
import pytest

from machine_programs import (
    MATMUL,
    arrays_of,
    check,
    conv1d,
    conv2d,
    gemm,
    layer,
    machine_of,
    small,
)
from tilewright import lang
from tilewright.mapping.system import Recurrence, execute, schedule, schedule_recurrence, time_streams
from tilewright.support import ResourceError


class Dice:
    """Any answer to any question, by a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def choose(self, kind, options, state):
        return int(self.rng.integers(len(options)))


def machine_by(rng):
    """Files of any size, operands in one or several of them, with or without a file on the way."""
    data = small(file=int(rng.choice([512, 1024, 4096])))
    files = data["memories"][1:]
    for f in files:
        f["uses"] = int(rng.integers(1, 4))
    both = {"A": ["a", "b"], "B": ["b", "a"], "C": ["c"]}
    if files[0]["uses"] + files[1]["uses"] > 2:
        both["C"] = ["c", "a", "b"]
        for f in "ab":
            data["moves"].append({**data["moves"][3], "name": f"store_{f}", "from": f})
            data["moves"].append(
                {**data["moves"][3], "name": f"c_{f}", "from": "c", "to": f, "transposes": False}
            )
    vector = {
        "add_row": {"X": ("f32", "m, n"), "Y": ("f32", "n")},
        "relu": {"X": ("f32", "m, n")},
    }
    values = {"add_row": "X[i, j] + Y[j]", "relu": "max(X[i, j], f32(0.0))"}
    for f in files:
        f["uses"] = max(f["uses"], 3) if f["name"] == "c" else f["uses"]
    for name, operands in vector.items():
        inputs = [f"{x} = input({t}[{dims}])" for x, (t, dims) in operands.items()]
        body = ["Z = output(f32[m, n])", *MATMUL[7:10], f"    Z[i, j] = {values[name]}"]
        semantics = [f'program("{name}")', *MATMUL[1:3], *inputs, *body]
        data["instructions"].append({"name": name, "semantics": semantics, "cycles": "m"})
        for unit in data["units"]:
            unit["places"][name] = {o: ["c"] for o in (*operands, "Z")}
    for unit in data["units"]:
        unit["places"].update(matmul=both, matmul_add=both)
    if rng.integers(2):
        data["memories"].append({"name": "far", "bytes": 8192, "align": 64})
        data["moves"] += [
            {**data["moves"][0], "name": "load_far", "to": "far"},
            {**data["moves"][0], "name": "far_a", "from": "far", "transposes": False},
            {**data["moves"][0], "name": "far_b", "from": "far", "to": "b", "transposes": False},
        ]
    for m in data["moves"]:
        m["strides"] = m["transposes"] and bool(rng.integers(2))
    if rng.integers(2):
        data["units"][1]["stream"] = "t"
        for m in data["moves"]:
            m["streams"] = ["s", "t"]
        again = [{**m, "name": f"t{m['name']}"} for m in data["memories"][1:]]
        moves = []
        for m in data["moves"]:
            ends = {e: m[e] if m[e] == "dram" else f"t{m[e]}" for e in ("from", "to")}
            moves.append({**m, **ends, "name": f"t{m['name']}", "streams": ["t"]})
            m["streams"] = ["s"]
        data["memories"] += again
        data["moves"] += moves
        places = data["units"][1]["places"]
        data["units"][1]["places"] = {
            i: {o: [f"t{x}" for x in ms] for o, ms in operands.items()} for i, operands in places.items()
        }
    return machine_of(data)


def program_by(rng):
    def n(hi):
        return int(rng.integers(1, hi))

    kind = rng.integers(4)
    if kind == 0:
        return gemm(n(30), n(30), n(30))
    if kind == 1:
        return layer(n(20), n(20), n(20), "f32", "f32")
    if kind == 2:
        return conv1d(n(4), 3 + n(12), n(9), n(9), int(rng.integers(1, 4)), "f32", "f32")
    return conv2d(n(3), 3 + n(5), 3 + n(8), n(6), n(6), n(4), n(3), "f32", "f32")


@pytest.mark.parametrize("seed", range(24))
def test_programs(seed):
    rng = np.random.default_rng(seed)
    machine, program = machine_by(rng), program_by(rng)
    try:
        streams = schedule(program, machine, Dice(seed))
    except ResourceError:
        return  # an honest refusal: what was chosen does not fit
    check(program, streams, machine, seed)


@pytest.mark.parametrize("seed", range(12))
def test_recurrences(seed):
    rng = np.random.default_rng(seed)
    machine = machine_by(rng)
    size, inner = int(rng.integers(1, 10)), int(rng.integers(1, 10))
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
    except ResourceError:
        return
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
