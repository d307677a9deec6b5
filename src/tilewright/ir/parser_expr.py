"""Reads indices, predicates and scalar expressions from Python syntax trees: half of the parser."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tilewright.ir.dtypes import DTYPES, DType
from tilewright.ir.expr import (
    CALLS,
    CAST_MODES,
    MACHINE_CALLS,
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
)
from tilewright.ir.index import Index, Opaque, Param, floordiv, imax, imin, index, mod, var
from tilewright.ir.printer import SYMBOLS
from tilewright.ir.scalar_ops import CALL_ARITY
from tilewright.ir.stmt import Condition, Pred
from tilewright.support import ParseError, quoted, suggestion

_BINARY: Mapping[type[ast.operator], str] = MappingProxyType({
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
})  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = MappingProxyType({
    ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">=",
})  # fmt: skip
_OPS = MappingProxyType({symbol: op for op, (symbol, _) in SYMBOLS.items()})
_BINARY_CALLS = ("min", "max", "truncdiv", "rem")
_EXPR_CALLS = ("select", "cast", "load", "abs", *_BINARY_CALLS, *CALLS, *MACHINE_CALLS, *DTYPES)


def failure(node: ast.AST, what: str, hint: str | None = None) -> ParseError:
    """The error that names the line and column of a node."""
    place = f"line {getattr(node, 'lineno', 1)}, column {getattr(node, 'col_offset', 0) + 1}"
    return ParseError(what, where=place, hint=hint)


def called(node: ast.AST) -> str | None:
    """The name of the function that a call calls, or ``None`` where it is no such call."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def arguments(
    node: ast.Call, least: int, most: int | None = None, keywords: Sequence[str] = ()
) -> list[ast.expr]:
    """The positional arguments, whose number and whose company of keywords are checked."""
    most = least if most is None else most
    name = called(node)
    if not least <= len(node.args) <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        raise failure(node, f"{name} takes {expected} arguments, not {len(node.args)}")
    for k in node.keywords:
        if k.arg not in keywords:
            raise failure(node, f"{name} has no keyword {k.arg}", suggestion(k.arg or "", keywords) or None)
    return node.args


ANY = 1 << 30  # as many arguments as there are


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument, or ``None``."""
    found = [k.value for k in node.keywords if k.arg == name]
    return found[0] if found else None


def integer(node: ast.expr) -> int:
    """The integer that a node denotes."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -integer(node.operand)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise failure(node, "expected an integer")


def string_of(node: ast.expr) -> str:
    """The string that a node denotes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise failure(node, "expected a string")


def items(node: ast.expr) -> list[ast.expr]:
    """The elements of a list."""
    if isinstance(node, ast.List):
        return node.elts
    raise failure(node, "expected a list")


def name_or_none(node: ast.AST) -> str | None:
    """A name, plain or quoted as ``_["name"]``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "_":
        return string_of(node.slice)
    return None


def name_of(node: ast.expr) -> str:
    """A name, plain or quoted; ParseError for anything else."""
    found = name_or_none(node)
    if found is None:
        raise failure(node, "expected a name")
    return found


class ExprParser:
    """Knows the parameters and buffers in scope; reads what mentions them."""

    def __init__(self) -> None:
        self.params: dict[str, Param] = {}
        self.buffers: dict[str, DType] = {}
        self.lets: dict[str, Expr] = {}

    # ---- indices and predicates ----

    def index(self, node: ast.expr) -> Index:
        """An index."""
        match node:
            case ast.Constant():
                return Index(integer(node))
            case ast.UnaryOp(op=ast.USub()):
                return -self.index(node.operand)
            case ast.BinOp():
                return self._index_binary(node)
            case ast.Call():
                return self._index_call(node)
        name = name_or_none(node)
        if name is None:
            raise failure(
                node, "expected an index: a sum of integers times variables, //, %, min, max, int(...)"
            )
        return index(self.params[name]) if name in self.params else var(name)

    def _index_binary(self, node: ast.BinOp) -> Index:
        left = self.index(node.left)
        match node.op:
            case ast.Add():
                return left + self.index(node.right)
            case ast.Sub():
                return left - self.index(node.right)
            case ast.Mult():
                right = self.index(node.right)
                if left.terms and right.terms:
                    raise failure(node, "a product in an index needs a constant factor")
                return left * right
            case ast.FloorDiv() | ast.Mod():
                divisor = integer(node.right)
                if divisor <= 0:
                    raise failure(node.right, "the divisor of an index must be positive")
                return floordiv(left, divisor) if isinstance(node.op, ast.FloorDiv) else mod(left, divisor)
            case _:
                raise failure(node, "an index has only +, -, *, // and %")

    def _index_call(self, node: ast.Call) -> Index:
        match called(node):
            case "min":
                return imin(*map(self.index, arguments(node, 1, ANY)))
            case "max":
                return imax(*map(self.index, arguments(node, 1, ANY)))
            case "int":
                return index(Opaque(self.expr(arguments(node, 1)[0])))
            case "var":
                return var(string_of(arguments(node, 1)[0]))
            case "param":
                of, *bounds = arguments(node, 3, 3, ("multiple_of",))
                return index(self.param(node, string_of(of), bounds))
            case _:
                raise failure(node, "expected min, max or int in an index")

    def param(self, node: ast.Call, name: str, bounds: list[ast.expr]) -> Param:
        """A parameter with its bounds and the keyword of its call."""
        multiple = keyword(node, "multiple_of")
        lo, hi = map(integer, bounds)
        return Param(name, lo, hi, 1 if multiple is None else integer(multiple))

    def indices(self, node: ast.expr) -> tuple[Index, ...]:
        """The indices of a subscript."""
        return tuple(map(self.index, node.elts if isinstance(node, ast.Tuple) else [node]))

    def condition(self, node: ast.expr) -> Condition:
        """One conjunct; any comparison of indices, brought to the form ``>= 0`` or ``== 0``."""
        if called(node) == "holds":
            assert isinstance(node, ast.Call)
            return Condition("opaque", None, self.expr(arguments(node, 1)[0]))
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            raise failure(node, "expected a condition: a comparison of two indices, or holds(...)")
        a, b = self.index(node.left), self.index(node.comparators[0])
        match node.ops[0]:
            case ast.GtE():
                return Condition("ge", a - b)
            case ast.Gt():
                return Condition("ge", a - b - 1)
            case ast.LtE():
                return Condition("ge", b - a)
            case ast.Lt():
                return Condition("ge", b - a - 1)
            case ast.Eq():
                return Condition("eq", a - b)
            case _:
                raise failure(node, "a condition has only <, <=, ==, >= and >")

    def pred(self, node: ast.expr) -> Pred:
        """The condition of an ``if``."""
        if isinstance(node, ast.Name) and node.id == "always":
            return ()
        parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
        return tuple(map(self.condition, parts))

    # ---- scalar expressions ----

    def expr(self, node: ast.expr) -> Expr:
        """A scalar expression."""
        match node:
            case ast.BinOp():
                op = _OPS.get(_BINARY.get(type(node.op), ""))
                if op is None:
                    raise failure(node, "unknown operator")
                return Binary(op, self.expr(node.left), self.expr(node.right))
            case ast.UnaryOp(op=ast.USub()):
                return Unary("neg", self.expr(node.operand))
            case ast.UnaryOp(op=ast.Invert()):
                return Unary("not", self.expr(node.operand))
            case ast.Compare():
                if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
                    raise failure(node, "expected one comparison; put parentheses around chained ones")
                op = _OPS[_COMPARE[type(node.ops[0])]]
                return Compare(op, self.expr(node.left), self.expr(node.comparators[0]))
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._expr_call(node)
            case ast.Name() if node.id in self.lets:
                return self.lets[node.id]
            case _:
                raise failure(node, "expected a scalar expression; an index i is written f32[i] there")

    def _subscript(self, node: ast.Subscript) -> Expr:
        if isinstance(node.value, ast.Name) and node.value.id in DTYPES:
            return OfIndex(self.index(node.slice), DTYPES[node.value.id])
        name = name_of(node.value)
        if name not in self.buffers:
            raise failure(
                node, f"no buffer {quoted(name)} is in scope", suggestion(name, self.buffers) or None
            )
        return Load(name, self.indices(node.slice), self.buffers[name])

    def _expr_call(self, node: ast.Call) -> Expr:
        name = called(node)
        if name is None:
            raise failure(node, "unknown function")
        if name in DTYPES:
            return Const(self.literal(arguments(node, 1)[0]), DTYPES[name])
        if name in CALLS or name in MACHINE_CALLS:
            args = arguments(node, CALL_ARITY.get(name, 1))
            return Call(name, tuple(map(self.expr, args)))
        if name in _BINARY_CALLS:
            a, b = map(self.expr, arguments(node, 2))
            return Binary(name, a, b)
        match name:
            case "abs":
                return Unary("abs", self.expr(arguments(node, 1)[0]))
            case "select":
                cond, a, b = map(self.expr, arguments(node, 3))
                return Select(cond, a, b)
            case "cast":
                args = arguments(node, 2, 3)
                mode = string_of(args[2]) if len(args) == 3 else "wrap"
                if mode not in CAST_MODES:
                    raise failure(
                        args[2], f"unknown cast mode {quoted(mode)}", suggestion(mode, CAST_MODES) or None
                    )
                return Cast(self.expr(args[0]), self.dtype(args[1]), mode)
            case "load":
                args = arguments(node, 2, ANY)
                return Load(name_of(args[1]), tuple(map(self.index, args[2:])), self.dtype(args[0]))
            case _:
                hint = suggestion(name, _EXPR_CALLS) or None
                raise failure(node, f"unknown function {quoted(name)}", hint)

    def literal(self, node: ast.expr) -> float | int | bool:
        """The value of a constant."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id="inf" | "nan" as word):
                return float(word)
            case ast.UnaryOp(op=ast.USub()):
                return -self.literal(node.operand)
            case _:
                raise failure(node, "expected a number, True, False, inf or nan")

    def dtype(self, node: ast.expr) -> DType:
        """An element type."""
        if isinstance(node, ast.Name) and node.id in DTYPES:
            return DTYPES[node.id]
        raise failure(node, "expected an element type", f"the types are {', '.join(DTYPES)}")
