"""How far the accesses of a function reach: extents that its arguments need at least."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.ir import LoopFunction
from tilewright.poly.budget import bounded
from tilewright.poly.extract import extract_model


def outermost_extents(func: LoopFunction, names: Collection[str]) -> dict[str, int | None]:
    """The outermost extent that each of some arguments of a function without symbols needs.

    ``None`` where data decide how far an access reaches. Raises ResourceError where isl needs too much.
    """

    def found() -> dict[str, int | None]:
        out: dict[str, int | None] = dict.fromkeys(names, 0)
        for s in extract_model(func).statements:
            for access in (*s.reads, *s.writes):
                most = out.get(access.buffer)
                if most is None:
                    continue
                last = access.relation.range().dim_max_val(0)
                if last.is_neginfty() or last.is_nan():
                    continue  # it never happens
                reach = int(last.to_python()) + 1 if last.is_int() else None
                known = reach is not None and reach < func.buffer(access.buffer).shape[0].as_int()
                out[access.buffer] = max(most, reach) if known and reach is not None else None
        return out

    return bounded(found, f"the accesses of {func.name} are too many")
