"""Layers of networks in int8 on the machine `gemmini`: cycles, utilisation, seconds of scheduling.

A part of `benchmarks/mapping.py` (`--only layers`): MLPerf Tiny's four networks and ResNet-50's layers, one
image. A layer is a product or convolution of bytes with bias, activation and narrowing to bytes, its input
padded already. Utilisation is the multiply-adds over those that the array could do in the layer's cycles;
``bound`` is the array or the bandwidth of the home memory, whichever would take longer with each tensor
moved once, and ``roofline`` how near to that the layer comes.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright import lang
from tilewright.ir import Program
from tilewright.mapping import system

ARRAY = 16 * 16


@dataclass(frozen=True)
class Layer:
    """A convolution of a ``height x width`` input; a depthwise one has no output channels of its own."""

    height: int
    width: int
    ic: int
    oc: int | None
    taps: tuple[int, int]
    stride: int = 1

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result, with padding that keeps sizes up to the stride."""
        if self.taps == (1, 1) or self.height > 1:
            return -(-self.height // self.stride), -(-self.width // self.stride)
        return 1, 1

    @property
    def work(self) -> int:
        """Multiply-adds."""
        h, w = self.out
        return h * w * self.taps[0] * self.taps[1] * self.ic * (self.oc or 1)

    def __str__(self) -> str:
        kind = "depthwise" if self.oc is None else f"to {self.oc}"
        kh, kw = self.taps
        return f"{self.height}x{self.width}x{self.ic} {kind}, {kh}x{kw}, stride {self.stride}"


def conv(size: int, ic: int, oc: int, taps: int = 3, stride: int = 1) -> Layer:
    return Layer(size, size, ic, oc, (taps, taps), stride)


def dw(size: int, ic: int, stride: int = 1) -> Layer:
    return Layer(size, size, ic, None, (3, 3), stride)


def dense(ic: int, oc: int) -> Layer:
    return Layer(1, 1, ic, oc, (1, 1))


def separable(size: int, ic: int, oc: int, stride: int = 1) -> list[Layer]:
    """A depthwise convolution and a pointwise one on its results."""
    return [dw(size, ic, stride), conv(-(-size // stride), ic, oc, 1)]


_KEYWORDS = [Layer(25, 5, 64, None, (3, 3)), Layer(25, 5, 64, 64, (1, 1))]
NETWORKS: dict[str, list[Layer]] = {
    "ds_cnn": [Layer(49, 10, 1, 64, (10, 4), 2), *_KEYWORDS * 4, dense(64, 12)],
    "mobilenet_v1_025": [
        conv(96, 3, 8, 3, 2),
        *separable(48, 8, 16),
        *separable(48, 16, 32, 2),
        *separable(24, 32, 32),
        *separable(24, 32, 64, 2),
        *separable(12, 64, 64),
        *separable(12, 64, 128, 2),
        *separable(6, 128, 128) * 5,
        *separable(6, 128, 256, 2),
        *separable(3, 256, 256),
        dense(256, 2),
    ],
    "resnet8": [
        *[conv(32, 3, 16), conv(32, 16, 16), conv(32, 16, 16)],
        *[conv(32, 16, 32, 3, 2), conv(16, 32, 32), conv(32, 16, 32, 1, 2)],
        *[conv(16, 32, 64, 3, 2), conv(8, 64, 64), conv(16, 32, 64, 1, 2)],
        dense(64, 10),
    ],
    "autoencoder": [
        dense(640, 128),
        *[dense(128, 128)] * 3,
        dense(128, 8),
        dense(8, 128),
        *[dense(128, 128)] * 3,
        dense(128, 640),
    ],
    "resnet50": [
        conv(224, 3, 64, 7, 2),
        *[conv(56, 64, 256, 1)] * 4,
        *[conv(56, 64, 64, 1)],
        *[conv(56, 64, 64)] * 3,
        *[conv(56, 256, 64, 1)] * 2,
        *[conv(56, 256, 512, 1, 2), conv(56, 256, 128, 1, 2)],
        *[conv(28, 128, 128)] * 4,
        *[conv(28, 128, 512, 1)] * 4,
        *[conv(28, 512, 128, 1)] * 3,
        *[conv(28, 512, 1024, 1, 2), conv(28, 512, 256, 1, 2)],
        *[conv(14, 256, 256)] * 6,
        *[conv(14, 256, 1024, 1)] * 6,
        *[conv(14, 1024, 256, 1)] * 5,
        *[conv(14, 1024, 2048, 1, 2), conv(14, 1024, 512, 1, 2)],
        *[conv(7, 512, 512)] * 3,
        *[conv(7, 512, 2048, 1)] * 3,
        *[conv(7, 2048, 512, 1)] * 2,
        dense(2048, 1000),
    ],
}


def program(layer: Layer) -> Program:
    """The layer: ``y = narrow(max(x * w + bias, 0))``, channels last."""
    (h, w), (kh, kw), s = layer.out, layer.taps, layer.stride
    x = lang.placeholder(((h - 1) * s + kh, (w - 1) * s + kw, layer.ic), "i8", name="x")
    n = layer.oc or layer.ic
    f = lang.placeholder((kh, kw, layer.ic) + ((n,) if layer.oc else ()), "i8", name="w")
    bias = lang.placeholder((n,), "i32", name="bias")
    a, b = lang.reduce_axis(kh, "kh"), lang.reduce_axis(kw, "kw")
    c = lang.reduce_axis(layer.ic, "c")

    def term(i: Any, j: Any, o: Any) -> Any:
        channel, weight, axes = (c, (a, b, c, o), (a, b, c)) if layer.oc else (o, (a, b, o), (a, b))
        return lang.sum(
            lang.cast(x[s * i + a, s * j + b, channel], "i32") * lang.cast(f[weight], "i32"), axes
        )

    total = lang.compute((h, w, n), term, name="total")

    def narrow(i: Any, j: Any, o: Any) -> Any:
        positive = lang.maximum(total[i, j, o] + bias[o], lang.const(0, "i32"))
        low, high, shift = (lang.const(v, "i32") for v in (-128, 127, 8))
        return lang.cast(lang.maximum(lang.minimum(positive >> shift, high), low), "i8")

    y = lang.compute((h, w, n), narrow, name="y")
    return lang.program([x, f, bias], [y], name="layer")


def rows() -> Iterator[dict[str, Any]]:
    """One row a layer that differs from others, and one a network."""
    machine = system.load_machine("gemmini")
    done: dict[Layer, dict[str, Any]] = {}
    for name, layers in NETWORKS.items():
        cycles, work, slowest = 0, 0, 0.0
        for layer, times in Counter(layers).items():
            if layer not in done:
                done[layer] = row(layer, machine)
            found = done[layer]
            cycles += times * found["cycles"]
            work += times * layer.work
            slowest = max(slowest, found["schedule_s"])
            yield {"network": name, "times": times, **found}
        yield {
            "network": name,
            "cycles": cycles,
            "utilisation": round(work / cycles / ARRAY, 3),
            "slowest_schedule_s": slowest,
        }


def row(layer: Layer, machine: system.SystemGraph) -> dict[str, Any]:
    made = program(layer)
    start = time.process_time()
    streams = system.schedule(made, machine)
    scheduled = time.process_time() - start
    cycles = system.time_streams(streams, machine).cycles
    (h, w), (kh, kw), s = layer.out, layer.taps, layer.stride
    n = layer.oc or layer.ic
    moved = ((h - 1) * s + kh) * ((w - 1) * s + kw) * layer.ic + kh * kw * layer.ic * (layer.oc or 1)
    moved += 4 * n + h * w * n
    array, memory = layer.work / ARRAY, moved / machine.channels["dram"].bytes_per_cycle
    return {
        "layer": str(layer),
        "cycles": cycles,
        "utilisation": round(layer.work / cycles / ARRAY, 3),
        "bound": "array" if array > memory else "memory",
        "roofline": round(max(array, memory) / cycles, 3),
        "schedule_s": round(scheduled, 2),
    }
