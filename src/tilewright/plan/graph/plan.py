"""Decisions about a whole model around its kernels: passes, fusion, joins, parts of a batch, layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tilewright.graph import (
    INTEGER_PASSES,
    PASSES,
    BytesInBlocks,
    CopyValues,
    FillBlocks,
    FusionOptions,
    MergeGroups,
    NarrowInputs,
    Pass,
    ValueCopy,
)
from tilewright.plan.graph.layouts import Layouts
from tilewright.support import ArtefactError

#: Longest way of saying where an element lies that is read: far above any of the rules.
_LONGEST_INDEX: Final = 1000


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The passes that depend on the machine; others always run.

    ``integer``: products of quantised values are made those of unsigned and signed bytes. ``fill``,
    ``merge``, ``narrow`` and ``bytes`` are left out where they are ``None``. ``copies`` are values that
    several kernels read from one copy, which may lie otherwise; they are made last.
    """

    integer: bool = False
    fill: FillBlocks | None = None
    merge: MergeGroups | None = None
    narrow: NarrowInputs | None = None
    copies: tuple[ValueCopy, ...] = ()
    bytes: BytesInBlocks | None = None

    def passes(self) -> tuple[Pass, ...]:
        """All passes in their order."""
        copies = CopyValues(self.copies) if self.copies else None
        own: tuple[Pass | None, ...] = (self.fill, self.merge, self.narrow, self.bytes, copies)
        return (*(INTEGER_PASSES if self.integer else PASSES), *(step for step in own if step is not None))


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """What is decided about a model before each of its kernels is planned.

    ``precision`` is that of the values between kernels, ``passes`` and ``fusion`` say which groups of nodes
    there are. ``joins`` are runs of groups that one kernel computes, each group by the value that it makes;
    ``parts`` are the kernels that take the batch in parts, each by the first value that it makes, and into
    how many. ``layouts`` say where the elements of the values between kernels lie.
    """

    precision: str = "f32"
    passes: PassPlan = field(default_factory=PassPlan)
    fusion: FusionOptions = field(default_factory=FusionOptions)
    joins: tuple[tuple[str, ...], ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    layouts: Layouts = field(default_factory=Layouts)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def to_data(self) -> dict[str, Any]:
        """Plain data that :func:`graph_plan_from_data` reads."""
        converted = {
            reader: {value: list(exprs) for value, exprs in found.items()}
            for reader, found in self.layouts.converted.items()
        }
        passes = msgspec.to_builtins(self.passes)
        passes = {key: value for key, value in passes.items() if value or key not in ("copies", "bytes")}
        return {
            "precision": self.precision,
            "passes": passes,
            "fusion": msgspec.to_builtins(self.fusion, order="sorted"),
            "joins": [list(run) for run in self.joins],
            "parts": dict(self.parts),
            "layouts": {value: list(exprs) for value, exprs in self.layouts.values.items()},
            "copied": {value: list(exprs) for value, exprs in self.layouts.copied.items()},
            **({"converted": converted} if converted else {}),
        }


@dataclass(frozen=True, slots=True)
class _Text:
    """The form of a plan in JSON."""

    precision: str
    passes: PassPlan
    fusion: FusionOptions
    joins: list[list[str]]
    parts: dict[str, int]
    layouts: dict[str, list[str]]
    copied: dict[str, list[str]]
    converted: dict[str, dict[str, list[str]]] = field(default_factory=dict)


def graph_plan_from_data(data: object) -> GraphPlan:
    """Read a plan. Raises ArtefactError, naming the field, for data that is none."""
    where = "'graph' of a model's plan"
    try:
        read = msgspec.convert(data, _Text, strict=True)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{where}: {error}") from None
    extra = _unknown(data, msgspec.to_builtins(read))
    if extra:
        raise ArtefactError(f"{where}: there is no field {extra!r}")
    for value, parts in read.parts.items():
        if parts < 2:
            raise ArtefactError(f"{where}: {value!r} is made in {parts} parts; parts are 2 at least")
    if any(len(run) < 2 for run in read.joins):
        raise ArtefactError(f"{where}: a join of 'joins' names two groups at least")
    for exprs in (*read.layouts.values(), *read.copied.values()):
        if not exprs or any(len(each) > _LONGEST_INDEX for each in exprs):
            raise ArtefactError(
                f"{where}: a layout is a list of indices such as d1//16, of which each is short"
            )
    if any(len(i) > _LONGEST_INDEX for found in read.converted.values() for e in found.values() for i in e):
        raise ArtefactError(f"{where}: an index of 'converted' is longer than any that is needed")
    return GraphPlan(
        read.precision,
        read.passes,
        read.fusion,
        tuple(map(tuple, read.joins)),
        read.parts,
        Layouts(
            _exprs(read.layouts),
            _exprs(read.copied),
            {reader: _exprs(found) for reader, found in read.converted.items()},
        ),
    )


def _exprs(found: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {value: tuple(exprs) for value, exprs in found.items()}


def _unknown(data: object, known: object) -> str:
    """A field of the data that what was read from it does not have; empty where there is none."""
    if not isinstance(data, dict) or not isinstance(known, dict):
        return ""
    return next(
        (
            str(key) if key not in known else found
            for key, value in data.items()
            if key not in known or (found := _unknown(value, known[key]))
        ),
        "",
    )
