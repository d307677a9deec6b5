"""Loops of the dry run: what is held, what goes round in rings, and recurrences of any number of steps."""

import numpy as np
import pytest

from machine_programs import conv1d, gemm, gru_step, machine_of, small
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
