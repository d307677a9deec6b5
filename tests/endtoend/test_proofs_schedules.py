"""Proofs that hand-written schedules reach what the systems behind Tilewright do: a class for each letter.

The programs and their schedules are those of ``examples/``; each is checked on the shuffling interpreter and
as native code against ``lang.evaluate``. Inputs are small whole numbers and weights powers of two, so that
every order of summation gives the same result.
"""

import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest

import blocked_convolution
import epilogue_last_block
import mobilenet_block
import rolling_rows
import stencil
from native_kernel import Native
from tilewright import lang
from tilewright.build import build
from tilewright.ir import run_function, stmt_loads, verify
from tilewright.schedule import Schedule, load_trace, pack_argument, replay, unpack_argument

EXAMPLES = Path(stencil.__file__).parent


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def assert_replays(s):
    """The trace, as text and as JSON, gives the same function again."""
    again = replay(s.source, load_trace(s.trace.to_json()))
    assert str(again) == str(s)
    scope = {"Schedule": Schedule, "program": s.source}
    exec(s.trace.to_python(), scope)
    assert str(scope["s"]) == str(s)


@pytest.mark.parametrize("name", sorted(f.stem for f in EXAMPLES.glob("*.py")))
def test_examples_run(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    importlib.import_module(name).main()
    assert capsys.readouterr().out


def convolution_case(source):
    """Arrays of a convolution's program, and its result."""
    arrays = {b.name: integers([n.as_int() for n in b.shape], seed) for seed, b in enumerate(source.inputs)}
    return arrays, lang.evaluate(source, arrays)["Z"]


def run_packed(s, run, arrays, shape):
    """``run`` on the arrays in the layouts that a schedule gave them; the result in its first layout."""
    steps = s.trace.steps
    packed = {name: pack_argument(a, name, steps) for name, a in arrays.items()}
    return unpack_argument(run(packed)["Z"], "Z", shape, steps)


def check_convolution(s):
    """The schedule is right on the interpreter, in several orders, and as native code with guarded arrays."""
    verify(s.func)
    arrays, expected = convolution_case(s.source)
    for seed in range(2):
        got = run_packed(s, lambda a, seed=seed: run_function(s.func, a, seed=seed), arrays, expected.shape)
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(run_packed(s, Native(s.func), arrays, expected.shape), expected)
    assert_replays(s)


class TestA:
    """Convolution, bias and ReLU in a blocked layout by rewriting indices, its input unfolded."""

    def test_layouts_are_index_rewrites(self):
        s = blocked_convolution.layouts(Schedule(blocked_convolution.program()))
        shapes = {b.name: [str(n) for n in b.shape] for b in (*s.program.inputs, *s.program.outputs)}
        assert shapes["Z"] == ["2", "14", "2", "7", "16"]
        # 16 columns become 2 tiles of 9 that share two: the overlap is stored twice
        assert shapes["X"] == ["8", "16", "2", "9"]
        (load,) = [ld for ld in stmt_loads(s.program.stage("Y").body) if ld.buffer == "X"]
        assert [str(i) for i in load.indices] == ["ic", "kh + oh", "ow_o", "kw + ow_i"]
        (z,) = s.program.stage("Z").body.writes
        assert "//" not in str(z) and "%" not in str(z)

    def test_the_sums_stay_in_registers(self):
        s = blocked_convolution.loops(blocked_convolution.layouts(Schedule(blocked_convolution.program())))
        sums = s.buffers()["Y"]
        assert (sums.scope, [str(n) for n in sums.physical_shape]) == ("register", ["1", "1", "1", "7", "16"])
        assert s.loop("rows").kind.name == "parallel"
        # the input is read without a division: the tile is a dimension of its own
        loads = {ld.buffer: ld for ld in s.block("Y").reads}
        assert [str(i) for i in loads["X"].indices] == ["ic", "kh + oh", "ow_o", "kw + ow_i"]

    @pytest.mark.parametrize("shape", [(4, 1, 1, 3), (8, 3, 2, 6), (4, 2, 3, 3), (6, 2, 2, 4), (3, 2, 1, 7)])
    def test_right_with_small_blocks_and_tails(self, shape):
        """Blocks of 4 channels, tiles of 3 columns; the last cases do not divide."""
        s = blocked_convolution.layouts(Schedule(blocked_convolution.program(*shape)), lanes=4, columns=3)
        check_convolution(s)
        check_convolution(blocked_convolution.loops(s))

    def test_right_as_it_is(self):
        s = blocked_convolution.loops(blocked_convolution.layouts(Schedule(blocked_convolution.program())))
        arrays, expected = convolution_case(s.source)
        np.testing.assert_array_equal(blocked_convolution.run(s, **arrays), expected)


class TestB:
    """A two-stage 3x3 stencil of symbolic size, fused with overlapping tiles."""

    TILE = (4, 8)
    SIZES = tuple(itertools.product(range(1, 4 + 3), range(1, 8 + 3)))

    def small(self):
        return stencil.fused(self.TILE, rows=(3, 2), lanes=4)

    def image(self, h, w):
        return integers((h + 4, w + 4), seed=97 * h + w)

    def expected(self, h, w):
        return lang.evaluate(stencil.program(), [self.image(h, w)])["C"]

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
        kernel = build(getattr(stencil, make)(**arguments), threads=2)
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
        kernel = build(stencil.fused(), threads=2)
        (got,) = kernel(self.image(67, 1001))
        np.testing.assert_array_equal(got, self.expected(67, 1001))


class TestG:
    """Bias and ReLU in the last block of input channels only, made by ``partition``."""

    def test_only_the_last_block_has_the_epilogue(self):
        s = epilogue_last_block.schedule(epilogue_last_block.program())
        assert s.blocks() == ("Y_init", "sums", "Y", "sums_out", "last", "Y_1", "Z")
        first, last = s.loop("ic_o"), s.loop("ic_o_1")
        assert [str(n) for n in (first.lo, first.hi, last.lo, last.hi)] == ["0", "2", "2", "3"]
        assert "Z" in last.names and "Z" not in first.names
        assert {ld.buffer for ld in s.block("Z").reads} == {"last", "b"}
        for sums in ("sums", "last"):
            assert s.buffers()[sums].scope == "register"
            assert {ld.buffer for ld in s.block(sums).reads} == {"Y"}  # reloaded for every block

    @pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
    def test_right_for_one_block_whole_blocks_and_a_short_last_one(self, channels):
        source = blocked_convolution.program(8, channels, 2, 6)
        check_convolution(epilogue_last_block.schedule(source, lanes=4, columns=3, block=2))

    def test_right_as_it_is(self):
        s = epilogue_last_block.schedule(epilogue_last_block.program())
        arrays, expected = convolution_case(s.source)
        np.testing.assert_array_equal(blocked_convolution.run(s, **arrays), expected)


class TestH:
    """A vertical chain whose intermediate keeps two rows."""

    def test_two_rows_are_stored_and_each_is_computed_once(self):
        s = rolling_rows.schedule(strip=8, lanes=4)
        T = s.buffers()["T"]
        assert ([str(n) for n in T.physical_shape], T.scope) == (["2", "8"], "local")
        assert str(T.layout.exprs[0]) == "__0%2"
        # inside the loop over rows only one new row; the one before it is there already
        inside = [s.loop(v) for v in s.loops("T")]
        assert [str(f.extent) for f in inside if f.var.startswith("T_y")] == ["1"]
        assert s.loop("D_x_o").kind.name == "parallel"
        assert_replays(s)

    @pytest.mark.parametrize("width", [1, 7, 8, 9, 17])
    @pytest.mark.parametrize("height", [1, 2, 3, 6])
    def test_right(self, height, width):
        s = rolling_rows.schedule(strip=8, lanes=4)
        X = integers((height + 2, width), height)
        expected = lang.evaluate(s.source, [X])["D"]
        sizes = {"H": height, "W": width}
        for seed in range(2):
            np.testing.assert_array_equal(run_function(s.func, {"X": X}, sizes, seed=seed)["D"], expected)
        (got,) = build(s, threads=2)(X)
        np.testing.assert_array_equal(got, expected)

    def test_native_code_stays_inside_its_two_rows(self):
        s = rolling_rows.schedule(strip=8, lanes=4)
        X = integers((7, 19))
        got = Native(s.func)({"X": X}, {"H": 5, "W": 19})["D"]
        np.testing.assert_array_equal(got, lang.evaluate(s.source, [X])["D"])


class TestBlock:
    """MobileNet's expand, depthwise and project in one kernel."""

    def test_the_expanded_tensor_never_exists_as_a_whole(self):
        s = mobilenet_block.fused(mobilenet_block.program(14, 14, 64, 384, 64))
        found = {n: (b.scope, [e.as_int() for e in b.physical_shape]) for n, b in s.buffers().items()}
        assert found["E"] == ("local", [9, 14, 32])
        assert found["D"] == ("local", [1, 14, 32])
        assert found["Y0"] == ("local", [7, 14, 64])
        assert found["E0"] == found["acc"] == ("register", [1, 14, 32])
        assert found["D0"] == ("register", [1, 14, 16])
        assert s.loop("band").kind.name == "parallel"
        assert {"E", "D"} < set(s.loop("block").names)
        assert_replays(s)

    @pytest.mark.parametrize(
        "shape",
        [(5, 7, 3, 11, 5), (5, 7, 3, 11, 5, 2), (4, 6, 2, 8, 4, 2), (2, 3, 5, 7, 3), (1, 13, 1, 5, 2)],
        ids=str,
    )
    def test_right_with_small_tiles(self, shape):
        """Heights, widths and channels that no tile divides; one, two and more tiles of a row."""
        source = mobilenet_block.program(*shape)
        s = mobilenet_block.fused(source, band=2, block=4, pixels=3, expanded=(2, 2), projected=(2, 2))
        verify(s.func)
        arrays = {
            b.name: integers([n.as_int() for n in b.shape], seed) for seed, b in enumerate(source.inputs)
        }
        expected = lang.evaluate(source, arrays)["Y"]
        for seed in range(2):
            np.testing.assert_array_equal(run_function(s.func, arrays, seed=seed)["Y"], expected)
        np.testing.assert_array_equal(Native(s.func)(arrays)["Y"], expected)

    @pytest.mark.parametrize("stride", [1, 2])
    def test_right_with_the_tiles_of_the_machine(self, stride):
        source = mobilenet_block.program(15, 29, 8, 64, 32, stride)
        arrays = {
            b.name: integers([n.as_int() for n in b.shape], seed) for seed, b in enumerate(source.inputs)
        }
        (got,) = build(mobilenet_block.fused(source, band=4), threads=2)(**arrays)
        np.testing.assert_array_equal(got, lang.evaluate(source, arrays)["Y"])
