"""Small versions of common architectures beside the seven, as PyTorch modules with random weights.

Each stands for a family and has its characteristic parts: squeeze and excitation, skip connections that join
channels, channel shuffles, windows of attention, rotary embeddings, group normalisation, gated activations,
dilated convolutions, recurrences, experts. ``NETWORKS["unet"]()`` gives a `TorchModel`.

Read from the top: parts, images, sequences, then the table.
"""

import math
from collections.abc import Callable

import torch
import torch_images as images
import torch_sequences as sequences
from torch import Tensor, nn
from torch.nn import functional
from torch_models import TorchModel
from torch_parts import EncoderLayer, Layers, RootMeanSquare, conv, heads


class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions."""

    def __init__(self, width: int = 192, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 197, width))
        self.layers = Layers(EncoderLayer(width, 3) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class UNet(nn.Module):
    """Down and up again, with skip connections joined along channels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def twice(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(conv(before, after), conv(after, after))

        self.down = Layers([twice(3, width), twice(width, 2 * width), twice(2 * width, 4 * width)])
        self.up = Layers(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in (2 * width, width))
        self.join = Layers(twice(2 * w, w) for w in (2 * width, width))
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](functional.max_pool2d(first, 2))
        x = self.down[2](functional.max_pool2d(second, 2))
        for up, join, skip in zip(self.up, self.join, (second, first), strict=True):
            x = join(torch.cat([up(x), skip], 1))
        return torch.sigmoid(self.out(x))


class Squeeze(nn.Module):
    """Channels scaled by what a small network makes of their means."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        means = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.outer(functional.silu(self.inner(means))))


class MobileBlock(nn.Module):
    """Expand, depthwise, squeeze, project."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = before * factor
        expand = [conv(before, inner, 1, act=nn.SiLU)] if factor > 1 else []
        depthwise = conv(inner, inner, kernel, stride, inner, nn.SiLU)
        project = conv(inner, after, 1, act=None)
        self.body = nn.Sequential(*expand, depthwise, Squeeze(inner, max(1, before // 4)), project)
        self.residual = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def efficientnet() -> nn.Module:
    """EfficientNet-B0."""
    stages = [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]
    layers: list[nn.Module] = [conv(3, 32, 3, 2, act=nn.SiLU)]
    before = 32
    for factor, after, count, stride, kernel in stages:
        for at in range(count):
            layers.append(MobileBlock(before, after, kernel, stride if at == 0 else 1, factor))
            before = after
    head = [conv(320, 1280, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, *head)


class ConvNext(nn.Module):
    """Large depthwise windows, and pointwise layers with channels last."""

    def __init__(self, widths: tuple[int, int] = (48, 96), depth: int = 2) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, widths[0], 4, 4), nn.LayerNorm(widths[0])
        self.between = nn.Conv2d(widths[0], widths[1], 2, 2)
        self.stages = Layers(
            Layers(
                Layers([nn.Conv2d(w, w, 7, padding=3, groups=w), self._pointwise(w)]) for _ in range(depth)
            )
            for w in widths
        )
        self.head = nn.Linear(widths[1], 100)

    @staticmethod
    def _pointwise(width: int) -> nn.Module:
        layers = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
        return nn.Sequential(nn.LayerNorm(width), *layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for at, stage in enumerate(self.stages):
            x = self.between(x) if at else x
            for depthwise, pointwise in stage:
                x = x + 0.3 * pointwise(depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


class ShuffleNet(nn.Module):
    """Halves of the channels, shuffled."""

    def __init__(self, width: int = 116) -> None:
        super().__init__()
        half = width // 2
        self.stem = nn.Sequential(conv(3, width, 3, 2), nn.MaxPool2d(3, 2, 1))
        self.blocks = Layers(
            nn.Sequential(conv(half, half, 1), conv(half, half, 3, 1, half, None), conv(half, half, 1))
            for _ in range(3)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            left, right = x.chunk(2, 1)
            x = torch.cat([left, block(right)], 1)
            x = x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        return self.head(x.mean((2, 3)))


class DenseNet(nn.Module):
    """Each layer reads all before it."""

    def __init__(self, width: int = 64, growth: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.layers = Layers(
            nn.Sequential(
                *(nn.BatchNorm2d(width + at * growth), nn.ReLU()),
                conv(width + at * growth, 128, 1),
                nn.Conv2d(128, growth, 3, padding=1, bias=False),
            )
            for at in range(depth)
        )
        joined = width + depth * growth
        self.head = nn.Sequential(nn.Conv2d(joined, 64, 1), nn.AvgPool2d(2), nn.Conv2d(64, 10, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(x).mean((2, 3))


class Detector(nn.Module):
    """A pyramid of features, pooled in several sizes, enlarged and joined, and two heads."""

    def __init__(self) -> None:
        super().__init__()

        def silu(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Module:
            return conv(before, after, kernel, stride, act=nn.SiLU)

        self.first = nn.Sequential(silu(3, 16, 3, 2), silu(16, 32, 3, 2), silu(32, 64, 3, 2))
        self.second, self.narrow, self.wide = silu(64, 128, 3, 2), silu(128, 64, 1), silu(256, 128, 1)
        self.up, self.down, self.last = silu(192, 64), silu(64, 64, 3, 2), silu(192, 128)
        self.heads = Layers([nn.Conv2d(64, 255, 1), nn.Conv2d(128, 255, 1)])

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        pooled = [self.narrow(self.second(fine))]
        for _ in range(3):
            pooled.append(functional.max_pool2d(pooled[-1], 5, 1, 2))
        coarse = self.wide(torch.cat(pooled, 1))
        up = self.up(torch.cat([functional.interpolate(coarse, scale_factor=2.0), fine], 1))
        down = self.last(torch.cat([self.down(up), coarse], 1))
        found = [head(y) for head, y in zip(self.heads, (up, down), strict=True)]
        boxes = [y.unflatten(1, (3, 85)).permute(0, 1, 3, 4, 2).sigmoid() for y in found]
        return torch.cat([y.flatten(1, 3) for y in boxes], 1)


class WindowTransformer(nn.Module):
    """Attention within shifted windows, and neighbours merged."""

    def __init__(self, width: int = 96, window: int = 7) -> None:
        super().__init__()
        self.patches, self.window = nn.Conv2d(3, width, 4, 4), window
        self.layer = EncoderLayer(width, 3)
        self.bias = nn.Parameter(torch.randn(3, window * window, window * window))
        self.norm, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.patches(x).permute(0, 2, 3, 1), (-3, -3), (1, 2))
        batch, height, width, channels = x.shape
        w = self.window
        x = x.view(batch, height // w, w, width // w, w, channels).permute(0, 1, 3, 2, 4, 5)
        x = self.layer(x.reshape(-1, w * w, channels), self.bias)
        x = x.view(batch, height // w, width // w, w, w, channels).permute(0, 1, 3, 2, 4, 5)
        x = torch.roll(x.reshape(batch, height, width, channels), (3, 3), (1, 2))
        parts = [x[:, at::2, by::2] for by in (0, 1) for at in (0, 1)]
        return self.head(self.merge(self.norm(torch.cat(parts, -1))).mean((1, 2)))


class Denoiser(nn.Module):
    """A block of a diffusion model: group normalisation, a time embedding, attention, a larger image."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.norms = Layers(nn.GroupNorm(32, width) for _ in range(3))
        self.convs = Layers(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.time, self.qkv, self.out = (
            nn.Linear(128, width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.first(x)
        y = (
            self.convs[0](functional.silu(self.norms[0](x)))
            + self.time(functional.silu(time))[..., None, None]
        )
        x = x + self.convs[1](functional.silu(self.norms[1](y)))
        y = self.qkv(self.norms[2](x).flatten(2).transpose(1, 2))
        q, k, v = heads(y, 1)
        y = functional.scaled_dot_product_attention(q, k, v)[:, 0]
        x = x + self.out(y).transpose(1, 2).reshape(x.shape)
        return self.last(self.convs[2](functional.interpolate(x, scale_factor=2.0)))


class SuperResolution(nn.Module):
    """Channels turned into pixels, added to the image enlarged."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, width, 5, padding=2), nn.Tanh(), nn.Conv2d(width, width, 3, padding=1)),
            *(nn.PReLU(width), nn.Conv2d(width, 9, 3, padding=1), nn.PixelShuffle(3)),
        )

    def forward(self, x: Tensor) -> Tensor:
        large = functional.interpolate(x, scale_factor=3.0, mode="bilinear", align_corners=False)
        return self.body(x) + large


class ShiftedWindows(nn.Module):
    """Layers of attention within windows, each second one shifted, with masks and relative positions."""

    def __init__(self, width: int = 96, count: int = 3, window: int = 7, depth: int = 2) -> None:
        super().__init__()
        self.patches, self.window = nn.Conv2d(3, width, 4, 4), window
        self.layers = Layers(EncoderLayer(width, count) for _ in range(depth))
        self.table = nn.Parameter(torch.randn(depth, (2 * window - 1) ** 2, count))
        at = torch.stack(torch.meshgrid(*[torch.arange(window)] * 2, indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]) + window - 1
        self.register_buffer("places", apart[0] * (2 * window - 1) + apart[1])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def _mask(self, height: int, width: int) -> Tensor:
        """Minus infinity, nearly, between parts of a window that were not neighbours before the shift."""
        w, shift = self.window, self.window // 2
        parts = torch.zeros(height, width)
        spans = (slice(0, -w), slice(-w, -shift), slice(-shift, None))
        for n, (rows, columns) in enumerate((a, b) for a in spans for b in spans):
            parts[rows, columns] = n
        cut = parts.view(height // w, w, width // w, w).permute(0, 2, 1, 3).reshape(-1, w * w)
        return (cut[:, None, :] != cut[:, :, None]).float() * -100.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        batch, height, width, channels = x.shape
        w = self.window
        for n, layer in enumerate(self.layers):
            shift = w // 2 if n % 2 else 0
            bias = self.table[n][self.places.flatten()].view(w * w, w * w, -1).permute(2, 0, 1)[None]
            if shift:
                x = torch.roll(x, (-shift, -shift), (1, 2))
                bias = bias + self._mask(height, width)[:, None]
            x = x.reshape(batch, height // w, w, width // w, w, channels).permute(0, 1, 3, 2, 4, 5)
            x = layer(x.reshape(-1, w * w, channels), bias)
            x = x.view(batch, height // w, width // w, w, w, channels).permute(0, 1, 3, 2, 4, 5)
            x = x.reshape(batch, height, width, channels)
            if shift:
                x = torch.roll(x, (shift, shift), (1, 2))
        return self.head(self.norm(x).mean((1, 2)))


class Decoder(nn.Module):
    """A decoder with rotary positions, keys shared by heads, and gated layers."""

    def __init__(self, width: int = 256, tokens: int = 64, depth: int = 2, words: int = 1000) -> None:
        super().__init__()
        self.count, self.shared, size = 8, 4, width // 8
        self.words, self.out = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        sizes = ((width, width), (width, width // 2), (width, width // 2), (width, width))
        gated = ((width, 688), (width, 688), (688, width))
        self.layers = Layers(
            Layers(
                [
                    RootMeanSquare(width),
                    RootMeanSquare(width),
                    *(nn.Linear(a, b, bias=False) for a, b in (*sizes, *gated)),
                ]
            )
            for _ in range(depth)
        )
        self.norm = RootMeanSquare(width)
        angles = torch.outer(torch.arange(tokens).float(), 1e4 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())
        self.register_buffer("mask", torch.triu(torch.full((tokens, tokens), float("-inf")), 1))

    def _rotated(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        size = x.shape[-1] // self.count
        for before, between, wq, wk, wv, wo, gate, up, down in self.layers:
            y = before(x)
            q, k, v = (w(y).unflatten(-1, (-1, size)).transpose(1, 2) for w in (wq, wk, wv))
            repeats = self.count // self.shared
            k, v = (
                t[:, :, None].expand(-1, -1, repeats, -1, -1).flatten(1, 2) for t in (self._rotated(k), v)
            )
            scores = self._rotated(q) @ k.transpose(-1, -2) / math.sqrt(size) + self.mask
            x = x + wo((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
            y = between(x)
            x = x + down(functional.silu(gate(y)) * up(y))
        return self.out(self.norm(x))


class Waves(nn.Module):
    """Dilated convolutions with gates, and samples at twice the rate."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.dilated = Layers(
            nn.Conv1d(width, 2 * width, 3, padding=2**at, dilation=2**at) for at in range(5)
        )
        self.mixed = Layers(nn.Conv1d(width, width, 1) for _ in range(5))
        self.up, self.last = (
            nn.ConvTranspose1d(width, width // 2, 4, 2, 1),
            nn.Conv1d(width // 2, 1, 7, padding=3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for dilated, mixed in zip(self.dilated, self.mixed, strict=True):
            left, right = dilated(x).chunk(2, 1)
            x = x + mixed(torch.tanh(left) * torch.sigmoid(right))
        return torch.tanh(self.last(functional.leaky_relu(self.up(x), 0.1)))


class Tagger(nn.Module):
    """Recurrent layers over a sequence, and a layer for each step."""

    def __init__(self, recurrent: nn.Module, features: int, classes: int, words: int = 0) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 64) if words else nn.Identity()
        self.recurrent, self.out = recurrent, nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return functional.log_softmax(self.out(self.recurrent(self.words(x))[0]), -1)


class Experts(nn.Module):
    """Two of several experts a row, chosen by their scores."""

    def __init__(self, width: int = 64, count: int = 4) -> None:
        super().__init__()
        self.scores, self.weights = (
            nn.Linear(width, count),
            nn.Parameter(torch.randn(count, width, width) / 8),
        )

    def forward(self, x: Tensor) -> Tensor:
        chosen, index = self.scores(x).softmax(-1).topk(2, -1)
        y = torch.einsum("nd,edf->nef", x, self.weights)
        y = torch.gather(y, 1, index[..., None].expand(-1, -1, x.shape[-1]))
        return (y * chosen[..., None]).sum(1)


def model_of(module: nn.Module, outputs: tuple[str, ...] = ("y",), **inputs: Tensor) -> TorchModel:
    """The module in evaluation mode, with weights that keep signals alive through many layers."""
    for part in module.modules():
        if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight)
    return TorchModel(module.eval(), inputs, outputs)


def _image(size: int = 224, channels: int = 3) -> Tensor:
    return torch.randn(1, channels, size, size)


def _decoder(width: int, tokens: int, words: int) -> Callable[[], TorchModel]:
    return lambda: model_of(Decoder(width, tokens, 2, words), x=torch.randint(0, 1000, (1, tokens)))


LANGUAGE_MODELS: dict[str, Callable[[], TorchModel]] = {
    f"decoder_{width}x{tokens}x{words}": _decoder(width, tokens, words)
    for width, tokens, words in (
        (256, 1, 32000),
        (256, 16, 32000),
        (256, 128, 32000),
        (384, 64, 50257),
        (512, 1, 32000),
        (512, 32, 32000),
        (512, 128, 8000),
        (768, 8, 32000),
    )
}
"""Decoders whose vocabulary is as large as those of language models are: width, tokens, words."""

NETWORKS: dict[str, Callable[[], TorchModel]] = {
    "vision_transformer": lambda: model_of(VisionTransformer(), x=_image()),
    "unet": lambda: model_of(UNet(), x=_image(192)),
    "efficientnet_b0": lambda: model_of(efficientnet(), x=_image()),
    "convnext": lambda: model_of(ConvNext(), x=_image()),
    "shufflenet": lambda: model_of(ShuffleNet(), x=_image()),
    "densenet": lambda: model_of(DenseNet(), x=_image()),
    "detector": lambda: model_of(Detector(), x=_image(320)),
    "window_transformer": lambda: model_of(WindowTransformer(), x=_image()),
    "denoiser": lambda: model_of(Denoiser(), x=_image(32, 4), time=torch.randn(1, 128)),
    "super_resolution": lambda: model_of(SuperResolution(), x=_image(96, 1)),
    "decoder": lambda: model_of(Decoder(), x=torch.randint(0, 1000, (1, 64))),
    "waves": lambda: model_of(Waves(), x=torch.randn(1, 1, 4000)),
    "lstm": lambda: model_of(
        Tagger(nn.LSTM(64, 128, 2, batch_first=True), 128, 10, 500), x=torch.randint(0, 500, (1, 50))
    ),
    "gru": lambda: model_of(
        Tagger(nn.GRU(40, 64, batch_first=True, bidirectional=True), 128, 30), x=torch.randn(1, 50, 40)
    ),
    "experts": lambda: model_of(Experts(), x=torch.randn(37, 64)),
    "mobilenet_v3": lambda: model_of(images.mobilenet_v3(), x=_image()),
    "inception": lambda: model_of(images.Inception(), x=_image()),
    "resnext": lambda: model_of(images.resnext(), x=_image()),
    "regnet": lambda: model_of(images.regnet(), x=_image()),
    "mixer": lambda: model_of(images.Mixer(), x=_image()),
    "bilinear_unet": lambda: model_of(images.BilinearUNet(), x=_image(160)),
    "yolo": lambda: model_of(images.Yolo(), x=_image(320)),
    "dilated_pyramid": lambda: model_of(images.DilatedPyramid(), x=_image(256)),
    "segformer": lambda: model_of(images.Segformer(), x=_image(192)),
    "generator": lambda: model_of(images.generator(), x=torch.randn(1, 100, 1, 1)),
    "discriminator": lambda: model_of(images.discriminator(), x=_image(64)),
    "style_generator": lambda: model_of(images.StyleGenerator(), x=torch.randn(1, 128)),
    "style_transfer": lambda: model_of(images.StyleTransfer(), x=_image(128)),
    "flow": lambda: model_of(images.Flow(), x=_image(128), other=_image(128)),
    "point_net": lambda: model_of(images.PointNet(), x=torch.randn(1, 3, 1024)),
    "volumes": lambda: model_of(images.VolumeNet(), x=torch.randn(1, 1, 32, 32, 32)),
    "radiance": lambda: model_of(images.Radiance(), x=torch.randn(4096, 3)),
    "decoder_step": lambda: model_of(
        sequences.DecoderStep(),
        ("y", "new_keys", "new_values"),
        token=torch.randint(0, 2000, (1, 1)),
        position=torch.tensor([200]),
        keys=torch.randn(2, 1, 2, 200, 64),
        values=torch.randn(2, 1, 2, 200, 64),
    ),
    "relative_positions": lambda: model_of(
        sequences.RelativePositions(),
        x=torch.randint(0, 1000, (1, 64)),
        target=torch.randint(0, 1000, (1, 24)),
    ),
    "speech_encoder": lambda: model_of(sequences.SpeechEncoder(), x=torch.randn(1, 80, 1000)),
    "conformer": lambda: model_of(sequences.Conformer(), x=torch.randn(1, 200, 144)),
    "causal_windows": lambda: model_of(sequences.CausalWindows(), x=torch.randn(1, 40, 400)),
    "separator": lambda: model_of(sequences.Separator(), x=torch.randn(1, 1, 8000)),
    "reader": lambda: model_of(sequences.Reader(), x=torch.randn(1, 1, 32, 160)),
    "translator": lambda: model_of(sequences.Translator(), x=torch.randint(0, 400, (1, 20))),
    "selective_scan": lambda: model_of(sequences.SelectiveScan(), x=torch.randn(1, 32, 64)),
    "linear_attention": lambda: model_of(sequences.LinearAttention(), x=torch.randn(1, 128, 64)),
    "recommender": lambda: model_of(
        sequences.Recommender(), x=torch.randn(64, 13), categories=torch.randint(0, 5000, (64, 8, 4))
    ),
    "autoencoder": lambda: model_of(sequences.autoencoder(), x=torch.randn(8, 784)),
    "graph": lambda: model_of(
        sequences.GraphConvolution(), x=torch.randn(500, 32), edges=torch.randint(0, 500, (2, 3000))
    ),
    "tokens": lambda: model_of(sequences.Tokens(), x=torch.randint(0, 1000, (2, 64))),
    "shifted_windows": lambda: model_of(ShiftedWindows(), x=_image()),
    "shifted_windows_wide": lambda: model_of(ShiftedWindows(192, 6, 8, 4), x=_image(256)),
    **LANGUAGE_MODELS,
}
"""The networks by name."""
