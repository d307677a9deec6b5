"""Verification of indices, predicates and scalar expressions: names in scope, element types that agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, DTYPES, DType
from tilewright.ir.expr import (
    CALLS,
    CAST_MODES,
    COMPARE_OPS,
    MACHINE_CALLS,
    UNARY_OPS,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    OfIndex,
    Select,
    Unary,
    children,
)
from tilewright.ir.index import FloorDiv, Index, MinMax, Mod, Opaque, Param, Var
from tilewright.ir.scalar_ops import CALL_ARITY
from tilewright.ir.stmt import Pred
from tilewright.support import VerificationError, quoted

_FLOAT_OPS = frozenset(
    ("add", "sub", "mul", "div", "min", "max", "floordiv", "mod", "truncdiv", "rem"),
)
_INT_OPS = frozenset(
    (
        "add",
        "sub",
        "mul",
        "floordiv",
        "mod",
        "truncdiv",
        "rem",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "shl",
        "shr",
    )
)
_BOOL_OPS = frozenset(("and", "or", "xor", "min", "max"))


@dataclass(frozen=True, slots=True)
class Names:
    """What may be mentioned at one point: parameters, variables, buffers; ``where`` describes the point."""

    params: Mapping[str, Param]
    vars: frozenset[str] = frozenset()
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    where: str = ""

    def at(self, where: str) -> Names:
        """The same names at another point."""
        return Names(self.params, self.vars, self.buffers, where)

    def with_vars(self, names: Iterable[str]) -> Names:
        """More variables."""
        return Names(self.params, self.vars | frozenset(names), self.buffers, self.where)

    def only_vars(self, names: Iterable[str]) -> Names:
        """Other variables instead: the closed scope of a block."""
        return Names(self.params, frozenset(names), self.buffers, self.where)

    def with_buffer(self, b: Buffer) -> Names:
        """One more buffer."""
        return Names(self.params, self.vars, {**self.buffers, b.name: b}, self.where)

    def fail(self, what: str) -> NoReturn:
        """Report a broken invariant at this point."""
        raise VerificationError(what, where=self.where or None)

    def buffer(self, name: str) -> Buffer:
        """The buffer called ``name``."""
        if name not in self.buffers:
            self.fail(f"buffer {quoted(name)} is not in scope")
        return self.buffers[name]


def check_index(x: Index, names: Names, role: str = "index") -> None:
    """All variables and parameters are in scope; divisors are positive; data-dependent parts are integers."""
    for atom, c in x.terms:
        if c == 0:
            names.fail(f"{role} {x} has a term with coefficient 0: it is not canonical")
        match atom:
            case Var(name):
                if name not in names.vars:
                    names.fail(f"{role} {x} mentions the variable {quoted(name)}, which is not in scope")
            case Param():
                if names.params.get(atom.name) != atom:
                    names.fail(
                        f"{role} {x} mentions the parameter {quoted(atom.name)}, which is not declared so"
                    )
            case FloorDiv() | Mod():
                if atom.divisor <= 1:
                    names.fail(f"{role} {x} divides by {atom.divisor}")
                check_index(atom.arg, names, role)
            case MinMax():
                if len(atom.args) < 2:
                    names.fail(f"{role} {x} has a {atom.op} of fewer than two")
                for a in atom.args:
                    check_index(a, names, role)
            case Opaque(expr):
                check_expr(expr, names)
                if not expr.dtype.is_integer:
                    names.fail(f"{role} {x} depends on data of type {expr.dtype}, which is no integer")


def check_pred(p: Pred, names: Names) -> None:
    """Every conjunct is over names in scope, and opaque ones are ``bool``."""
    for c in p:
        if c.op == "opaque":
            if c.expr is None or c.index is not None:
                names.fail(f"condition {c} is opaque but has no expression, or an index as well")
            check_expr(c.expr, names)
            if c.expr.dtype != BOOL:
                names.fail(f"condition {c} has the type {c.expr.dtype}, not bool")
        else:
            if c.index is None or c.expr is not None or c.op not in ("ge", "eq"):
                names.fail(f"condition {c} of kind {c.op} has no index, or an expression as well")
            check_index(c.index, names, "condition")


def check_access(buffer: str, indices: tuple[Index, ...], names: Names, verb: str) -> Buffer:
    """The buffer is in scope and has as many dimensions as there are indices; the buffer."""
    b = names.buffer(buffer)
    if len(indices) != len(b.shape):
        names.fail(f"{verb} {quoted(buffer)} with {len(indices)} indices; it has {len(b.shape)} dimensions")
    for i in indices:
        check_index(i, names, f"index of {buffer}:")
    return b


def check_expr(e: Expr, names: Names) -> None:
    """Operators, types and names of an expression; parts that it shares are checked once."""
    seen: set[int] = set()
    todo = [e]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            todo.extend(reversed(children(node)))
            _check_node(node, names)


def _check_node(e: Expr, names: Names) -> None:
    if isinstance(e, Unary | Binary | Call) and e.dtype.small:
        names.fail(f"arithmetic on {e.dtype} in {e}")
    match e:
        case Const():
            _check_const(e, names)
        case OfIndex():
            _check_dtype(e.dtype, names)
            check_index(e.index, names)
        case Load():
            b = check_access(e.buffer, e.indices, names, "load from")
            if b.dtype != e.dtype:
                names.fail(f"load {e} of type {e.dtype} from a buffer of type {b.dtype}")
        case Unary():
            if (
                e.op not in UNARY_OPS
                or (e.op == "not" and e.a.dtype.is_float)
                or (e.op != "not" and e.a.dtype == BOOL)
            ):
                names.fail(f"unary operation {e.op} on {e.a.dtype} in {e}")
        case Binary():
            dtype = e.a.dtype
            if dtype != e.b.dtype:
                names.fail(f"operands of {e.op} have types {dtype} and {e.b.dtype} in {e}")
            allowed = _FLOAT_OPS if dtype.is_float else _BOOL_OPS if dtype == BOOL else _INT_OPS
            if e.op not in allowed:
                names.fail(f"binary operation {e.op} on {dtype} in {e}")
        case Compare():
            if e.op not in COMPARE_OPS:
                names.fail(f"unknown comparison {quoted(e.op)}")
            if e.a.dtype != e.b.dtype:
                names.fail(f"comparison of {e.a.dtype} with {e.b.dtype} in {e}")
        case Select():
            if e.cond.dtype != BOOL:
                names.fail(f"select on a condition of type {e.cond.dtype} in {e}")
            if e.a.dtype != e.b.dtype:
                names.fail(f"select between {e.a.dtype} and {e.b.dtype} in {e}")
        case Cast():
            _check_dtype(e.dtype, names)
            if e.mode not in CAST_MODES:
                names.fail(f"unknown cast mode {quoted(e.mode)}")
            if e.mode == "bits" and e.a.dtype.bits != e.dtype.bits:
                names.fail(f"the bits of a {e.a.dtype} do not fit a {e.dtype} in {e}")
        case Call():
            if e.fn not in CALLS and e.fn not in MACHINE_CALLS:
                names.fail(f"unknown function {quoted(e.fn)}")
            if len(e.args) != CALL_ARITY.get(e.fn, 1):
                names.fail(f"{e.fn} with {len(e.args)} arguments")
            if not e.args[0].dtype.is_float or any(a.dtype != e.args[0].dtype for a in e.args):
                names.fail(
                    f"{e.fn} of {', '.join(str(a.dtype) for a in e.args)}; it takes floats of one type"
                )


def _check_dtype(dtype: DType, names: Names) -> None:
    if DTYPES.get(dtype.name) != dtype:
        names.fail(f"{dtype!r} is no element type")


def _check_const(e: Const, names: Names) -> None:
    _check_dtype(e.dtype, names)
    if e.dtype == BOOL:
        if type(e.value) is not bool:
            names.fail(f"the bool literal {e} is no Python bool")
    elif type(e.value) not in ((int, float) if e.dtype.is_float else (int,)):
        names.fail(f"the literal {e} holds a {type(e.value).__name__}")
    elif not e.dtype.is_float and not e.dtype.min_value <= e.value <= e.dtype.max_value:
        names.fail(f"the literal {e} is out of range")
