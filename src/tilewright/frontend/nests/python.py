"""Nests written in Python: a function over numpy arrays, of loops over ranges and assignments to elements.

    @tilewright.scop
    def gemver(A: f64[N, N], u: f64[N], v: f64[N], x: f64[N], alpha: f64):
        for i in range(N):
            for j in range(N):
                A[i, j] = A[i, j] + alpha * u[i] * v[j]

Annotations say what arguments are: element type and shape; names in shapes are symbolic sizes, and so are
arguments annotated ``int``. (``from __future__ import annotations`` keeps Python from evaluating them.) The
function is read, never run: the same text runs under Python, slowly, with the same result.

Indices and bounds of loops may be what arrays hold: ``x[column[e]]``, ``range(first[i], first[i + 1])``,
``while e < last: ...; e += 1``. As in C, nothing checks that these stay inside of the arrays.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from tilewright.frontend.nests.build import NestBuilder
from tilewright.frontend.nests.guards import Place, both, either, opposite
from tilewright.frontend.nests.values import Arithmetic, Value, type_of
from tilewright.ir import (
    DTYPES,
    NOTHING,
    Const,
    Expr,
    Index,
    LoopFunction,
    Stmt,
    index,
    seq,
)
from tilewright.support import ProgramError, SourceLocation

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


@dataclass(frozen=True, slots=True)
class Scop:
    """A nest read from Python: its loop function, and the function that it was read from."""

    func: LoopFunction
    python: Callable[..., Any]


def scop(function: Callable[..., Any]) -> Scop:
    """Read a Python function as a nest.

    Raises ProgramError, with the line, for what is not supported.
    """
    try:
        source, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise ProgramError(
            "a nest is read from its source, which is not there",
            hint="put the function into a file, or give its text to read_python",
        ) from None
    text = textwrap.dedent("".join(source))
    path = inspect.getsourcefile(function) or "<unknown>"
    return Scop(read_python(text, path, first), function)


def read_python(text: str, path: str = "<text>", first: int = 1) -> LoopFunction:
    """The loop function of the one function in a text; raises as :func:`scop` does."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        line = first + (error.lineno or 1) - 1
        raise ProgramError(f"the text is no Python: {error.msg}", where=SourceLocation(path, line)) from None
    defs = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    if len(defs) != 1:
        raise ProgramError("the text must hold one function", where=SourceLocation(path, first))
    try:
        return _Reader(path, first, text.splitlines()).function(defs[0])
    except RecursionError:
        raise ProgramError(
            "expressions or statements are nested too deeply", where=SourceLocation(path, first)
        ) from None


class _Reader:
    def __init__(self, path: str, first: int, lines: Sequence[str]) -> None:
        self.path, self.first, self.lines = path, first, lines
        self.at: ast.AST = ast.Pass(lineno=1, col_offset=0)
        self.arith = Arithmetic(self.error)
        self.builder = NestBuilder("nest", self.arith)

    def error(self, what: str) -> ProgramError:
        line = getattr(self.at, "lineno", 1)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return ProgramError(what, where=SourceLocation(self.path, self.first + line - 1, text))

    def refused(self, node: ast.AST, what: str) -> ProgramError:
        self.at = node
        return self.error(what)

    # -- the function ----------------------------------------------------------------------------------------

    def function(self, f: ast.FunctionDef) -> LoopFunction:
        self.at = f
        a = f.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.refused(f, "a nest takes plain arguments only")
        self.builder.name = f.name
        for arg in a.args:
            self.argument(arg)
        return self.builder.function(self.suite(f.body, Place()))

    def argument(self, arg: ast.arg) -> None:
        self.at = arg
        kind = arg.annotation
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            kind = ast.parse(kind.value, mode="eval").body
        if isinstance(kind, ast.Name) and kind.id == "int":
            self.builder.size(arg.arg)
            return
        shape: list[ast.expr] = []
        if isinstance(kind, ast.Subscript):
            shape = list(kind.slice.elts) if isinstance(kind.slice, ast.Tuple) else [kind.slice]
            kind = kind.value
        if not isinstance(kind, ast.Name) or kind.id not in DTYPES or DTYPES[kind.id].small:
            raise self.refused(
                arg, f"the argument {arg.arg!r} needs an annotation such as f64[N, M], f64 or int"
            )
        extents = [self.extent(x) for x in shape]
        self.at = arg
        self.builder.array(arg.arg, extents, DTYPES[kind.id])

    def extent(self, e: ast.expr) -> Index:
        for name in ast.walk(e):
            if isinstance(name, ast.Name):
                self.at = e
                self.builder.params.get(name.id) or self.builder.size(name.id)
        value = self.value(e, Place())
        if not isinstance(value, Index):
            raise self.refused(e, "the extent of an argument must be affine in sizes")
        return value

    # -- statements ------------------------------------------------------------------------------------------

    def suite(self, body: Sequence[ast.stmt], at: Place) -> Stmt:
        return seq(*(self.stmt(s, at) for s in body)) if len(body) != 1 else self.stmt(body[0], at)

    def stmt(self, s: ast.stmt, at: Place) -> Stmt:
        self.at = s
        match s:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args)):
                if s.orelse or not 1 <= len(args) <= 3:
                    raise self.refused(s, "loops are: for i in range(first, last, step)")
                values = [self.value(a, at) for a in args]
                step = values[2] if len(values) == 3 else index(1)
                if not isinstance(step, Index) or not step.is_const:
                    raise self.refused(s, f"the step of loop {name!r} must be an integer")
                lo, hi = (index(0), values[0]) if len(values) == 1 else (values[0], values[1])
                return self.builder.loop(at, name, lo, hi, step.const, lambda p: self.suite(s.body, p))
            case ast.Assign(targets=[target]):
                return self.assign(target, self.value(s.value, at), at)
            case ast.AugAssign(target=target, op=op):
                value = self.arith.binary(
                    self.operator(op, s), self.value(target, at), self.value(s.value, at)
                )
                return self.assign(target, value, at)
            case ast.If(test=test):
                return self.branch(s, test, at)
            case ast.While():
                return self.counted(s, at)
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return NOTHING
            case ast.Return(value=None):
                raise self.refused(s, "a nest ends at its end")
        raise self.refused(s, f"{type(s).__name__} statements are not part of nests")

    def counted(self, s: ast.While, at: Place) -> Stmt:
        """``while e < end: ...; e += 1`` as a loop over ``e``."""
        match s.test, s.body[-1], s.orelse:
            case (
                ast.Compare(left=ast.Name(id=name), ops=[ast.Lt() | ast.LtE() as op], comparators=[last]),
                ast.AugAssign(target=ast.Name(id=also), op=ast.Add(), value=ast.Constant(value=1)),
                [],
            ) if also == name:
                end = self.value(last, at)
                if isinstance(op, ast.LtE):
                    end = self.arith.binary("add", end, index(1))
                changed = _changed(s.body[:-1])
                self.at = s
                return self.builder.counted(at, name, end, changed, lambda p: self.suite(s.body[:-1], p))
        raise self.refused(s, "while loops are: while e < last: ... with e += 1 as the last statement")

    def assign(self, target: ast.expr, value: Value, at: Place) -> Stmt:
        self.at = target
        match target:
            case ast.Name(id=name):
                if not self.builder.known(name, at):
                    self.builder.array(name, (), type_of(value), local=True)
                elif name in self.builder.temps and not self.keeps(name, value):
                    raise self.refused(
                        target,
                        f"{name!r} began as {self.builder.buffers[name].dtype}, and this is {type_of(value)}",
                    )
                return self.builder.assign(at, name, (), value)
            case ast.Subscript(value=ast.Name(id=name), slice=s):
                return self.builder.assign(at, name, self.subscript(s, at), value)
        raise self.refused(target, "assignments are to names and to elements of arrays")

    def keeps(self, name: str, value: Value) -> bool:
        """Whether a variable of the nest holds a value as it is; a literal takes the variable's type."""
        dtype = self.builder.buffers[name].dtype
        if isinstance(value, float | Index):
            return dtype.is_float or not isinstance(value, float)
        return self.arith.together(Const(0, dtype), value)[0].dtype == dtype

    def subscript(self, s: ast.expr, at: Place) -> list[Value]:
        parts = list(s.elts) if isinstance(s, ast.Tuple) else [s]
        return [self.value(p, at) for p in parts]

    def branch(self, s: ast.If, test: ast.expr, at: Place) -> Stmt:
        # the condition of a single assignment is read before anything changes
        single = _single(s.body) and not s.orelse
        changed: set[str] = set() if single else _changed([*s.body, *s.orelse])
        orelse = (lambda p: self.suite(s.orelse, p)) if s.orelse else None
        cond = self.condition(test, at)
        return self.builder.branch(at, cond, changed, lambda p: self.suite(s.body, p), orelse)

    # -- expressions -----------------------------------------------------------------------------------------

    def operator(self, op: ast.operator, at: ast.AST) -> str:
        if type(op) not in _BINARY:
            raise self.refused(at, f"the operator {type(op).__name__} is not part of nests")
        return _BINARY[type(op)]

    def value(self, e: ast.expr, at: Place) -> Value:
        self.at = e
        match e:
            case ast.Constant(value=bool()):
                raise self.refused(e, "truth values are not part of nests")
            case ast.Constant(value=int(n)):
                return index(n)
            case ast.Constant(value=float(x)):
                return x
            case ast.Name(id=name):
                return self.named(name, at)
            case ast.Subscript(value=ast.Name(id=name), slice=s):
                return self.builder.load(name, self.subscript(s, at))
            case ast.Subscript(value=ast.Subscript()):
                raise self.refused(e, "write A[i, j], not A[i][j]")
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return self.arith.negative(self.value(a, at))
            case ast.BinOp(left=a, op=ast.Pow(), right=b):
                return self.arith.called("pow", [self.value(a, at), self.value(b, at)])
            case ast.BinOp(left=a, op=op, right=b):
                name = self.operator(op, e)
                left, right = self.value(a, at), self.value(b, at)
                self.at = e
                return self.arith.binary(name, left, right)
            case ast.IfExp(test=test, body=a, orelse=b):
                cond = self.condition(test, at)
                return self.arith.chosen(cond, self.value(a, at), self.value(b, at))
            case ast.Call(func=f, args=args, keywords=[]):
                return self.call(e, f, [self.value(a, at) for a in args])
        raise self.refused(e, f"{type(e).__name__} expressions are not part of nests")

    def named(self, name: str, at: Place) -> Value:
        loop = at.value(name)
        if loop is not None:
            return loop
        if name in self.builder.params:
            return index(self.builder.params[name])
        return self.builder.load(name, ())

    def call(self, e: ast.expr, f: ast.expr, args: list[Value]) -> Value:
        self.at = e
        name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
        if name in ("min", "max") and len(args) >= 2:
            out = args[0]
            for a in args[1:]:
                out = self.arith.extreme(name, out, a)
            return out
        return self.arith.called(name, args)

    def condition(self, e: ast.expr, at: Place) -> Expr:
        self.at = e
        match e:
            case ast.BoolOp(op=op, values=values):
                join = both if isinstance(op, ast.And) else either
                return reduce(join, [self.condition(v, at) for v in values])
            case ast.UnaryOp(op=ast.Not(), operand=a):
                return opposite(self.condition(a, at))
            case ast.Compare(left=a, ops=ops, comparators=others) if {*map(type, ops)} <= {*_COMPARE}:
                given = [self.value(x, at) for x in (a, *others)]
                self.at = e
                steps = zip(ops, given, given[1:], strict=False)
                return reduce(both, [self.arith.compared(_COMPARE[type(op)], x, y) for op, x, y in steps])
        raise self.refused(e, "conditions are comparisons, joined by and, or, not")


def _changed(body: Sequence[ast.stmt]) -> set[str]:
    """The names of variables and arrays that some part of a suite assigns to."""
    targets = [t for part in body for t in ast.walk(part) if isinstance(t, ast.Name | ast.Subscript)]
    named = [_named(t) for t in targets if isinstance(t.ctx, ast.Store)]
    return {n.id for n in named if n is not None}


def _single(body: Sequence[ast.stmt]) -> bool:
    """Whether a suite is one assignment, maybe under further conditions."""
    match body:
        case [ast.If(body=inner, orelse=[])]:
            return _single(inner)
        case [ast.Assign() | ast.AugAssign()]:
            return True
    return False


def _named(e: ast.expr) -> ast.Name | None:
    """The name of which an expression is an element, or that it is."""
    while isinstance(e, ast.Subscript):
        e = e.value
    return e if isinstance(e, ast.Name) else None
