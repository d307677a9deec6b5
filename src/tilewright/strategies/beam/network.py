"""The network that scales the cost's coefficients: two embeddings, one layer on both, in numpy.

Trained by Adam on times of measured programs; weights are data, never code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

#: Values of an embedding, and of the layer on both.
WIDTH: Final = 16
#: The largest logarithm of a factor, either way: coefficients stay within a thousandth and a thousand times.
MOST: Final = 7.0
NAMES: Final = ("a", "a0", "s", "s0", "h", "h0", "o", "o0")


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Weights by name; factors are exponentials, so that no coefficient is negative."""

    weights: Mapping[str, Floats]

    def factors(self, algorithm: Floats, schedule: Floats) -> Floats:
        """For each stage the factors of its terms."""
        found: Floats = np.exp(self._forward(algorithm, schedule)[-1])
        return found

    def _forward(self, algorithm: Floats, schedule: Floats) -> tuple[Floats, Floats, Floats]:
        w = self.weights
        x = np.concatenate([algorithm @ w["a"] + w["a0"], schedule @ w["s"] + w["s0"]], 1)
        x = np.maximum(x, 0.01 * x)
        h = x @ w["h"] + w["h0"]
        h = np.maximum(h, 0.01 * h)
        y = MOST * np.tanh((h @ w["o"] + w["o0"]) / MOST)
        return x, h, y

    def gradient(self, algorithm: Floats, schedule: Floats, out: Floats) -> dict[str, Floats]:
        """Gradients of the weights, from those of the factors' logarithms."""
        w = self.weights
        x, h, y = self._forward(algorithm, schedule)
        d = out * (1 - (y / MOST) ** 2)
        found: dict[str, Floats] = {"o": h.T @ d, "o0": d.sum(0)}
        d = (d @ w["o"].T) * np.where(h > 0, 1.0, 0.01)
        found |= {"h": x.T @ d, "h0": d.sum(0)}
        d = (d @ w["h"].T) * np.where(x > 0, 1.0, 0.01)
        left, right = d[:, :WIDTH], d[:, WIDTH:]
        found |= {"a": algorithm.T @ left, "a0": left.sum(0), "s": schedule.T @ right, "s0": right.sum(0)}
        return found


def new_network(algorithm: int, schedule: int, terms: int, seed: int = 0) -> Network:
    """A network whose factors are all 1: the last layer is zero."""
    rng = np.random.default_rng(seed)

    def layer(rows: int, columns: int) -> Floats:
        weights: Floats = rng.standard_normal((rows, columns)) / np.sqrt(rows)
        return weights

    return Network(
        {
            "a": layer(algorithm, WIDTH),
            "a0": np.zeros(WIDTH),
            "s": layer(schedule, WIDTH),
            "s0": np.zeros(WIDTH),
            "h": layer(2 * WIDTH, WIDTH),
            "h0": np.zeros(WIDTH),
            "o": np.zeros((WIDTH, terms)),
            "o0": np.zeros(terms),
        }
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One measured program: of all stages of its nests the network's inputs and terms, and its seconds."""

    algorithm: Floats
    schedule: Floats
    terms: Floats
    seconds: float


def predicted(network: Network, sample: Sample) -> float:
    """The seconds of a sample by the model."""
    return float((sample.terms * network.factors(sample.algorithm, sample.schedule)).sum())


def error(network: Network, samples: Sequence[Sample]) -> float:
    """The mean of the squared logarithms of predicted by measured seconds."""
    found = [np.log(predicted(network, s) / s.seconds) for s in samples]
    return float(np.mean(np.square(found))) if found else 0.0


def pick(network: Network, samples: Sequence[Sample]) -> int:
    """The sample that the model takes."""
    prices = [predicted(network, s) for s in samples]
    return prices.index(min(prices))


def gains_off(network: Network, samples: Sequence[Sample]) -> list[float]:
    """Of samples of one program logarithms of what the pick gains by the model, by what it gains measured.

    One for each other sample, over which it gains.
    """
    off = [float(np.log(predicted(network, s) / s.seconds)) for s in samples]
    taken = pick(network, samples)
    return [each - off[taken] for n, each in enumerate(off) if n != taken]


def train(
    network: Network,
    samples: Sequence[Sample],
    steps: int = 400,
    rate: float = 3e-3,
    decay: float = 1e-4,
    names: Sequence[str] = NAMES,
) -> Network:
    """Fit the network, or its weights of these ``names``, to samples by Adam, all of them a step.

    Deterministic. ``o0`` alone are factors of the coefficients, the same for all stages: what few programs
    can tell.

    ``decay`` pulls weights back to where they were: few samples of one program change little of what was
    learned from many of others.
    """
    if not samples:
        return network
    algorithm, schedule, terms = (
        np.concatenate([getattr(s, name) for s in samples]) for name in ("algorithm", "schedule", "terms")
    )
    lengths = [len(s.terms) for s in samples]
    starts = np.cumsum([0, *lengths[:-1]])
    measured = np.array([s.seconds for s in samples])
    begin = {name: np.array(network.weights[name]) for name in NAMES}
    weights = dict(begin)
    first = {name: np.zeros_like(w) for name, w in weights.items()}
    second = {name: np.zeros_like(w) for name, w in weights.items()}
    for step in range(1, steps + 1):
        now = Network(weights)
        parts = terms * now.factors(algorithm, schedule)
        whole = np.add.reduceat(parts.sum(1), starts)
        slope = 2 * np.log(whole / measured) / whole / len(samples)
        gradient = now.gradient(algorithm, schedule, np.repeat(slope, lengths)[:, None] * parts)
        for name in names:
            d = gradient[name] + decay * (weights[name] - begin[name])
            first[name] = 0.9 * first[name] + 0.1 * d
            second[name] = 0.999 * second[name] + 0.001 * d * d
            m, v = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            weights[name] = weights[name] - rate * m / (np.sqrt(v) + 1e-8)
    return Network(weights)
