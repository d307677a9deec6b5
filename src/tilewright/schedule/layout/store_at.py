"""store_at: a constant tensor is stored inside of another one, behind its elements along a dimension."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import CONST, Buffer, Expr, Index, Load, Program, map_loads
from tilewright.schedule.layout.rewrite import check_dim, tensor_of
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("store_at", phase="program")
def store_at(program: Program, tensor: str, host: str, dim: int, name: str) -> Program:
    """Store the constant ``tensor`` in the constant ``host``, behind its elements along dimension ``dim``.

    Both become one input ``name``, with one element more along ``dim`` than ``host``: a bias behind each
    column of the weights lies where the column has just been read. ``tensor`` has the shape of ``host``
    without ``dim``. The compiler makes the constant of both.

    >>> from tilewright import lang
    >>> from tilewright.ir import CONST
    >>> from tilewright.schedule import Schedule
    >>> A, W, b = (lang.placeholder(s, name=n) for s, n in (((4, 8), "A"), ((8, 6), "W"), ((6,), "b")))
    >>> k = lang.reduce_axis(8, "k")
    >>> S = lang.compute((4, 6), lambda i, j: lang.sum(A[i, k] * W[k, j], axis=k), name="S")
    >>> Y = lang.compute((4, 6), lambda i, j: S[i, j] + b[j], name="Y")
    >>> p = lang.program([A, W, b], [Y])
    >>> p = replace(p, inputs=(p.inputs[0], *(x.with_(scope=CONST) for x in p.inputs[1:])))
    >>> s = Schedule(p)
    >>> print(s)
    func main:
        alloc S: f32[4, 6] global
        for i in 0:4:
            for j in 0:6:
                for k in 0:8:
                    block S(par i=i, par j=j, red k=k):
                        init:
                            S[i, j] = f32(0.0)
                        S[i, j] = (S[i, j] + (A[i, k] * W[k, j]))
        for Y_i in 0:4:
            for Y_j in 0:6:
                block Y(par i=Y_i, par j=Y_j):
                    Y[i, j] = (S[i, j] + b[j])
    >>> print(s.store_at("b", "W", 0, "Wb"))
    func main:
        alloc S: f32[4, 6] global
        for i in 0:4:
            for j in 0:6:
                for k in 0:8:
                    block S(par i=i, par j=j, red k=k):
                        init:
                            S[i, j] = f32(0.0)
                        S[i, j] = (S[i, j] + (A[i, k] * Wb[k, j]))
        for Y_i in 0:4:
            for Y_j in 0:6:
                block Y(par i=Y_i, par j=Y_j):
                    Y[i, j] = (S[i, j] + Wb[8, j])

    Source: ALT, Sec. 4.1.2. Raises ScheduleError for tensors that are no constants, are laid out by a map,
    or do not fit.
    """
    guest, place = tensor_of(program, tensor), tensor_of(program, host)
    check_dim(place, dim)
    for b in (guest, place):
        if b.scope != CONST:
            raise ScheduleError(
                f"{b.name!r} is no constant",
                hint="what is stored together is put together when compiling: both must be known then",
            )
    if guest.shape != (*place.shape[:dim], *place.shape[dim + 1 :]) or guest.dtype != place.dtype:
        raise ScheduleError(
            f"{tensor!r} of shape {_shape(guest)} ({guest.dtype}) has no place along dimension {dim} of "
            f"{host!r}, {_shape(place)} ({place.dtype})",
            hint="it has the type and the shape of the other one without that dimension",
        )
    if name in {b.name for b in program.buffers}:
        raise ScheduleError(f"there is a tensor {name!r} already", hint="choose another name")
    last = place.shape[dim]
    joined = place.with_(name=name, shape=(*place.shape[:dim], last + 1, *place.shape[dim + 1 :]))

    def moved(ld: Load) -> Expr:
        if ld.buffer == host:
            return Load(name, ld.indices, ld.dtype)
        if ld.buffer == tensor:
            return Load(name, (*ld.indices[:dim], last, *ld.indices[dim:]), ld.dtype)
        return ld

    stages = tuple(replace(s, body=map_loads(s.body, moved)) for s in program.stages)
    inputs = tuple(joined if b.name == host else b for b in program.inputs if b.name != tensor)
    return replace(program, inputs=inputs, stages=stages)


def _shape(b: Buffer) -> str:
    return f"[{', '.join(map(str, b.shape))}]"


def last_index(b: Buffer, dim: int) -> Index:
    """The index of the last element along a dimension."""
    return b.shape[dim] - 1
