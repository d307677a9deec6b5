"""ResNet-50's convolutions at minibatch 28 by the direct method, beside LIBXSMM's and oneDNN's.

    apt-get install libxsmm-dev
    python benchmarks/resnet50_layers.py --threads 2 --json > layers.jsonl

One line a layer: milliseconds, nominal GFLOP/s (taps on padding count) and the fraction of the peak, which is
measured in each round: of it and of the engines' times, medians of the rounds' ratios count, as cores that
others use change from one second to the next. Then one line of totals, weighted by how often the network has
each layer. All engines work in their own blocked layouts, weights packed before: LIBXSMM 1.17 through
`libxsmm_conv.c`, built here with the system's C compiler, its input with the padding in memory; oneDNN as
PyTorch calls it on its opaque tensors. Engines take turns within each layer; their results are compared.
"""

import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from arguments import add_engines, add_turns, names, parser_of
from gate0 import constant, stored
from sidebyside import best_peak

from tilewright import lang
from tilewright.build import build, pack, unpack
from tilewright.cost import Machine
from tilewright.driver.engines import optional_module
from tilewright.ir import Program
from tilewright.plan import EXACT
from tilewright.strategies import default_schedule
from tilewright.target import Target, detect

Array = npt.NDArray[np.float32]

OURS = "tilewright"
PEERS = ("libxsmm", "onednn")
#: Seconds between two engines' turns, for idle threads to fall asleep.
PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution with square windows, and how often ResNet-50 has it (strides at the 1x1 convolutions)."""

    size: int
    channels_in: int
    channels_out: int
    window: int
    stride: int
    times: int

    @property
    def padding(self) -> int:
        """What keeps the size, but for the stride."""
        return self.window // 2

    @property
    def result(self) -> int:
        """Height and width of the result."""
        return (self.size + 2 * self.padding - self.window) // self.stride + 1

    @property
    def name(self) -> str:
        """Such as ``3x3/1 64-64 56``."""
        channels = f"{self.channels_in}-{self.channels_out}"
        return f"{self.window}x{self.window}/{self.stride} {channels} {self.size}"

    def flops(self, batch: int) -> float:
        """Operations, those on padding included."""
        return 2.0 * batch * self.result**2 * self.channels_in * self.channels_out * self.window**2


#: He et al., "Deep Residual Learning for Image Recognition" (2016), table 1; in LIBXSMM's order.
LAYERS = (
    Layer(224, 3, 64, 7, 2, 1),
    Layer(56, 64, 256, 1, 1, 4),
    Layer(56, 64, 64, 1, 1, 1),
    Layer(56, 64, 64, 3, 1, 3),
    Layer(56, 256, 64, 1, 1, 2),
    Layer(56, 256, 512, 1, 2, 1),
    Layer(56, 256, 128, 1, 2, 1),
    Layer(28, 128, 128, 3, 1, 4),
    Layer(28, 128, 512, 1, 1, 4),
    Layer(28, 512, 128, 1, 1, 3),
    Layer(28, 512, 1024, 1, 2, 1),
    Layer(28, 512, 256, 1, 2, 1),
    Layer(14, 256, 256, 3, 1, 6),
    Layer(14, 256, 1024, 1, 1, 6),
    Layer(14, 1024, 256, 1, 1, 5),
    Layer(14, 1024, 2048, 1, 2, 1),
    Layer(14, 1024, 512, 1, 2, 1),
    Layer(7, 512, 512, 3, 1, 3),
    Layer(7, 512, 2048, 1, 1, 3),
    Layer(7, 2048, 512, 1, 1, 2),
)


class Engine(Protocol):
    """One layer in one engine, loaded and ready."""

    def run(self, runs: int) -> list[float]:
        """The seconds of each of so many runs."""

    def output(self) -> Array:
        """The result as plain NCHW."""


class Ours:
    """The default schedule without Winograd's method, input and result as `NCHW16c`."""

    def __init__(self, layer: Layer, x: Array, w: Array, target: Target, threads: int) -> None:
        program = self.program(layer, len(x))
        schedule = default_schedule(program, Machine(target, threads), accuracy=EXACT)
        kernel = build(schedule, target=target, threads=threads)
        feeds = {"X": x, "W": w}
        (self._place,) = [b for b in schedule.func.buffers if b.name in schedule.func.outputs]
        shape = tuple(e.as_int() for e in self._place.shape)
        self._table = [
            pack(feeds[b.name] if b.name in feeds else np.zeros(shape, np.float32), b)
            for b in schedule.func.buffers
        ]
        self._at = schedule.func.buffers.index(self._place)
        self._plan = kernel.plan(self._table)

    @staticmethod
    def program(layer: Layer, batch: int) -> Program:
        """The convolution, its weights known when compiling."""
        x = lang.placeholder((batch, layer.channels_in, layer.size, layer.size), "f32", "X")
        window = (layer.window, layer.window)
        w = lang.placeholder((layer.channels_out, layer.channels_in, *window), "f32", "W")
        y = lang.ops.conv(x, w, strides=layer.stride, padding=layer.padding, name="Y")
        blocked = ("X", "Y") if layer.channels_in % 16 == 0 else ("Y",)
        layout = ("d0", "d1//16", "d2", "d3", "d1%16")
        return stored(constant(lang.program([x, w], [y], name="conv"), "W"), blocked, layout)

    def run(self, runs: int) -> list[float]:
        """The seconds of each run."""
        return [float(ns) / 1e9 for ns in self._plan.measure([], [], repeats=runs).sum(axis=1)]

    def output(self) -> Array:
        """The result as plain NCHW."""
        return np.asarray(unpack(self._table[self._at], self._place), np.float32)


class Libxsmm:
    """LIBXSMM's direct convolution."""

    def __init__(self, library: ctypes.CDLL, layer: Layer, x: Array, w: Array, threads: int) -> None:
        self._library = library
        p = layer.padding
        padded = np.ascontiguousarray(np.pad(x, ((0, 0), (0, 0), (p, p), (p, p))))
        sizes = (len(x), layer.channels_in, layer.size, layer.size, layer.channels_out)
        numbers = (ctypes.c_int32 * 9)(*sizes, layer.window, layer.stride, p, threads)
        error = ctypes.c_int32(0)
        self._handle = library.conv_create(
            numbers, ctypes.c_void_p(padded.ctypes.data), ctypes.c_void_p(w.ctypes.data), ctypes.byref(error)
        )
        if not self._handle:
            raise RuntimeError(f"LIBXSMM refuses {layer.name}: error {error.value}")
        self._shape = (len(x), layer.channels_out, layer.result, layer.result)

    def run(self, runs: int) -> list[float]:
        """The seconds of each run."""
        times = (ctypes.c_int64 * runs)()
        self._library.conv_run(ctypes.c_void_p(self._handle), runs, times)
        return [ns / 1e9 for ns in times]

    def output(self) -> Array:
        """The result as plain NCHW."""
        y = np.empty(self._shape, np.float32)
        self._library.conv_output(ctypes.c_void_p(self._handle), ctypes.c_void_p(y.ctypes.data))
        return y

    def close(self) -> None:
        """Free its memory."""
        self._library.conv_destroy(ctypes.c_void_p(self._handle))


class OneDnn:
    """oneDNN through PyTorch's opaque tensors: weights packed before, the input blocked by a layer before."""

    def __init__(self, layer: Layer, x: Array, w: Array, threads: int) -> None:
        self._torch = torch = optional_module("torch")
        mkldnn = optional_module("torch.utils.mkldnn")
        torch.set_num_threads(threads)
        conv = torch.nn.Conv2d(
            layer.channels_in, layer.channels_out, layer.window, layer.stride, layer.padding, bias=False
        )
        with torch.inference_mode():
            conv.weight.copy_(torch.from_numpy(w))
            self._conv = mkldnn.to_mkldnn(conv.eval())
            given = torch.from_numpy(x).to_mkldnn()
            if layer.channels_in % 16 == 0:
                same = torch.nn.Conv2d(layer.channels_in, layer.channels_in, 1, bias=False)
                same.weight.copy_(torch.eye(layer.channels_in)[:, :, None, None])
                given = mkldnn.to_mkldnn(same.eval())(given)
            self._x = given

    def run(self, runs: int) -> list[float]:
        """The seconds of each run."""
        times = []
        with self._torch.inference_mode():
            for _ in range(runs):
                begin = time.perf_counter()
                self._y = self._conv(self._x)
                times.append(time.perf_counter() - begin)
        return times

    def output(self) -> Array:
        """The result as plain NCHW."""
        return np.asarray(self._y.to_dense().numpy(), np.float32)


def libxsmm(folder: Path) -> ctypes.CDLL:
    """The driver of LIBXSMM, built in ``folder``. Raises CalledProcessError where that fails."""
    source, library = Path(__file__).with_name("libxsmm_conv.c"), folder / "libxsmm_conv.so"
    flags = ["-O2", "-fopenmp", "-shared", "-fPIC"]
    libraries = ["-lxsmm", "-lxsmmnoblas", "-ldl", "-lm", "-lpthread"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library), *libraries], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.conv_create.restype = ctypes.c_void_p
    loaded.conv_arch.restype = ctypes.c_char_p
    return loaded


def measure(
    layer: Layer,
    engines: Mapping[str, Engine],
    batch: int,
    rounds: int,
    seconds: float,
    peak: Callable[[], float],
) -> dict[str, Any]:
    """One line: each engine's times in turn, after ours the ``peak``; medians of the rounds' ratios."""
    times: dict[str, list[list[float]]] = {name: [] for name in engines}
    peaks: list[float] = []
    runs = {name: max(1, round(seconds / min(engine.run(2)))) for name, engine in engines.items()}
    for _ in range(rounds):
        for name, engine in engines.items():
            time.sleep(PAUSE)
            engine.run(1)
            times[name].append(engine.run(runs[name]))
            if name == OURS:
                peaks.append(peak())
    results = {name: engine.output() for name, engine in engines.items()}
    line: dict[str, Any] = {"benchmark": "resnet50_layers", "layer": layer.name, "times": layer.times}
    line["peak_gflops"] = round(statistics.median(peaks), 1)
    flops = layer.flops(batch)
    medians = {name: [statistics.median(turn) for turn in turns] for name, turns in times.items()}
    for name, turns in times.items():
        seen = [one for turn in turns for one in turn]
        shares = [flops / t / 1e9 / most for t, most in zip(medians[name], peaks, strict=True)]
        line[name] = {
            "ms": round(statistics.median(seen) * 1e3, 3),
            "min_ms": round(min(seen) * 1e3, 3),
            "gflops": round(flops / statistics.median(seen) / 1e9, 1),
            "of_peak": round(statistics.median(shares), 3),
        }
        if name != OURS:
            ratios = [theirs / t for theirs, t in zip(medians[name], medians[OURS], strict=True)]
            line[name]["this_to_ours"] = round(statistics.median(ratios), 3)
            scale = float(np.abs(results[name]).max())
            line[name]["max_difference"] = float(np.abs(results[OURS] - results[name]).max()) / scale
    return line


def totals(lines: Sequence[Mapping[str, Any]], batch: int) -> dict[str, Any]:
    """All layers of the network: the sum of the times, the rate that it makes, the mean part of the peak."""
    every = {layer.name: layer for layer in LAYERS}
    flops = sum(every[line["layer"]].flops(batch) * line["times"] for line in lines)
    out: dict[str, Any] = {"benchmark": "resnet50_layers", "layer": "total"}
    for name in (OURS, *PEERS):
        if all(name in line for line in lines):
            spent = sum(line[name]["ms"] * line["times"] for line in lines)
            rate = flops / spent / 1e6
            out[name] = {
                "ms": round(spent, 1),
                "gflops": round(rate, 1),
                "of_peak": round(_mean_share(lines, name), 3),
                "layers_ahead_of_ours": sum(line[name].get("this_to_ours", 1.0) < 1 for line in lines),
            }
    return out


def _mean_share(lines: Sequence[Mapping[str, Any]], name: str) -> float:
    """An engine's part of the peak, weighted by operations: those of all layers by the time at the peak."""
    every = {layer.name: layer for layer in LAYERS}
    flops = [every[line["layer"]].flops(1) * line["times"] for line in lines]
    return sum(flops) / sum(f / line[name]["of_peak"] for f, line in zip(flops, lines, strict=True))


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--batch", type=int, default=28)
    add_engines(parser, "libxsmm,onednn")
    add_turns(parser, rounds=3, seconds=0.1)
    parser.add_argument("--layers", default="", help="numbers from 1, separated by commas; default all")
    arguments = parser.parse_args()
    peers = names(arguments.against)
    if unknown := [name for name in peers if name not in PEERS]:
        parser.error(f"there is no engine {unknown[0]!r}: they are {', '.join(PEERS)}")
    wanted = [int(text) - 1 for text in arguments.layers.split(",") if text]
    target = detect()
    peak = best_peak(target, arguments.threads)
    lines = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        library = libxsmm(Path(folder)) if "libxsmm" in peers else None
        if library is not None:
            print(f"LIBXSMM for {library.conv_arch().decode()}, peak {peak():.1f} GFLOP/s", file=sys.stderr)
        for layer in [LAYERS[at] for at in wanted] or LAYERS:
            random = np.random.default_rng(0)
            x = random.random((arguments.batch, layer.channels_in, layer.size, layer.size), np.float32) - 0.5
            w = random.random((layer.channels_out, layer.channels_in, layer.window, layer.window), np.float32)
            w -= np.float32(0.5)
            engines: dict[str, Engine] = {OURS: Ours(layer, x, w, target, arguments.threads)}
            if library is not None:
                engines["libxsmm"] = Libxsmm(library, layer, x, w, arguments.threads)
            if "onednn" in peers:
                engines["onednn"] = OneDnn(layer, x, w, arguments.threads)
            lines.append(measure(layer, engines, arguments.batch, arguments.rounds, arguments.seconds, peak))
            for engine in engines.values():
                if isinstance(engine, Libxsmm):
                    engine.close()
            print(json.dumps(lines[-1]) if arguments.json else _shown(lines[-1]), flush=True)
    last = totals(lines, arguments.batch)
    print(json.dumps(last) if arguments.json else _shown(last))


def _shown(line: Mapping[str, Any]) -> str:
    """A line for people: milliseconds and the fraction of the peak."""
    found = [
        f"{name} {line[name]['ms']:8.2f} ms {line[name]['of_peak']:6.1%}"
        for name in (OURS, *PEERS)
        if name in line
    ]
    return f"{line['layer']:<22} " + "   ".join(found)


if __name__ == "__main__":
    main()
