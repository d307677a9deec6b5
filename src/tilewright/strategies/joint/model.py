"""The learned cost model: seconds of plans over the untuned ones, from features of layouts and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.strategies.joint.boosting import Boosted, boosted
from tilewright.strategies.joint.network import Array
from tilewright.strategies.joint.settings import LEAST_SAMPLES, REFUSED

#: What a feature is that a point does not have.
ABSENT = -1.0


class CostModel:
    """Learns online: every trial is a sample, and the trees are made again when there are new ones."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._samples: list[dict[str, float]] = []
        self._values: list[float] = []
        self._trees: Boosted | None = None
        self._known = 0

    def add(self, features: Mapping[str, float], ratio: float) -> None:
        """A trial that took ``ratio`` of the untuned seconds."""
        self._samples.append(dict(features))
        self._values.append(float(np.log(min(max(ratio, 1e-3), 2 * REFUSED))))
        for name in features:
            self._columns.setdefault(name, len(self._columns))

    @property
    def ready(self) -> bool:
        """Whether there are enough samples to say anything."""
        return len(self._samples) >= LEAST_SAMPLES

    def predict(self, points: Sequence[Mapping[str, float]]) -> Array:
        """Seconds over the untuned ones; 1 for all where too little is known."""
        if not self.ready or not points:
            return np.ones(len(points))
        if self._trees is None or self._known < len(self._samples):
            self._trees = boosted(self._matrix(self._samples), np.array(self._values))
            self._known = len(self._samples)
        return np.asarray(np.exp(self._trees.predict(self._matrix(points))))

    def _matrix(self, points: Sequence[Mapping[str, float]]) -> Array:
        out = np.full((len(points), max(1, len(self._columns))), ABSENT)
        for n, point in enumerate(points):
            for name, value in point.items():
                at = self._columns.get(name)
                if at is not None:
                    out[n, at] = value
        return out
