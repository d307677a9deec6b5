"""Arguments stored in a narrower type: rounded where they are stored, widened where they are read.

The arithmetic in between stays in the type that the program computes in. Halving the bytes of tensors halves
their traffic, and products of narrow factors are what dot-product instructions do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from tilewright.ir import (
    Access,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    Index,
    Iter,
    Load,
    Program,
    Select,
    Stage,
    Stmt,
    Store,
    Unary,
    children,
    map_loads,
    stmt_children,
    stmt_loads,
    store,
    var,
    with_stmt_children,
)
from tilewright.support import ProgramError


def store_as(program: Program, types: Mapping[str, DType], finite: Collection[str] = ()) -> Program:
    """The program with the arguments ``types`` stored in those element types.

    Finite values past the range of their type become infinite, but in the outputs ``finite`` the largest.

    Loads of them are casts to the type they had. A stage that defines an output alone, element by element,
    rounds what it stores; one that accumulates into it, or shares it with others, keeps a temporary of the
    old type, and a stage ``<name>_stored`` copies that. Raises ProgramError for a name that is no argument.
    """
    old = {b.name: b for b in (*program.inputs, *program.outputs)}
    unknown = [name for name in types if name not in old]
    if unknown:
        raise ProgramError(f"{unknown[0]!r} is no argument of {program.name!r}")
    wanted = {name: t for name, t in types.items() if old[name].dtype != t}
    if not wanted:
        return program
    apart = {
        b.name: f"{b.name}_wide" for b in program.outputs if b.name in wanted and not _simple(program, b)
    }

    def load(ld: Load) -> Expr:
        if ld.buffer in apart:
            return replace(ld, buffer=apart[ld.buffer])
        if ld.buffer not in wanted:
            return ld
        return Cast(Load(ld.buffer, ld.indices, wanted[ld.buffer]), ld.dtype)

    def write(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(tuple(map(access, s.writes)))
        return with_stmt_children(s, tuple(map(write, stmt_children(s))))

    def access(w: Access) -> Access:
        if w.buffer in apart:
            return replace(w, buffer=apart[w.buffer])
        if w.buffer not in wanted:
            return w
        return replace(w, value=_rounded(w.value, wanted[w.buffer], w.buffer in finite))

    stages: list[Stage] = []
    for stage in program.stages:
        init = None if stage.init is None else write(map_loads(stage.init, load))
        stages.append(replace(stage, body=write(map_loads(stage.body, load)), init=init))
    stages += [_stored(old[name], wide, wanted[name], name in finite) for name, wide in apart.items()]
    return replace(
        program,
        inputs=tuple(b.with_(dtype=types.get(b.name, b.dtype)) for b in program.inputs),
        outputs=tuple(b.with_(dtype=types.get(b.name, b.dtype)) for b in program.outputs),
        temps=(
            *program.temps,
            *(Buffer(wide, old[name].shape, old[name].dtype) for name, wide in apart.items()),
        ),
        stages=tuple(stages),
    )


def _simple(program: Program, b: Buffer) -> bool:
    """Whether one stage alone defines a buffer, each element once and without reading it."""
    stages = program.producers(b.name)
    if len(stages) != 1 or any(it.kind != "par" for it in stages[0].iters) or stages[0].init is not None:
        return False
    return not any(ld.buffer == b.name for ld in stmt_loads(stages[0].body))


def largest(dtype: DType) -> float:
    """The largest finite value of a float type."""
    infinite = np.array(math.inf, dtype.numpy)
    # the number before infinity
    return float((infinite.view(f"u{dtype.bytes}") - 1).astype(f"u{dtype.bytes}").view(dtype.numpy))


def large_outputs(program: Program, inputs: Collection[str], limit: float) -> frozenset[str]:
    """The outputs that may hold finite values beyond ``limit``, where ``inputs`` or the program's numbers do.

    Followed through what is computed element by element and through maxima and minima: sums of such values
    and functions of them leave the range of every type, or become moderate. Masks are such values.
    """
    found = set(inputs)

    def large(e: Expr) -> bool:
        if isinstance(e, Const):
            return isinstance(e.value, float) and limit < abs(e.value) < math.inf
        if isinstance(e, Load):
            return e.buffer in found
        return e.dtype.is_float and not isinstance(e, Call) and any(map(large, children(e)))

    for stage in program.stages:
        if all(_adds(w) for w in _writes(stage.body)) and any(it.kind == "red" for it in stage.iters):
            continue
        found.update(w.buffer for w in _writes(stage.body) if large(w.value))
    return frozenset(b.name for b in program.outputs if b.name in found)


def _adds(w: Access) -> bool:
    return isinstance(w.value, Binary) and w.value.op == "add"


def _writes(s: Stmt) -> tuple[Access, ...]:
    return s.writes if isinstance(s, Store) else tuple(w for c in stmt_children(s) for w in _writes(c))


def _rounded(value: Expr, to: DType, finite: bool) -> Expr:
    """A value in a narrower float type; with ``finite``, infinite only where it was."""
    if finite:
        most = largest(to)
        limited = Binary("min", value, Const(most, value.dtype))
        limited = Binary("max", limited, Const(-most, value.dtype))
        infinite = Compare("eq", Unary("abs", value), Const(math.inf, value.dtype))
        value = Select(infinite, value, limited)
    return Cast(value, to)


def _stored(b: Buffer, wide: str, to: DType, finite: bool) -> Stage:
    """The stage that rounds a temporary into the argument ``b``."""
    names = [f"d{n}" for n in range(len(b.shape))]
    at = tuple(map(var, names))
    iters = tuple(Iter(name, Index(0), extent, "par") for name, extent in zip(names, b.shape, strict=True))
    return Stage(f"{b.name}_stored", iters, store(b.name, at, _rounded(Load(wide, at, b.dtype), to, finite)))
