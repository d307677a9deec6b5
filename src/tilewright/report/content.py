"""What a report shows, as plain values: kernels with their times, limits, trials, plans, and the graph."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, get_args

from tilewright.strategies import Status
from tilewright.tune import Network

#: What may become of a trial, in the order of the numbers in :class:`Points`.
STATUSES: Final[tuple[str, ...]] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Points:
    """The trials of a task in the order in which they were made.

    ``seconds`` are the best run of each (``None`` where it did not run), ``statuses`` indices into
    :data:`STATUSES`, ``origins`` indices into ``names``.
    """

    seconds: tuple[float | None, ...] = ()
    statuses: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def failed(self) -> dict[str, int]:
        """How many trials did not run, by what became of them."""
        found: dict[str, int] = {}
        for status in self.statuses:
            if STATUSES[status] != "ok":
                found[STATUSES[status]] = found.get(STATUSES[status], 0) + 1
        return found


@dataclass(frozen=True, slots=True)
class Price:
    """What a way of making a nest takes by the model: ``terms`` in seconds, which overlap.

    ``change`` is what is decided otherwise than was taken, empty for what was.
    """

    nest: str
    change: str
    seconds: float
    terms: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a model, or one task of a database.

    ``untuned``, ``best`` and ``limit`` are seconds of one call: by the default plan, by the best one, and
    the least that the machine needs. ``uses`` is how often a run calls it, of all networks together, and
    ``key`` is what their steps name it by. ``plan``, ``default_plan``,
    ``schedule`` and ``loops`` are texts; ``before`` are seconds of what it is compared with.
    """

    name: str
    key: str = ""
    nodes: tuple[str, ...] = ()
    operators: str = ""
    uses: float = 1
    flops: float | None = None
    nbytes: float | None = None
    untuned: float | None = None
    best: float | None = None
    limit: float | None = None
    before: float | None = None
    algorithm: str = ""
    layouts: str = ""
    plan: str = ""
    default_plan: str = ""
    schedule: str = ""
    loops: str = ""
    points: Points = field(default_factory=Points)
    reasons: tuple[tuple[str, str], ...] = ()
    """Why trials failed: what became of them, and the first words of an example."""
    prices: tuple[Price, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report. ``peak`` are operations a second, ``bandwidth`` bytes a second of the machine.

    ``facts`` are pairs of words and what they are: machine, versions, noise. ``untuned`` and ``best`` are
    seconds of all kernels in a run; those of a network are of its own runs.
    """

    title: str
    kind: str
    made: str
    facts: tuple[tuple[str, str], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    networks: tuple[Network, ...] = ()
    peak: float | None = None
    bandwidth: float | None = None
    untuned: float | None = None
    best: float | None = None
    against: str = ""

    def to_data(self) -> dict[str, Any]:
        """Plain data for the page's script."""
        data: dict[str, Any] = _plain(self)
        data["statuses"] = list(STATUSES)
        for entry, kernel in zip(data["kernels"], self.kernels, strict=True):
            entry["failed"] = kernel.points.failed
        for step in (step for network in data["networks"] for step in network["steps"]):
            # said by its kernel, or of no use there
            for name in ("func", "schedule", "nodes"):
                del step[name]
        return data


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
