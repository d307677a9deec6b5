"""ResNet-18, ResNet-50, MobileNet-V2 and ResNet3D-18 with random weights, as exporters write them.

Batch normalisations stay separate nodes and ReLU6 is a Clip: folding them is the compiler's work.
`width` multiplies every channel count and `depth` every count of repeated blocks, so that a model a
hundred times smaller still has each of the architecture's kinds of layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from onnx import ModelProto

from tilewright.frontend.zoo.builder import ModelBuilder

#: Scale of the last normalisation in a residual branch: it keeps sums over many blocks of the order of one.
_BRANCH_GAIN = 0.25
#: Scale of the normalisation on a shortcut that changes shape.
_SHORTCUT_GAIN = 0.6
#: How many times the channels of its 3x3 convolution a bottleneck has outside.
_WIDENING = 4
#: A residual block from its input, its channels before and after, its stride and the stem of its names.
_Block: TypeAlias = Callable[[ModelBuilder, str, tuple[int, int], int, str], str]


def _scaled(channels: int, width: float) -> int:
    return max(4, round(channels * width / 4) * 4)


def _repeats(count: int, depth: float) -> int:
    return max(1, round(count * depth))


def _conv_bn(
    b: ModelBuilder,
    x: str,
    channels: tuple[int, int],
    kernel: Sequence[int],
    stride: int | Sequence[int] = 1,
    groups: int = 1,
    gain: float = 1.0,
    stem: str = "conv",
) -> str:
    y = b.conv(x, channels, kernel, stride, groups=groups, stem=stem)
    return b.batch_norm(y, channels[1], gain, f"{stem}.bn")


def _basic_block(
    b: ModelBuilder, x: str, channels: tuple[int, int], stride: int, stem: str, rank: int = 2
) -> str:
    before, after = channels
    y = _conv_bn(b, x, channels, [3] * rank, stride, stem=f"{stem}.conv1")
    y = b.node("Relu", y, stem=f"{stem}.relu1")
    y = _conv_bn(b, y, (after, after), [3] * rank, gain=_BRANCH_GAIN, stem=f"{stem}.conv2")
    if stride != 1 or before != after:
        x = _conv_bn(b, x, channels, [1] * rank, stride, gain=_SHORTCUT_GAIN, stem=f"{stem}.downsample")
    return b.node("Relu", b.node("Add", y, x, stem=f"{stem}.add"), stem=f"{stem}.relu2")


def _bottleneck(b: ModelBuilder, x: str, channels: tuple[int, int], stride: int, stem: str) -> str:
    """Its stride is in its 3x3 convolution."""
    before, after = channels
    inner = after // _WIDENING
    y = b.node("Relu", _conv_bn(b, x, (before, inner), [1, 1], stem=f"{stem}.conv1"), stem=f"{stem}.relu1")
    y = _conv_bn(b, y, (inner, inner), [3, 3], stride, stem=f"{stem}.conv2")
    y = b.node("Relu", y, stem=f"{stem}.relu2")
    y = _conv_bn(b, y, (inner, after), [1, 1], gain=_BRANCH_GAIN, stem=f"{stem}.conv3")
    if stride != 1 or before != after:
        x = _conv_bn(b, x, channels, [1, 1], stride, gain=_SHORTCUT_GAIN, stem=f"{stem}.downsample")
    return b.node("Relu", b.node("Add", y, x, stem=f"{stem}.add"), stem=f"{stem}.relu3")


def _residual_stages(
    b: ModelBuilder,
    x: str,
    block: _Block,
    counts: Sequence[int],
    width: float,
    depth: float,
    widening: int = 1,
) -> tuple[str, int]:
    """Stages of so many blocks, each but the first with half as large images; the result and its channels."""
    channels = _scaled(64, width)
    for stage, count in enumerate(counts):
        after = _scaled(64 * 2**stage, width) * widening
        for n in range(_repeats(count, depth)):
            stride = 2 if stage > 0 and n == 0 else 1
            x = block(b, x, (channels, after), stride, f"layer{stage + 1}.{n}")
            channels = after
    return x, channels


def _resnet_stem(b: ModelBuilder, batch: int | str, image: int, channels: int) -> str:
    x = b.input("input", [batch, 3, image, image])
    y = b.node("Relu", _conv_bn(b, x, (3, channels), [7, 7], 2, stem="stem"), stem="stem.relu")
    return b.node("MaxPool", y, stem="stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def _classified(b: ModelBuilder, made: tuple[str, int], batch: int | str, classes: int) -> ModelProto:
    """The model that ends with a classifier of a tensor with so many channels."""
    b.output(b.classifier(*made, classes), "output", [batch, classes])
    return b.build()


def resnet18(
    batch: int | str = 1,
    image: int = 224,
    width: float = 1.0,
    depth: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
) -> ModelProto:
    """ResNet-18: input `input` [batch, 3, image, image], output `output` [batch, classes]."""
    b = ModelBuilder("resnet18", seed)
    x = _resnet_stem(b, batch, image, _scaled(64, width))
    made = _residual_stages(b, x, _basic_block, (2, 2, 2, 2), width, depth)
    return _classified(b, made, batch, classes)


def resnet34(
    batch: int | str = 1,
    image: int = 224,
    width: float = 1.0,
    depth: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
) -> ModelProto:
    """ResNet-34: input `input` [batch, 3, image, image], output `output` [batch, classes]."""
    b = ModelBuilder("resnet34", seed)
    x = _resnet_stem(b, batch, image, _scaled(64, width))
    made = _residual_stages(b, x, _basic_block, (3, 4, 6, 3), width, depth)
    return _classified(b, made, batch, classes)


def resnet50(
    batch: int | str = 1,
    image: int = 224,
    width: float = 1.0,
    depth: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
) -> ModelProto:
    """ResNet-50: input `input` [batch, 3, image, image], output `output` [batch, classes]."""
    b = ModelBuilder("resnet50", seed)
    x = _resnet_stem(b, batch, image, _scaled(64, width))
    made = _residual_stages(b, x, _bottleneck, (3, 4, 6, 3), width, depth, _WIDENING)
    return _classified(b, made, batch, classes)


def _relu6(b: ModelBuilder, x: str, stem: str) -> str:
    return b.node("Clip", x, b.scalar(0.0, f"{stem}.min"), b.scalar(6.0, f"{stem}.max"), stem=stem)


def mobilenet_v2(
    batch: int | str = 1,
    image: int = 224,
    width: float = 1.0,
    depth: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
    colours: int = 3,
) -> ModelProto:
    """MobileNet-V2: `input` [batch, colours, image, image] to `output` [batch, classes]."""
    # (expansion, channels, repeats, stride), Table 2 of the MobileNet-V2 paper
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    b = ModelBuilder("mobilenet_v2", seed)
    channels = _scaled(32, width)
    x = b.input("input", [batch, colours, image, image])
    x = _relu6(b, _conv_bn(b, x, (colours, channels), [3, 3], 2, stem="stem"), "stem.relu6")
    for stage, (expansion, out, count, first_stride) in enumerate(settings):
        after = _scaled(out, width)
        for block in range(_repeats(count, depth)):
            stem = f"block{stage}.{block}"
            stride = first_stride if block == 0 else 1
            hidden = channels * expansion
            y = x
            if expansion != 1:
                y = _conv_bn(b, y, (channels, hidden), [1, 1], stem=f"{stem}.expand")
                y = _relu6(b, y, f"{stem}.relu6_expand")
            y = _conv_bn(b, y, (hidden, hidden), [3, 3], stride, groups=hidden, stem=f"{stem}.depthwise")
            y = _relu6(b, y, f"{stem}.relu6_depthwise")
            residual = stride == 1 and channels == after
            gain = _BRANCH_GAIN if residual else 1.0
            y = _conv_bn(b, y, (hidden, after), [1, 1], gain=gain, stem=f"{stem}.project")
            x = b.node("Add", x, y, stem=f"{stem}.add") if residual else y
            channels = after
    last = _scaled(1280, width)
    x = _relu6(b, _conv_bn(b, x, (channels, last), [1, 1], stem="head"), "head.relu6")
    b.output(b.classifier(x, last, classes), "output", [batch, classes])
    return b.build()


def resnet3d18(
    batch: int | str = 1,
    frames: int = 16,
    image: int = 112,
    width: float = 1.0,
    depth: float = 1.0,
    classes: int = 400,
    seed: int = 0,
) -> ModelProto:
    """ResNet3D-18 on video: `input` [batch, 3, frames, image, image] to `output` [batch, classes]."""
    b = ModelBuilder("resnet3d18", seed)
    x = b.input("input", [batch, 3, frames, image, image])
    x = _conv_bn(b, x, (3, _scaled(64, width)), [3, 7, 7], [1, 2, 2], stem="stem")
    x = b.node("Relu", x, stem="stem.relu")
    x, channels = _residual_stages(b, x, partial(_basic_block, rank=3), (2, 2, 2, 2), width, depth)
    b.output(b.classifier(x, channels, classes), "output", [batch, classes])
    return b.build()
