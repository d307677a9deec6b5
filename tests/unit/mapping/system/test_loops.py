"""Loops of the dry run: what is held, what goes round in rings, and recurrences of any number of steps."""

import numpy as np
import pytest

from machine_programs import MATMUL, conv1d, gemm, gru_step, machine_of, small
from tilewright import lang
from tilewright.ir import Param, evaluate_index
from tilewright.mapping.system import (
    Heuristics,
    Recurrence,
    execute,
    load_machine,
    parse_streams,
    print_streams,
    schedule,
    schedule_recurrence,
    time_streams,
)
from tilewright.mapping.system.stream import Call, Move, Repeat, walk

STEPS = Param("T", 1, 1 << 20)


@pytest.fixture(scope="module")
def gru():
    step, machine = gru_step(5, 70, 66), load_machine("clusters")
    return step, machine, schedule_recurrence(Recurrence(step, STEPS, {"h2": "h"}, ("x",)), machine)


def given(streams, sizes, seed=1):
    rng = np.random.default_rng(seed)
    return {
        t.name: (rng.standard_normal([evaluate_index(x, sizes) for x in t.shape]) / 4).astype(t.dtype.numpy)
        for t in streams.tensors
        if t.given or not (t.output or t.temp)
    }


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_a_recurrence_whose_steps_are_counted_at_run_time(gru, steps):
    step, machine, streams = gru
    arrays = given(streams, {"T": steps})
    made = execute(streams, machine, arrays, {"T": steps})["h"]
    h = arrays["h"][0]
    weights = {n: a for n, a in arrays.items() if n not in ("x", "h")}
    for t in range(steps):
        h = lang.evaluate(step, {**weights, "x": arrays["x"][t], "h": h})["h2"]
        # sums in another order may round to another bf16 number: one unit in 2**8 of the state
        np.testing.assert_allclose(made[t + 1], h, atol=2**-8 * np.abs(h).max())
    quick = time_streams(streams, machine, {"T": steps})
    assert quick == time_streams(streams, machine, {"T": steps}, exact=True)


def test_weights_stay_on_the_chip(gru):
    _, machine, streams = gru
    (items,) = streams.streams.values()
    (loop,) = [i for i in items if isinstance(i, Repeat) and any(isinstance(x, Call) for x in walk(i.body))]
    read = {i.source.tensor for i in walk(loop.body) if isinstance(i, Move) and hasattr(i.source, "tensor")}
    assert read == {"x"}
    assert parse_streams(print_streams(streams)) == streams
    a, b = (time_streams(streams, machine, {"T": n}) for n in (1000, 2000))
    assert b.bytes["c0.hbm_rb"] == a.bytes["c0.hbm_rb"]
    assert (b.cycles - a.cycles) % 1000 == 0, "every step takes the same time"


def test_a_carried_result_is_read_where_it_was_made():
    """p(t + 1) = p(t) w, twice: with one memory for all, no copy of p is made but those that are kept."""
    h, w, k = lang.placeholder((4, 4), name="h"), lang.placeholder((4, 4), name="w"), lang.reduce_axis(4, "k")
    p = lang.compute((4, 4), lambda i, j: lang.sum(h[i, k] * w[k, j], axis=k), name="p")
    data = small(file=4096)
    data["memories"][3]["uses"] = 3
    for unit in data["units"]:
        for places in unit["places"].values():
            places.update(A=["c"], B=["c"], C=["c"])
    machine = machine_of(data)
    recurrence = Recurrence(lang.program([h, w], [p]), 5, {"p": "h"})
    streams = schedule_recurrence(recurrence, machine)
    rng = np.random.default_rng(0)
    arrays = {"h": rng.integers(0, 2, (6, 4, 4)).astype("f4"), "w": rng.integers(0, 2, (4, 4)).astype("f4")}
    made = execute(streams, machine, arrays)["h"]
    for t in range(5):
        np.testing.assert_array_equal(made[t + 1], made[t] @ arrays["w"])
    timing = time_streams(streams, machine)
    assert timing.bytes["load_c"] == 2 * 64, "h of the first step, and w"


def test_windows_go_round_in_a_ring():
    """A convolution along one row at a time: each iteration fetches only what is new."""
    program = conv1d(1, 40, 4, 4, 3, "f32", "f32")

    class Rows(Heuristics):
        """Windows unrolled, positions in a loop: k and output channels on the instruction's axes."""

        def choose(self, kind, options, state):
            if kind == "mapping":
                return max(range(len(options)), key=lambda n: options[n].cost[1])
            return super().choose(kind, options, state)

    machine = machine_of(small(file=4096))
    for approach in (Rows(), Heuristics()):
        streams = schedule(program, machine, approach)
        arrays = {
            b.name: np.arange(np.prod(s)).reshape(s).astype("f4") % 5
            for b in program.inputs
            for s in [tuple(x.as_int() for x in b.shape)]
        }
        made = execute(streams, machine, arrays)["Y"]
        np.testing.assert_array_equal(made, lang.evaluate(program, arrays)["Y"])


def test_what_fits_is_held_and_the_rest_is_fetched_again():
    moved = {}
    for file in (256, 1 << 16):
        machine = machine_of(small(file=file))
        moved[file] = sum(time_streams(schedule(gemm(48, 48, 48), machine), machine).bytes.values())
    assert moved[1 << 16] < moved[256]


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_carried_result_that_no_path_leads_to_its_reader_goes_home(steps):
    """What is fetched an iteration ahead must not be what that iteration writes."""
    h, w, k = lang.placeholder((4, 4), name="h"), lang.placeholder((4, 4), name="w"), lang.reduce_axis(4, "k")
    p = lang.compute((4, 4), lambda i, j: lang.sum(h[i, k] * w[k, j], axis=k), name="p")
    machine = machine_of(small())
    streams = schedule_recurrence(Recurrence(lang.program([h, w], [p]), steps, {"p": "h"}), machine)
    rng = np.random.default_rng(0)
    arrays = {
        "h": rng.integers(0, 2, (steps + 1, 4, 4)).astype("f4"),
        "w": np.eye(4, dtype="f4")[::-1].copy(),
    }
    made = execute(streams, machine, arrays)["h"]
    for t in range(steps):
        np.testing.assert_array_equal(made[t + 1], made[t] @ arrays["w"])


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_streams_divide_a_step_and_meet_after_it(steps):
    step, machine = gru_step(3, 40, 200), load_machine("clusters")
    streams = schedule_recurrence(Recurrence(step, STEPS, {"h2": "h"}, ("x",)), machine)
    assert len(streams.streams) > 1
    assert parse_streams(print_streams(streams)) == streams
    arrays = given(streams, {"T": steps})
    made = execute(streams, machine, arrays, {"T": steps})["h"]
    weights = {n: a for n, a in arrays.items() if n not in ("x", "h")}
    for t in range(steps):
        wanted = lang.evaluate(step, {**weights, "x": arrays["x"][t], "h": made[t]})["h2"]
        np.testing.assert_allclose(made[t + 1], wanted, atol=2**-8 * np.abs(wanted).max())


@pytest.mark.parametrize("shape", [(5, 70, 66), (3, 40, 200)], ids=["one stream", "several"])
def test_what_no_step_before_decides_is_done_before_all_steps(shape):
    """The inputs' products: weights of a half at a time are near the units. Results are those of one loop."""

    class Apart(Heuristics):
        def choose(self, kind, options, state):
            if kind == "recurrence":
                return next(n for n, o in enumerate(options) if len(o.parts) == 2)
            if kind == "split":
                return len(options) - 1
            return super().choose(kind, options, state)

    step, machine = gru_step(*shape), load_machine("clusters")
    recurrence = Recurrence(step, STEPS, {"h2": "h"}, ("x",))
    streams = schedule_recurrence(recurrence, machine, Apart())
    whole = schedule_recurrence(recurrence, machine)
    assert parse_streams(print_streams(streams)) == streams != whole
    assert {t.name for t in streams.tensors if not t.temp} == {t.name for t in whole.tensors if not t.temp}
    for steps in (1, 2, 4):
        arrays = given(streams, {"T": steps})
        made = execute(streams, machine, arrays, {"T": steps})["h"]
        weights = {n: a for n, a in arrays.items() if n not in ("x", "h")}
        for t in range(steps):
            wanted = lang.evaluate(step, {**weights, "x": arrays["x"][t], "h": made[t]})["h2"]
            np.testing.assert_allclose(made[t + 1], wanted, atol=2**-8 * np.abs(wanted).max())


def test_a_recurrence_is_taken_apart_where_its_weights_do_not_fit():
    """p = x W + h U in one loop, or in two after one another: results are the same."""
    x, h = lang.placeholder((4, 24), name="x"), lang.placeholder((4, 12), name="h")
    w, u = lang.placeholder((24, 12), name="W"), lang.placeholder((12, 12), name="U")
    j, k = lang.reduce_axis(24, "j"), lang.reduce_axis(12, "k")
    q = lang.compute((4, 12), lambda m, n: lang.sum(x[m, j] * w[j, n], axis=j), name="q")
    r = lang.compute((4, 12), lambda m, n: lang.sum(h[m, k] * u[k, n], axis=k), name="r")
    p = lang.compute((4, 12), lambda m, n: q[m, n] + r[m, n], name="p")
    step = lang.program([x, h, w, u], [p])
    loops = {}
    for file in (256, 1 << 16):
        data = small(file=file)
        body = ["X = input(f32[m, n])", "Y = input(f32[m, n])", "Z = output(f32[m, n])", 'with stage("Z"):']
        body += [*MATMUL[8:10], "    Z[i, j] = X[i, j] + Y[i, j]"]
        semantics = ['program("add")', *MATMUL[1:3], *body]
        data["instructions"].append({"name": "add", "semantics": semantics, "cycles": "m"})
        data["memories"][3]["uses"] = 3
        for unit in data["units"]:
            unit["places"]["add"] = {o: ["c"] for o in "XYZ"}
        machine = machine_of(data)
        streams = schedule_recurrence(Recurrence(step, 6, {"p": "h"}, ("x",)), machine)
        (items,) = streams.streams.values()
        loops[file] = sum(isinstance(i, Repeat) for i in items)
        rng = np.random.default_rng(0)
        arrays = {
            t.name: rng.integers(0, 2, [x.as_int() for x in t.shape]).astype("f4")
            for t in streams.tensors
            if t.given or not (t.output or t.temp)
        }
        arrays["U"] = np.eye(12, dtype="f4")
        made = execute(streams, machine, arrays)["h"]
        for t in range(6):
            wanted = arrays["x"][t] @ arrays["W"] + made[t] @ arrays["U"]
            np.testing.assert_array_equal(made[t + 1], wanted)
    assert loops == {256: 2, 1 << 16: 1}
