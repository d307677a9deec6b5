"""Nests in C, read through pycparser: the function that holds ``#pragma scop``, and nothing else of the file.

    void kernel(int n, double A[n][n], double x[n]) {
    #pragma scop
      for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
          x[i] -= A[i][j] * x[j];
    #pragma endscop
    }

Integer parameters are symbolic sizes, scalars and arrays become arguments; arrays never overlap. Loops,
assignments, conditions and expressions as in :mod:`tilewright.frontend.nests.python`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from tilewright.frontend.c.preprocess import Preprocessor
from tilewright.frontend.nests import NestBuilder, Place, Value
from tilewright.frontend.nests.python import OPPOSITE, comparison
from tilewright.frontend.nests.values import Arithmetic
from tilewright.ir import (
    F32,
    F64,
    I8,
    I32,
    I64,
    NOTHING,
    Cast,
    Const,
    DType,
    Expr,
    Index,
    LoopFunction,
    Pred,
    Stmt,
    Unary,
    index,
    loads,
    seq,
    stmt_loads,
)
from tilewright.support import InstallationError, ProgramError, SourceLocation

_TYPES: Final = {
    "double": F64,
    "float": F32,
    "char": I8,
    "": I32,
    "int": I32,
    "long": I64,
    "int long": I64,
    "long long": I64,
    "int long long": I64,
}
"""Element types by the words of their names in C, sorted, without ``signed``."""
_BINARY: Final = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod"}
_COMPARE: Final = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_QUALIFIERS: Final = re.compile(r"\b(restrict|__restrict__|__restrict|static|const|volatile|inline)\b")
_TYPEDEF: Final = re.compile(r"\btypedef\s+((?:\w+\s+)+)(\w+)\s*;")


def read_c_file(
    path: str | Path, defines: Mapping[str, str] | None = None, folders: Sequence[Path] = ()
) -> LoopFunction:
    """The nest of a C file; raises ProgramError, with line and column, for what it cannot be.

    Headers are read from the file's folder (in quotes) and from ``folders``; others in angle brackets are the
    system's, and left out.
    """
    file = Path(path)
    text = Preprocessor.of(folders, defines or {}).file(file)
    return _parsed(text, str(path))


def read_c(text: str, path: str = "<text>", defines: Mapping[str, str] | None = None) -> LoopFunction:
    """The nest of a C text; raises as :func:`read_c_file` does."""
    return _parsed(Preprocessor.of((), defines or {}).text(text, Path(path)), path)


def _parsed(text: str, path: str) -> LoopFunction:
    try:
        # an extra of the package, needed for C alone
        from pycparser import c_ast, c_parser  # noqa: PLC0415
    except ImportError:
        raise InstallationError(
            "reading C needs the package pycparser", hint="pip install 'tilewright[c]'"
        ) from None
    function = _function_of(text, path)
    try:
        tree = c_parser.CParser().parse(function, filename=path)
    except (c_parser.ParseError, AssertionError, RecursionError) as error:
        raise ProgramError(
            f"the C does not parse: {str(error)[:200]}",
            where=path,
            hint="macros of headers in angle brackets are known where -I names their folder",
        ) from None
    # only a function ends with a brace, which is where the text was cut
    found = next(n for n in tree.ext if isinstance(n, c_ast.FuncDef))
    try:
        return _Reader(c_ast, path, function.split("\n")).function(found)
    except RecursionError:
        raise ProgramError("expressions or statements are nested too deeply", where=path) from None


def _function_of(text: str, path: str) -> str:
    """The function around ``#pragma scop``, on the lines where it stands."""
    marks = [m.start() for m in re.finditer(r"^\s*#\s*pragma\s+scop\b", text, re.M)]
    if len(marks) != 1:
        raise ProgramError(
            f"the file has {len(marks)} nests marked by #pragma scop, not one",
            where=path,
            hint="put #pragma scop and #pragma endscop around the loops of one function",
        )
    depth, start = 0, -1
    for n, c in enumerate(text):
        if c == "{":
            if depth == 0:
                start = n
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0 and start < marks[0] < n:
                head = max(text.rfind(";", 0, start), text.rfind("}", 0, start)) + 1
                before = text[:head].count("\n")
                body = _QUALIFIERS.sub("", text[head : n + 1])
                for words, name in _TYPEDEF.findall(text[:head]):
                    body = re.sub(rf"\b{name}\b", words, body)
                return "\n" * before + "\n".join(
                    "" if re.match(r"\s*#(?!\s*pragma\s+(end)?scop)", line) else line
                    for line in body.split("\n")
                )
    raise ProgramError("#pragma scop stands in no function", where=path)


class _Reader:
    def __init__(self, c: Any, path: str, lines: Sequence[str]) -> None:
        self.c, self.path, self.lines = c, path, lines
        self.at: Any = None
        self.arith = Arithmetic(self.error, floors=False)
        self.builder = NestBuilder("nest", self.arith)
        self.declared: set[str] = set()

    def error(self, what: str) -> ProgramError:
        coord = getattr(self.at, "coord", None)
        line, column = (coord.line, coord.column) if coord is not None else (1, None)
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        path = self.path if column is None else f"{self.path}:{line}:{column}"
        return ProgramError(
            what, where=SourceLocation(path, line, text) if column is None else f"{path}: `{text.strip()}`"
        )

    def refused(self, node: Any, what: str) -> ProgramError:
        self.at = node
        return self.error(what)

    # -- the function ----------------------------------------------------------------------------------------

    def function(self, f: Any) -> LoopFunction:
        self.at = f
        self.builder.name = f.decl.name
        for p in f.decl.type.args.params if f.decl.type.args is not None else ():
            if isinstance(p, self.c.Decl):
                self.parameter(p)
            elif not (isinstance(p, self.c.Typename) and self.kind(p.type, p) is None):
                raise self.refused(p, "a parameter without a name")
        items = f.body.block_items or ()
        marks = [n for n, s in enumerate(items) if isinstance(s, self.c.Pragma)]
        if [items[n].string.split()[0] for n in marks] != ["scop", "endscop"]:
            raise self.refused(
                f, "#pragma scop and #pragma endscop stand around whole statements of a function"
            )
        first, last = marks
        body: list[Stmt] = []
        for s in items[:first]:
            if isinstance(s, self.c.Decl):
                self.reserve(s)
        body += [self.stmt(s, Place()) for s in items[first + 1 : last]]
        used = {load.buffer for s in body for load in stmt_loads(s)}
        for s in items[:first]:
            before = set() if isinstance(s, self.c.Decl) and s.init is None else _changed(self.c, s)
            if early := sorted(before & used):
                raise self.refused(
                    s, f"{early[0]!r} gets its value before #pragma scop: move this into the nest"
                )
        return self.builder.function(seq(*body))

    def kind(self, t: Any, at: Any) -> DType | None:
        """An element type; ``None`` for ``void``."""
        names = getattr(getattr(t, "type", None), "names", None)
        if names is None:
            raise self.refused(at, "this type is not part of nests")
        if names == ["void"]:
            return None
        words = " ".join(sorted(n for n in names if n != "signed"))
        if words not in _TYPES:
            raise self.refused(at, f"the type {' '.join(names)} is not part of nests")
        return _TYPES[words]

    def shape(self, t: Any, at: Any) -> tuple[DType, list[Index]]:
        extents: list[Index] = []
        while isinstance(t, self.c.ArrayDecl):
            if t.dim is None:
                raise self.refused(at, f"the array {at.name!r} needs all of its extents")
            extent = self.value(t.dim, Place())
            if not isinstance(extent, Index):
                raise self.refused(at, f"the extents of {at.name!r} must be affine in sizes")
            extents.append(extent)
            t = t.type
        if isinstance(t, self.c.PtrDecl):
            raise self.refused(at, f"{at.name!r} is a pointer: declare an array with its extents")
        dtype = self.kind(t, at)
        if dtype is None:
            raise self.refused(at, f"{at.name!r} is void")
        return dtype, extents

    def parameter(self, p: Any) -> None:
        self.at = p
        dtype, extents = self.shape(p.type, p)
        if not extents and not dtype.is_float:
            self.builder.size(p.name)
        else:
            self.builder.array(p.name, extents, dtype)

    def reserve(self, d: Any) -> None:
        """A declaration without its value."""
        self.at = d
        dtype, extents = self.shape(d.type, d)
        self.declared.add(d.name)
        # integers are loop variables: they have no storage until something else is assigned to them
        if dtype.is_float or extents:
            self.builder.array(d.name, extents, dtype, local=True)

    def declare(self, d: Any, at: Place) -> Stmt:
        self.reserve(d)
        if d.init is None:
            return NOTHING
        return self.assign(self.c.ID(d.name, d.coord), self.value(d.init, at), at)

    # -- statements ------------------------------------------------------------------------------------------

    def stmt(self, s: Any, at: Place) -> Stmt:
        self.at = s
        c = self.c
        if isinstance(s, c.Compound):
            return seq(*(self.stmt(k, at) for k in s.block_items or ()))
        if isinstance(s, c.For):
            return self.loop(s, at)
        if isinstance(s, c.Assignment):
            if s.op == "=" and isinstance(s.rvalue, c.Assignment):
                # a = b = x: the inner assignment first, whose value is what was assigned
                inner = self.stmt(s.rvalue, at)
                return seq(inner, self.assign(s.lvalue, self.value(s.rvalue.lvalue, at), at))
            value = self.value(s.rvalue, at)
            if s.op != "=":
                if s.op[:-1] not in _BINARY:
                    raise self.refused(s, f"the assignment {s.op} is not part of nests")
                value = self.binary(s.op[:-1], self.value(s.lvalue, at), value, s)
            return self.assign(s.lvalue, value, at)
        if isinstance(s, c.UnaryOp) and s.op in ("p++", "++", "p--", "--"):
            more = self.arith.binary("add" if "+" in s.op else "sub", self.value(s.expr, at), index(1))
            return self.assign(s.expr, more, at)
        if isinstance(s, c.If):
            return self.branch(s, at)
        if isinstance(s, c.While):
            return self.counted(s, at)
        if isinstance(s, c.Decl):
            return self.declare(s, at)
        if isinstance(s, c.DeclList):
            return seq(*(self.declare(d, at) for d in s.decls))
        if isinstance(s, c.EmptyStatement):
            return NOTHING
        raise self.refused(s, f"{type(s).__name__} statements are not part of nests")

    def loop(self, s: Any, at: Place) -> Stmt:
        name, first = self.start(s)
        lo = self.value(first, at)
        step = self.step(s.next, name)
        cond = s.cond
        if not isinstance(cond, self.c.BinaryOp) or cond.op not in ("<", "<=", ">", ">="):
            raise self.refused(s, f"the condition of loop {name!r} must compare it with its bound")
        if not (isinstance(cond.left, self.c.ID) and cond.left.name == name):
            raise self.refused(cond, f"the condition of loop {name!r} must begin with {name!r}")
        if (step > 0) != (cond.op in ("<", "<=")):
            raise self.refused(cond, f"loop {name!r} steps away from its bound")
        hi = self.value(cond.right, at)
        if (
            isinstance(hi, Expr)
            and hi.dtype.is_integer
            and any(load.buffer in _changed(self.c, s.stmt) for load in loads(hi))
        ):
            raise self.refused(cond, f"the bound of the loop over {name!r} changes in it")
        if cond.op in ("<=", ">="):
            hi = self.arith.binary("add", hi, index(1 if step > 0 else -1))
        self.at = s
        return self.builder.loop(at, name, lo, hi, step, lambda p: self.stmt(s.stmt, p))

    def counted(self, s: Any, at: Place) -> Stmt:
        """``while (e < end) { ...; e++; }`` as a loop over ``e``."""
        c = self.c
        body = list(s.stmt.block_items or ()) if isinstance(s.stmt, c.Compound) else [s.stmt]
        cond = s.cond
        if not (
            body and isinstance(cond, c.BinaryOp) and cond.op in ("<", "<=") and isinstance(cond.left, c.ID)
        ):
            raise self.refused(s, "while loops are: while (e < last) { ... e++; }")
        name = cond.left.name
        if self.step(body[-1], name) != 1:
            raise self.refused(body[-1], f"the last statement of a while loop adds 1 to {name!r}")
        end = self.value(cond.right, at)
        if cond.op == "<=":
            end = self.arith.binary("add", end, index(1))
        changed = {name for part in body[:-1] for name in _changed(c, part)}
        self.at = s
        return self.builder.counted(
            at, name, end, changed, lambda p: seq(*(self.stmt(k, p) for k in body[:-1]))
        )

    def start(self, s: Any) -> tuple[str, Any]:
        c = self.c
        if isinstance(s.init, c.DeclList) and len(s.init.decls) == 1 and s.init.decls[0].init is not None:
            return s.init.decls[0].name, s.init.decls[0].init
        if isinstance(s.init, c.Assignment) and s.init.op == "=" and isinstance(s.init.lvalue, c.ID):
            return s.init.lvalue.name, s.init.rvalue
        raise self.refused(s, "a loop begins with one assignment to its variable")

    def step(self, e: Any, name: str) -> int:
        c = self.c
        if isinstance(e, c.UnaryOp) and isinstance(e.expr, c.ID) and e.expr.name == name:
            if e.op in ("p++", "++"):
                return 1
            if e.op in ("p--", "--"):
                return -1
        if isinstance(e, c.Assignment) and isinstance(e.lvalue, c.ID) and e.lvalue.name == name:
            value = e.rvalue
            sign = {"+=": 1, "-=": -1}.get(e.op)
            if e.op == "=" and isinstance(value, c.BinaryOp) and value.op in ("+", "-"):
                if isinstance(value.left, c.ID) and value.left.name == name:
                    sign, value = (1 if value.op == "+" else -1), value.right
            if sign is not None:
                found = self.value(value, Place())
                if isinstance(found, Index) and found.is_const and found.const > 0:
                    return sign * found.const
        raise self.refused(e, f"the step of loop {name!r} must be a constant")

    def assign(self, target: Any, value: Value, at: Place) -> Stmt:
        self.at = target
        if isinstance(target, self.c.ID):
            if target.name in self.declared and not self.builder.known(target.name, at):
                self.builder.array(target.name, (), I32, local=True)
            return self.builder.assign(at, target.name, (), value)
        name, indices = self.element(target, at)
        return self.builder.assign(at, name, indices, value)

    def element(self, e: Any, at: Place) -> tuple[str, list[Value]]:
        indices: list[Value] = []
        while isinstance(e, self.c.ArrayRef):
            indices.insert(0, self.value(e.subscript, at))
            e = e.name
        if not isinstance(e, self.c.ID):
            raise self.refused(e, "only elements of arrays and variables are read and written")
        self.at = e
        return e.name, indices

    def branch(self, s: Any, at: Place) -> Stmt:
        pred = self.affine(s.cond, at)
        if pred is None:
            if s.iffalse is not None:
                raise self.refused(s, "an else to a condition on data: write a conditional expression")
            # the condition of a single assignment is read before anything changes
            changed = set() if self.single(s.iftrue) else _changed(self.c, s.iftrue)
            first, inside = self.builder.held(at, self.under(s.cond, at), changed)
            return seq(first, self.stmt(s.iftrue, inside))
        then = self.stmt(s.iftrue, replace(at, where=(*at.where, *pred)))
        if s.iffalse is None:
            return then
        other = None
        if isinstance(s.cond, self.c.BinaryOp):
            op = OPPOSITE.get(_COMPARE.get(s.cond.op, ""), "")
            other = comparison(op, self.value(s.cond.left, at), self.value(s.cond.right, at)) if op else None
        if other is None:
            raise self.refused(s, "an else needs a single comparison")
        return seq(then, self.stmt(s.iffalse, replace(at, where=(*at.where, *other))))

    def single(self, s: Any) -> bool:
        """Whether a statement is one assignment, maybe under further conditions."""
        c = self.c
        if isinstance(s, c.Compound) and len(s.block_items or ()) == 1:
            return self.single(s.block_items[0])
        if isinstance(s, c.If) and s.iffalse is None:
            return self.single(s.iftrue)
        return isinstance(s, c.UnaryOp) or (
            isinstance(s, c.Assignment) and not isinstance(s.rvalue, c.Assignment)
        )

    # -- expressions -----------------------------------------------------------------------------------------

    def binary(self, op: str, a: Value, b: Value, at: Any) -> Value:
        self.at = at
        name = _BINARY[op]
        if name == "div" and isinstance(a, Index) and isinstance(b, Index):
            name = "floordiv"
        return self.arith.binary(name, a, b)

    def value(self, e: Any, at: Place) -> Value:
        self.at = e
        c = self.c
        if isinstance(e, c.Constant):
            return self.constant(e)
        if isinstance(e, c.ID):
            loop = at.value(e.name)
            if loop is not None:
                return loop
            if e.name in self.builder.params:
                return index(self.builder.params[e.name])
            if e.name in self.declared and e.name not in self.builder.buffers:
                raise self.refused(
                    e, f"{e.name!r} has no value here: the nest assigned none, and loops leave none"
                )
            return _promoted(self.builder.load(e.name, ()))
        if isinstance(e, c.ArrayRef):
            name, indices = self.element(e, at)
            return _promoted(self.builder.load(name, indices))
        if isinstance(e, c.UnaryOp) and e.op in ("-", "+"):
            inner = self.value(e.expr, at)
            return self.arith.negative(inner) if e.op == "-" else inner
        if isinstance(e, c.BinaryOp) and e.op in _BINARY:
            return self.binary(e.op, self.value(e.left, at), self.value(e.right, at), e)
        if isinstance(e, c.TernaryOp):
            cond = self.condition(e.cond, at)
            return self.arith.chosen(cond, self.value(e.iftrue, at), self.value(e.iffalse, at))
        if isinstance(e, c.Cast):
            dtype = self.kind(e.to_type.type, e)
            if dtype is None:
                raise self.refused(e, "nothing is converted to void")
            return _promoted(self.arith.converted(self.value(e.expr, at), dtype))
        if isinstance(e, c.FuncCall) and isinstance(e.name, c.ID):
            args = [self.value(a, at) for a in (e.args.exprs if e.args is not None else ())]
            self.at = e
            return self.arith.called(e.name.name, args)
        raise self.refused(e, f"{type(e).__name__} expressions are not part of nests")

    def constant(self, e: Any) -> Value:
        text = e.value
        if e.type in ("int", "long int", "long long int"):
            return index(int(text.rstrip("lL"), 0 if not re.fullmatch(r"0\d+[lL]*", text) else 8))
        if e.type in ("double", "float"):
            single = text[-1] in "fF"
            if "x" in text.lower():  # of which f is a digit, but not after the exponent
                return Const(float.fromhex(text.rstrip("fF")), F32 if single else F64)
            return Const(float(text.rstrip("fF")), F32 if single else F64)
        raise self.refused(e, f"constants of type {e.type} are not part of nests")

    def under(self, e: Any, at: Place) -> Place:
        """Where a condition holds: its conjuncts on indices cut the loops, the others are evaluated."""
        if isinstance(e, self.c.BinaryOp) and e.op == "&&":
            return self.under(e.right, self.under(e.left, at))
        known = self.affine(e, at)
        if known is not None:
            return replace(at, where=(*at.where, *known))
        return replace(at, conds=(*at.conds, self.condition(e, at)))

    def affine(self, e: Any, at: Place) -> Pred | None:
        if not isinstance(e, self.c.BinaryOp):
            return None
        if e.op == "&&":
            a, b = self.affine(e.left, at), self.affine(e.right, at)
            return None if a is None or b is None else (*a, *b)
        if e.op not in _COMPARE:
            return None
        return comparison(_COMPARE[e.op], self.value(e.left, at), self.value(e.right, at))

    def condition(self, e: Any, at: Place) -> Expr:
        self.at = e
        c = self.c
        if isinstance(e, c.BinaryOp) and e.op in ("&&", "||"):
            op: Literal["and", "or"] = "and" if e.op == "&&" else "or"
            return self.arith.joined(op, self.condition(e.left, at), self.condition(e.right, at))
        if isinstance(e, c.UnaryOp) and e.op == "!":
            return Unary("not", self.condition(e.expr, at))
        if isinstance(e, c.BinaryOp) and e.op in _COMPARE:
            return self.arith.compared(_COMPARE[e.op], self.value(e.left, at), self.value(e.right, at))
        raise self.refused(e, "conditions are comparisons, joined by &&, ||, !")


def _changed(c: Any, node: Any) -> set[str]:
    """The names of variables and arrays that some part of a statement assigns to."""
    out = {name for _, child in node.children() for name in _changed(c, child)}
    target = node.lvalue if isinstance(node, c.Assignment) else None
    if isinstance(node, c.UnaryOp) and node.op in ("p++", "++", "p--", "--"):
        target = node.expr
    if isinstance(node, c.Decl):
        out.add(node.name)
    while isinstance(target, c.ArrayRef):
        target = target.name
    return out | {target.name} if isinstance(target, c.ID) else out


def _promoted(e: Expr) -> Expr:
    """A value as C calculates with it: characters are integers."""
    return Cast(e, I32) if e.dtype == I8 else e
