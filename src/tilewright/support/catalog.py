"""Catalogs: what the package has of a kind, in order, and what installed packages add to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, TypeVar

from tilewright.support.errors import InputError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def _as_listed(each: Any) -> Any:
    return each() if isinstance(each, type) else each


class Catalog(Mapping[K, T]):
    """The things of one ``kind`` by their keys: those of installed packages first, then ``own``.

    A package adds one by an entry point in the group ``tilewright.KIND``, which names the object::

        [project.entry-points."tilewright.rules"]
        twice = "my_package.twice:TwiceRule"

    A class is called without arguments, unless there is a way ``of`` making entries of what is listed.
    ``key`` says by what others know an entry: its ``name`` unless told.
    Entry points are read at the first look, so that importing this package imports no other. Read-only.
    """

    def __init__(
        self,
        kind: str,
        own: Iterable[Any],
        of: Callable[[Any], T] = _as_listed,
        key: Callable[[Any], Any] = attrgetter("name"),
    ) -> None:
        self._kind, self._given, self._of, self._key = kind, tuple(own), of, key

    @cached_property
    def _entries(self) -> dict[K, T]:
        """Raises InputError, naming the package, where what it adds has no name or one that is taken."""
        made = [self._of(each) for each in self._given]
        own = {self._key(each): each for each in made}
        added: dict[K, T] = {}
        for point in sorted(entry_points(group=f"tilewright.{self._kind}"), key=lambda e: e.name):
            what = f"{point.value} of the package {point.dist.name if point.dist else '?'}"
            try:
                found = self._of(point.load())
                key = self._key(found)
            except (AttributeError, ImportError) as error:
                raise InputError(f"{what} is none of the {self._kind}: {error}") from error
            if key in own or key in added:
                raise InputError(f"{what} is called {key!r}, and so is another of the {self._kind}")
            added[key] = found
        return {**added, **own}

    def __getitem__(self, key: K) -> T:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
