"""The seven reference architectures as plain PyTorch modules with random weights, in evaluation mode.

Their sizes are those of ``tilewright.frontend.zoo``, whose builders write ONNX by hand; here torch's own
exporter writes it, as users do. ``FULL["resnet18"]()`` and ``SMALL["resnet18"]()`` give a `TorchModel`.

Read from the top: convolutional networks, transformers, then the tables.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tilewright.frontend.zoo import BERT_BASE, GPT2_SMALL, SEQUENCE, TINYBERT_4, TransformerSize

#: Scale of the last normalisation in a residual branch: it keeps sums over many blocks of the order of one.
_BRANCH_GAIN = 0.25
#: Scale of the normalisation on a shortcut that changes shape.
_SHORTCUT_GAIN = 0.6
#: What is added to the scores of masked tokens.
_MASKED = -10000.0


@dataclass(frozen=True)
class TorchModel:
    """A module with example inputs in the order of its arguments, and names for the exporter."""

    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]


def _scaled(channels: int, width: float) -> int:
    return max(4, round(channels * width / 4) * 4)


def _repeats(count: int, depth: float) -> int:
    return max(1, round(count * depth))


def _uniform(tensor: Tensor, low: float, high: float) -> None:
    nn.init.uniform_(tensor, low, high)


class ConvNorm(nn.Sequential):
    """A bias-free convolution, "same" padded, and a batch normalisation whose scale is about ``gain``."""

    def __init__(
        self,
        before: int,
        after: int,
        kernel: tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        groups: int = 1,
        gain: float = 1.0,
    ) -> None:
        convolution, norm = {2: (nn.Conv2d, nn.BatchNorm2d), 3: (nn.Conv3d, nn.BatchNorm3d)}[len(kernel)]
        padding = tuple(k // 2 for k in kernel)
        conv = convolution(before, after, kernel, stride, padding, groups=groups, bias=False)
        nn.init.normal_(conv.weight, std=math.sqrt(2.0 / (before // groups * math.prod(kernel))))
        bn = norm(after)
        _uniform(bn.weight, 0.7 * gain, 1.3 * gain)
        nn.init.normal_(bn.bias, std=0.1)
        nn.init.normal_(bn.running_mean, std=0.1)
        _uniform(bn.running_var, 0.7, 1.3)
        super().__init__(conv, bn)


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x))."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x))


class Inverted(nn.Module):
    """MobileNet-V2's block: expand, depthwise, project, and the input added where shapes allow."""

    def __init__(self, before: int, after: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = before * expansion
        self.residual = stride == 1 and before == after
        expand = [ConvNorm(before, hidden, (1, 1)), nn.ReLU6()] if expansion != 1 else []
        self.layers = nn.Sequential(
            *expand,
            ConvNorm(hidden, hidden, (3, 3), stride, groups=hidden),
            nn.ReLU6(),
            ConvNorm(hidden, after, (1, 1), gain=_BRANCH_GAIN if self.residual else 1.0),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


def _basic(before: int, after: int, rank: int, stride: int) -> nn.Module:
    kernel, one = (3,) * rank, (1,) * rank
    branch = nn.Sequential(
        ConvNorm(before, after, kernel, stride), nn.ReLU(), ConvNorm(after, after, kernel, gain=_BRANCH_GAIN)
    )
    same = stride == 1 and before == after
    return Residual(
        branch, nn.Identity() if same else ConvNorm(before, after, one, stride, gain=_SHORTCUT_GAIN)
    )


def _bottleneck(before: int, after: int, inner: int, stride: int) -> nn.Module:
    branch = nn.Sequential(
        ConvNorm(before, inner, (1, 1)),
        nn.ReLU(),
        ConvNorm(inner, inner, (3, 3), stride),
        nn.ReLU(),
        ConvNorm(inner, after, (1, 1), gain=_BRANCH_GAIN),
    )
    same = stride == 1 and before == after
    return Residual(
        branch, nn.Identity() if same else ConvNorm(before, after, (1, 1), stride, gain=_SHORTCUT_GAIN)
    )


def _head(rank: int, features: int, classes: int) -> list[nn.Module]:
    linear = nn.Linear(features, classes)
    nn.init.normal_(linear.weight, std=1.0 / math.sqrt(features))
    return [{2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[rank](1), nn.Flatten(), linear]


def _classifier(layers: list[nn.Module], shape: tuple[int, ...]) -> TorchModel:
    return TorchModel(nn.Sequential(*layers).eval(), {"input": torch.randn(1, 3, *shape)}, ("output",))


def resnet18(image: int = 224, width: float = 1.0, depth: float = 1.0, classes: int = 1000) -> TorchModel:
    """ResNet-18."""
    channels = _scaled(64, width)
    layers = [ConvNorm(3, channels, (7, 7), 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for stage in range(4):
        after = _scaled(64 * 2**stage, width)
        for block in range(_repeats(2, depth)):
            layers.append(_basic(channels, after, 2, 2 if stage > 0 and block == 0 else 1))
            channels = after
    return _classifier([*layers, *_head(2, channels, classes)], (image, image))


def resnet50(image: int = 224, width: float = 1.0, depth: float = 1.0, classes: int = 1000) -> TorchModel:
    """ResNet-50, a stage's stride in its first 3x3 convolution."""
    channels = _scaled(64, width)
    layers = [ConvNorm(3, channels, (7, 7), 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for stage, count in enumerate((3, 4, 6, 3)):
        inner, after = _scaled(64 * 2**stage, width), _scaled(256 * 2**stage, width)
        for block in range(_repeats(count, depth)):
            layers.append(_bottleneck(channels, after, inner, 2 if stage > 0 and block == 0 else 1))
            channels = after
    return _classifier([*layers, *_head(2, channels, classes)], (image, image))


def mobilenet_v2(image: int = 224, width: float = 1.0, depth: float = 1.0, classes: int = 1000) -> TorchModel:
    """MobileNet-V2."""
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
    channels, last = _scaled(32, width), _scaled(1280, width)
    layers: list[nn.Module] = [ConvNorm(3, channels, (3, 3), 2), nn.ReLU6()]
    for expansion, out, count, stride in settings:
        after = _scaled(out, width)
        for block in range(_repeats(count, depth)):
            layers.append(Inverted(channels, after, expansion, stride if block == 0 else 1))
            channels = after
    layers += [ConvNorm(channels, last, (1, 1)), nn.ReLU6()]
    return _classifier([*layers, *_head(2, last, classes)], (image, image))


def resnet3d18(
    frames: int = 16, image: int = 112, width: float = 1.0, depth: float = 1.0, classes: int = 400
) -> TorchModel:
    """ResNet3D-18 on video."""
    channels = _scaled(64, width)
    layers: list[nn.Module] = [ConvNorm(3, channels, (3, 7, 7), (1, 2, 2)), nn.ReLU()]
    for stage in range(4):
        after = _scaled(64 * 2**stage, width)
        for block in range(_repeats(2, depth)):
            layers.append(_basic(channels, after, 3, 2 if stage > 0 and block == 0 else 1))
            channels = after
    return _classifier([*layers, *_head(3, channels, classes)], (frames, image, image))


def _linear(before: int, after: int) -> nn.Linear:
    layer = nn.Linear(before, after)
    nn.init.normal_(layer.weight, std=1.0 / math.sqrt(before))
    nn.init.normal_(layer.bias, std=0.02)
    return layer


def _norm(features: int, epsilon: float) -> nn.LayerNorm:
    layer = nn.LayerNorm(features, eps=epsilon)
    _uniform(layer.weight, 0.8, 1.2)
    nn.init.normal_(layer.bias, std=0.05)
    return layer


def _embedding(count: int, hidden: int) -> nn.Embedding:
    layer = nn.Embedding(count, hidden)
    nn.init.normal_(layer.weight, std=0.5)
    return layer


def _heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, hidden] to [batch, heads, length, head]."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _merge(x: Tensor) -> Tensor:
    """[batch, heads, length, head] to [batch, length, hidden]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class BertLayer(nn.Module):
    """A BERT layer; ``fused`` uses torch's attention function, else attention is written out."""

    def __init__(self, size: TransformerSize, fused: bool) -> None:
        super().__init__()
        hidden = size.hidden
        self.heads, self.fused = size.heads, fused
        self.query, self.key = _linear(hidden, hidden), _linear(hidden, hidden)
        self.value, self.output = _linear(hidden, hidden), _linear(hidden, hidden)
        self.up, self.down = _linear(hidden, size.inner), _linear(size.inner, hidden)
        self.norm1, self.norm2 = _norm(hidden, 1e-12), _norm(hidden, 1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        if self.fused:
            context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
            context = functional.softmax(scores, dim=-1) @ value
        y = self.norm1(self.output(_merge(context)) + x)
        return self.norm2(self.down(functional.gelu(self.up(y))) + y)


class Bert(nn.Module):
    """BERT's encoder and pooler."""

    def __init__(self, size: TransformerSize, fused: bool) -> None:
        super().__init__()
        self.words = _embedding(size.vocabulary, size.hidden)
        self.kinds = _embedding(2, size.hidden)
        self.places = _embedding(size.positions, size.hidden)
        self.norm = _norm(size.hidden, 1e-12)
        self.layers = nn.ModuleList(BertLayer(size, fused) for _ in range(size.layers))
        self.pooler = _linear(size.hidden, size.hidden)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        bias = (1.0 - mask[:, None, None, :].to(torch.float32)) * _MASKED
        places = torch.arange(ids.shape[1])[None]
        x = self.norm(self.words(ids) + self.kinds(torch.zeros_like(ids)) + self.places(places))
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


class FlatLinear(nn.Module):
    """GPT-2's linear layer: the rows flattened to a matrix, one addmm, and back."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(before, after) / math.sqrt(before))
        self.bias = nn.Parameter(torch.randn(after) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], self.weight.shape[1])


class Gpt2Layer(nn.Module):
    """A GPT-2 layer; ``fused`` uses torch's causal attention function, else attention is written out."""

    def __init__(self, size: TransformerSize, fused: bool) -> None:
        super().__init__()
        hidden = size.hidden
        self.heads, self.fused = size.heads, fused
        self.norm1, self.norm2 = _norm(hidden, 1e-5), _norm(hidden, 1e-5)
        self.attention, self.projection = FlatLinear(hidden, 3 * hidden), FlatLinear(hidden, hidden)
        self.up, self.down = FlatLinear(hidden, size.inner), FlatLinear(size.inner, hidden)
        triangle = torch.ones(size.positions, size.positions, dtype=torch.bool).tril()
        self.register_buffer("causal", triangle[None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (_heads(part, self.heads) for part in self.attention(self.norm1(x)).chunk(3, -1))
        if self.fused:
            context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            length = x.shape[1]
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
            lowest = torch.finfo(scores.dtype).min
            scores = torch.where(self.causal[:, :, :length, :length], scores, lowest)
            context = functional.softmax(scores, dim=-1) @ value
        x = x + self.projection(_merge(context))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2's body, without the output vocabulary."""

    def __init__(self, size: TransformerSize, fused: bool) -> None:
        super().__init__()
        self.words = _embedding(size.vocabulary, size.hidden)
        self.places = _embedding(size.positions, size.hidden)
        self.layers = nn.ModuleList(Gpt2Layer(size, fused) for _ in range(size.layers))
        self.norm = _norm(size.hidden, 1e-5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])[None])
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def bert(size: TransformerSize, length: int, fused: bool) -> TorchModel:
    """BERT; the last eighth of the sequence is masked."""
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length - length // 8 :] = 0
    inputs = {"input_ids": torch.randint(size.vocabulary, (1, length)), "attention_mask": mask}
    return TorchModel(Bert(size, fused).eval(), inputs, ("last_hidden_state", "pooler_output"))


def gpt2(size: TransformerSize, length: int, fused: bool) -> TorchModel:
    """GPT-2's body."""
    inputs = {"input_ids": torch.randint(size.vocabulary, (1, length))}
    return TorchModel(Gpt2(size, fused).eval(), inputs, ("last_hidden_state",))


def _little(size: TransformerSize, **changes: int) -> TransformerSize:
    return replace(size, vocabulary=50, positions=16, **changes)


#: The architectures at their published sizes. TinyBERT writes its attention out, as older code does; BERT
#: and GPT-2 call torch's attention function.
FULL: dict[str, Callable[[], TorchModel]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "resnet3d18": resnet3d18,
    "bert_base": lambda: bert(BERT_BASE, SEQUENCE, fused=True),
    "tinybert4": lambda: bert(TINYBERT_4, SEQUENCE, fused=False),
    "gpt2": lambda: gpt2(GPT2_SMALL, SEQUENCE, fused=True),
}

#: The same made small, as in ``zoo.SMALL``; GPT-2 writes its attention out here.
SMALL: dict[str, Callable[[], TorchModel]] = {
    "resnet18": lambda: resnet18(image=32, width=0.125, depth=0.5, classes=10),
    "resnet50": lambda: resnet50(image=32, width=0.125, depth=0.34, classes=10),
    "mobilenet_v2": lambda: mobilenet_v2(image=32, width=0.25, depth=0.5, classes=10),
    "resnet3d18": lambda: resnet3d18(frames=4, image=16, width=0.125, depth=0.5, classes=10),
    "bert_base": lambda: bert(_little(BERT_BASE, layers=2, hidden=32, heads=4, inner=64), 8, fused=True),
    "tinybert4": lambda: bert(_little(TINYBERT_4, layers=1, hidden=39, heads=3, inner=75), 7, fused=False),
    "gpt2": lambda: gpt2(_little(GPT2_SMALL, layers=2, hidden=32, heads=4, inner=64), 8, fused=False),
}
