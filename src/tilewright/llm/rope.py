"""Angles of rotary embeddings, and how models are made for longer texts than they were trained on.

Sources: Su et al., "RoFormer", arXiv:2104.09864 (plain); Chen et al., arXiv:2306.15595 (linear); Peng et al.,
"YaRN", arXiv:2309.00071; Ding et al., "LongRoPE", arXiv:2402.13753; Llama 3.1's configuration (llama3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from tilewright.support import ModelError, UnsupportedOperatorError, quoted

Array = npt.NDArray[Any]

KINDS: Final = ("default", "linear", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotation of the first ``turned`` elements of heads: element j by theta ** (-2 j / turned) a place.

    ``kind`` says how that is changed, by ``scaling``, the entries of a configuration; ``trained`` are the
    places of the texts that the model was trained on, ``longest`` those it was made for.
    """

    turned: int
    theta: float = 10000.0
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    trained: int = 0
    longest: int = 0

    def tables(self, places: int) -> tuple[Array, Array]:
        """Cosines and sines, f32 [places, turned / 2]; LongRoPE's longer factors where there are more places
        than in training.

        Raises UnsupportedOperatorError for another kind, ModelError where entries are missing or malformed.
        """
        slow, amplitude = self._frequencies(places)
        angles = np.arange(places)[:, None] * slow
        return (np.cos(angles) * amplitude).astype(np.float32), (np.sin(angles) * amplitude).astype(
            np.float32
        )

    def _frequencies(self, places: int) -> tuple[Array, float]:
        plain = self.theta ** (-np.arange(0, self.turned, 2) / self.turned)
        if self.kind == "default":
            return plain, 1.0
        if self.kind == "linear":
            return plain / self._number("factor"), 1.0
        if self.kind == "llama3":
            return self._llama3(plain), 1.0
        if self.kind == "yarn":
            return self._yarn(plain)
        if self.kind == "longrope":
            return self._longrope(plain, places)
        raise UnsupportedOperatorError(
            f"rotary embeddings of the type {quoted(self.kind)}", hint=f"known are {', '.join(KINDS)}"
        )

    def _llama3(self, plain: Array) -> Array:
        """Slow ones divided by the factor, fast ones as they are, in between blended."""
        low, high = self._number("low_freq_factor"), self._number("high_freq_factor")
        turns = self._trained() * plain / (2 * math.pi)
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
        return plain * (kept + (1 - kept) / self._number("factor"))

    def _yarn(self, plain: Array) -> tuple[Array, float]:
        factor = self._number("factor", self.longest / self._trained())

        def place(turns: float) -> float:
            """Which element turns so often within the texts of training (section 3.2)."""
            ratio = self._trained() / (turns * 2 * math.pi)
            return self.turned * math.log(ratio) / (2 * math.log(self.theta))

        # the bounds that the paper found good for Llama
        low, high = place(self._number("beta_fast", 32)), place(self._number("beta_slow", 1))
        if self.scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.turned - 1)
        slow = np.clip((np.arange(len(plain)) - low) / max(high - low, 1e-3), 0.0, 1.0)
        named = ("mscale", "mscale_all_dim")
        grown = _grown(factor, 1.0)
        if all(map(self.scaling.get, named)):
            grown = _grown(factor, self._number(named[0])) / _grown(factor, self._number(named[1]))
        return plain * (1 - slow + slow / factor), self._number("attention_factor", grown)

    def _longrope(self, plain: Array, places: int) -> tuple[Array, float]:
        trained = self._trained()
        name = "long_factor" if places > trained else "short_factor"
        factors = self.scaling.get(name)
        if not isinstance(factors, list) or len(factors) != len(plain) or not all(map(_positive, factors)):
            raise ModelError(f"{name} of the rotary embedding is no list of {len(plain)} numbers")
        factor = self._number("factor", self.longest / trained)
        grown = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
        return plain / np.array(factors, np.float64), self._number("attention_factor", grown)

    def _trained(self) -> float:
        return self._number("original_max_position_embeddings", self.trained)

    def _number(self, name: str, otherwise: float | None = None) -> float:
        found = self.scaling.get(name)
        found = otherwise if found is None else found
        if not _positive(found):
            raise ModelError(f"{name} of the rotary embedding is {quoted(str(found))}, not a number above 0")
        return float(found)


def _grown(factor: float, by: float) -> float:
    """How much larger attention's scores are made (YaRN, section 3.4)."""
    return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0


def _positive(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
