"""The reference interpreter: it executes a loop function exactly as the head of ``stmt.py`` defines it.

It is the oracle of every test, so it looks for trouble: ``parallel``, ``vector`` and ``thread`` loops run in
a seeded shuffled order, threads as coroutines up to their barriers; every access is checked against the
logical and the physical box; instances must lie in their domains; reducing and ordered instances must not
repeat; concurrent iterations must not touch one element unless all only read it. Fresh memory is poisoned:
poison may be copied to other fresh memory, as copies of whole boxes do with padding, but neither be used nor
reach an output.

``unroll`` is an instruction to the back end and keeps the loop's order. Under a ``block.*`` loop all threads
run the whole body, each taking the iteration of its own coordinate in every ``thread.*`` loop; what no loop
spreads over an axis is done by that axis's first thread alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.index import Param
from tilewright.ir.interp_block import Instruction, walk_stmts
from tilewright.ir.interp_expr import pred_fn
from tilewright.ir.interp_memory import ExecutionError, PoisonError, Shadow
from tilewright.ir.interp_scope import Env, Place, Scope, Slots, flat_fn
from tilewright.ir.interp_stmt import Compiler
from tilewright.ir.program import Program, to_function
from tilewright.ir.scalar_ops import UndefinedError, from_array
from tilewright.ir.stmt import Block, LoopFunction, stmt_writes
from tilewright.support import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"


def run_function(
    func: LoopFunction,
    arrays: Mapping[str, Array],
    params: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    instructions: Mapping[str, Instruction | LoopFunction] | None = None,
    inout: Collection[str] = (),
    complete: bool = True,
) -> dict[str, Array]:
    """Run a loop function on arrays, by the names of its argument buffers; returns its outputs by name.

    An array has the buffer's element type and its *physical* shape, or that shape enlarged by the halo.
    Outputs that are given are written in place; others are made. Parameters that are not given are read off
    the arrays' shapes where an extent is just the parameter. ``inout`` names outputs whose contents are read
    on entry, besides the function's in-out arguments; those of all others are poison. With ``complete`` every
    logical element of an output must be written. ``instructions`` gives the meaning of ``Exec`` by name: a
    function that changes the window arrays in place, or a loop function whose arguments are the windows.

    Raises InputError for wrong arguments, and a subclass of ExecutionError (or UndefinedError), with the
    block, iterators and loops, where the function breaks a rule.
    """
    values = _bind_params(func, arrays, params or {})
    scope = Scope(Slots(), values)
    rng = Random(seed)
    counted = {
        name
        for s in walk_stmts(func.body)
        if isinstance(s, Block) and any(it.kind != "par" for it in s.iters)
        for name, _ in stmt_writes(s.body)
    }
    compiler = Compiler(rng, _semantics(instructions or {}, seed), sorted(counted))
    with np.errstate(all="ignore"):
        _check_assumptions(func, scope)
        places = [(b, compiler.place(b, scope, writable=b.name in func.outputs)) for b in func.buffers]
        scope.places.update({b.name: p for b, p in places})
        kept = {*inout, *func.inouts}
        data = {b.name: _load_argument(b, p, arrays, kept) for b, p in places if b.name in arrays}
        body = compiler.stmt(func.body, scope)
        env: Env = [0] * scope.slots.count
        env[0] = None
        owners = _owners(func, arrays)
        for b, p in places:
            env[p.data] = data.get(b.name) or [None] * p.size
            env[p.shadow] = Shadow(b)
        for b, p in places:
            if owners[b.name] != b.name:
                owner = scope.places[owners[b.name]]
                env[p.data], env[p.shadow] = env[owner.data], env[owner.shadow]
        try:
            body(env)
        except (ExecutionError, UndefinedError) as error:
            if error.where is None:
                error.where = f"function {func.name}"
            raise
        out: dict[str, Array] = {}
        for b, p in places:
            if b.name in func.outputs:
                if complete:
                    _check_complete(p, env)
                out[b.name] = _store_result(b, p, env[p.data], arrays.get(b.name))
    return out


def run_program(
    program: Program,
    arrays: Mapping[str, Array],
    params: Mapping[str, int] | None = None,
    *,
    inout: Collection[str] = (),
    complete: bool = True,
) -> dict[str, Array]:
    """Run the stages of a program one after another; arguments and errors as :func:`run_function`."""
    return run_function(to_function(program), arrays, params, inout=inout, complete=complete)


def _semantics(given: Mapping[str, Instruction | LoopFunction], seed: int) -> dict[str, Instruction]:
    out: dict[str, Instruction] = {}
    for name, meaning in given.items():
        out[name] = _as_instruction(meaning, seed) if isinstance(meaning, LoopFunction) else meaning
    return out


def _as_instruction(func: LoopFunction, seed: int) -> Instruction:
    def run(windows: Any, args: Any) -> None:
        if args:
            raise ExecutionError(f"the instruction {func.name} takes no scalar arguments")
        named = {b.name: w for b, w in zip(func.buffers, windows, strict=True)}
        run_function(func, named, seed=seed, inout=func.outputs, complete=False)

    return run


def _bind_params(func: LoopFunction, arrays: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, int]:
    known = {b.name for b in func.buffers}
    for name in arrays:
        if name not in known:
            raise InputError(
                f"{func.name} has no argument {name}; its arguments are {', '.join(sorted(known))}"
            )
    for b in func.inputs:
        if b.name not in arrays:
            raise InputError(f"no array is given for the argument {b.name} of {func.name}")
    values: dict[str, int] = {}
    for p in func.params:
        value = given.get(p.name)
        if value is None:
            value = _from_shapes(p, func, arrays)
        if not p.lo <= value <= p.hi or value % p.multiple_of:
            raise InputError(
                f"parameter {p.name} = {value} of {func.name} must lie in [{p.lo}, {p.hi}] and be a multiple "
                f"of {p.multiple_of}"
            )
        values[p.name] = value
    unknown = set(given) - set(values)
    if unknown:
        raise InputError(f"{func.name} has no parameter {', '.join(sorted(unknown))}")
    return values


def _from_shapes(p: Param, func: LoopFunction, arrays: Mapping[str, Array]) -> int:
    wanted = ((p, 1),)
    for b in func.buffers:
        array = arrays.get(b.name)
        if array is not None and array.ndim == len(b.physical_shape):
            for extent, n in zip(b.physical_shape, array.shape, strict=True):
                if extent.terms == wanted and extent.const == 0:
                    return int(n)
    raise InputError(f"no value is given for the parameter {p.name} of {func.name}")


def _check_assumptions(func: LoopFunction, scope: Scope) -> None:
    for condition in func.assumes:
        test = pred_fn((condition,), scope)
        if test is not None and not test([]):
            raise InputError(
                f"{func.name} assumes {condition}, which the parameters {dict(scope.params)} break"
            )


def _load_argument(b: Buffer, p: Place, arrays: Mapping[str, Array], inout: Collection[str]) -> list[Any]:
    array = arrays[b.name]
    full = tuple(hi - lo for lo, hi in p.box)
    exact = tuple(
        hi - lo - sum(h) for (lo, hi), h in zip(p.box, b.halo or ((0, 0),) * len(full), strict=True)
    )
    if array.dtype != b.dtype.numpy:
        raise InputError(f"argument {b.name} has elements of type {array.dtype}, expected {b.dtype.numpy}")
    if array.shape not in (full, exact):
        raise InputError(f"argument {b.name} has the shape {array.shape}, expected {exact}")
    if p.writable and b.name not in inout:
        return [None] * p.size
    values = from_array(array, b.dtype)
    if array.shape == full:
        return values
    storage: list[Any] = [None] * p.size
    for n, at in enumerate(np.ndindex(*exact)):
        storage[_flat(p, at)] = values[n]
    return storage


def _owners(func: LoopFunction, arrays: Mapping[str, Array]) -> dict[str, str]:
    """For every argument the one whose storage it has: another's where both arrays are the same memory."""
    out = {b.name: b.name for b in func.buffers}
    given = [b for b in func.buffers if b.name in arrays]
    for n, b in enumerate(given):
        for a in given[:n]:
            x, y = arrays[a.name], arrays[b.name]
            if not np.shares_memory(x, y) or not {a.name, b.name} & set(func.outputs):
                continue
            if a.alias is None or a.alias != b.alias:
                raise InputError(
                    f"arguments {a.name} and {b.name} share memory, but are in no common alias group"
                )
            same = x.ctypes.data == y.ctypes.data and x.strides == y.strides and x.dtype == y.dtype
            if not same or x.shape != y.shape or a.layout != b.layout:
                raise InputError(
                    f"arguments {a.name} and {b.name} overlap in part; the interpreter needs all or none"
                )
            # the contents count where either is read on entry
            first, second = (b, a) if a.name in func.outputs and b.name not in func.outputs else (a, b)
            out[second.name] = out[first.name]
    return out


def _flat(p: Place, at: tuple[int, ...]) -> int:
    return sum((i - lo) * t for i, (lo, _), t in zip(at, p.box, p.strides, strict=True))


def _check_complete(p: Place, env: Env) -> None:
    if None not in env[p.data]:
        return
    flat: Callable[[Env, tuple[int, ...]], int] = flat_fn(p)
    for at in np.ndindex(*p.logical):
        if env[p.data][flat(env, at)] is None:
            raise PoisonError(f"element {list(at)} of the output {p.buffer.name} is never written")


def _store_result(b: Buffer, p: Place, storage: list[Any], given: Array | None) -> Array:
    halo = b.halo or ((0, 0),) * len(p.box)
    full = tuple(hi - lo for lo, hi in p.box)
    exact = tuple(n - sum(h) for n, h in zip(full, halo, strict=True))
    out = np.zeros(exact, b.dtype.numpy) if given is None else given
    if None not in storage and out.shape == full:
        out[...] = np.array(storage, b.dtype.numpy).reshape(full)
        return out
    shift = tuple(lo for lo, _ in p.box) if out.shape == full else (0,) * len(full)
    for at in np.ndindex(*out.shape):
        v = storage[_flat(p, tuple(i + s for i, s in zip(at, shift, strict=True)))]
        if v is not None:
            out[at] = v
    return out
