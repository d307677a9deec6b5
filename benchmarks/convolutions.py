"""Convolutions and pooling for `operators.py`: single nodes of models, plain layouts at both ends."""

from math import prod
from typing import Any

from sidebyside import Case, Operator, draw, single

Sizes = tuple[int, ...]


def convolution(
    group: str,
    n: int,
    channels: tuple[int, int],
    size: Sizes,
    window: Sizes,
    stride: int | Sizes = 1,
    pad: int | Sizes = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Operator:
    """A convolution with constant weights and bias; FLOPs are nominal, taps on padding count."""
    strides = (stride,) * len(size) if isinstance(stride, int) else stride
    pads = (pad,) * len(size) if isinstance(pad, int) else pad
    into, out = channels
    result = tuple(
        (s + 2 * p - dilation * (k - 1) - 1) // step + 1
        for s, p, k, step in zip(size, pads, window, strides, strict=True)
    )

    def make(name: str) -> Case:
        weights = {"W": draw(out, into // groups, *window, seed=1), "B": draw(out, seed=2)}
        model, feeds = single(
            "Conv",
            {"X": draw(n, into, *size)},
            (n, out, *result),
            weights,
            strides=list(strides),
            pads=[*pads, *pads],
            dilations=[dilation] * len(size),
            group=groups,
        )
        flops = 2.0 * n * out * prod(result) * (into // groups) * prod(window)
        moved = n * (into * prod(size) + out * prod(result)) + out * (into // groups) * prod(window)
        return Case(name, model, feeds, flops, 4.0 * moved)

    extra = [f"/{stride}" if stride != 1 else "", f" dilated {dilation}" if dilation > 1 else ""]
    shown = f"{group} {_by(window)}{''.join(extra)} {n}x{into}-{out} {_by(size)}"
    return Operator(group, shown, make)


def transposed(
    n: int, channels: tuple[int, int], size: Sizes, window: Sizes, stride: int, pad: int = 0
) -> Operator:
    """A transposed convolution; FLOPs are those of its taps that are not zero."""
    into, out = channels
    result = tuple((s - 1) * stride + k - 2 * pad for s, k in zip(size, window, strict=True))

    def make(name: str) -> Case:
        model, feeds = single(
            "ConvTranspose",
            {"X": draw(n, into, *size)},
            (n, out, *result),
            {"W": draw(into, out, *window, seed=1)},
            strides=[stride] * len(size),
            pads=[pad] * 2 * len(size),
        )
        flops = 2.0 * n * into * out * prod(size) * prod(window)
        moved = n * (into * prod(size) + out * prod(result)) + into * out * prod(window)
        return Case(name, model, feeds, flops, 4.0 * moved)

    return Operator("transposed", f"transposed {_by(window)}/{stride} {n}x{into}-{out} {_by(size)}", make)


def pooling(
    op: str, n: int, channels: int, size: Sizes, window: int = 0, stride: int = 1, pad: int = 0
) -> Operator:
    """Maxima or means over windows; without a window over everything."""
    result = tuple((s + 2 * pad - window) // stride + 1 for s in size) if window else (1,) * len(size)
    attributes: dict[str, Any] = {}
    if window:
        rank = len(size)
        attributes = {
            "kernel_shape": [window] * rank,
            "strides": [stride] * rank,
            "pads": [pad] * 2 * rank,
        }

    def make(name: str) -> Case:
        model, feeds = single(op, {"X": draw(n, channels, *size)}, (n, channels, *result), {}, **attributes)
        return Case(name, model, feeds, 0.0, 4.0 * n * channels * (prod(size) + prod(result)))

    kind = f" {window}x{window}/{stride}" if window else ""
    return Operator("pooling", f"{op}{kind} {n}x{channels} {_by(size)}", make)


def _by(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


#: MobileNet, ResNeXt-50, speech and DCGAN shapes, and what segmentation and video networks use.
CONVOLUTIONS = (
    convolution("conv", 1, (64, 64), (56, 56), (3, 3), pad=1),
    convolution("conv", 1, (256, 256), (14, 14), (3, 3), pad=1),
    convolution("conv", 1, (256, 64), (56, 56), (1, 1)),
    convolution("depthwise", 1, (32, 32), (112, 112), (3, 3), pad=1, groups=32),
    convolution("depthwise", 1, (96, 96), (112, 112), (3, 3), 2, 1, groups=96),
    convolution("depthwise", 1, (144, 144), (56, 56), (3, 3), pad=1, groups=144),
    convolution("depthwise", 1, (576, 576), (14, 14), (3, 3), 2, 1, groups=576),
    convolution("depthwise", 1, (960, 960), (7, 7), (3, 3), pad=1, groups=960),
    convolution("depthwise", 1, (240, 240), (28, 28), (5, 5), pad=2, groups=240),
    convolution("depthwise", 16, (32, 32), (112, 112), (3, 3), pad=1, groups=32),
    convolution("grouped", 1, (128, 128), (56, 56), (3, 3), pad=1, groups=32),
    convolution("grouped", 1, (256, 256), (28, 28), (3, 3), pad=1, groups=32),
    convolution("grouped", 1, (512, 512), (14, 14), (3, 3), pad=1, groups=32),
    convolution("grouped", 1, (1024, 1024), (7, 7), (3, 3), pad=1, groups=32),
    convolution("grouped", 1, (256, 256), (56, 56), (3, 3), 2, 1, groups=32),
    convolution("1-D", 1, (64, 128), (256,), (3,), pad=1),
    convolution("1-D", 1, (256, 256), (1000,), (3,), pad=1),
    convolution("1-D", 1, (512, 512), (3200,), (3,), 2),
    convolution("1-D", 1, (1, 512), (16000,), (10,), 5),
    convolution("1-D", 8, (128, 128), (2000,), (9,), pad=4),
    transposed(1, (512, 256), (4, 4), (4, 4), 2, 1),
    transposed(1, (256, 128), (8, 8), (4, 4), 2, 1),
    transposed(1, (128, 64), (16, 16), (4, 4), 2, 1),
    transposed(1, (64, 3), (32, 32), (4, 4), 2, 1),
    transposed(1, (256, 128), (28, 28), (2, 2), 2),
    convolution("dilated", 1, (64, 64), (56, 56), (3, 3), pad=2, dilation=2),
    convolution("dilated", 1, (256, 256), (28, 28), (3, 3), pad=4, dilation=4),
    convolution("3-D", 1, (3, 64), (16, 112, 112), (3, 7, 7), (1, 2, 2), (1, 3, 3)),
    convolution("3-D", 1, (64, 64), (8, 56, 56), (3, 3, 3), pad=1),
    convolution("3-D", 1, (128, 256), (8, 28, 28), (3, 3, 3), 2, 1),
    pooling("MaxPool", 1, 64, (112, 112), 3, 2, 1),
    pooling("AveragePool", 1, 192, (35, 35), 3, 1, 1),
    pooling("MaxPool", 16, 64, (56, 56), 2, 2),
    pooling("GlobalAveragePool", 16, 512, (7, 7)),
    pooling("MaxPool", 1, 64, (8, 56, 56), 2, 2),
)
