"""Spaces of plans: for each field its options, and which of their combinations are plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice, product
from math import prod
from random import Random
from sys import maxsize
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from tilewright.support import ArtefactError

P = TypeVar("P")
#: Draws before a space whose conditions leave next to nothing is taken for its default alone.
MOST_DRAWS: Final = 1000


def _always(plan: object) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Combinations(Sequence[tuple[Any, ...]]):
    """The tuples with one of ``parts[n]`` at each place ``n``: a sequence that is not written out."""

    parts: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return min(self.size, maxsize)

    @property
    def size(self) -> int:
        """How many there are, which may be more than a length can say."""
        return prod(map(len, self.parts))

    def __getitem__(self, n: Any) -> Any:
        if not 0 <= n < self.size:
            raise IndexError(n)
        out = []
        for part in reversed(self.parts):
            n, at = divmod(n, len(part))
            out.append(part[at])
        return tuple(reversed(out))

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == len(self.parts)
            and all(v in part for v, part in zip(value, self.parts, strict=True))
        )

    def draw(self, rng: Random) -> tuple[Any, ...]:
        """One of them, all alike."""
        return tuple(rng.choice(part) for part in self.parts)

    def near(self, value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Those that differ from one of them at one place."""
        for n, part in enumerate(self.parts):
            yield from ((*value[:n], each, *value[n + 1 :]) for each in part if each != value[n])


def _size(values: Sequence[Any]) -> int:
    return values.size if isinstance(values, Combinations) else len(values)


def _draw(values: Sequence[Any], rng: Random) -> Any:
    return values.draw(rng) if isinstance(values, Combinations) else rng.choice(values)


@dataclass(frozen=True, slots=True, eq=False)
class Space(Generic[P]):
    """The plans of one problem: those of ``options``, field by field, that ``refusal`` says nothing against.

    ``default`` is one of them, and gives the fields that have no options. ``refusal`` returns why a
    combination is no plan, empty where it is one. ``others`` are single points of other forms.
    """

    default: P
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    refusal: Callable[[P], str] = _always
    others: tuple[P, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    @property
    def size(self) -> int:
        """How many combinations there are, conditions not counted."""
        return prod(map(_size, self.options.values())) + len(self.others)

    def __iter__(self) -> Iterator[P]:
        """All plans, in a fixed order."""
        for values in product(*self.options.values()):
            plan = self._with(dict(zip(self.options, values, strict=True)))
            if not self.refusal(plan):
                yield plan
        yield from self.others

    def sample(self, rng: Random) -> P:
        """A plan drawn at random: combinations that are no plans are drawn again."""
        if self.others and rng.randrange(len(self.others) + len(self.options) + 1) < len(self.others):
            return rng.choice(self.others)
        for _ in range(MOST_DRAWS):
            plan = self._with({name: _draw(values, rng) for name, values in self.options.items()})
            if not self.refusal(plan):
                return plan
        return self.default

    def neighbours(self, plan: P) -> Iterator[P]:
        """The plans that differ from ``plan`` in one field, of combinations at one place."""
        if type(plan) is not type(self.default):
            return
        for name, values in self.options.items():
            now = getattr(plan, name)
            near = values.near(now) if isinstance(values, Combinations) else values
            for value in near:
                other = replace(plan, **{name: value})  # type: ignore[type-var]
                if value != now and not self.refusal(other):
                    yield other

    def changes(self, plan: P) -> Iterator[tuple[str, P]]:
        """The neighbours of a plan, each with what it decides otherwise."""
        for other in self.neighbours(plan):
            yield difference(plan, other), other

    def has(self, plan: P) -> bool:
        """Whether a plan is one of these."""
        try:
            self.check(plan)
        except ArtefactError:
            return False
        return True

    def check(self, plan: P, where: str = "the plan") -> None:
        """Raises ArtefactError, naming the field, where a plan is none of these."""
        if plan == self.default or plan in self.others:
            return
        if type(plan) is not type(self.default):
            raise ArtefactError(f"{where}: {type(plan).__name__} is no form of plan for this nest")
        for each in fields(plan):  # type: ignore[arg-type]
            value, options = getattr(plan, each.name), self.options.get(each.name)
            known = (getattr(self.default, each.name),) if options is None else options
            if value not in known:
                shown = ", ".join(map(str, islice(known, 8))) + (", …" if len(known) > 8 else "")
                raise ArtefactError(f"{where}: {each.name} is {value!r}, and not one of {shown}")
        reason = self.refusal(plan)
        if reason:
            raise ArtefactError(f"{where}: {reason}")

    def _with(self, values: Mapping[str, Any]) -> P:
        return replace(self.default, **values)  # type: ignore[type-var]


def difference(plan: Any, other: Any) -> str:
    """What one plan of a form decides otherwise than another, in words."""
    pairs = ((f.name, getattr(plan, f.name), getattr(other, f.name)) for f in fields(plan))
    return ", ".join(f"{name} {_shown(now)} -> {_shown(then)}" for name, now, then in pairs if now != then)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return "none" if value is None else str(value)
