"""Trees of one program for another that is equal to it but for names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from tilewright.tiling.grammar import MADE, Body, Cut, Leaf, Level, Nest, Pairs, Place
from tilewright.tiling.walk import leaf_of

#: Hints whose values name buffers, by commas; what follows a name stays as it is.
_OF_BUFFERS: Final = ("prefetch", "nontemporal", "in_place")


@dataclass(frozen=True, slots=True)
class Renaming:
    """New names of stages, of buffers, and of each stage's iterators, by their old ones."""

    stages: Mapping[str, str]
    buffers: Mapping[str, str]
    iterators: Mapping[str, Mapping[str, str]]

    def nest(self, nest: Nest) -> Nest:
        """The tree with the new names; what it does not know stays as it is."""
        return Nest(
            self._stage(nest.root),
            self._body(nest.body, nest.root),
            tuple((self._buffer(name), exprs) for name, exprs in nest.layouts),
            tuple((self._buffer(name), scope) for name, scope in nest.scopes),
        )

    def _stage(self, name: str) -> str:
        return self.stages.get(name, self._buffer(name))

    def _buffer(self, name: str) -> str:
        """A buffer's name, or one that is made of a buffer's or a stage's: ``Y_register``."""
        known = {**self.stages, **self.buffers}
        of = max(
            (each for each in known if name == each or name.startswith(f"{each}_")), key=len, default=name
        )
        return known.get(of, of) + name[len(of) :]

    def _axis(self, axis: str, stage: str) -> str:
        """Iterators of a stage, also products of them or of their tiles: ``h/4*w``."""
        names = self.iterators.get(stage, {})
        parts = (part.partition("/") for part in axis.split("*"))
        return "*".join(f"{names.get(name, name)}{mark}{size}" for name, mark, size in parts)

    def _body(self, b: Body, stage: str) -> Body:
        if isinstance(b, Leaf):
            return replace(b, stage=self._stage(b.stage))
        if isinstance(b, Level):
            axes = tuple((self._axis(axis, stage), size) for axis, size in b.axes)
            return replace(b, axes=axes, body=self._body(b.body, stage), hints=self._hints(b.hints, stage))
        if isinstance(b, Cut):
            parts = tuple(self._body(part, stage) for part in b.parts)
            return replace(b, axis=self._axis(b.axis, stage), parts=parts)
        items = (self._place(x, stage) if isinstance(x, Place) else self._body(x, stage) for x in b.items)
        return replace(b, items=tuple(items))

    def _place(self, place: Place, stage: str) -> Place:
        # axes of a copy are called as dimensions are
        inner = place.value if place.how in MADE else "" if place.how == "copy" else stage
        drain = place.drain
        return replace(
            place,
            value=self._stage(place.value) if place.how in MADE else self._buffer(place.value),
            nest=None if place.nest is None else self._body(place.nest, inner),
            drain=None if drain is None else self._body(drain, leaf_of(drain).stage),
            hints=self._hints(place.hints, inner),
        )

    def _hints(self, hints: Pairs, stage: str) -> Pairs:
        return tuple((key, self._value(key, value, stage)) for key, value in hints)

    def _value(self, key: str, value: str, stage: str) -> str:
        if key == "rows":
            axis, mark, rows = value.partition(":")
            return f"{self._axis(axis, stage)}{mark}{rows}"
        if key in _OF_BUFFERS:
            return re.sub(r"(?<![^,])\w+", lambda found: self._buffer(found[0]), value)
        return value
