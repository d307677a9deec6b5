"""Reference evaluation of whole programs with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilewright import ir
from tilewright.ir import Buffer, Expr, Program, Stage, evaluate_index
from tilewright.lang.evaluation.domains import Array, OutOfBoundsError
from tilewright.lang.evaluation.expressions import Memory
from tilewright.lang.evaluation.stages import hull, run_stage
from tilewright.support import InputError, ProgramError, SourceLocation as ErrorLocation, quoted


def evaluate(
    program: Program,
    arrays: Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike],
    params: Mapping[str, int] | None = None,
    *,
    dtype_override: Literal["f64"] | None = None,
    absolute: bool = False,
    keep: Sequence[str] = (),
    initial: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """The outputs of a program (and the buffers named by ``keep``), computed stage by stage with numpy.

    ``arrays`` are the inputs by name or in order. Symbolic sizes are read off their shapes; others come from
    ``params``. Operations round in their own types, sums run in no stated order (products of two f32 or f64
    operands through BLAS). With ``dtype_override="f64"`` all floats are held in double precision; with
    ``absolute`` the results are the magnitudes for ``support.error_bound``, in double precision. Unwritten
    elements are NaN or a conspicuous integer, or those of ``initial``, which gives the contents of outputs
    before the first stage (of accumulators, which their stages read); its arrays are not changed.

    Raises ``InputError`` for arrays that do not fit and ``ProgramError`` (at the stage's source line) for an
    access out of bounds.
    """
    given = _inputs(program, arrays)
    values = infer_params(program, given, params or {})
    wide = absolute or dtype_override == "f64"
    memory = Memory({}, {} if absolute else None, wide)
    for b in program.inputs:
        a = np.asarray(given[b.name]).astype(memory.numpy(b.dtype), copy=False)
        memory.arrays[b.name] = a
        if memory.magnitudes is not None:
            memory.magnitudes[b.name] = np.abs(a.astype(np.float64))
    for name, before in (initial or {}).items():
        memory.arrays[name] = np.array(before, memory.numpy(program.buffer(name).dtype))
        if memory.magnitudes is not None:
            memory.magnitudes[name] = np.abs(memory.arrays[name].astype(np.float64))
    last = _last_uses(program)
    wanted = {b.name for b in program.outputs} | set(keep)
    with np.errstate(all="ignore"):
        for n, stage in enumerate(program.stages):
            for name in stage.writes:
                if name not in memory.arrays:
                    _allocate(program.buffer(name), memory, values)
            try:
                run_stage(stage, memory, values)
            except OutOfBoundsError as e:
                raise _at(stage, str(e)) from None
            for name in last.get(n, ()):
                if name not in wanted:
                    memory.arrays.pop(name, None)
                    if memory.magnitudes is not None:
                        memory.magnitudes.pop(name, None)
    found = memory.arrays if memory.magnitudes is None else memory.magnitudes
    names = [*(b.name for b in program.outputs), *keep]
    return {name: found[name] for name in names}


def roundings(program: Program, params: Mapping[str, int] | None = None) -> dict[str, int]:
    """For each output the most roundings behind one element: ``terms`` of ``support.error_bound``.

    Along a path reduction lengths and operations add up. Stages that read their own output (scans) count
    every instance.
    """
    depth: dict[str, int] = {b.name: 0 for b in program.inputs}
    for stage in program.stages:
        box = hull(stage.iters, dict(params or {}))
        repeats = 1
        for it, n in zip(stage.iters, box.shape, strict=True):
            if it.kind != "par":
                repeats *= max(1, n)
        operations = max((_operations(e) for e in ir.stmt_exprs(stage.body)), default=0)
        start = max((depth.get(name, 0) for name in (*stage.reads, *stage.writes)), default=0)
        scan = any(it.kind == "ord" for it in stage.iters)
        own = repeats * operations if scan else repeats - 1 + operations
        for name in stage.writes:
            depth[name] = start + own
    return {b.name: max(1, depth[b.name]) for b in program.outputs}


def _operations(e: Expr) -> int:
    own = 0 if isinstance(e, ir.Const | ir.OfIndex | ir.Load | ir.Select | ir.Compare) else 1
    return own + max((_operations(k) for k in ir.children(e)), default=0)


def _at(stage: Stage, message: str) -> ProgramError:
    where = (
        None
        if stage.source is None
        else ErrorLocation(stage.source.file, stage.source.line, stage.source.text)
    )
    return ProgramError(
        f"stage {quoted(stage.name)} accesses memory out of bounds: {message}",
        where=where,
        hint="guard the access by lang.select, read through lang.boundary, or clamp the index",
    )


def _inputs(program: Program, arrays: Mapping[str, Any] | Sequence[Any]) -> dict[str, Array]:
    names = [b.name for b in program.inputs]
    if not isinstance(arrays, Mapping):
        if len(arrays) != len(names):
            raise InputError(
                f"{len(arrays)} arrays for {len(names)} inputs", hint=f"in order: {', '.join(names)}"
            )
        arrays = dict(zip(names, arrays, strict=True))
    missing = [n for n in names if n not in arrays]
    if missing:
        raise InputError(f"the input {quoted(missing[0])} is missing")
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        raise InputError(f"there is no input {quoted(unknown[0])}", hint=f"the inputs are {', '.join(names)}")
    out: dict[str, Array] = {}
    for b in program.inputs:
        a = np.asarray(arrays[b.name])
        if a.dtype != b.dtype.numpy and not (b.dtype.is_float and a.dtype == np.float64):
            raise InputError(f"the input {quoted(b.name)} has dtype {a.dtype}, not {b.dtype}")
        if a.ndim != len(b.shape):
            raise InputError(f"the input {quoted(b.name)} has {a.ndim} dimensions, not {len(b.shape)}")
        out[b.name] = a
    return out


def infer_params(program: Program, arrays: Mapping[str, Array], params: Mapping[str, int]) -> dict[str, int]:
    """Values of the symbolic sizes from inputs' shapes and ``params``; ``InputError`` if they disagree."""
    values = dict(params)
    for b in program.inputs:
        for n, extent in enumerate(b.shape):
            if len(extent.terms) != 1:
                continue
            atom, factor = extent.terms[0]
            size = arrays[b.name].shape[n] - extent.const
            if isinstance(atom, ir.Param) and size % factor == 0:
                values.setdefault(atom.name, size // factor)
    for p in program.params:
        if p.name not in values:
            raise InputError(
                f"the symbolic size {p.name} has no value", hint=f"pass params={{'{p.name}': …}}"
            )
        v = values[p.name]
        if not p.lo <= v <= p.hi or v % p.multiple_of:
            raise InputError(f"{p.name} = {v} is not a multiple of {p.multiple_of} in [{p.lo}, {p.hi}]")
    for b in program.inputs:
        shape = tuple(evaluate_index(s, values) for s in b.shape)
        if shape != arrays[b.name].shape:
            raise InputError(f"the input {quoted(b.name)} has shape {arrays[b.name].shape}, not {shape}")
    for c in program.assumes:
        assert c.index is not None
        v = evaluate_index(c.index, values)
        if v < 0 or (c.op == "eq" and v != 0):
            raise InputError(f"the sizes do not satisfy {c}")
    return values


def _allocate(b: Buffer, memory: Memory, params: Mapping[str, int]) -> None:
    shape = tuple(evaluate_index(s, params) for s in b.shape)
    kind = memory.numpy(b.dtype)
    if b.dtype.is_float:
        array: Array = np.full(shape, np.nan, kind)
    elif b.dtype.kind == "bool":
        array = np.zeros(shape, kind)
    else:
        array = (
            np.full(shape, 0xA5, np.uint8).astype(kind) if shape else np.asarray(0xA5, np.uint8).astype(kind)
        )
    memory.arrays[b.name] = array
    if memory.magnitudes is not None:
        memory.magnitudes[b.name] = np.full(shape, np.nan)


def _last_uses(program: Program) -> dict[int, list[str]]:
    last: dict[str, int] = {}
    for n, stage in enumerate(program.stages):
        for name in (*stage.reads, *stage.writes):
            last[name] = n
    out: dict[int, list[str]] = {}
    for name, n in last.items():
        out.setdefault(n, []).append(name)
    return out
