"""decouple_at: what is stored at the end of a constant tensor becomes a tensor of its own again."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    CONST,
    Env,
    Expr,
    Load,
    Program,
    iter_env,
    map_loads,
    prove_ge0,
    simplify,
    stmt_loads,
)
from tilewright.schedule.layout.rewrite import check_dim, tensor_of
from tilewright.schedule.layout.store_at import last_index
from tilewright.schedule.producer.stages import refused
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("decouple_at", phase="program")
def decouple_at(program: Program, tensor: str, dim: int, rest: str, name: str) -> Program:
    """Make the last element along dimension ``dim`` of the constant ``tensor`` a tensor ``name`` of its own.

    What is left is called ``rest``. The inverse of ``store_at``.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((6,), name="X"), lang.placeholder((3, 6), name="W")
    >>> k = lang.reduce_axis(2, "k")
    >>> S = lang.compute((6,), lambda j: lang.sum(W[k, j], axis=k), name="S")
    >>> Y = lang.compute((6,), lambda j: X[j] * S[j] + W[2, j], name="Y")
    >>> p = lang.program([X, W], [Y])
    >>> s = Schedule(replace(p, inputs=(p.inputs[0], p.inputs[1].with_(scope=CONST))))
    >>> print(s)
    func main:
        alloc S: f32[6] global
        for j in 0:6:
            for k in 0:2:
                block S(par j=j, red k=k):
                    init:
                        S[j] = f32(0.0)
                    S[j] = (S[j] + W[k, j])
        for Y_j in 0:6:
            block Y(par j=Y_j):
                Y[j] = ((X[j] * S[j]) + W[2, j])
    >>> print(s.decouple_at("W", 0, "V", "b"))
    func main:
        alloc S: f32[6] global
        for j in 0:6:
            for k in 0:2:
                block S(par j=j, red k=k):
                    init:
                        S[j] = f32(0.0)
                    S[j] = (S[j] + V[k, j])
        for Y_j in 0:6:
            block Y(par j=Y_j):
                Y[j] = ((X[j] * S[j]) + b[j])

    Source: ALT, Sec. 4.1.2. Raises ScheduleError for a tensor that is no constant, and where it is not known
    which of both an access reads.
    """
    found = tensor_of(program, tensor)
    check_dim(found, dim)
    last = last_index(found, dim)
    if found.scope != CONST or not prove_ge0(last - 1, {}):
        raise ScheduleError(
            f"nothing can be taken from dimension {dim} of {tensor!r}",
            hint="it must be a constant, of two elements or more along that dimension",
        )
    taken = {b.name for b in program.buffers} - {tensor}
    if rest == name or {rest, name} & taken:
        raise ScheduleError(f"{rest!r} and {name!r} are no two new names", hint="choose other names")
    left = found.with_(name=rest, shape=(*found.shape[:dim], last, *found.shape[dim + 1 :]))
    own = found.with_(name=name, shape=(*found.shape[:dim], *found.shape[dim + 1 :]))
    stages = []
    for stage in program.stages:
        env = iter_env(stage.iters)
        for ld in stmt_loads(stage.body):
            at = simplify(ld.indices[dim], env) if ld.buffer == tensor else last
            if at != last and not prove_ge0(last - 1 - at, env):
                raise refused(stage, f"stage {stage.name!r} may read both parts of {tensor!r} at {at}")

        def moved(ld: Load, env: Env = env) -> Expr:
            if ld.buffer != tensor:
                return ld
            if simplify(ld.indices[dim], env) == last:
                return Load(name, (*ld.indices[:dim], *ld.indices[dim + 1 :]), ld.dtype)
            return Load(rest, ld.indices, ld.dtype)

        stages.append(replace(stage, body=map_loads(stage.body, moved)))
    inputs = tuple(x for b in program.inputs for x in ((left, own) if b.name == tensor else (b,)))
    return replace(program, inputs=inputs, stages=tuple(stages))
