"""Ranges of open sizes: what callers give, which sizes share kernels, where programs are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from tilewright.frontend import ReadModel, Shapes
from tilewright.support import InputError, known_names, quoted, whole_number

NamedRanges: TypeAlias = Mapping[str, tuple[int, int]]
"""The least and the largest value of each open size, by its name in the model."""

#: The sizes that a name of the file may have where nobody says so.
UNSAID: Final = (1, 4096)
#: Ranges of sizes that share symbolic kernels end at powers of two from here on.
FIRST_RANGE: Final = 16
#: Sizes at which programs are compared to find what is affine in them: no powers of two, two neighbours.
SAMPLES: Final = (41, 37, 38, 53)
#: Sizes up to this one are cases of their own: what has one element is read without its index.
DEGENERATE: Final = 1


def sampled_sizes(lo: int, hi: int) -> tuple[int, ...]:
    """Sizes between two of which affine functions can be told, no degenerate ones if there are others."""
    found = dict.fromkeys((*SAMPLES, hi, hi - 1, (lo + hi) // 2, 3, 2))
    usual = [n for n in found if max(lo, DEGENERATE + 1) <= n <= hi]
    return tuple(usual or range(lo, hi + 1))[: len(SAMPLES)]


def range_of(size: int, lo: int, hi: int) -> tuple[int, int]:
    """The range of sizes that share kernels with a size between ``lo`` and ``hi``."""
    if size <= DEGENERATE:
        return size, size
    end = FIRST_RANGE
    while size > end:
        end *= 2
    first = end // 2 + 1 if end > FIRST_RANGE else DEGENERATE + 1
    return max(lo, first), min(hi, end)


def ranges_between(lo: int, hi: int) -> list[tuple[int, int]]:
    """All ranges of sizes from ``lo`` to ``hi``, in order."""
    found = [range_of(lo, lo, hi)]
    while found[-1][1] < hi:
        found.append(range_of(found[-1][1] + 1, lo, hi))
    return found


def checked_ranges(dynamic: object, model: ReadModel, shapes: Shapes) -> dict[str, tuple[int, int]]:
    """The ranges of all sizes that ``shapes`` does not settle: of those that a caller leaves out a wide one.

    Raises InputError for names that the model does not have, and for what is no range.
    """
    if not isinstance(dynamic, Mapping):
        raise InputError("dynamic= must map names to ranges", hint='dynamic={"batch": (1, 64)}')
    settled = set(shapes)
    dims = dict.fromkeys(
        dim
        for name, type_ in model.inputs().items()
        for dim in type_.shape
        if isinstance(dim, str) and not {dim, name} & settled
    )
    ranges: dict[str, tuple[int, int]] = {}
    for name, given in dynamic.items():
        if name not in dims:
            hint = known_names(str(name), sorted(dims), "its open sizes")
            raise InputError(f"the model has no open size {quoted(str(name))}", hint=hint)
        pair = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
        ends = [n for each in pair if (n := whole_number(each)) is not None]
        if not len(ends) == len(pair) == 2 or not 0 <= ends[0] <= ends[1]:
            raise InputError(
                f"dynamic= gives {quoted(str(name))} the range {given!r}",
                hint="a range is its least and its largest size, both included: (1, 4096)",
            )
        ranges[str(name)] = (ends[0], ends[1])
    return ranges | {name: UNSAID for name in dims if name not in ranges}
