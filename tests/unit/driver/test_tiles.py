"""Models in bf16 by tile registers: near f32, the same in each run, saved, loaded and exported to C."""

import itertools
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from replay.corpus import CPUS
from tilewright.driver import export_c as exporting
from tilewright.driver.peak import dot_gops
from tilewright.frontend import zoo
from tilewright.support import TargetError
from tilewright.target import X86_AVX512, detect

EXAMPLE = Path(__file__).parents[3] / "examples" / "c"
HAS_TILES = any(i.name == "tdpbf16ps" for i in detect().instructions)
#: What choices are expected of: one table, whatever caches and rates a machine with tiles has.
STATED = CPUS["graniterapids"]
needs_tiles = pytest.mark.skipif(not HAS_TILES, reason="this machine has no tile registers for bf16")


def by_tiles(compiled):
    return sum("tdpbf16ps(" in str(group.kernel.schedule) for group in compiled.groups())


def convolutions(batch, channels, size, window, stride, pad, dims=2):
    """Three of them, so that what lies between is as the compiler likes it."""
    rng = np.random.default_rng(0)
    spatial = [window] * dims
    constants, nodes = {}, []
    names = ["x", "a", "b", "y"]
    shapes = [channels, 2 * channels, channels, channels]
    for n, (source, target) in enumerate(itertools.pairwise(names)):
        fan = shapes[n] * window**dims
        weights = rng.normal(size=(shapes[n + 1], shapes[n], *spatial)) / np.sqrt(fan)
        constants[f"w{n}"] = weights.astype(np.float32)
        step = stride if n == 1 else 1
        attributes = {"strides": [step] * dims, "pads": [pad] * 2 * dims}
        nodes.append(helper.make_node("Conv", [source, f"w{n}"], [f"{target}_raw"], **attributes))
        nodes.append(helper.make_node("Relu", [f"{target}_raw"], [target]))
    after = size
    for n in range(3):
        after = (after + 2 * pad - window) // (stride if n == 1 else 1) + 1
    x = (batch, channels, *[size] * dims)
    return tiny.model(
        nodes, [tiny.tensor("x", x)], [tiny.tensor("y", (batch, channels, *[after] * dims))], constants
    )


@needs_tiles
@pytest.mark.parametrize("shared", [None, (2.4, 1.75)])
def test_padding_in_blocks_and_weights_asked_for(shared):
    """Blocks as long as a tile's row, taps inside of each; on shared cores weights are asked for."""
    model = convolutions(1, 128, 28, 3, 1, 1)
    target = replace(STATED, shared_issue=shared)
    made = tilewright.compile(model, precision="bf16", threads=2, target=target)
    texts = [str(group.kernel.schedule) for group in made.groups()]
    padded = [text for text in texts if "conv_padded: bf16" in text]
    assert padded
    for text in padded:
        assert re.search(r"alloc conv_padded: bf16\[\d+, 1, 30, 30, 32\]", text)
        order = [name for name in re.findall(r"for (conv_\w+)", text) if not name.endswith("_init")]
        assert order.index("conv_ic_0") < order.index("conv_kh") < order.index("conv_kw")
        asked = re.search(r"for conv_kw .*prefetch=x1\+\d+:1", text)
        assert (asked is not None) == (shared is not None)


@needs_tiles
def test_threads_copy_the_lines_that_they_read():
    made = tilewright.compile(convolutions(1, 64, 56, 3, 1, 1), precision="bf16", threads=2, target=STATED)
    texts = [str(group.kernel.schedule) for group in made.groups()]
    padded = [text for text in texts if "conv_padded: bf16" in text]
    assert padded
    for text in padded:
        # blocks of channels are outside of lines in memory
        assert "alloc conv_padded: bf16[2, 1, 58, 58, 32]" in text or "bf16[4, 1, 58, 58, 32]" in text
        assert "for d2 in 0:58 parallel" in text


@needs_tiles
@pytest.mark.parametrize(("size", "channels", "one"), [(7, 128, True), (14, 128, True), (28, 64, False)])
def test_short_lines_become_one(size, channels, one):
    """14 of 16 rows gain little, but two by two results load less than one by four; 28 are two by two."""
    made = tilewright.compile(
        convolutions(1, channels, size, 3, 1, 1), precision="bf16", threads=2, target=STATED
    )
    texts = [str(group.kernel.schedule) for group in made.groups()]
    assert any("conv_padded: bf16" in text for text in texts)
    assert any("alloc conv_lines" in text for text in texts) == one


CONVOLUTIONS = {
    "3x3 padded": (1, 32, 14, 3, 1, 1),
    "3x3 stride 2": (1, 32, 16, 3, 2, 1),
    "3x3 stride 2, lines of 7": (2, 128, 14, 3, 2, 1),
    "3x3 stride 2, lines of 7, no padding": (1, 128, 15, 3, 2, 0),
    "2x2 stride 3, lines of 5": (1, 64, 15, 2, 3, 0),
    "1x1": (1, 64, 16, 1, 1, 0),
    "two pictures": (2, 32, 14, 3, 1, 1),
    "5x5": (1, 16, 12, 5, 1, 2),
    "no padding": (1, 32, 13, 3, 1, 0),
    "volume": (1, 32, 8, 3, 1, 1, 3),
}


@needs_tiles
def test_lines_read_in_steps_become_one_by_phases():
    made = tilewright.compile(convolutions(1, 128, 14, 3, 2, 1), precision="bf16", threads=2, target=STATED)
    texts = [str(group.kernel.schedule) for group in made.groups()]
    (strided,) = (text for text in texts if "_phase" in text)
    # even and odd lines and columns, padding before the first: seven results in lines of eight
    assert re.search(r"conv_padded: bf16\[8, 1, 2, 2, \d+, 32\]", strided)
    assert "conv_lines" in strided
    # whole lines are copied without a division for each element
    assert re.search(r"for oh_ow_0 in 0:10.*\n *for oh_ow_1 in 0:8:", strided)


def near(got, want, bound=0.03):
    assert got.dtype == want.dtype
    error = np.linalg.norm((got - want).astype("f8")) / np.linalg.norm(want.astype("f8"))
    assert error < bound


@pytest.mark.few(8)
@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_convolutions(case, threads):
    model = convolutions(*CONVOLUTIONS[case])
    exact = tilewright.compile(model, threads=1, accuracy="exact")
    compiled = tilewright.compile(model, precision="bf16", threads=threads)
    feeds = exact.sample_feeds()
    want = exact.run(None, feeds)[0]
    first = compiled.run(None, feeds)[0]
    near(first, want)
    for _ in range(3):
        np.testing.assert_array_equal(compiled.run(None, feeds)[0], first)


def products(m=48, k=128):
    rng = np.random.default_rng(1)
    constants = {f"w{n}": (rng.normal(size=(k, k)) / np.sqrt(k)).astype(np.float32) for n in range(3)}
    names = ["x", "a", "b", "y"]
    nodes = [
        helper.make_node("MatMul", [source, f"w{n}"], [target])
        for n, (source, target) in enumerate(itertools.pairwise(names))
    ]
    return tiny.model(nodes, [tiny.tensor("x", (m, k))], [tiny.tensor("y", (m, k))], constants)


@needs_tiles
def test_tiles_are_used_and_said_to_be():
    compiled = tilewright.compile(products(), precision="bf16")
    assert by_tiles(compiled) > 0
    assert "matmul by tdpbf16ps" in {each.algorithm for each in compiled.descriptions()}
    assert "amx-tile" in compiled.target.features


@pytest.mark.few(7)
@pytest.mark.parametrize("rows", [1, 7, 17, 48])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_products(rows, threads):
    model = products(rows)
    exact = tilewright.compile(model, threads=1, accuracy="exact")
    compiled = tilewright.compile(model, precision="bf16", threads=threads)
    feeds = exact.sample_feeds()
    near(compiled.run(None, feeds)[0], exact.run(None, feeds)[0])


@needs_tiles
def test_saved_models_run_the_same(tmp_path):
    compiled = tilewright.compile(products(), precision="bf16", threads=2)
    assert by_tiles(compiled) > 0
    feeds = compiled.sample_feeds()
    compiled.save(tmp_path / "m.tw")
    loaded = tilewright.load(tmp_path / "m.tw")
    np.testing.assert_array_equal(loaded.run(None, feeds)[0], compiled.run(None, feeds)[0])


def test_architectures_in_bf16():
    model = zoo.SMALL["resnet18"]()
    exact, rounded = (tilewright.compile(model, precision=p) for p in ("f32", "bf16"))
    feeds = exact.sample_feeds()
    near(rounded.run(None, feeds)[0], exact.run(None, feeds)[0])


@needs_tiles
def test_the_peak_of_tiles_exceeds_that_of_lanes():
    """Products of tiles are counted as such: 8192 each."""
    assert dot_gops("tdpbf16ps", seconds=0.02) > 0


def test_a_row_without_code_has_no_rate():
    row = replace(X86_AVX512.instruction("vpdpbusd"), emission=None)
    with pytest.raises(TargetError, match="no code can be generated for the instruction vpdpbusd"):
        dot_gops("vpdpbusd", replace(X86_AVX512, instructions=(row,)), seconds=0.01)


def _program(folder):
    cc = next(filter(None, map(shutil.which, ["cc", "gcc", "clang"])), None)
    assert cc, "the tests need a C compiler"
    command = [cc, "-std=c11", f"-I{folder}", str(EXAMPLE / "main.c"), str(folder / "model.so")]
    subprocess.run([*command, "-pthread", "-Wl,-rpath,$ORIGIN", "-o", str(folder / "main")], check=True)
    return folder / "main"


@needs_tiles
def test_a_program_in_c_asks_for_tiles(tmp_path):
    """A process of its own, which nobody has asked for."""
    compiled = tilewright.compile(products(), precision="bf16", threads=2)
    assert by_tiles(compiled) > 0
    compiled.export_c(tmp_path / "model.h")
    program = _program(tmp_path)
    feeds = compiled.sample_feeds()
    feeds["x"].tofile(tmp_path / "input0.bin")
    done = subprocess.run([str(program), "input0.bin"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (want,) = compiled.run(None, feeds)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "output0.bin", np.float32).reshape(want.shape), want)


def test_only_programs_with_tiles_ask(tmp_path, monkeypatch):
    """A kernel that refuses makes the CPU a wrong one; models without tiles never ask."""
    source = exporting.ENTRY_PATH.read_text()
    refusing = tmp_path / "entry.c"
    assert source.count("syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0") == 1
    refusing.write_text(source.replace("REQUEST_STATE, TILE_DATA) == 0", "REQUEST_STATE, 999) == 0"))
    monkeypatch.setattr(exporting, "ENTRY_PATH", refusing)
    compiled = tilewright.compile(tiny.mlp())
    compiled.export_c(tmp_path / "model.h")
    # the example is run without its inputs: a model that opens complains about those
    done = subprocess.run([str(_program(tmp_path))], cwd=tmp_path, capture_output=True, text=True)
    assert ("the kernel refuses" in done.stderr) == ("amx-tile" in compiled.target.features)
