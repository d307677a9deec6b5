"""Proofs that hand-written schedules reach what the systems behind Tilewright do: a class for each letter.

The programs and their schedules are those of ``examples/``; each is checked on the shuffling interpreter and
as native code against ``lang.evaluate``. Inputs are small whole numbers and weights powers of two, so that
every order of summation gives the same result.
"""

import itertools

import numpy as np
import pytest
from example_modules import FOLDER, load_example
from native_kernel import Native

from tilewright import lang
from tilewright.driver import build
from tilewright.ir import run_function
from tilewright.schedule import Schedule, load_trace, replay


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def assert_replays(s):
    """The trace, as text and as JSON, gives the same function again."""
    again = replay(s.source, load_trace(s.trace.to_json()))
    assert str(again) == str(s)
    scope = {"Schedule": Schedule, "program": s.source}
    exec(s.trace.to_python(), scope)
    assert str(scope["s"]) == str(s)


@pytest.mark.parametrize("name", sorted(f.stem for f in FOLDER.glob("*.py")))
def test_examples_run(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    load_example(name).main()
    assert capsys.readouterr().out


class TestB:
    """A two-stage 3x3 stencil of symbolic size, fused with overlapping tiles."""

    TILE = (4, 8)
    stencil = load_example("stencil")
    SIZES = tuple(itertools.product(range(1, 4 + 3), range(1, 8 + 3)))

    def small(self):
        return self.stencil.fused(self.TILE, rows=(3, 2), lanes=4)

    def image(self, h, w):
        return integers((h + 4, w + 4), seed=97 * h + w)

    def expected(self, h, w):
        return lang.evaluate(self.stencil.program(), [self.image(h, w)])["C"]

    def test_inner_tiles_are_constant_parallel_and_without_conditions(self):
        s = self.small()
        assert [str(n) for n in s.buffers()["T"].physical_shape] == ["6", "10"]
        assert s.buffers()["T"].scope == "local"
        assert s.loop("C_y_o").kind.name == "parallel"
        assert s.block("T").where == s.block("C").where == ()
        assert [s.loop(s.loops(b)[-1]).kind.name for b in s.blocks()] == ["vector"] * len(s.blocks())
        assert_replays(s)

    def test_right_for_every_size_on_the_interpreter(self):
        s = self.small()
        for h, w in self.SIZES:
            got = run_function(s.func, {"X": self.image(h, w)}, {"H": h, "W": w}, seed=h + w)["C"]
            np.testing.assert_array_equal(got, self.expected(h, w), err_msg=f"{h} x {w}")

    @pytest.mark.parametrize("make", ["fused", "sliding", "unfused"])
    def test_right_for_every_size_as_native_code(self, make):
        arguments = {
            "fused": {"tile": self.TILE, "rows": (3, 2), "lanes": 4},
            "sliding": {"tile": self.TILE, "rows": 2, "lanes": 4},
            "unfused": {"lanes": 4, "rows": 2},
        }[make]
        kernel = build(getattr(self.stencil, make)(**arguments), threads=2)
        for h, w in self.SIZES:
            (got,) = kernel(self.image(h, w))
            np.testing.assert_array_equal(got, self.expected(h, w), err_msg=f"{h} x {w}")

    @pytest.mark.parametrize("size", [(1, 1), (4, 8), (5, 9), (6, 10), (9, 17)])
    def test_native_code_stays_inside_its_arrays(self, size):
        h, w = size
        run = Native(self.small().func)
        got = run({"X": self.image(h, w)}, {"H": h, "W": w})["C"]
        np.testing.assert_array_equal(got, self.expected(h, w))

    def test_the_tiles_of_the_benchmark(self):
        kernel = build(self.stencil.fused(), threads=2)
        (got,) = kernel(self.image(67, 1001))
        np.testing.assert_array_equal(got, self.expected(67, 1001))
