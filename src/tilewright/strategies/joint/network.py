"""Small networks in numpy: two hidden layers, gradients derived by hand, and Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Parameters: TypeAlias = tuple[Array, ...]

#: Units of each hidden layer.
HIDDEN: Final = 32
#: Adam (Kingma & Ba): step, decay of the first and second moment, and what keeps quotients finite.
RATE: Final = 3e-3
DECAYS: Final = (0.9, 0.999)
TINY: Final = 1e-8


def initial(rng: np.random.Generator, inputs: int, outputs: int, hidden: int = HIDDEN) -> Parameters:
    """Weights and biases of ``inputs -> hidden -> hidden -> outputs``; the last layer is small."""
    sizes = (inputs, hidden, hidden, outputs)
    out: list[Array] = []
    for n, (a, b) in enumerate(pairwise(sizes)):
        scale = (0.01 if n == len(sizes) - 2 else 1.0) / np.sqrt(a)
        out += [rng.standard_normal((a, b)) * scale, np.zeros(b)]
    return tuple(out)


def forward(parameters: Parameters, x: Array) -> tuple[Array, tuple[Array, ...]]:
    """The outputs for inputs of shape (n, inputs), and the values of each layer, for :func:`backward`."""
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = np.tanh(x @ w1 + b1)
    h2 = np.tanh(h1 @ w2 + b2)
    return h2 @ w3 + b3, (x, h1, h2)


def backward(parameters: Parameters, layers: tuple[Array, ...], slope: Array) -> Parameters:
    """The gradient of a sum whose derivatives by the outputs are ``slope``."""
    _, _, w2, _, w3, _ = parameters
    x, h1, h2 = layers
    s2 = (slope @ w3.T) * (1.0 - h2 * h2)
    s1 = (s2 @ w2.T) * (1.0 - h1 * h1)
    return (x.T @ s1, s1.sum(0), h1.T @ s2, s2.sum(0), h2.T @ slope, slope.sum(0))


@dataclass(slots=True)
class Adam:
    """The moments of a set of parameters."""

    rate: float = RATE
    steps: int = 0
    first: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)

    def step(self, parameters: Sequence[Array], gradient: Sequence[Array]) -> tuple[Array, ...]:
        """The parameters after one step down the gradient."""
        if not self.first:
            self.first = [np.zeros_like(p) for p in parameters]
            self.second = [np.zeros_like(p) for p in parameters]
        self.steps += 1
        a, b = DECAYS
        out: list[Any] = []
        for n, (p, g) in enumerate(zip(parameters, gradient, strict=True)):
            self.first[n] = a * self.first[n] + (1 - a) * g
            self.second[n] = b * self.second[n] + (1 - b) * g * g
            m = self.first[n] / (1 - a**self.steps)
            v = self.second[n] / (1 - b**self.steps)
            out.append(p - self.rate * m / (np.sqrt(v) + TINY))
        return tuple(out)
