"""The precision ``tf32``: factors of f32 products rounded, where a device's matrix units then do them."""

from __future__ import annotations

from dataclasses import replace

from tilewright.analysis import Roles, narrowed, roles_of
from tilewright.ir import (
    F32,
    Binary,
    Expr,
    Program,
    Stage,
    map_expr,
    map_exprs,
    tf32_argument,
    tf32_rounded,
)
from tilewright.plan.gpu.products import matrices_of, matrix_unit
from tilewright.target import GpuTarget


def round_factors(program: Program, target: GpuTarget) -> Program:
    """The program with the factors of sums rounded that the device's matrix units take in TF32.

    A factor errs by at most 2**-11 of itself; sums stay f32. Other sums stay as they are.
    """
    stages = tuple(_rounded(program, stage, target) for stage in program.stages)
    return program if stages == program.stages else replace(program, stages=stages)


def _rounded(program: Program, stage: Stage, target: GpuTarget) -> Stage:
    roles = matrices_of(program, stage)
    if roles is None or {narrowed(e)[0].dtype for e in (roles.a, roles.b)} != {F32}:
        return stage
    if tf32_argument(roles.a) is not None and tf32_argument(roles.b) is not None:
        return stage
    factors = {(roles.a, roles.b), (roles.b, roles.a)}

    def rounded(e: Expr) -> Expr:
        if isinstance(e, Binary) and e.op == "mul" and (e.a, e.b) in factors:
            return Binary("mul", tf32_rounded(e.a), tf32_rounded(e.b))
        return e

    body = map_exprs(stage.body, lambda i: i, lambda e: map_expr(e, rounded))
    made = replace(stage, body=body)
    found = roles_of(made)
    if not isinstance(found, Roles):
        return stage
    changed = replace(program, stages=tuple(made if s is stage else s for s in program.stages))
    return made if matrix_unit(changed, made, target) is not None else stage
