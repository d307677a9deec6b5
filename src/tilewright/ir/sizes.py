"""Programs and loop functions at given sizes: symbolic parameters replaced by numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tilewright.ir.buffer import Buffer, IndexMap
from tilewright.ir.expr import Expr, map_indices
from tilewright.ir.index import FloorDiv, Index, MinMax, Mod, Opaque, Param, floordiv, imax, imin, index, mod
from tilewright.ir.program import Program, Stage
from tilewright.ir.rewrite import map_blocks, map_buffers, map_exprs
from tilewright.ir.stmt import Block, LoopFunction, Stmt


def bind_params(x: Index, params: Mapping[str, int]) -> Index:
    """The index with parameters replaced by their values; a product of others follows from theirs."""
    out = Index(x.const)
    for atom, c in x.terms:
        match atom:
            case Param():
                new = Index(param_value(atom, params))
            case FloorDiv(arg, d):
                new = floordiv(bind_params(arg, params), d)
            case Mod(arg, d):
                new = mod(bind_params(arg, params), d)
            case MinMax(op, args):
                new = (imin if op == "min" else imax)(*(bind_params(a, params) for a in args))
            case Opaque(expr):
                new = index(Opaque(_expr(expr, params)))
            case _:
                new = index(atom)
        out = out + new * c
    return out


def param_value(p: Param, params: Mapping[str, int]) -> int:
    """The value of a symbolic size; of a product whose own is not given, by its factors."""
    if p.name in params or not p.factors:
        return params[p.name]
    return prod(bind_params(index(factor), params).as_int() for factor in p.factors)


def buffer_at(b: Buffer, params: Mapping[str, int]) -> Buffer:
    """The buffer with its shape and its layout at given sizes."""
    shape = tuple(bind_params(extent, params) for extent in b.shape)
    layout = b.layout
    if layout is not None:
        exprs = tuple(bind_params(e, params) for e in layout.exprs)
        layout = IndexMap(layout.dims, exprs, tuple(bind_params(e, params) for e in layout.shape))
    return b.with_(shape=shape, layout=layout)


def program_at(program: Program, params: Mapping[str, int]) -> Program:
    """The program with every symbolic size a number; ``KeyError`` for one that ``params`` lacks."""

    def at(x: Index) -> Index:
        return bind_params(x, params)

    def buffers(of: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(buffer_at(b, params) for b in of)

    def body(s: Stmt) -> Stmt:
        return map_exprs(s, at, lambda e: _expr(e, params))

    def stage(s: Stage) -> Stage:
        iters = tuple(replace(it, lo=at(it.lo), hi=at(it.hi)) for it in s.iters)
        return replace(s, iters=iters, body=body(s.body), init=None if s.init is None else body(s.init))

    return replace(
        program,
        params=(),
        inputs=buffers(program.inputs),
        outputs=buffers(program.outputs),
        temps=buffers(program.temps),
        stages=tuple(map(stage, program.stages)),
        assumes=(),
    )


def function_at(func: LoopFunction, params: Mapping[str, int]) -> LoopFunction:
    """The loop function with every symbolic size a number; ``KeyError`` for one that ``params`` lacks."""

    def at(x: Index) -> Index:
        return bind_params(x, params)

    def ranges(b: Block) -> Block:
        return replace(b, iters=tuple(replace(it, lo=at(it.lo), hi=at(it.hi)) for it in b.iters))

    body = map_exprs(func.body, at, lambda e: _expr(e, params))
    body = map_buffers(map_blocks(body, ranges), lambda b: buffer_at(b, params))
    buffers = tuple(buffer_at(b, params) for b in func.buffers)
    return replace(func, params=(), buffers=buffers, body=body, assumes=())


def _expr(e: Expr, params: Mapping[str, int]) -> Expr:
    return map_indices(e, lambda x: bind_params(x, params))
