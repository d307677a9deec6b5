"""What happens in a session of tuning, for those who watch: values, and the same as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

from tilewright.tune.task import TaskResult

#: Version of :meth:`Event.to_data`: another one where a key goes or means something else, not for new ones.
EVENTS_VERSION: Final = 1

#: ``task``: it will be tuned; ``trying``: candidates are built and timed; ``measured``: what became of them;
#: ``deciding``: its leaders take turns with the default; ``result``: what it came to; ``graph``: which stages
#: one kernel computes is searched; ``layouts``: those of the model's values are; ``network``: the winners are
#: timed inside of the network.
Happening: TypeAlias = Literal[
    "task", "trying", "measured", "deciding", "result", "graph", "layouts", "network"
]


@dataclass(frozen=True, slots=True)
class Event:
    """What happened in a session, and where it stands.

    ``untuned`` and ``best`` are seconds of the task so far (infinite before they are measured), ``saved``
    what all tasks save of a run's seconds, ``elapsed`` seconds since the session began, ``left`` those of
    its budget. ``counts`` says who proposed what is tried, or what became of it. ``key`` names the task in
    the database; it and ``label`` are empty where all tasks are meant.
    """

    what: Happening
    key: str = ""
    label: str = ""
    weight: float = 1.0
    untuned: float = float("inf")
    best: float = float("inf")
    trials: int = 0
    saved: float = 0.0
    elapsed: float = 0.0
    left: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    result: TaskResult | None = None

    @property
    def gain(self) -> float:
        """How many times faster the best is than the default, as far as is known."""
        if self.result is not None:
            return self.result.gain
        return self.untuned / self.best if isfinite(self.untuned) and self.best > 0 else 1.0

    def to_data(self) -> dict[str, Any]:
        """Plain data, of version :data:`EVENTS_VERSION`: unknown times are None."""
        data: dict[str, Any] = {"event": self.what, "elapsed": self.elapsed, "left": self.left}
        if self.key:
            data |= {
                "task": self.key,
                "label": self.label,
                "weight": self.weight,
                "untuned": _known(self.untuned),
                "best": _known(self.best),
                "gain": self.gain,
                "trials": self.trials,
            }
        data["saved"] = self.saved
        if self.counts:
            data["counts"] = dict(self.counts)
        if self.result is not None:
            data["known"] = self.result.known
            data["tuned"] = self.result.plan is not None
            data["sure"] = self.result.sure
            if self.result.reason:
                data["reason"] = self.result.reason
        return data


def _known(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None
