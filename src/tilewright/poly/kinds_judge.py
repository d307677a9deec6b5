"""Are the kinds of iterators true? The exact judge, by listed instances of small sizes.

Every two accesses of one element of which one writes force an order between their instances. Where a path of
such pairs leads from one instance of a statement to another, a parallel iterator must have the same value at
both; for reducing ones, the pairs by which the statement accumulates into one element do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.ir import LoopFunction, Store
from tilewright.poly.instances import list_instances
from tilewright.poly.statements import Instances, Reads, Statement, Writes
from tilewright.poly.violations import Violation
from tilewright.support import ResourceError

MAX_INSTANCES: Final = 4_000
"""Most instances judged: paths are found in a square matrix."""

Matrix = npt.NDArray[np.bool_]


def check_kinds(func: LoopFunction, params: Mapping[str, int] | None = None) -> list[Violation]:
    """All iterators whose kind promises more than the instances keep, for the given parameters.

    Raises ResourceError for more than :data:`MAX_INSTANCES` instances.
    """
    listed = list_instances(func, params)
    count = sum(s.count for s in listed.statements)
    if count > MAX_INSTANCES:
        raise ResourceError(
            f"{func.name} has {count} instances; at most {MAX_INSTANCES} are judged", hint="use smaller sizes"
        )
    out: list[Violation] = []
    everything = _paths(_order(listed, None))
    for k, s in enumerate(listed.statements):
        for n, (name, kind) in enumerate(zip(s.names, s.kinds, strict=True)):
            if kind not in ("par", "red"):
                continue
            paths = everything if kind == "par" else _paths(_order(listed, k))
            found = _moved(listed, paths, k, n)
            if found is not None:
                what = f"{s.describe(found[1])} must wait for {s.describe(found[0])}: {name} is not {kind}"
                out.append(Violation("flow", s.stage, what))
    return out


def _starts(listed: Instances) -> list[int]:
    sizes = [s.count for s in listed.statements]
    return [sum(sizes[:n]) for n in range(len(sizes))]


def _order(listed: Instances, without: int | None) -> Matrix:
    """Pairs of instances that conflict, the earlier one first; ``without`` a statement's accumulation."""
    ids: list[npt.NDArray[np.int64]] = []
    cells: list[npt.NDArray[np.int64]] = []
    writes: list[npt.NDArray[np.bool_]] = []
    own: list[npt.NDArray[np.bool_]] = []
    starts = _starts(listed)
    times = np.concatenate([s.time for s in listed.statements])
    for k, s in enumerate(listed.statements):
        target = _target(s) if k == without else None
        accesses: list[Reads | Writes] = [*s.reads, *s.writes]
        for a in accesses:
            written = isinstance(a, Writes)
            ids.append(a.rows + starts[k])
            cells.append(a.cells)
            writes.append(np.full(len(a.rows), written))
            accumulates = target is not None and (not isinstance(a, Reads) or a.load == target)
            own.append(np.full(len(a.rows), accumulates))
    who, cell, write, mine = (
        np.concatenate(ids),
        np.concatenate(cells),
        np.concatenate(writes),
        np.concatenate(own),
    )
    out = np.zeros((len(times), len(times)), np.bool_)
    for c in np.unique(cell[write]):
        at = np.flatnonzero(cell == c)
        first, then = np.meshgrid(at, at, indexing="ij")
        wanted = (write[first] | write[then]) & (times[who[first]] < times[who[then]])
        wanted &= ~(mine[first] & mine[then])
        out[who[first[wanted]], who[then[wanted]]] = True
    return out


def _target(s: Statement) -> object:
    """The load of the element that a statement writes."""
    if not isinstance(s.node, Store) or len(s.node.writes) != 1:
        return None
    w = s.node.writes[0]
    same = (r.load for r in s.reads if r.load is not None)
    return next((ld for ld in same if ld.buffer == w.buffer and ld.indices == w.indices), None)


def _paths(order: Matrix) -> Matrix:
    """The transitive closure."""
    paths = order.copy()
    while True:
        longer = paths | (paths.astype(np.float32) @ paths.astype(np.float32) > 0)
        if np.array_equal(longer, paths):
            return paths
        paths = longer


def _moved(listed: Instances, paths: Matrix, k: int, n: int) -> tuple[int, int] | None:
    """Two instances of a statement on one path that differ in an iterator."""
    s = listed.statements[k]
    first = _starts(listed)[k]
    inside = paths[first : first + s.count, first : first + s.count]
    values = s.coords[n]
    bad = inside & (values[:, None] != values[None, :])
    if not bad.any():
        return None
    a, b = np.argwhere(bad)[0]
    return int(a), int(b)
