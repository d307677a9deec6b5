"""Stages without a shape: ``stage``. ``lang.program`` infers which of their elements are needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from tilewright.ir import DType
from tilewright.lang.axes import inferred_axis
from tilewright.lang.compute import define, parameter_names, tensor_names
from tilewright.lang.conversions import dtype_from, to_expr
from tilewright.lang.source import here, problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Rest, ValueLike


@overload
def stage(
    fn: Callable[..., tuple[ValueLike, ...]],
    name: str | Sequence[str] | None = ...,
    dtype: DType | str | None = ...,
    *,
    bounds: Mapping[str, tuple[int, int]] | None = ...,
    hint: str = ...,
) -> tuple[Tensor, ...]: ...
@overload
def stage(
    fn: Callable[..., ValueLike],
    name: str | None = ...,
    dtype: DType | str | None = ...,
    *,
    bounds: Mapping[str, tuple[int, int]] | None = ...,
    hint: str = ...,
) -> Tensor: ...
def stage(
    fn: Callable[..., Any],
    name: str | Sequence[str] | None = None,
    dtype: DType | str | None = None,
    *,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    hint: str = "t",
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose element at ``(i, j, …)`` is ``fn(i, j, …)``, for all integers ``i, j, …``.

    ``lang.program(…, region=…)`` infers the box of elements that the outputs need and computes those; a stage
    may be read anywhere, also at negative indices. Like :func:`~tilewright.lang.compute.compute` but for
    that. ``lambda y, x, *rest: f[y, x, *rest]`` has as many further dimensions as ``f``. ``bounds`` are the
    first index and the end of dimensions, by the function's parameters: data that index the tensor there are
    clamped to them.

    Raises ``ProgramError`` at the user's line for anything that is not a well-formed definition.

    >>> from tilewright import ir, lang
    >>> X = lang.placeholder((10,), name="X")
    >>> T = lang.stage(lambda i: X[i] + X[i + 1], name="T")
    >>> C = lang.stage(lambda i: T[i - 1] * T[i + 1], name="C")
    >>> print(ir.print_function(ir.to_function(lang.program([X], [C], region=[(2, 6)]))))
    function("main", outputs=[C])
    X = f32[10]
    C = f32[4]
    T = alloc(f32[6])
    for i in range(6):
        with block("T"):
            i = par(0, 6, i)
            T[i] = X[i + 1] + X[i + 2]
    for C_i in range(4):
        with block("C"):
            i = par(0, 4, C_i)
            C[i] = T[i] * T[i + 2]
    <BLANKLINE>
    """
    at = here()
    code = getattr(fn, "__code__", None)
    if code is None or inspect.ismethod(fn):
        raise problem(f"lang.stage of {type(fn).__name__}", "give a function of the indices: lambda y, x: …")
    names = parameter_names(fn, code.co_argcount)
    if code.co_flags & inspect.CO_VARARGS:
        last = code.co_argcount - len(fn.__defaults__ or ())
        names = tuple(code.co_varnames[:last])
    iterators = [inferred_axis(n) for n in names]
    rest = Rest(inferred_axis)
    value = fn(*iterators, rest) if code.co_flags & inspect.CO_VARARGS else fn(*iterators)
    many = isinstance(value, tuple)
    wanted = None if dtype is None else dtype_from(dtype)
    what = "the result of the function given to lang.stage"
    exprs = [to_expr(v, wanted, what) for v in (value if isinstance(value, tuple) else (value,))]
    made = define((*iterators, *rest.axes), exprs, tensor_names(name, len(exprs) if many else None), hint, at)
    limits = _limits(bounds or {}, names)
    for tensor in made:
        tensor.bounds = limits
    return made if many else made[0]


def _limits(bounds: Mapping[str, tuple[int, int]], names: Sequence[str]) -> dict[int, tuple[int, int]]:
    """The first and the last index of dimensions, by their number."""
    out: dict[int, tuple[int, int]] = {}
    for name, given in bounds.items():
        if name not in names:
            raise problem(
                f"bounds= names {name!r}, which is no index of the stage", f"one of {', '.join(names)}"
            )
        match given:
            case (int(lo), int(end)) if lo < end:
                out[names.index(name)] = lo, end - 1
            case _:
                raise problem(f"the bounds of {name!r} are {given!r}", "give the first index and the end")
    return out
