"""Spaces of plans: for each field its options, and which of their combinations are plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import prod
from random import Random
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from tilewright.support import ArtefactError

P = TypeVar("P")
#: Draws before a space whose conditions leave next to nothing is taken for its default alone.
MOST_DRAWS: Final = 1000


def _always(plan: object) -> str:
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Space(Generic[P]):
    """The plans of one problem: those of ``options``, field by field, that ``refusal`` says nothing against.

    ``default`` is one of them, and gives the fields that have no options. ``refusal`` returns why a
    combination is no plan, empty where it is one. ``others`` are single points of other forms.
    """

    default: P
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    refusal: Callable[[P], str] = _always
    others: tuple[P, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    @property
    def size(self) -> int:
        """How many combinations there are, conditions not counted."""
        return prod(map(len, self.options.values())) + len(self.others)

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
            plan = self._with({name: rng.choice(values) for name, values in self.options.items()})
            if not self.refusal(plan):
                return plan
        return self.default

    def neighbours(self, plan: P) -> Iterator[P]:
        """The plans that differ from ``plan`` in one field."""
        if type(plan) is not type(self.default):
            return
        for name, values in self.options.items():
            for value in values:
                other = replace(plan, **{name: value})  # type: ignore[type-var]
                if value != getattr(plan, name) and not self.refusal(other):
                    yield other

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
                shown = ", ".join(map(str, known[:8])) + (", …" if len(known) > 8 else "")
                raise ArtefactError(f"{where}: {each.name} is {value!r}, and not one of {shown}")
        reason = self.refusal(plan)
        if reason:
            raise ArtefactError(f"{where}: {reason}")

    def _with(self, values: Mapping[str, Any]) -> P:
        return replace(self.default, **values)  # type: ignore[type-var]
