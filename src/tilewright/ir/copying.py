"""Copies of whole buffers, as nests of loops."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Load
from tilewright.ir.index import ZERO, var
from tilewright.ir.rewrite import fresh_name
from tilewright.ir.stmt import (
    PARALLEL,
    SERIAL,
    Access,
    Block,
    For,
    Iter,
    IterKind,
    Stmt,
    Store,
)


def copy_nest(
    source: str, target: Buffer, taken: set[str], kind: IterKind = "par", *, parallel: bool = False
) -> Stmt:
    """Loops that copy the buffer ``source`` to ``target``, which has the same shape.

    Loops and the one block have names that are not in ``taken``, which grows by them. With ``parallel`` the
    outermost of two or more loops runs on threads.
    """
    block = fresh_name(f"copy_{target.name}", taken)
    taken.add(block)
    dims = [fresh_name(f"{block}_{n}", taken) for n in range(len(target.shape))]
    taken.update(dims)
    at = tuple(map(var, dims))
    iters = tuple(Iter(d, ZERO, n, kind) for d, n in zip(dims, target.shape, strict=True))
    store = Store((Access(target.name, at, Load(source, at, target.dtype)),))
    out: Stmt = Block(block, block, iters, at, store)
    for k in reversed(range(len(dims))):
        on_threads = parallel and k == 0 and len(dims) > 1
        out = For(dims[k], ZERO, target.shape[k], out, PARALLEL if on_threads else SERIAL)
    return out
