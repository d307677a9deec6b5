"""What expressions are made of: index values, axes and scalars, with their operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, Literal, SupportsIndex, TypeAlias, TypeGuard, overload

import numpy as np

from tilewright import ir
from tilewright.ir import DType, Expr, Index
from tilewright.lang.source import Place, problem
from tilewright.support import ProgramError


class IndexExpr:
    """A quasi-affine integer: an axis, a symbolic size, or a sum of multiples, quotients and remainders.

    Comparing two index values gives a :class:`Scalar` condition. With a scalar it converts to its type,
    with a Python float to f32.
    """

    __slots__ = ("index",)

    index: Index

    def __init__(self, index: Index) -> None:
        self.index = index

    def _combine(self, other: object, sign: int, swap: bool = False) -> Any:
        o = as_index(other)
        if o is None:
            if _is_float(other):
                return self._number()._arith("add" if sign > 0 else "sub", other, swap)
            return NotImplemented
        a, b = (o, self.index) if swap else (self.index, o)
        return IndexExpr(a + b if sign > 0 else a - b)

    def _number(self) -> Scalar:
        """The index as an f32 number: what it is beside a Python float."""
        return Scalar(ir.OfIndex(self.index, ir.F32))

    @overload
    def __add__(self, other: IndexLike) -> IndexExpr: ...
    @overload
    def __add__(self, other: Scalar) -> Scalar: ...
    def __add__(self, other: object) -> Any:
        return self._combine(other, 1)

    __radd__ = __add__

    @overload
    def __sub__(self, other: IndexLike) -> IndexExpr: ...
    @overload
    def __sub__(self, other: Scalar) -> Scalar: ...
    def __sub__(self, other: object) -> Any:
        return self._combine(other, -1)

    def __rsub__(self, other: IndexLike) -> IndexExpr:
        result: IndexExpr = self._combine(other, -1, swap=True)
        return result

    def __neg__(self) -> IndexExpr:
        return IndexExpr(-self.index)

    @overload
    def __mul__(self, other: IndexLike) -> IndexExpr: ...
    @overload
    def __mul__(self, other: Scalar) -> Scalar: ...
    def __mul__(self, other: object) -> Any:
        o = as_index(other)
        if o is None:
            return self._number() * other if _is_float(other) else NotImplemented
        if self.index.terms and o.terms:
            raise problem(
                f"the index product ({show_index(self.index)}) * ({show_index(o)}) is not affine",
                "multiply an index only by a constant integer; lang.to_scalar(i, dtype) makes a number of it",
            )
        return IndexExpr(self.index * o)

    __rmul__ = __mul__

    def _divisor(self, other: object, sign: str) -> int | None:
        o = as_index(other)
        if o is None:
            if _is_float(other):
                raise problem(
                    f"the index ({show_index(self.index)}) {sign} {other!r}",
                    "divide an index by an integer, or make a number of it: lang.to_scalar(i, 'f32')",
                )
            return None
        if not o.is_const or o.as_int() <= 0:
            raise problem(
                f"the index ({show_index(self.index)}) {sign} ({show_index(o)}) is not quasi-affine",
                "divide an index only by a positive constant integer",
            )
        return o.as_int()

    @overload
    def __floordiv__(self, other: IndexLike) -> IndexExpr: ...
    @overload
    def __floordiv__(self, other: Scalar) -> Scalar: ...
    def __floordiv__(self, other: object) -> Any:
        d = self._divisor(other, "//")
        return NotImplemented if d is None else IndexExpr(ir.floordiv(self.index, d))

    @overload
    def __mod__(self, other: IndexLike) -> IndexExpr: ...
    @overload
    def __mod__(self, other: Scalar) -> Scalar: ...
    def __mod__(self, other: object) -> Any:
        d = self._divisor(other, "%")
        return NotImplemented if d is None else IndexExpr(ir.mod(self.index, d))

    def __truediv__(self, other: object) -> Any:
        return self._divide(other, False)

    def __rtruediv__(self, other: object) -> Any:
        return self._divide(other, True)

    def _divide(self, other: object, swap: bool) -> Any:
        if isinstance(other, Scalar):
            return NotImplemented
        if _is_float(other):
            return self._number()._arith("div", other, swap)
        raise problem(
            f"true division of the index {show_index(self.index)}",
            "use // for an index, or divide by a float for a number: i / 2.0",
        )

    def _compare(self, op: str, other: object) -> Any:
        o = as_index(other)
        if o is None:
            return NotImplemented
        return Scalar(ir.Compare(op, ir.OfIndex(self.index, ir.I64), ir.OfIndex(o, ir.I64)))

    def __lt__(self, other: ValueLike) -> Scalar:
        result: Scalar = self._compare("lt", other)
        return result

    def __le__(self, other: ValueLike) -> Scalar:
        result: Scalar = self._compare("le", other)
        return result

    def __gt__(self, other: ValueLike) -> Scalar:
        result: Scalar = self._compare("gt", other)
        return result

    def __ge__(self, other: ValueLike) -> Scalar:
        result: Scalar = self._compare("ge", other)
        return result

    def __eq__(self, other: object) -> Scalar:  # type: ignore[override]  # builds a condition
        result: Scalar = self._compare("eq", other)
        return result

    def __ne__(self, other: object) -> Scalar:  # type: ignore[override]  # builds a condition
        result: Scalar = self._compare("ne", other)
        return result

    def __hash__(self) -> int:
        return hash(self.index)

    def __bool__(self) -> bool:
        if self.index.is_const:
            return self.index.as_int() != 0
        raise problem(
            f"the index {show_index(self.index)} has no truth value while the program is built", _NO_IF
        )

    def __index__(self) -> int:
        if self.index.is_const:
            return self.index.as_int()
        raise TypeError(f"the index {show_index(self.index)} is not a constant")

    def __repr__(self) -> str:
        return f"IndexExpr({show_index(self.index)})"


class AxisName(str):
    """The unique name of an axis inside expressions; carries the axis."""

    __slots__ = ("axis",)

    axis: Axis


class BoundName(str):
    """The unknown first index, or the unknown end, of a dimension of a stage whose region is inferred."""

    __slots__ = ()


class Axis(IndexExpr):
    """An iterator over ``[lo, hi)``: parallel (``par``), of a reduction (``red``) or ordered (``ord``)."""

    __slots__ = ("hi", "kind", "lo", "name")

    def __init__(self, lo: Index, hi: Index, name: str, kind: Literal["par", "red", "ord"] = "par") -> None:
        key = AxisName(f"{name}@{id(self):x}")
        key.axis = self
        super().__init__(ir.var(key))
        self.lo, self.hi, self.name, self.kind = lo, hi, name, kind

    @property
    def key(self) -> AxisName:
        """The unique name that expressions use."""
        atom = self.index.terms[0][0]
        assert isinstance(atom, ir.Var)
        assert isinstance(atom.name, AxisName)
        return atom.name

    @property
    def inferred(self) -> bool:
        """Whether the range is inferred from the readers of a stage, by ``lang.program``."""
        return any(isinstance(v, BoundName) for v in self.lo.vars)

    @property
    def origin(self) -> Index:
        """Where a dimension over this axis begins: its start where that is inferred, else 0."""
        return self.lo if self.inferred else ir.ZERO

    @property
    def extent(self) -> IndexExpr:
        """Number of values: ``hi - lo``."""
        return IndexExpr(self.hi - self.lo)

    def __repr__(self) -> str:
        return f"Axis({self.name}, {show_index(self.lo)}, {show_index(self.hi)}, {self.kind})"


class Rest:
    """All further indices of a stage: as many as the tensors have that are indexed by it."""

    __slots__ = ("_make", "axes")

    def __init__(self, make: Callable[[str], Axis]) -> None:
        self.axes: list[Axis] = []
        self._make = make

    def indices(self, count: int) -> tuple[Axis, ...]:
        """The first ``count`` of them."""
        while len(self.axes) < count:
            self.axes.append(self._make(f"c{len(self.axes)}" if self.axes else "c"))
        return tuple(self.axes[: max(0, count)])


def no_arithmetic(dtype: DType) -> ProgramError:
    """The error for values of a small type that are computed with."""
    wide = "f32" if dtype.is_float else "i32"
    return problem(f"arithmetic on values of type {dtype}", f"convert them: lang.cast(x, '{wide}')")


class Scalar:
    """A scalar expression of a fixed element type; operators need operands of the same type.

    Python literals adopt the type of the other operand; index values convert to it. ``& | ~`` act on
    conditions (``bool``) and on the bits of integers.
    """

    __slots__ = ("expr",)

    expr: Expr

    def __init__(self, expr: Expr) -> None:
        if isinstance(expr, ir.Unary | ir.Binary | ir.Call):
            operands = ir.children(expr)[0].dtype
            if operands.small:
                raise no_arithmetic(operands)
        self.expr = expr

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.expr.dtype

    def _arith(self, op: str, other: object, swap: bool = False) -> Scalar:
        o = operand(other, self.expr.dtype, _SIGNS[op])
        if o is None:
            return NotImplemented  # type: ignore[no-any-return]  # Python asks the other side then
        t = self.expr.dtype
        if t.kind == "bool":
            raise problem(f"`{_SIGNS[op]}` on values of type bool", "use & | ~, or lang.cast(x, 'i32')")
        a, b = (o, self.expr) if swap else (self.expr, o)
        return Scalar(ir.Binary(op, a, b))

    def __add__(self, other: ValueLike) -> Scalar:
        return self._arith("add", other)

    def __radd__(self, other: ValueLike) -> Scalar:
        return self._arith("add", other, True)

    def __sub__(self, other: ValueLike) -> Scalar:
        return self._arith("sub", other)

    def __rsub__(self, other: ValueLike) -> Scalar:
        return self._arith("sub", other, True)

    def __mul__(self, other: ValueLike) -> Scalar:
        return self._arith("mul", other)

    def __rmul__(self, other: ValueLike) -> Scalar:
        return self._arith("mul", other, True)

    def _div(self, other: object, swap: bool) -> Scalar:
        if not self.dtype.is_float:
            raise problem(
                f"true division of values of type {self.dtype}",
                "use // (towards minus infinity) or lang.truncdiv, or cast to a float type",
            )
        return self._arith("div", other, swap)

    def __truediv__(self, other: ValueLike) -> Scalar:
        return self._div(other, False)

    def __rtruediv__(self, other: ValueLike) -> Scalar:
        return self._div(other, True)

    def _floordiv(self, other: object, swap: bool) -> Scalar:
        if self.dtype.is_float:
            return Scalar(ir.Call("floor", (self._arith("div", other, swap).expr,)))
        return self._arith("floordiv", other, swap)

    def __floordiv__(self, other: ValueLike) -> Scalar:
        return self._floordiv(other, False)

    def __rfloordiv__(self, other: ValueLike) -> Scalar:
        return self._floordiv(other, True)

    def _mod(self, other: object, swap: bool) -> Scalar:
        if self.dtype.is_float:
            raise problem("% on values of a float type", "write x - lang.floor(x / y) * y")
        return self._arith("mod", other, swap)

    def __mod__(self, other: ValueLike) -> Scalar:
        return self._mod(other, False)

    def __rmod__(self, other: ValueLike) -> Scalar:
        return self._mod(other, True)

    def __pow__(self, other: ValueLike) -> Scalar:
        if isinstance(other, int) and 2 <= other <= _MOST_FACTORS and self.dtype.kind != "bool":
            return reduce(Scalar.__mul__, [self] * other)
        if not self.dtype.is_float:
            raise problem(
                f"`**` with {other!r} on a value of type {self.dtype}", "multiply, or cast to a float type"
            )
        o = operand(other, self.dtype, "**")
        return NotImplemented if o is None else Scalar(ir.Call("pow", (self.expr, o)))

    def __rpow__(self, other: ValueLike) -> Scalar:
        o = operand(other, self.dtype, "**") if self.dtype.is_float else None
        return NotImplemented if o is None else Scalar(ir.Call("pow", (o, self.expr)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
        """Numpy's numbers on the left of an operator; functions of numpy are refused."""
        made = _UFUNCS.get(ufunc.__name__)
        if made is None or method != "__call__" or options or any(np.ndim(x) for x in inputs):  # type: ignore[arg-type]
            raise problem(
                f"numpy.{ufunc.__name__} works on arrays, not on numbers of a program",
                "tilewright.lang has functions of them: lang.exp(x), lang.maximum(a, b)",
            )
        return made(*(x.item() if isinstance(x, np.generic | np.ndarray) else x for x in inputs))

    def __float__(self) -> float:
        raise problem("a scalar has no value while the program is built", "lang.cast(x, 'f32') converts it")

    def __int__(self) -> int:
        raise problem("a scalar has no value while the program is built", "lang.cast(x, 'i32') converts it")

    def __round__(self, digits: object = None) -> Scalar:
        raise problem("round() of a number of a program", "use lang.round(x)")

    def __neg__(self) -> Scalar:
        if self.dtype.kind == "bool":
            raise problem("`-` on a value of type bool", "use ~ for the negation of a condition")
        return Scalar(ir.Unary("neg", self.expr))

    def __abs__(self) -> Scalar:
        return Scalar(ir.Unary("abs", self.expr))

    def _bits(self, op: str, other: object, swap: bool = False) -> Scalar:
        if self.dtype.is_float:
            raise problem(
                f"`{_SIGNS[op]}` on values of type {self.dtype}", "bit operations need integers or conditions"
            )
        o = operand(other, self.dtype, _SIGNS[op])
        if o is None:
            return NotImplemented  # type: ignore[no-any-return]  # Python asks the other side then
        if op in ("shl", "shr") and self.dtype.kind == "bool":
            raise problem(f"`{_SIGNS[op]}` on values of type bool", "cast to an integer type first")
        a, b = (o, self.expr) if swap else (self.expr, o)
        return Scalar(ir.Binary(op, a, b))

    def __and__(self, other: ValueLike) -> Scalar:
        return self._bits("and", other)

    def __rand__(self, other: ValueLike) -> Scalar:
        return self._bits("and", other, True)

    def __or__(self, other: ValueLike) -> Scalar:
        return self._bits("or", other)

    def __ror__(self, other: ValueLike) -> Scalar:
        return self._bits("or", other, True)

    def __xor__(self, other: ValueLike) -> Scalar:
        return self._bits("xor", other)

    def __rxor__(self, other: ValueLike) -> Scalar:
        return self._bits("xor", other, True)

    def __lshift__(self, other: ValueLike) -> Scalar:
        return self._bits("shl", other)

    def __rshift__(self, other: ValueLike) -> Scalar:
        return self._bits("shr", other)

    def __invert__(self) -> Scalar:
        if self.dtype.is_float:
            raise problem(
                f"`~` on a value of type {self.dtype}", "it negates a condition or the bits of an integer"
            )
        if self.dtype.kind == "bool":
            return Scalar(ir.Unary("not", self.expr))
        ones = -1 if self.dtype.kind == "int" else int(self.dtype.max_value)
        return Scalar(ir.Binary("xor", self.expr, ir.Const(ones, self.dtype)))

    def _compare(self, op: str, other: object) -> Scalar:
        o = operand(other, self.dtype, _SIGNS[op])
        return NotImplemented if o is None else Scalar(ir.Compare(op, self.expr, o))

    def __lt__(self, other: ValueLike) -> Scalar:
        return self._compare("lt", other)

    def __le__(self, other: ValueLike) -> Scalar:
        return self._compare("le", other)

    def __gt__(self, other: ValueLike) -> Scalar:
        return self._compare("gt", other)

    def __ge__(self, other: ValueLike) -> Scalar:
        return self._compare("ge", other)

    def __eq__(self, other: object) -> Scalar:  # type: ignore[override]  # builds a condition
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Scalar:  # type: ignore[override]  # builds a condition
        return self._compare("ne", other)

    def __hash__(self) -> int:
        return hash(self.expr)

    def __bool__(self) -> bool:
        raise problem("a scalar has no truth value while the program is built", _NO_IF)

    def __repr__(self) -> str:
        return f"Scalar({self.dtype}, {self.expr})"


class ScalarParam(Scalar):
    """A scalar parameter of the program, read from a 0-d input buffer."""

    __slots__ = ()


class Clamped(Scalar):
    """An integer scalar known to lie in ``[lo, hi]``: it can index a tensor."""

    __slots__ = ("index",)

    def __init__(self, expr: Expr, index: Index) -> None:
        super().__init__(expr)
        self.index = index


IndexLike: TypeAlias = IndexExpr | ir.Index | ir.Param | SupportsIndex
ValueLike: TypeAlias = Scalar | IndexExpr | float | int | bool | np.generic

#: Operators that numpy's numbers on the left hand over.
_UFUNCS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "power": operator.pow,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "left_shift": operator.lshift, "right_shift": operator.rshift,
}  # fmt: skip
#: Integer powers up to this are products.
_MOST_FACTORS: Final = 4

_NO_IF = "use lang.select(condition, a, b) and & | ~ in place of `if`, `and`, `or`, `not`"

_SIGNS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def as_index(value: object) -> Index | None:
    """The index of an index value, a symbolic size or a Python integer; ``None`` for anything else."""
    if isinstance(value, IndexExpr):
        return value.index
    if isinstance(value, Index):
        return value
    if isinstance(value, ir.Size):
        return value.index
    if isinstance(value, ir.Param):
        return ir.index(value)
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return Index(operator.index(value))
    return None


def _is_float(value: object) -> TypeGuard[float]:
    return isinstance(value, float | np.floating)


def show_index(x: Index) -> str:
    """An index with its axes' own names."""
    names: dict[str, Index] = {v: ir.var(v.axis.name) for v in x.vars if isinstance(v, AxisName)}
    return str(ir.substitute_index(x, names))


def literal(value: object, dtype: DType, at: Place | None = None) -> Expr | None:
    """A Python or numpy literal as a constant of ``dtype``; ``None`` where ``value`` is no literal.

    Raises ProgramError for one that ``dtype`` cannot hold, or that is of another kind.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, ir.Size):
        return ir.OfIndex(value.index, dtype)
    if isinstance(value, bool):
        if dtype.kind != "bool":
            raise problem(f"the literal {value} among values of type {dtype}", "write a number, or cast", at)
        return ir.Const(value, dtype)
    if isinstance(value, int):
        if dtype.is_float:
            return ir.Const(float(value), dtype)
        if dtype.kind == "bool":
            raise problem(f"the number {value} among values of type bool", "write True or False", at)
        if not dtype.min_value <= value <= dtype.max_value:
            raise problem(f"the literal {value} does not fit in {dtype}", "cast to a wider type first", at)
        return ir.Const(value, dtype)
    if isinstance(value, float):
        if not dtype.is_float:
            hint = "cast to a float type, or write an integer"
            raise problem(f"the literal {value!r} among values of type {dtype}", hint, at)
        return ir.Const(value, dtype)
    return None


def operand(value: object, dtype: DType, what: str) -> Expr | None:
    """``value`` as an operand beside one of type ``dtype``; ``None`` where it is nothing of the language.

    Raises ProgramError where the types do not agree.
    """
    if isinstance(value, Scalar):
        if value.dtype != dtype:
            raise problem(
                f"`{what}` mixes {dtype} and {value.dtype}",
                f"convert one side, e.g. lang.cast(x, '{dtype}')",
            )
        return value.expr
    if isinstance(value, IndexExpr):
        if dtype.kind == "bool":
            raise problem(f"`{what}` mixes a condition and an index", "compare the index with something")
        return ir.OfIndex(value.index, dtype)
    return literal(value, dtype)
