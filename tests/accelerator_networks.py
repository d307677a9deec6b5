"""Layers that papers on accelerators share: MLPerf Tiny's four networks and ResNet-50, in int8.

Shared by `tests/unit/mapping/system/test_networks.py` and `benchmarks/mapping.py --only layers`.
"""

from dataclasses import dataclass
from typing import Any

from tilewright import lang
from tilewright.ir import Program


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
