"""Models that compare sizes, looked at as imported at each size of a range.

The plan of a range is made of those at some of its sizes (``range_plan.py``). A model whose own arithmetic
compares sizes may be another one at a single size in between; of such a model the imported graph is held
against what the others foresee, at every size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.build import Array
from tilewright.driver.range_plan import NoRangePlanError
from tilewright.graph import Graph

#: Sizes of a range, all names together, up to which they are looked at: others have a plan each.
MOST_SIZES: Final = 4096
#: Elements of a constant that are compared, and up to which its integers may differ from size to size.
FEW: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A graph: what all sizes share, integers that are affine in them, first elements of constants."""

    same: tuple[Any, ...]
    numbers: tuple[int, ...]
    contents: tuple[Array, ...]


def imported(graph: Graph) -> Imported:
    """A graph taken apart."""
    numbers: list[int] = []
    nodes = tuple(
        (n.op, n.inputs, n.outputs, n.version, n.domain, tuple(_fixed(n.attributes, numbers)))
        for n in graph.nodes
    )
    types = []
    for value, type_ in sorted(graph.types.items()):
        types.append((value, type_.dtype, len(type_.shape)))
        numbers += type_.sizes
    constants, contents = [], []
    for value, array in sorted(graph.constants.items()):
        constants.append((value, str(array.dtype), array.ndim))
        if array.dtype.kind in "iu" and array.size <= FEW:
            numbers += map(int, array.reshape(-1))
        else:
            # masks and places grow with a size
            contents.append(array.reshape(-1)[:FEW])
    same = (nodes, tuple(types), tuple(constants), graph.inputs, graph.outputs)
    return Imported(same, tuple(numbers), tuple(contents))


def _fixed(attributes: Any, numbers: list[int]) -> Iterator[tuple[str, Any]]:
    """Attributes, their integers among the numbers."""
    for name, value in sorted(attributes.items()):
        if isinstance(value, bool | int):
            numbers.append(int(value))
            yield name, "int"
        elif isinstance(value, tuple) and all(isinstance(n, int) for n in value):
            numbers += value
            yield name, len(value)
        else:
            yield name, repr(value)


def require_affine(found: dict[tuple[int, ...], Imported]) -> None:
    """That graphs, by their sizes, differ in integers alone, and these are affine in the sizes.

    Raises NoRangePlanError where they are not.
    """
    first = next(iter(found.values()))
    for at, other in found.items():
        if other.same != first.same or len(other.numbers) != len(first.numbers):
            raise NoRangePlanError(f"the model is another one at {at}")
        for a, b in zip(first.contents, other.contents, strict=True):
            n = min(a.size, b.size)
            if a[:n].tobytes() != b[:n].tobytes():
                raise NoRangePlanError(f"a constant of the model is another one at {at}")
    points = np.array(list(found), dtype=np.float64)
    rows = np.concatenate([np.ones((len(points), 1)), points], axis=1)
    columns = np.array([each.numbers for each in found.values()], dtype=np.float64)
    solved = np.linalg.lstsq(rows, columns, rcond=None)[0]
    wrong = np.argwhere(np.abs(rows @ solved - columns).max(axis=1) > 1e-3)
    if wrong.size:
        raise NoRangePlanError(f"a number of the model is not affine at {list(found)[int(wrong[0, 0])]}")
