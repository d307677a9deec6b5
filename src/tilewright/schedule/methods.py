"""The base of the classes that give primitives their typed methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Methods(ABC):
    """Offers :meth:`apply` to the method classes."""

    __slots__ = ()

    @abstractmethod
    def apply(self, primitive: str, *args: object, **kwargs: object) -> Self:
        """A new schedule with one more step; see :class:`tilewright.schedule.Schedule`."""
