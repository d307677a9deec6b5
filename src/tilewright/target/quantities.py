"""Quantities of a CPU: what is measured, not read off a table of features, and what decisions ask of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from tilewright.support import ArtefactError, digest

#: Classes a decade: those of ISO 3's series R20, each 12 % above the one before. What two runs measure a few
#: per cent apart is the same machine.
CLASSES: Final = 20
#: Bounds of what is read: a quantity outside is no measurement.
LEAST, MOST = 1e-9, 1e12
#: Seconds of a line that another core has written, of a machine of which nothing is known: what prices of
#: things that pass between cores were measured at (Zen 4, between its states of 9 and 15 to 25 ns; 0397).
LINE_SECONDS: Final = 1.5e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """What rules and cost models ask of a CPU: fields of :class:`~tilewright.target.CpuTarget`, see there.

    ``bandwidths`` are bytes a cycle of the memory levels, from the first cache level outwards. The defaults
    are those of a machine of which nothing is known.
    """

    clock_hz: float | None = None
    fma_per_cycle: float = 1.0
    bandwidths: tuple[float, ...] = ()
    page_walk: float = 7.0
    far_requests: tuple[int, int] = (1, 1)
    stream_gain: float = 1.0
    past_share: float = 1.0
    fork_seconds: float = 2.0e-6
    line_seconds: float = LINE_SECONDS

    @property
    def digest(self) -> str:
        """What plans record: equal where decisions are made from equal quantities."""
        return digest(self)

    def rounded(self) -> Quantities:
        """The classes of measured quantities: what decisions are made from."""
        return Quantities(
            clock_hz=None if self.clock_hz is None else in_class(self.clock_hz),
            fma_per_cycle=max(0.5, round(2 * self.fma_per_cycle) / 2),
            bandwidths=tuple(in_class(each) for each in self.bandwidths),
            page_walk=in_class(max(1.0, self.page_walk)),
            far_requests=self.far_requests,
            stream_gain=in_class(self.stream_gain),
            past_share=in_class(self.past_share),
            fork_seconds=in_class(self.fork_seconds),
            line_seconds=in_class(self.line_seconds),
        )

    def to_data(self) -> dict[str, object]:
        """Plain data, for JSON."""
        return asdict(self)


def in_class(value: float) -> float:
    """The class of a positive measurement: the nearest preferred number (ISO 3, series R20).

    >>> in_class(41.0), in_class(45.9), in_class(3.64e9)
    (39.8, 44.7, 3550000000.0)
    """
    return float(f"{10 ** (round(CLASSES * math.log10(value)) / CLASSES):.3g}")


def quantities_from_data(data: object) -> Quantities:
    """Read what :meth:`Quantities.to_data` gave. Raises ArtefactError that names the field that is wrong."""
    known = Quantities()
    if isinstance(data, Mapping):
        # what was measured before there was such a quantity
        data = {"line_seconds": known.line_seconds, **data}
    if not isinstance(data, Mapping) or set(data) != set(asdict(known)):
        raise ArtefactError(f"measured quantities have exactly the fields {', '.join(asdict(known))}")
    clock = data["clock_hz"]
    near, far = _numbers("far_requests", data["far_requests"], 0, 16, 2)
    return Quantities(
        clock_hz=None if clock is None else _number("clock_hz", clock),
        fma_per_cycle=_number("fma_per_cycle", data["fma_per_cycle"]),
        bandwidths=_numbers("bandwidths", data["bandwidths"], LEAST, MOST, None),
        page_walk=_number("page_walk", data["page_walk"]),
        far_requests=(int(near), int(far)),
        stream_gain=_number("stream_gain", data["stream_gain"]),
        past_share=_number("past_share", data["past_share"]),
        fork_seconds=_number("fork_seconds", data["fork_seconds"]),
        line_seconds=_number("line_seconds", data["line_seconds"]),
    )


def _number(field: str, value: object, least: float = LEAST, most: float = MOST) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ArtefactError(f"{field!r} of measured quantities is no number from {least:g} to {most:g}")
    return float(value)


def _numbers(field: str, value: object, least: float, most: float, count: int | None) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not value or len(value) != (count or len(value)):
        raise ArtefactError(f"{field!r} of measured quantities is no list of {count or 'some'} numbers")
    return tuple(_number(field, each, least, most) for each in value)
