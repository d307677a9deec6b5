"""Hints of loops for back ends: what they are called, and what their values say.

None of them changes what a function computes. Where a buffer that a hint names is not in scope at the loop,
or not touched in it, that part of the hint says nothing: steps that came later may have moved it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.ir.stmt import For

ASYNCHRONOUS: Final = "asynchronous"
"""Set by lowering: what a loop copies to shared memory may arrive at the next barrier."""
BOX: Final = "box"
"""Set by lowering: a loop, with those inside of it, copies a box of an argument to shared memory."""
ATOMIC_UPDATES: Final = "atomic"
"""Set by lowering: the buffers, by commas, whose elements threads of this loop update at once."""
#: Hints that a user may give.
HINTS: Final = ("in_place", "nontemporal", "outline", "pipeline", "prefetch", "reload", "teams", "unroll")
_NAME: Final = re.compile(r"\A\w+")
_COUNT: Final = re.compile(r"[1-9]\d{0,8}")
_PART: Final = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})")
_TEAMS: Final = re.compile(r"([1-9]\d{0,2})(?::(\d{1,3}):(\d{1,3}))?")
_PREFETCH: Final = re.compile(r"(\w+)(?:(@spread)(?::([123]))?|@(\d{1,9})|\+(\d{1,12})(?::([123]))?)?")


@dataclass(frozen=True, slots=True)
class PrefetchHint:
    """What is asked for of the buffer ``name``: ``ahead`` iterations later, or ``further`` elements away.

    Where both are 0, what the body of an outlined loop touches; with ``spread``, what the next iteration
    reads, bit by bit. ``level`` is the cache level that gets the lines, from 1.
    """

    name: str
    ahead: int = 0
    further: int = 0
    level: int = 1
    spread: bool = False


@dataclass(frozen=True, slots=True)
class TeamsHint:
    """What a loop's tiles are copied ahead by: a team that fills ``slots`` slots.

    ``copying`` and ``computing`` are the registers of a thread of that team and of the other, which are
    multiples of 8 from 24 to 240, or 0: as many as there are.
    """

    slots: int
    copying: int = 0
    computing: int = 0


def hint_problem(key: str, value: str) -> str:
    """What is wrong with the value of a hint of this name; empty where nothing is, or the name is unknown."""
    if key in ("outline", ASYNCHRONOUS, BOX) and value:
        return f"the hint {key!r} takes no value, not {value!r}"
    if key in ("unroll", "pipeline") and not _COUNT.fullmatch(value):
        return f"the hint {key!r} takes a number from 1 on, not {value!r}"
    if key in ("nontemporal", "in_place") and not all(
        re.fullmatch(r"\w+", name) for name in value.split(",")
    ):
        return f"the hint {key!r} takes names of buffers, by commas, not {value!r}"
    if key == "reload":
        part = _PART.fullmatch(value)
        if part is None or int(part[1]) > int(part[2]):
            return f"the hint {key!r} takes a part such as '9/14', not {value!r}"
    if key == "teams":
        found = _TEAMS.fullmatch(value)
        counts = [int(n or 0) for n in found.groups()[1:]] if found else []
        if not found or any(n % 8 or not (n == 0 or 24 <= n <= 240) for n in counts):
            return f"the hint {key!r} takes slots and registers, multiples of 8: '4:40:232', not {value!r}"
    wrong = [part for part in value.split(",") if not _PREFETCH.fullmatch(part)]
    if key == "prefetch" and wrong:
        return f"the hint {key!r} takes 'A', 'A@8', 'A@spread', 'A+4096' or 'A+4096:1', not {wrong[0]!r}"
    return ""


def prefetch_hints(loop: For) -> tuple[PrefetchHint, ...]:
    """What a loop's hints ask for ahead of its use, in their order."""
    found: list[PrefetchHint] = []
    for key, value in loop.hints:
        for part in value.split(",") if key == "prefetch" else ():
            if read := _PREFETCH.fullmatch(part):
                name, spread, of_spread, ahead, further, of_further = read.groups()
                away = int(further or 0)
                to = int(of_spread or of_further or (2 if away else 1))
                found.append(PrefetchHint(name, int(ahead or 0), away, to, spread is not None))
    return tuple(found)


def teams_hint(loop: For) -> TeamsHint | None:
    """What a loop's hints say about a team that copies its tiles; ``None``: nothing."""
    value = next((value for key, value in loop.hints if key == "teams"), "")
    found = _TEAMS.fullmatch(value)
    return TeamsHint(*(int(n or 0) for n in found.groups())) if found else None


def nontemporal_hints(loop: For) -> frozenset[str]:
    """The buffers that a loop's hints name for stores past the caches."""
    return frozenset(name for key, value in loop.hints if key == "nontemporal" for name in value.split(","))


def atomically(loop: For) -> frozenset[str]:
    """The buffers that iterations of a loop update at once, each element as a whole."""
    return frozenset(name for key, value in loop.hints if key == ATOMIC_UPDATES for name in value.split(","))


def in_place_hints(loop: For) -> frozenset[str]:
    """The buffers that a loop's hints name to be kept where its result goes."""
    return frozenset(name for key, value in loop.hints if key == "in_place" for name in value.split(","))


def renamed_hint(key: str, value: str, names: Mapping[str, str]) -> str:
    """A hint's value with buffers by their new names; ``_`` for those that have none, which say nothing."""
    if key not in ("nontemporal", "in_place", "prefetch"):
        return value
    return ",".join(_NAME.sub(lambda found: names.get(found[0], "_"), part) for part in value.split(","))


def reloaded_part(loop: For) -> tuple[int, int] | None:
    """How many of how many single elements each instruction loads for itself; ``None``: none of them."""
    value = next((value for key, value in loop.hints if key == "reload"), "")
    part = _PART.fullmatch(value)
    return (int(part[1]), int(part[2])) if part else None


def is_outlined(loop: For) -> bool:
    """Whether the body of a loop becomes a function of its own."""
    return any(key == "outline" for key, _ in loop.hints)


def unroll_factor(loop: For) -> int:
    """How many iterations of a counted loop make one turn; 1 where its hints do not say."""
    return next((int(value) for key, value in loop.hints if key == "unroll"), 1)
