"""Axes: making them, naming them, and the ranges of those that occur in indices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from tilewright import ir
from tilewright.ir import Index
from tilewright.lang.source import problem
from tilewright.lang.values import Axis, AxisName, BoundName, IndexLike, as_index


def extent_of(value: object, what: str) -> Index:
    """An extent: a non-negative integer or an expression of symbolic sizes and outer axes.

    Raises ProgramError for negative extents and for what is no extent.
    """
    found = as_index(value)
    if found is None:
        raise problem(f"{what} is {value!r}, not an integer or a symbolic size", "use an int or lang.param")
    if found.is_const and found.as_int() < 0:
        raise problem(f"{what} is negative: {found}")
    return found


def axis(extent: IndexLike | tuple[IndexLike, IndexLike], name: str | None = None) -> Axis:
    """A parallel axis over ``range(extent)`` or, for a pair, over ``range(lo, hi)``."""
    return _axis(extent, name, "par")


def reduce_axis(extent: IndexLike | tuple[IndexLike, IndexLike], name: str | None = None) -> Axis:
    """An axis for ``lang.sum(…, axis=…)`` and its like; its bounds may mention outer axes (triangles)."""
    return _axis(extent, name, "red")


def ordered_axis(extent: IndexLike | tuple[IndexLike, IndexLike], name: str | None = None) -> Axis:
    """An axis whose values are visited in increasing order, for :func:`update`."""
    return _axis(extent, name, "ord")


def inferred_axis(name: str) -> Axis:
    """A parallel axis whose range ``lang.program`` infers."""
    axis = Axis(ir.ZERO, ir.ZERO, check_name(name, "axis"))
    axis.lo, axis.hi = (ir.var(BoundName(f"{axis.key}.{end}")) for end in ("lo", "hi"))
    return axis


_DEFAULT_NAMES: Final = {"par": "i", "red": "k", "ord": "t"}


def _axis(extent: object, name: str | None, kind: Literal["par", "red", "ord"]) -> Axis:
    if isinstance(extent, tuple):
        if len(extent) != 2:
            raise problem(f"the range of an axis has {len(extent)} parts", "give an extent or (lo, hi)")
        found = as_index(extent[0])
        if found is None:
            raise problem(f"the range's start is {extent[0]!r}, not an index")
        lo = found
        found = as_index(extent[1])
        if found is None:
            raise problem(f"the range's end is {extent[1]!r}, not an index")
        hi = found
    else:
        lo, hi = ir.ZERO, extent_of(extent, "the extent of an axis")
    return Axis(lo, hi, check_name(name or _DEFAULT_NAMES[kind], "axis"), kind)


def check_name(name: str, what: str) -> str:
    """``name`` itself if it is an identifier in ASCII; ``ProgramError`` otherwise."""
    if not (name.isidentifier() and name.isascii()):
        raise problem(
            f"{name!r} cannot name an {what}" if what[0] in "aeiou" else f"{name!r} cannot name a {what}",
            "use letters, digits and underscores",
        )
    return name


def axis_env(indices: Iterable[Index]) -> dict[str, tuple[Index, Index]]:
    """Inclusive bounds of all axes that occur, those in other axes' bounds first."""
    env: dict[str, tuple[Index, Index]] = {}

    def visit(names: Iterable[str]) -> None:
        for name in sorted(names):
            if name not in env and isinstance(name, AxisName):
                a = name.axis
                visit(a.lo.vars | a.hi.vars)
                env[name] = (a.lo, a.hi - 1)

    for x in indices:
        visit(x.vars)
    return env
