"""Parts that several networks share: a normalised convolution, attention, a transformer's layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Layers = nn.ModuleList


def conv(
    before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU
) -> nn.Sequential:
    """Convolution, batch normalisation, activation."""
    layer = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.Identity() if act is None else act())


def heads(x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [batch, heads, tokens, size] of [batch, tokens, 3 * heads * size]."""
    batch, tokens, width = x.shape
    parts = x.reshape(batch, tokens, 3, count, width // 3 // count).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attention written out; the result is [batch, tokens, heads * size]."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


class EncoderLayer(nn.Module):
    """A transformer layer with the normalisation first."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.norms = Layers(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x + self.out(attention(*heads(self.qkv(self.norms[0](x)), self.count), bias))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class RootMeanSquare(nn.Module):
    """Normalisation by the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
