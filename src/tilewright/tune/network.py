"""A network as it was tuned: its kernels, the tasks that these are, who reads what, and in which layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from tilewright.support import ArtefactError, digest_text

#: The longest text of a network that is read: far above that of any model.
_LONGEST: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel in a run: ``task`` is its key, ``calls`` how often a run calls it, one after the other.

    ``joined`` are the values of the groups of nodes that one kernel computes, where there are several;
    ``reads`` and ``writes`` the layouts of values that are not constant, each once. ``func`` is the digest of
    the function that ``schedule``, as Python, makes: both at the first step of each task.
    """

    task: str
    label: str
    operators: str
    nodes: tuple[str, ...] = ()
    calls: float = 1.0
    algorithm: str = ""
    joined: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    func: str = ""
    schedule: str = ""

    @property
    def layouts(self) -> str:
        """The layouts of what it reads and writes in short."""
        return " -> ".join("/".join(side) or "-" for side in (self.reads, self.writes))


@dataclass(frozen=True, slots=True)
class Link:
    """A value that one step makes and another reads, by their places, and the layout in which it lies."""

    source: int
    reader: int
    value: str
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Network:
    """The steps of a model in order, and their links; ``machine`` is where it was tuned, and by what.

    ``untuned`` and ``best`` are seconds of a run, where they were measured.
    """

    name: str
    steps: tuple[Step, ...]
    links: tuple[Link, ...] = ()
    machine: str = ""
    untuned: float | None = None
    best: float | None = None

    @property
    def key(self) -> str:
        """A digest of its name, its tasks and who reads what: of what is the same whatever plans it has."""
        return digest_text(
            msgspec.json.encode((self.name, [s.task for s in self.steps], self.links)).decode()
        )

    def without_schedules(self) -> Network:
        """What travels: Python from a stranger's database is not offered to be copied."""
        return replace(self, steps=tuple(replace(step, func="", schedule="") for step in self.steps))

    def to_json(self) -> str:
        """The network as text that :func:`network_from_json` reads."""
        return msgspec.json.encode(self).decode()


def network_from_json(text: str) -> Network:
    """A network from text. Raises ArtefactError for other text, or links of steps that are not there."""
    where = "a network in a database of tuning"
    if len(text) > _LONGEST:
        raise ArtefactError(f"{where} has {len(text)} characters; at most {_LONGEST} are read")
    try:
        found = msgspec.json.decode(text, type=Network)
    except msgspec.DecodeError as error:
        raise ArtefactError(f"{where}: {error}") from None
    if any(not 0 <= link.source < link.reader < len(found.steps) for link in found.links):
        raise ArtefactError(f"{where}: a link goes from a step to a later one")
    return found
