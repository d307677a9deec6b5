"""Arguments stored in a narrower type: rounded where they are stored, widened where they are read.

The arithmetic in between stays in the type that the program computes in. Halving the bytes of tensors halves
their traffic, and products of narrow factors are what dot-product instructions do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir import (
    Access,
    Buffer,
    Cast,
    DType,
    Expr,
    Index,
    Iter,
    Load,
    Program,
    Stage,
    Stmt,
    Store,
    map_loads,
    stmt_children,
    stmt_loads,
    store,
    var,
    with_stmt_children,
)
from tilewright.support import ProgramError


def store_as(program: Program, types: Mapping[str, DType]) -> Program:
    """The program with the arguments ``types`` stored in those element types.

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
        return replace(w, value=Cast(w.value, wanted[w.buffer])) if w.buffer in wanted else w

    stages: list[Stage] = []
    for stage in program.stages:
        init = None if stage.init is None else write(map_loads(stage.init, load))
        stages.append(replace(stage, body=write(map_loads(stage.body, load)), init=init))
    stages += [_stored(old[name], wide, wanted[name]) for name, wide in apart.items()]
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


def _stored(b: Buffer, wide: str, to: DType) -> Stage:
    """The stage that rounds a temporary into the argument ``b``."""
    names = [f"d{n}" for n in range(len(b.shape))]
    at = tuple(map(var, names))
    iters = tuple(Iter(name, Index(0), extent, "par") for name, extent in zip(names, b.shape, strict=True))
    return Stage(f"{b.name}_stored", iters, store(b.name, at, Cast(Load(wide, at, b.dtype), to)))
