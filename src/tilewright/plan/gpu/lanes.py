"""Accesses of many elements at once: along which axis of a stage its elements lie together, and how many."""

from __future__ import annotations

from typing import Final

from tilewright.analysis import flat_index
from tilewright.ir import (
    Expr,
    Index,
    Load,
    Program,
    Select,
    Stage,
    Store,
    children,
    fresh_name,
    iter_env,
    simplify_deep,
    simplify_expr,
    var,
)

#: Bytes of the widest access of one thread (CUDA C++ Programming Guide, 5.3.2: 16).
WIDEST: Final = 16


def widest(program: Program, stage: Stage, axis: str, *, reads: bool) -> int:
    """Elements along ``axis`` that the stage stores (with ``reads``: also reads) in one access of a thread.

    They lie side by side at a place of their size's multiple, and conditions hold for all of them or none.
    """
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1 or stage.is_reduction:
        return 1
    (w,) = stage.body.writes
    it = next(it for it in stage.iters if it.name == axis)
    width = WIDEST // program.buffer(w.buffer).dtype.bytes
    while width > 1 and not (
        it.extent.is_const
        and it.extent.as_int() % width == 0
        and _together(program, stage, axis, width, reads)
    ):
        width //= 2
    return max(1, width)


def _together(program: Program, stage: Stage, axis: str, width: int, reads: bool) -> bool:
    lane, group = (
        fresh_name(f"{axis}_{part}", {it.name for it in stage.iters}) for part in ("lane", "group")
    )
    at = var(group) * width + var(lane)
    it = next(it for it in stage.iters if it.name == axis)
    env = iter_env(tuple(each for each in stage.iters if each.name != axis))
    env |= {lane: (Index(0), Index(width - 1)), group: (Index(0), Index(it.extent.as_int() // width - 1))}
    assert isinstance(stage.body, Store)  # widest has asked
    (w,) = stage.body.writes
    value = simplify_expr(w.value.substitute({axis: at}), env)
    if not _uniform(value, lane):
        return False
    found = [Load(w.buffer, w.indices, value.dtype).substitute({axis: at})]
    accesses = [x for x in found if isinstance(x, Load)]
    if reads:
        accesses = [x for x in _loads(value) if lane in x.vars]
        if not accesses:
            return False
    return all(_aligned(program, x, lane, width, env) for x in accesses)


def _aligned(program: Program, ld: Load, lane: str, width: int, env: dict[str, tuple[Index, Index]]) -> bool:
    total = flat_index(program, ld.buffer, ld.indices)
    if total is None:
        return False
    total = simplify_deep(total, env)
    rest = total - var(lane)
    return lane not in rest.vars and all(n % width == 0 for n in (rest.const, *(c for _, c in rest.terms)))


def _uniform(e: Expr, lane: str) -> bool:
    """Whether all conditions of selections are the same in all lanes."""
    if isinstance(e, Select) and lane in e.cond.vars:
        return False
    return all(_uniform(child, lane) for child in children(e))


def _loads(e: Expr) -> list[Load]:
    own = [e] if isinstance(e, Load) else []
    return [*own, *(ld for child in children(e) for ld in _loads(child))]
