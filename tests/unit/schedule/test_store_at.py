"""store_at and decouple_at: constants inside of each other, what is made of them, and the way back."""

from dataclasses import replace

import numpy as np
import pytest
from tests.native_kernel import HOST

import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver.measure_worker import Runner
from tilewright.ir import CONST, print_program, run_function, to_function, verify_program
from tilewright.plan import plan_unit
from tilewright.schedule import Schedule, Step, Trace, derived_constants
from tilewright.support import ScheduleError


def biased(dtype="f32"):
    A, W = lang.placeholder((5, 6), name="A"), lang.placeholder((6, 8), name="W")
    b = lang.placeholder((8,), dtype, name="b")
    k = lang.reduce_axis(6, "k")
    S = lang.compute((5, 8), lambda i, j: lang.sum(A[i, k] * W[k, j], axis=k), name="S")
    Y = lang.compute((5, 8), lambda i, j: S[i, j] + lang.cast(b[j], "f32"), name="Y")
    p = lang.program([A, W, b], [Y])
    return replace(p, inputs=(p.inputs[0], *(x.with_(scope=CONST) for x in p.inputs[1:])))


def arrays_of(program):
    rng = np.random.default_rng(1)
    return {
        b.name: rng.integers(-3, 4, [n.as_int() for n in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }


def results(program, s):
    arrays, derived = arrays_of(program), derived_constants(s)
    verify_program(s.program)
    given = {
        b.name: derived[b.name].of(arrays) if b.name in derived else arrays[b.name] for b in s.program.inputs
    }
    return run_function(s.func, given)["Y"], run_function(to_function(program), arrays)["Y"]


@pytest.mark.parametrize(
    "steps",
    [
        [("store_at", "b", "W", 0, "Wb")],
        [
            ("store_at", "b", "W", 0, "Wb"),
            ("layout_split", "Wb", 1, (-1, 3)),
            ("layout_reorder", "Wb", (1, 0, 2)),
        ],
        [("layout_reorder", "W", (1, 0)), ("store_at", "b", "W", 1, "Wb"), ("layout_pad", "Wb", 0, 0, 1)],
        [("store_at", "b", "W", 0, "Wb"), ("decouple_at", "Wb", 0, "V", "v")],
        [
            ("layout_reorder", "W", (1, 0)),
            ("store_at", "b", "W", 1, "Wb"),
            ("decouple_at", "Wb", 1, "V", "v"),
        ],
        [
            ("store_at", "b", "W", 0, "Wb"),
            ("decouple_at", "Wb", 0, "W", "b"),
            ("layout_reorder", "W", (1, 0)),
        ],
        [("layout_split", "b", 0, (2, 4)), ("layout_split", "W", 1, (2, 4)), ("store_at", "b", "W", 0, "Wb")],
    ],
)
def test_results_stay(steps):
    program = biased()
    s = Schedule(program)
    for name, *args in steps:
        s = s.apply(name, *args)
    got, expected = results(program, s)
    np.testing.assert_array_equal(got, expected)


def test_one_undoes_the_other():
    s = Schedule(biased())
    assert s.store_at("b", "W", 0, "Wb").decouple_at("Wb", 0, "W", "b").program == s.program


def test_the_constant_is_made_of_both():
    s = Schedule(biased()).store_at("b", "W", 0, "Wb")
    (made,) = derived_constants(s).values()
    W, b = np.arange(48.0).reshape(6, 8), -np.arange(8.0)
    assert made.sources == ("b", "W")
    np.testing.assert_array_equal(made.compute(b, W), np.concatenate([W, b[None]]))
    assert made.error(b, W) == 0.0


def test_kernels_of_models_take_it():
    """A plan that stores the bias behind the weights: measured, compiled into a model, right."""
    program = biased()
    step = Step("store_at", ("b", "W", 0, "Wb"))
    made = plan_unit(Schedule(program).replay([step]).require_program(), Machine(HOST, 1)).plan
    plan = replace(made, rewrites=Trace((step, *made.rewrites.steps)))
    request = {
        "program": print_program(program),
        "reference": plan_unit(program, Machine(HOST, 1)).plan.to_json(),
        "threads": 1,
        "form": "plan",
        "candidate": plan.to_json(),
        "memory": 1 << 32,
        "slow": 100.0,
    }
    (answer,) = Runner(HOST).answer({"do": "run", "candidates": [request], "rounds": 1})["trials"]
    assert answer["status"] == "ok", answer["reason"]
    assert Machine(HOST, 1).threads == 1 and tilewright.__version__


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("'A' is no constant", lambda s: s.store_at("b", "A", 0, "Ab")),
        ("no dimension 2", lambda s: s.store_at("b", "W", 2, "Wb")),
        (r"'b' of shape \[8\] \(f32\) has no place", lambda s: s.store_at("b", "W", 1, "Wb")),
        ("a tensor 'A' already", lambda s: s.store_at("b", "W", 0, "A")),
        ("nothing can be taken from dimension 0 of 'A'", lambda s: s.decouple_at("A", 0, "V", "v")),
        ("no two new names", lambda s: s.decouple_at("W", 0, "V", "V")),
        ("may read both parts of 'W' at k", lambda s: s.decouple_at("W", 0, "V", "v")),
    ],
)
def test_refusals(text, make, same_text):
    with pytest.raises(ScheduleError, match=text) as caught:
        make(Schedule(biased()))
    same_text(caught.value)
