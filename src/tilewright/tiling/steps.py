"""Loops that are not a tree yet: what proposals collect, order and give hints before they assemble a tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tilewright.tiling.grammar import Bind, Body, Cut, Level, Place, Seq, Tail, sequence


@dataclass(slots=True, eq=False)
class Step:
    """A loop over tiles of ``size`` elements of an axis, of ``count`` iterations where that matters."""

    axis: str
    size: int
    bind: Bind = "serial"
    count: int = 1
    hints: dict[str, str] = field(default_factory=dict)
    tail: Tail = "exact"

    def hint(self, key: str, value: str = "") -> None:
        """Give the loop a hint; one of that name that it has is replaced."""
        self.hints[key] = value

    def bound(self, bind: Bind) -> Step:
        """The same loop bound to something, without hints."""
        return Step(self.axis, self.size, bind, self.count)


def chain(steps: Iterable[Step], body: Body) -> Body:
    """Levels one inside of the other, the first one outermost."""
    for s in reversed(list(steps)):
        body = Level(((s.axis, s.size),), body, s.bind, tuple(s.hints.items()), s.tail)
    return body


def shared_chain(steps: Sequence[Step], shared: int, body: Body) -> Body:
    """Levels of which threads share the first ``shared`` ones, as one loop; 0: one thread runs all."""
    body = chain(steps[shared:], body)
    return together(steps[:shared], body) if shared else body


def together(steps: Sequence[Step], body: Body, bind: Bind = "parallel") -> Level:
    """One fused level. Of hints of one name the outermost loop's count."""
    hints: dict[str, str] = {}
    for s in steps:
        hints = s.hints | hints
    return Level(tuple((s.axis, s.size) for s in steps), body, bind, tuple(hints.items()))


def expanded(axes: Sequence[str], body: Body) -> Body:
    """Levels of single elements, all expanded, the last one in vectors."""
    return chain([*(Step(a, 1, "unroll") for a in axes[:-1]), Step(axes[-1], 1, "vector")], body)


def guarded(body: Body, axis: str | None = None, left: Mapping[str, int] | None = None) -> Body:
    """A tree whose levels, of one ``axis`` or all, have the iterations of whole tiles, with conditions.

    Of all axes what stands in places stays as it is, of one axis it does not. Parts of cuts that begin beyond
    what is ``left`` of an axis are gone.
    """
    if isinstance(body, Level):
        tail: Tail = "guard" if axis in (None, body.axes[0][0]) else body.tail
        return replace(body, body=guarded(body.body, axis, left), tail=tail)
    if isinstance(body, Cut):
        at = tuple(n for n in body.at if n < (left or {}).get(body.axis, n + 1))
        parts = tuple(guarded(part, axis, left) for part in body.parts[: len(at) + 1])
        return replace(body, at=at, parts=parts) if at else parts[0]
    if isinstance(body, Seq):
        return sequence(*(_guarded(x, axis, left) for x in body.items))
    return body


def _guarded(item: Place | Body, axis: str | None, left: Mapping[str, int] | None) -> Place | Body:
    if not isinstance(item, Place):
        return guarded(item, axis, left)
    return item if axis is None or item.nest is None else replace(item, nest=guarded(item.nest, axis, left))
