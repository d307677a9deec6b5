"""Small versions of more architectures for text, sound, tables and graphs, with random weights.

They go on where ``torch_networks.py`` ends, whose table lists them with the rest: one step of a decoder with
its cache, relative positions, cross attention, causal windows, scans, gathered embeddings, sums over edges.

Read from the top: transformers, sound, recurrences and scans, tables and graphs.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_parts import EncoderLayer, Layers, RootMeanSquare, attention, heads


class DecoderStep(nn.Module):
    """One token through a decoder with rotary positions; keys and values of those before come as inputs."""

    def __init__(self, width: int = 512, count: int = 8, shared: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.count, self.shared, self.size = count, shared, width // count
        inner, narrow = 1376, shared * self.size
        shapes = ((width, width), (width, narrow), (width, narrow), (width, width))
        shapes += ((width, inner), (width, inner), (inner, width))
        self.words = nn.Embedding(2000, width)
        self.norms = Layers(RootMeanSquare(width) for _ in range(2 * depth + 1))
        self.layers = Layers(Layers(nn.Linear(a, b, bias=False) for a, b in shapes) for _ in range(depth))
        self.out = nn.Linear(width, 2000, bias=False)
        self.register_buffer("rates", 1e4 ** (-torch.arange(0, self.size, 2) / self.size))

    def forward(self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        x = self.words(token)
        angles = position.float()[:, None] * self.rates
        cos, sin = (torch.cat([t, t], -1) for t in (angles.cos(), angles.sin()))

        def rotated(t: Tensor) -> Tensor:
            left, right = t.chunk(2, -1)
            return t * cos + torch.cat([-right, left], -1) * sin

        new_keys, new_values = [], []
        for at, (wq, wk, wv, wo, gate, up, down) in enumerate(self.layers):
            y = self.norms[2 * at](x)
            q, k, v = (w(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for w in (wq, wk, wv))
            k, v = torch.cat([keys[at], rotated(k)], 2), torch.cat([values[at], v], 2)
            new_keys.append(k)
            new_values.append(v)
            q = rotated(q).unflatten(1, (self.shared, -1)).flatten(2, 3)
            weights = (q @ k.transpose(-1, -2) / math.sqrt(self.size)).softmax(-1)
            x = x + wo((weights @ v).flatten(1)[:, None])
            y = self.norms[2 * at + 1](x)
            x = x + down(functional.silu(gate(y)) * up(y))
        return self.out(self.norms[-1](x)), torch.stack(new_keys), torch.stack(new_values)


class RelativePositions(nn.Module):
    """T5: biases of bucketed distances, cross attention, gated layers, no scaling of scores."""

    def __init__(self, width: int = 256, count: int = 4, words: int = 1000) -> None:
        super().__init__()
        self.count, self.words = count, nn.Embedding(words, width)
        self.biases = nn.Embedding(32, count)
        self.norms = Layers(RootMeanSquare(width) for _ in range(6))
        self.encode, self.decode = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, 3 * width, bias=False),
        )
        self.cross_q, self.cross_kv = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, 2 * width, bias=False),
        )
        self.outs = Layers(nn.Linear(width, width, bias=False) for _ in range(3))
        self.gates = Layers(nn.Linear(width, 512, bias=False) for _ in range(2))
        self.ups = Layers(nn.Linear(width, 512, bias=False) for _ in range(2))
        self.downs = Layers(nn.Linear(512, width, bias=False) for _ in range(2))

    def _bias(self, queries: int, keys: int) -> Tensor:
        distance = torch.arange(keys)[None] - torch.arange(queries)[:, None]
        far = 8 + (torch.log(distance.abs().clamp(min=1).float() / 8) / math.log(16) * 8).long()
        bucket = torch.where(distance.abs() < 8, distance.abs(), far.clamp(max=15)) + 16 * (distance > 0)
        return self.biases(bucket).permute(2, 0, 1)

    def _gated(self, at: int, x: Tensor) -> Tensor:
        return self.downs[at](functional.gelu(self.gates[at](x), approximate="tanh") * self.ups[at](x))

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x, y = self.words(tokens), self.words(target)
        q, k, v = heads(self.encode(self.norms[0](x)), self.count)
        x = x + self.outs[0](attention(q * q.shape[-1] ** 0.5, k, v, self._bias(q.shape[2], k.shape[2])))
        x = x + self._gated(0, self.norms[1](x))
        q, k, v = heads(self.decode(self.norms[2](y)), self.count)
        length = q.shape[2]
        mask = torch.triu(torch.full((length, length), torch.finfo(torch.float32).min), 1)
        y = y + self.outs[1](attention(q * q.shape[-1] ** 0.5, k, v, self._bias(length, length) + mask))
        batch, width = x.shape[0], x.shape[-1]
        q = self.cross_q(self.norms[3](y)).view(batch, length, self.count, -1).transpose(1, 2)
        k, v = self.cross_kv(x).view(batch, -1, 2, self.count, width // self.count).permute(2, 0, 3, 1, 4)
        y = y + self.outs[2](attention(q * q.shape[-1] ** 0.5, k, v))
        y = y + self._gated(1, self.norms[4](y))
        return self.norms[5](y) @ self.words.weight.t()


class SpeechEncoder(nn.Module):
    """Whisper's encoder: two windows along time, then a transformer over many tokens."""

    def __init__(self, width: int = 384, tokens: int = 500) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.register_buffer("positions", torch.randn(tokens, width))
        self.layers = Layers(EncoderLayer(width, 6) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(x)))).transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Conformer(nn.Module):
    """Half layers around attention and a gated depthwise window along time."""

    def __init__(self, width: int = 144) -> None:
        super().__init__()

        def half() -> nn.Module:
            layers = [nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)]
            return nn.Sequential(nn.LayerNorm(width), *layers)

        self.halves = Layers([half(), half()])
        self.norms = Layers(nn.LayerNorm(width) for _ in range(3))
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.gate = nn.Conv1d(width, 2 * width, 1)
        self.window = nn.Conv1d(width, width, 31, padding=15, groups=width)
        self.scale, self.out = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.halves[0](x)
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        y = functional.glu(self.gate(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.out(functional.silu(self.scale(self.window(y)))).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.halves[1](x))


class CausalWindows(nn.Module):
    """A temporal convolutional network: dilated windows that see the past only."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv1d(40, width, 1)
        self.windows = Layers(nn.Conv1d(width, width, 3, dilation=2**at) for at in range(6))
        self.norms = Layers(nn.BatchNorm1d(width) for _ in range(6))
        self.out = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for at, (window, norm) in enumerate(zip(self.windows, self.norms, strict=True)):
            x = x + functional.relu(norm(window(functional.pad(x, (2 * 2**at, 0)))))
        return self.out(x[:, :, -1])


class Separator(nn.Module):
    """Conv-TasNet: learned frames, masks by depthwise blocks with global normalisation, frames back."""

    def __init__(self, width: int = 128, inner: int = 256) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, width, 16, 8, bias=False)
        self.decode = nn.ConvTranspose1d(width, 1, 16, 8, bias=False)
        self.start = nn.Conv1d(width, 64, 1)
        self.blocks = Layers(
            nn.Sequential(
                *(nn.Conv1d(64, inner, 1), nn.PReLU(), nn.GroupNorm(1, inner, 1e-8)),
                nn.Conv1d(inner, inner, 3, padding=2**at, dilation=2**at, groups=inner),
                *(nn.PReLU(), nn.GroupNorm(1, inner, 1e-8), nn.Conv1d(inner, 64, 1)),
            )
            for at in range(4)
        )
        self.masks = nn.Conv1d(64, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        frames = functional.relu(self.encode(x))
        y = self.start(frames)
        for block in self.blocks:
            y = y + block(y)
        masks = torch.sigmoid(self.masks(y)).unflatten(1, (2, -1))
        return self.decode((masks * frames[:, None]).flatten(0, 1))


class Reader(nn.Module):
    """Text in images: windows that reduce rows to one, then a recurrence along columns."""

    def __init__(self, classes: int = 37) -> None:
        super().__init__()
        widths = ((1, 32, (2, 2)), (32, 64, (2, 2)), (64, 128, (2, 1)), (128, 128, (4, 1)))
        layers = []
        for before, after, pool in widths:
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(pool),
            ]
        self.body = nn.Sequential(*layers)
        self.recurrent = nn.LSTM(128, 96, bidirectional=True)
        self.out = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        columns = self.body(x).squeeze(2).permute(2, 0, 1)
        return functional.log_softmax(self.out(self.recurrent(columns)[0]), 2)


class Translator(nn.Module):
    """A recurrent encoder, and a decoder that attends to it at every step and goes on with its own words."""

    def __init__(self, width: int = 128, words: int = 400, steps: int = 8) -> None:
        super().__init__()
        self.steps, self.words = steps, nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.cell, self.query = nn.GRUCell(2 * width, width), nn.Linear(width, width)
        self.out = nn.Linear(2 * width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        memory, state = self.encoder(self.words(tokens))
        state, word, made = state[0], torch.zeros(tokens.shape[0], dtype=torch.int64), []
        for _ in range(self.steps):
            weights = (memory @ self.query(state)[..., None]).softmax(1)
            context = (memory * weights).sum(1)
            state = self.cell(torch.cat([self.words(word), context], 1), state)
            scores = self.out(torch.cat([state, context], 1))
            word = scores.argmax(1)
            made.append(scores)
        return torch.stack(made, 1)


class SelectiveScan(nn.Module):
    """Mamba's layer: a causal depthwise window, then a state whose decay depends on the token."""

    def __init__(self, width: int = 64, inner: int = 128, states: int = 16) -> None:
        super().__init__()
        self.norm, self.project = RootMeanSquare(width), nn.Linear(width, 2 * inner, bias=False)
        self.window = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select, self.delta = nn.Linear(inner, 4 + 2 * states, bias=False), nn.Linear(4, inner)
        self.decay = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(inner, 1))
        self.skip, self.out = nn.Parameter(torch.ones(inner)), nn.Linear(inner, width, bias=False)
        self.states = states

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        y, gate = self.project(self.norm(x)).chunk(2, -1)
        y = functional.silu(self.window(y.transpose(1, 2))[..., :length]).transpose(1, 2)
        rank, into, outof = self.select(y).split((4, self.states, self.states), -1)
        delta = functional.softplus(self.delta(rank))
        decay = torch.exp(delta[..., None] * -torch.exp(self.decay))
        added = delta[..., None] * into[:, :, None] * y[..., None]
        state, made = torch.zeros_like(added[:, 0]), []
        for at in range(length):
            state = decay[:, at] * state + added[:, at]
            made.append((state * outof[:, at, None]).sum(-1))
        return x + self.out((torch.stack(made, 1) + y * self.skip) * functional.silu(gate))


class LinearAttention(nn.Module):
    """Attention by a feature map, its sums over the past by cumulative sums."""

    def __init__(self, width: int = 64, count: int = 4) -> None:
        super().__init__()
        self.count, self.qkv, self.out = count, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = heads(self.qkv(x), self.count)
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        states = (k[..., None] * v[..., None, :]).cumsum(2)
        scale = 1 / ((q * k.cumsum(2)).sum(-1, keepdim=True) + 1e-6)
        y = (q[..., None] * states).sum(-2) * scale
        return self.out(y.transpose(1, 2).flatten(2))


class Recommender(nn.Module):
    """DLRM: bags of embeddings, a perceptron for numbers, products of all pairs, another perceptron."""

    def __init__(self, tables: int = 8, rows: int = 5000, width: int = 32) -> None:
        super().__init__()
        self.tables = Layers(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(
            *(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        )
        pairs = (tables + 1) * tables // 2
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        bags = [table(categories[:, at]).sum(1) for at, table in enumerate(self.tables)]
        joined = torch.stack([dense, *bags], 1)
        products = joined @ joined.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))


def autoencoder() -> nn.Module:
    """A deep perceptron from images to a few numbers and back."""
    widths = (784, 512, 256, 32, 256, 512, 784)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ELU()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid())


class GraphConvolution(nn.Module):
    """Messages along edges: gathered, weighted by attention over each node's neighbours, and summed."""

    def __init__(self, features: int = 32, width: int = 32, classes: int = 7) -> None:
        super().__init__()
        self.project = Layers([nn.Linear(features, width), nn.Linear(width, width)])
        self.scores = Layers(nn.Linear(2 * width, 1) for _ in range(2))
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        for project, score in zip(self.project, self.scores, strict=True):
            x = project(x)
            weights = functional.leaky_relu(score(torch.cat([x[source], x[target]], 1)), 0.2).exp()
            total = torch.zeros(x.shape[0], 1).scatter_add(0, target[:, None], weights)
            messages = weights / (total[target] + 1e-9) * x[source]
            index = target[:, None].expand(-1, x.shape[1])
            x = functional.elu(torch.zeros_like(x).scatter_add(0, index, messages))
        return self.out(x)


class Tokens(nn.Module):
    """torch's own encoder layers with a padding mask, as used by its tutorials."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 512, batch_first=True, activation="gelu")
        self.words, self.body = nn.Embedding(1000, width), nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = tokens == 0
        x = self.body(self.words(tokens), src_key_padding_mask=mask)
        kept = (~mask).float()[..., None]
        return self.head((x * kept).sum(1) / kept.sum(1))
