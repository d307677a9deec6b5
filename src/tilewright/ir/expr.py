"""Scalar expressions.

    Expr := Const | OfIndex(Index) | Load(buffer, Index*) | Unary | Binary | Compare
          | Select(cond, a, b) | Cast(e, dtype, mode) | Call(pure function, Expr*)

Buffers are named; their declaration (an argument of the function or an ``Alloc``) holds shape, scope and
layout. ``Select`` is lazy: only the chosen side is evaluated, so a load may hide behind its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.index import Index, Opaque as OpaqueAtom, atom_vars, index
from tilewright.ir.substitution import substitute_index

UNARY_OPS = ("neg", "abs", "not")
#: ``div`` is true division (floats); ``floordiv``/``mod`` round towards minus infinity, ``truncdiv``/``rem``
#: towards zero (integers). ``min``/``max`` propagate NaN. ``and or xor shl shr`` act on integers and bool.
BINARY_OPS = (
    "add", "sub", "mul", "div", "floordiv", "mod", "truncdiv", "rem", "min", "max",
    "and", "or", "xor", "shl", "shr",
)  # fmt: skip
COMPARE_OPS = ("lt", "le", "eq", "ne", "gt", "ge")
#: Pure functions of one float argument (``pow``, ``atan2``, ``copysign`` and ``ldexp`` take two, ``fma``
#: three). ``ldexp(x, n)`` is ``x * 2**floor(n)``, rounded once; of a NaN with an infinite ``n``
#: the machine's choice. ``exp_nonpositive`` is ``exp`` of what is known not to be positive, or NaN; of
#: positive numbers, and whether results below the least normal number are zero, the machine's choice.
CALLS = (
    "exp", "exp2", "log", "log2", "log1p", "expm1", "sqrt", "rsqrt", "tanh", "erf", "pow", "sin", "cos",
    "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh",
    "floor", "ceil", "round", "trunc", "copysign", "isnan", "isinf", "fma",
    "ldexp", "exp_nonpositive",
)  # fmt: skip
#: Functions that the lowering makes others of where the machine has them (``Target.functions``); the language
#: has none of them. ``exp2_fraction(x)`` is ``2**(x - floor(x))`` for ``x`` from 2**18 below 2**19, where an
#: f32 counts in steps of 1/32; elsewhere the machine's choice.
MACHINE_CALLS = ("exp2_fraction",)
#: How ``Cast`` treats values the target cannot hold: ``wrap`` (C-like; float to int truncates towards zero,
#: undefined when out of range), ``saturate`` (clamp to the range; NaN becomes 0), ``bits`` (reinterpret).
CAST_MODES = ("wrap", "saturate", "bits")


@dataclass(frozen=True, slots=True)
class _Node:
    """Cached facts shared by all expression nodes."""

    _vars: frozenset[str] | None = field(init=False, default=None, compare=False, repr=False)

    @property
    def vars(self) -> frozenset[str]:
        """Names of the variables that occur (loop variables or block iterators)."""
        if self._vars is None:
            object.__setattr__(self, "_vars", _free_vars(self))  # type: ignore[arg-type]  # subclasses: `Expr`
        assert self._vars is not None
        return self._vars

    def substitute(self, mapping: Mapping[str, Index]) -> Expr:
        """Replace variables by indices; returns ``self`` where nothing changes."""
        return substitute_expr(self, mapping)  # type: ignore[arg-type]  # subclasses are all in `Expr`


@dataclass(frozen=True, slots=True)
class Const(_Node):
    """A literal of type ``dtype``."""

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        # 0.0 and -0.0 differ, NaN equals itself
        return (
            isinstance(other, Const) and self.dtype == other.dtype and (repr(self.value) == repr(other.value))
        )

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype}({self.value!r})"


@dataclass(frozen=True, slots=True)
class OfIndex(_Node):
    """The value of an index expression as a scalar of type ``dtype``."""

    index: Index
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Load(_Node):
    """``buffer[indices]`` with logical indices, one per dimension of the buffer."""

    buffer: str
    indices: tuple[Index, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True, slots=True)
class Unary(_Node):
    """``op(a)`` with ``op`` of :data:`UNARY_OPS`, of the type of ``a``."""

    op: str
    a: Expr

    @property
    def dtype(self) -> DType:
        """The operand's type."""
        return self.a.dtype

    def __str__(self) -> str:
        return f"{self.op}({self.a})"


@dataclass(frozen=True, slots=True)
class Binary(_Node):
    """``op(a, b)`` with ``op`` of :data:`BINARY_OPS`; both operands have the result's type."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        """The operands' common type."""
        return self.a.dtype

    def __str__(self) -> str:
        symbol = {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(self.op)
        if symbol:
            return f"({self.a} {symbol} {self.b})"
        return f"{self.op}({self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class Compare(_Node):
    """A comparison of two operands of one type with ``op`` of :data:`COMPARE_OPS`; a ``bool``."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        """Always ``bool``."""
        return BOOL

    def __str__(self) -> str:
        return f"{self.op}({self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class Select(_Node):
    """``a`` where ``cond`` else ``b``; only the chosen side is evaluated."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        """The common type of both sides."""
        return self.a.dtype

    def __str__(self) -> str:
        return f"select({self.cond}, {self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class Cast(_Node):
    """``a`` converted to ``dtype``; see :data:`CAST_MODES`."""

    a: Expr
    dtype: DType
    mode: str = "wrap"

    def __str__(self) -> str:
        return f"cast({self.a}, {self.dtype}, {self.mode})"


@dataclass(frozen=True, slots=True)
class Call(_Node):
    """A pure function of :data:`CALLS`, of the first argument's type (``isnan``/``isinf``: ``bool``)."""

    fn: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        """The result type."""
        return BOOL if self.fn in ("isnan", "isinf") else self.args[0].dtype

    def __str__(self) -> str:
        return f"{self.fn}({', '.join(map(str, self.args))})"


Expr: TypeAlias = Const | OfIndex | Load | Unary | Binary | Compare | Select | Cast | Call


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct scalar operands (not the expressions inside opaque indices)."""
    match e:
        case Const() | OfIndex() | Load():
            return ()
        case Unary() | Cast():
            return (e.a,)
        case Binary() | Compare():
            return (e.a, e.b)
        case Select():
            return (e.cond, e.a, e.b)
        case Call():
            return e.args


def with_children(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """The node with other operands; ``e`` itself where they are identical objects."""
    if all(a is b for a, b in zip(children(e), new, strict=True)):
        return e
    match e:
        case Const() | OfIndex() | Load():
            return e
        case Unary():
            return Unary(e.op, new[0])
        case Cast():
            return Cast(new[0], e.dtype, e.mode)
        case Binary():
            return Binary(e.op, new[0], new[1])
        case Compare():
            return Compare(e.op, new[0], new[1])
        case Select():
            return Select(new[0], new[1], new[2])
        case Call():
            return Call(e.fn, new)


def map_expr(e: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """Rebuild bottom-up: ``fn`` sees every node after its operands. Indices of loads are left alone.

    An object that occurs in several places is rebuilt once and stays shared.
    """
    return _map_shared(e, fn, {})


def _map_shared(e: Expr, fn: Callable[[Expr], Expr], done: dict[int, Expr]) -> Expr:
    kids = children(e)
    if not kids:
        return fn(e)
    new = done.get(id(e))
    if new is None:
        new = fn(with_children(e, tuple([_map_shared(k, fn, done) for k in kids])))
        done[id(e)] = new
    return new


def indices_of(e: Expr) -> tuple[Index, ...]:
    """The indices written directly in a node."""
    match e:
        case OfIndex():
            return (e.index,)
        case Load():
            return e.indices
        case _:
            return ()


def map_indices(e: Expr, fn: Callable[[Index], Index]) -> Expr:
    """Apply ``fn`` to every index of the tree, keeping identity where nothing changes."""

    def visit(node: Expr) -> Expr:
        match node:
            case OfIndex():
                new = fn(node.index)
                return node if new is node.index else OfIndex(new, node.dtype)
            case Load():
                news = tuple(fn(i) for i in node.indices)
                if all(n is o for n, o in zip(news, node.indices, strict=True)):
                    return node
                return Load(node.buffer, news, node.dtype)
            case _:
                return node

    return map_expr(e, visit)


def substitute_expr(e: Expr, mapping: Mapping[str, Index]) -> Expr:
    """Replace variables by indices everywhere, inside opaque indices too."""
    if e.vars.isdisjoint(mapping):
        return e
    return map_indices(e, lambda i: substitute_index(i, mapping))


def walk(e: Expr) -> Iterator[Expr]:
    """All nodes, parents first; expressions inside opaque indices included.

    What lies below an object is visited once, in however many places the object occurs: expanded functions
    share their parts, and as trees they would grow exponentially.
    """
    seen: set[int] = set()
    todo = [e]
    while todo:
        node = todo.pop()
        yield node
        for i in indices_of(node):
            yield from walk_index(i)
        kids = children(node)
        if kids and id(node) not in seen:
            seen.add(id(node))
            todo.extend(reversed(kids))


def walk_index(i: Index) -> Iterator[Expr]:
    """All scalar expressions inside opaque atoms of an index."""
    for atom, _ in i.terms:
        match atom:
            case OpaqueAtom(expr=inner):
                yield from walk(inner)
            case _:
                for sub in getattr(atom, "args", ()) or ((atom.arg,) if hasattr(atom, "arg") else ()):
                    yield from walk_index(sub)


def loads(e: Expr) -> Iterator[Load]:
    """All loads of the tree, those inside opaque indices included."""
    for node in walk(e):
        if isinstance(node, Load):
            yield node


def _free_vars(e: Expr) -> frozenset[str]:
    out: set[str] = set()
    for i in indices_of(e):
        for atom, _ in i.terms:
            out |= atom_vars(atom)
    for k in children(e):
        out |= k.vars
    return frozenset(out)


def load(buffer: str, indices: tuple[Index | int, ...], dtype: DType) -> Load:
    """A load with plain integers accepted as indices."""
    return Load(buffer, tuple(index(i) for i in indices), dtype)
