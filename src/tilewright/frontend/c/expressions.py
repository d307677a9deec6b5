"""Expressions of C in nests: names and their scopes, elements of arrays, values, conditions.

Integers of a nest that are affine in its loops are known by their values (``int k = 2 * i; x[k]`` is
``x[2 * i]``) until a loop or a branch changes them; pointers are known by what they point at.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tilewright.frontend.c.flow import all_of, statements
from tilewright.frontend.c.numbers import Arithmetic, Number, number
from tilewright.frontend.c.source import Source
from tilewright.frontend.c.steps import STEPS
from tilewright.frontend.nests import (
    Arithmetic as BuilderArithmetic,
    NestBuilder,
    Place,
    both,
    either,
    opposite,
)
from tilewright.ir import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Const,
    DType,
    Expr,
    Index,
    index,
)
from tilewright.support import ProgramError, quoted

_TYPES: Final = {
    "double": F64, "float": F32, "char": I8, "char unsigned": U8, "short": I16, "short unsigned": U16,
    "int": I32, "unsigned": U32, "long": I64, "long unsigned": U64, "long long": I64,
    "long long unsigned": U64, "_Bool": BOOL,
}  # fmt: skip
"""Element types by the words of their names in C, sorted, without ``signed`` and ``int`` beside others."""
BINARY: Final = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or", "^": "xor",
    "<<": "shl", ">>": "shr",
}  # fmt: skip
COMPARE: Final = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
MAX_CALLS: Final = 16
"""Deepest nesting of functions of the file that are called in a nest."""


@dataclass(slots=True, eq=False)
class Variable:
    """What a name means: an array or a scalar in ``buffer``, an integer, a pointer.

    ``value`` is what it always is; ``lost`` says that its value is not known after a loop that data end.
    """

    name: str
    dtype: DType
    buffer: str | None = None
    rank: int = 0
    pointer: bool = False
    lost: bool = False
    value: Number | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """The element of an array that a pointer points at; arithmetic of pointers moves the last index."""

    array: Variable
    indices: tuple[Number, ...]


Fact: TypeAlias = "Index | Pointer"


@dataclass(slots=True)
class Expressions(ABC):
    """What is known at one point of a nest, and how expressions are read there."""

    source: Source
    builder: NestBuilder = field(init=False)
    arith: Arithmetic = field(init=False)
    c: Any = field(init=False)
    at: Any = None
    place: Place = field(default_factory=Place)
    scopes: list[dict[str, Variable]] = field(default_factory=lambda: [{}, {}])
    facts: dict[Variable, Fact] = field(default_factory=dict)
    loops: dict[Variable, Index] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Number] = field(default_factory=dict)
    callers: list[list[dict[str, Variable]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.c = self.source.c
        self.arith = Arithmetic(self.error, lambda: {n: (lo, hi - 1) for n, lo, hi in self.place.loops})
        self.builder = NestBuilder("nest", BuilderArithmetic(self.error))
        for declared in self.source.types.ext:
            if isinstance(declared, self.c.Typedef):
                self.types[declared.name] = declared.type
            kind = getattr(declared.type, "type", declared.type)
            if isinstance(kind, self.c.Enum) and kind.values is not None:
                self.enumerate(kind)

    def enumerate(self, kind: Any) -> None:
        """The constants of an enumeration."""
        following = number(0)
        for e in kind.values.enumerators:
            if e.value is not None:
                following = self.value(e.value)
            self.constants[e.name] = following
            following = self.arith.binary("add", following, number(1))

    # -- errors ----------------------------------------------------------------------------------------------

    def error(self, what: str, hint: str | None = None) -> ProgramError:
        """An error at the place that is read."""
        coord = getattr(self.at, "coord", None)
        where = self.source.path if coord is None else self.source.where(coord.line, coord.column)
        return ProgramError(what, where=where, hint=hint)

    def refused(self, node: Any, what: str, hint: str | None = None) -> ProgramError:
        """An error at a part of the tree."""
        self.at = node
        return self.error(what, hint)

    # -- names -----------------------------------------------------------------------------------------------

    def found(self, name: str) -> Variable | None:
        """What a name means here."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def variable(self, e: Any) -> Variable:
        """What a name in the text means; ProgramError where it means nothing."""
        out = self.found(e.name)
        if out is None:
            out = self.global_variable(e)
        if out is None:
            raise self.refused(e, f"the name {quoted(e.name)} is not declared")
        return out

    @abstractmethod
    def global_variable(self, e: Any) -> Variable | None:
        """A variable outside of functions; the reader of functions knows those."""

    def declare(self, v: Variable, at: Any) -> Variable:
        """A name in the innermost scope."""
        if v.name in self.scopes[-1]:
            raise self.refused(at, f"the name {quoted(v.name)} is declared twice")
        self.scopes[-1][v.name] = v
        return v

    # -- types -----------------------------------------------------------------------------------------------

    def kind(self, t: Any, at: Any) -> DType | None:
        """An element type; ``None`` for ``void``."""
        kind = getattr(t, "type", None)
        if isinstance(kind, self.c.Enum):
            return I32
        names = getattr(kind, "names", None)
        if names is None:
            raise self.refused(
                at, "this type is not part of nests", "structures of arrays, or arrays of numbers, are"
            )
        if len(names) == 1 and names[0] in self.types:
            return self.kind(self.types[names[0]], at)
        if names == ["void"]:
            return None
        words = sorted(n for n in names if n not in ("signed", "int")) or ["int"]
        if " ".join(words) not in _TYPES:
            raise self.refused(
                at,
                f"the type {' '.join(names)} is not part of nests",
                "types are double, float, the integers of C, and those of <stdint.h>",
            )
        return _TYPES[" ".join(words)]

    def shape(
        self, t: Any, at: Any, implied: Callable[[int], Index] | None = None
    ) -> tuple[DType, list[Index]]:
        """Element type and extents of an array, or of what a pointer points at.

        ``implied`` gives the size that stands for a dimension without an extent, or with one that is not
        affine while sizes are symbols.
        """
        extents: list[Index] = []
        name = quoted(getattr(at, "name", None) or "this")
        while isinstance(t, self.c.ArrayDecl) or (isinstance(t, self.c.PtrDecl) and not extents):
            if isinstance(t, self.c.PtrDecl) or t.dim is None:
                if extents or implied is None:
                    raise self.refused(at, f"the array {name} needs all of its extents")
                extents.append(implied(0))
            else:
                known = self.value(t.dim)
                extent = known.value
                if known.dtype.is_float:
                    raise self.refused(at, f"the extents of {name} must be affine in sizes, and are real")
                if not isinstance(extent, Index):
                    if implied is None:
                        raise self.refused(at, f"the extents of {name} must be affine in sizes")
                    extent = implied(len(extents))
                extents.append(extent)
            t = t.type
        if isinstance(t, self.c.PtrDecl):
            raise self.refused(
                at, f"{name} is a pointer to pointers", "declare an array with its extents, such as A[n][m]"
            )
        dtype = self.kind(t, at)
        if dtype is None:
            raise self.refused(at, f"{name} is void")
        return dtype, extents

    # -- elements --------------------------------------------------------------------------------------------

    def element(self, e: Any) -> tuple[Variable, list[Number]]:
        """The variable, and the indices of its element, that an expression names."""
        c = self.c
        if isinstance(e, c.ID):
            v = self.variable(e)
            if v.pointer or v.rank:
                raise self.refused(e, f"{quoted(v.name)} is an array: give its indices")
            return v, []
        if isinstance(e, c.ArrayRef) or (isinstance(e, c.UnaryOp) and e.op == "*"):
            p = self.pointer(e, whole=True)
            if len(p.indices) != p.array.rank:
                self.at = e
                raise self.error(
                    f"{quoted(p.array.name)} has {p.array.rank} dimensions, got {len(p.indices)} indices"
                )
            return p.array, list(p.indices)
        raise self.refused(e, "only elements of arrays and variables are read and written")

    def pointer(self, e: Any, *, whole: bool = False) -> Pointer:
        """What an expression points at; with ``whole`` the element, or row, that it names."""
        c = self.c
        match e:
            case c.ArrayRef():
                base = self.pointer(e.name)
                at = self.value(e.subscript)
                self.at = e
                moved = self.moved(base, at)
                return moved if whole else self.row(moved)
            case c.UnaryOp(op="*"):
                base = self.pointer(e.expr)
                return base if whole else self.row(base)
            case c.UnaryOp(op="&"):
                return self.pointer(e.expr, whole=True)
            case c.UnaryOp() if e.op in STEPS:
                raise self.refused(
                    e, "a pointer that moves where it is read is not part of nests", "write indices: x[i]"
                )
            case c.BinaryOp(op="+" | "-"):
                base, by = self.pointer(e.left), self.value(e.right)
                self.at = e
                return self.moved(base, self.arith.negative(by) if e.op == "-" else by)
            case c.Cast():
                inner = self.pointer(e.expr)
                if isinstance(e.to_type.type, c.PtrDecl) and self.kind(e.to_type.type.type, e) in (
                    None,
                    inner.array.dtype,
                ):
                    return inner
                raise self.refused(e, "pointers are not converted", "declare the array with its own type")
            case c.ID():
                v = self.variable(e)
                if v.rank:
                    return Pointer(v, (number(0, I64),))
                if not v.pointer:
                    raise self.refused(e, f"{quoted(v.name)} is no array: it has no elements")
                known = self.facts.get(v)
                if not isinstance(known, Pointer):
                    raise self.refused(
                        e,
                        f"where {quoted(v.name)} points at is not known here: a loop or a branch moves it",
                        "write the array with its indices",
                    )
                return known
        raise self.refused(e, "only elements of arrays and variables are read and written")

    def row(self, p: Pointer) -> Pointer:
        """The first element of a row that a pointer points at."""
        if len(p.indices) >= p.array.rank:
            name = quoted(p.array.name)
            raise self.error(f"{name} has {p.array.rank} dimensions, got more indices")
        return Pointer(p.array, (*p.indices, number(0, I64)))

    def moved(self, p: Pointer, by: Number) -> Pointer:
        """A pointer some elements on."""
        if by.dtype.is_float:
            raise self.error(f"index {len(p.indices) - 1} of {quoted(p.array.name)} is no integer")
        *outer, last = p.indices
        if by.dtype.kind == "uint":
            by = self.arith.exact(by) if not isinstance(by.value, Index) else Number(by.value, I64)
        if isinstance(last.value, Index) and last.value == index(0):
            return Pointer(p.array, (*outer, by))
        return Pointer(p.array, (*outer, self.arith.binary("add", last, by)))

    def load(self, v: Variable, indices: Collection[Number]) -> Number:
        """The value of an element or a scalar."""
        assert v.buffer is not None
        return Number(self.builder.load(v.buffer, [n.value for n in indices]), v.dtype)

    def named(self, e: Any) -> Number:
        """The value of a name."""
        if self.found(e.name) is None and e.name in self.constants:
            return self.constants[e.name]
        v, _ = self.element(e)
        if v in self.loops:
            return Number(self.loops[v], v.dtype)
        known = self.facts.get(v)
        if isinstance(known, Index):
            return Number(known, v.dtype)
        if v.value is not None:
            return v.value
        if v.buffer is None or v.lost:
            raise self.refused(
                e,
                f"{quoted(v.name)} has no value here: nothing was assigned to it",
                "a loop that data end leaves none" if v.lost else None,
            )
        return self.load(v, ())

    # -- values ----------------------------------------------------------------------------------------------

    def value(self, e: Any) -> Number:
        """The value of an expression."""
        self.at = e
        c = self.c
        match e:
            case c.Constant():
                return self.constant(e)
            case c.ID():
                return self.named(e)
            case c.ArrayRef():
                v, indices = self.element(e)
                self.at = e
                return self.load(v, indices)
            case c.UnaryOp(op="*"):
                v, indices = self.element(e)
                return self.load(v, indices)
            case c.UnaryOp(op="-" | "+" | "~"):
                inner = self.value(e.expr)
                self.at = e
                if e.op == "+":
                    return self.arith.promoted(inner)
                return self.arith.negative(inner) if e.op == "-" else self.arith.inverted(inner)
            case c.UnaryOp(op="sizeof"):
                return self.bytes_of(e.expr)
            case c.BinaryOp() if e.op in BINARY:
                a, b = self.value(e.left), self.value(e.right)
                self.at = e
                if e.op in ("/", "%") and b.value == index(0) and not all_of(c.ID, e.right):
                    raise self.error("this is divided by zero")
                return self.arith.binary(BINARY[e.op], a, b)
            case c.BinaryOp() | c.UnaryOp(op="!"):
                return self.arith.counted(self.condition(e))
            case c.TernaryOp():
                cond = self.condition(e.cond)
                a, b = self.value(e.iftrue), self.value(e.iffalse)
                self.at = e
                return self.arith.chosen(cond, a, b)
            case c.Cast():
                dtype = self.kind(e.to_type.type, e)
                if dtype is None:
                    raise self.refused(e, "nothing is converted to void")
                inner = self.value(e.expr)
                self.at = e
                return self.arith.converted(inner, dtype)
            case c.FuncCall(name=c.ID()):
                return self.called(e)
        told = {
            "UnaryOp": f"the operator {getattr(e, 'op', '')} is not part of expressions",
            "Assignment": "an assignment is a statement of its own",
            "ExprList": "a list of expressions is no value",
            "StructRef": "structures are not part of nests: give their members as arguments",
        }.get(type(e).__name__, f"{type(e).__name__} expressions are not part of nests")
        raise self.refused(e, told)

    def bytes_of(self, e: Any) -> Number:
        """``sizeof`` a type or an element, in bytes."""
        if isinstance(e, self.c.Typename):
            dtype, count = self.shape(e.type, e)
            if count:
                raise self.refused(e, "sizeof is for elements")
        else:
            dtype = self.value(e).dtype
        return number(dtype.bytes, U64)

    def called(self, e: Any) -> Number:
        """The value of a call: of a function of the file with one ``return``, or of the library."""
        c = self.c
        args = [] if e.args is None else list(e.args.exprs)
        part = self.source.function(e.name.name)
        if part is None:
            values = [self.value(a) for a in args]
            self.at = e
            return self.arith.called(e.name.name, values)
        f = self.entered(e, part, args)
        dtype = self.kind(f.decl.type.type, f)
        if dtype is None:
            raise self.refused(e, f"the function {quoted(e.name.name)} returns nothing")
        out = self.returning(e, statements(c, f.body), dtype)
        self.at = e
        self.left()
        return out

    def returning(self, e: Any, items: Sequence[Any], dtype: DType) -> Number:
        """What a function returns that gives variables of its own values, and branches: choices of values."""
        c = self.c
        for n, s in enumerate(items):
            match s:
                case c.Return() if s.expr is not None:
                    return self.arith.converted(self.value(s.expr), dtype)
                case c.If() if all_of(c.Return, s):
                    cond, known = self.condition(s.cond), self.known()
                    ways = []
                    for part in (s.iftrue, s.iffalse):
                        own = statements(c, part)
                        if any(isinstance(d, c.Decl) for d in own) and not isinstance(own[-1], c.Return):
                            raise self.not_one_value(e)  # what follows would see names of the branch
                        self.scopes.append({})
                        ways.append(self.returning(e, [*own, *items[n + 1 :]], dtype))
                        self.scopes.pop()
                        self.know(known)
                    return self.arith.converted(self.arith.chosen(cond, *ways), dtype)
                case _:
                    self.settle(e, s)
        raise self.not_one_value(e)

    def not_one_value(self, e: Any) -> ProgramError:
        """The error of a call in an expression whose function is no expression."""
        return self.refused(
            e,
            f"the function {quoted(e.name.name)} does more than to return a value",
            "write its statements where it is called",
        )

    def settle(self, e: Any, s: Any) -> None:
        """A statement of a function in an expression: variables of its own get values."""
        c = self.c
        match s:
            case c.If():
                cond, before = self.condition(s.cond), self.known()
                ways = []
                for part in (s.iftrue, s.iffalse):
                    self.scopes.append({})
                    for each in statements(c, part):
                        self.settle(e, each)
                    self.scopes.pop()
                    ways.append(self.known())
                    self.know(before)
                self.at = s
                chosen = {
                    v: None if a is None or b is None else self.arith.chosen(cond, a, b)
                    for v, a, b in ((v, ways[0][v], ways[1][v]) for v in before)
                    if a != b
                }
                self.know(chosen)
            case c.Decl() if not isinstance(s.type, c.PtrDecl | c.ArrayDecl):
                dtype = self.kind(s.type, s)
                value = None if s.init is None else self.value(s.init)
                if dtype is None:
                    raise self.not_one_value(e)
                self.know({self.declare(Variable(s.name, dtype), s): value})
            case c.Assignment(lvalue=c.ID()) | c.UnaryOp(op="p++" | "++" | "p--" | "--", expr=c.ID()):
                target = s.lvalue if isinstance(s, c.Assignment) else s.expr
                v = self.found(target.name)
                if v not in self.known():
                    raise self.not_one_value(e)
                if isinstance(s, c.UnaryOp):
                    value = self.arith.binary("add" if "+" in s.op else "sub", self.named(target), number(1))
                else:
                    value = self.value(s.rvalue)
                    if s.op != "=":
                        value = self.arith.binary(BINARY[s.op[:-1]], self.named(target), value)
                self.know({v: value})
            case c.EmptyStatement():
                return
            case _:
                raise self.not_one_value(e)

    def known(self) -> dict[Variable, Number | None]:
        """The numbers of the function that is entered, and their values."""
        out: dict[Variable, Number | None] = {}
        for scope in self.scopes[1:]:
            for v in scope.values():
                fact = self.facts.get(v)
                if not v.pointer:
                    out[v] = Number(fact, v.dtype) if isinstance(fact, Index) else v.value
        return out

    def know(self, values: Mapping[Variable, Number | None]) -> None:
        """Let numbers of a function in an expression have values from now on."""
        for v, value in values.items():
            held = None if value is None else self.arith.converted(value, v.dtype)
            self.facts.pop(v, None)
            v.value = None
            if held is not None and isinstance(held.value, Index):
                self.facts[v] = held.value
            else:
                v.value = held

    def entered(self, e: Any, part: Any, args: list[Any]) -> Any:
        """The function that a call enters, with its parameters as names that have these values."""
        c = self.c
        if len(self.callers) >= MAX_CALLS:
            raise self.refused(e, f"functions call each other more than {MAX_CALLS} deep")
        f = self.source.parsed(part)[0]
        listed = f.decl.type.args.params if f.decl.type.args is not None else ()
        params = [p for p in listed if isinstance(p, c.Decl)]
        if len(params) != len(args):
            raise self.refused(e, f"{quoted(e.name.name)} takes {len(params)} arguments, got {len(args)}")
        given: list[tuple[Variable, Fact | Number]] = []
        for p, a in zip(params, args, strict=True):
            if isinstance(p.type, c.PtrDecl | c.ArrayDecl):
                pointed = self.pointer(a)
                given.append((Variable(p.name, pointed.array.dtype, pointer=True), pointed))
                continue
            dtype = self.kind(p.type, p)
            if dtype is None:
                raise self.refused(p, f"{quoted(p.name)} is void")
            value = self.arith.converted(self.value(a), dtype)
            given.append((Variable(p.name, dtype), value.value if isinstance(value.value, Index) else value))
        self.callers.append(self.scopes)
        self.scopes = [self.scopes[0], {}]
        for (v, known), p in zip(given, params, strict=True):
            self.declare(v, p)
            if isinstance(known, Number):
                v.value = known
            else:
                self.facts[v] = known
        return f

    def left(self) -> None:
        """Behind a function that was called."""
        self.scopes = self.callers.pop()

    def constant(self, e: Any) -> Number:
        """A literal."""
        text = e.value
        if "int" in e.type.split():
            digits = text.rstrip("uUlL")
            suffix = text[len(digits) :].lower()
            octal = re.fullmatch(r"0\d+", digits) is not None
            whole = int(digits, 8 if octal else 0)
            decimal = not octal and digits[:2].lower() not in ("0x", "0b")
            kinds = [t for t in (I32, U32, I64, U64) if t.bits == 64 or "l" not in suffix]
            kinds = [
                t for t in kinds if (t.kind == "uint" if "u" in suffix else t.kind == "int" or not decimal)
            ]
            fitting = next((t for t in kinds if whole <= t.max_value), None)
            if fitting is None:
                raise self.refused(e, f"the integer {text} is too large")
            if whole >> 62:
                return Number(Const(whole, fitting), fitting)
            return number(whole, fitting)
        if e.type == "char":
            inner = text[1:-1]
            escapes = {"\\n": 10, "\\t": 9, "\\0": 0, "\\r": 13, "\\\\": 92, "\\'": 39, '\\"': 34}
            if len(inner) == 1 or inner in escapes:
                return number(escapes.get(inner, ord(inner[0])))
        if e.type in ("double", "float") and text[-1] not in "lL":
            single = text[-1] in "fF"
            if "x" in text.lower():  # of which f is a digit, but not after the exponent
                single = single and "p" in text.lower()
                return Number(
                    Const(float.fromhex(text.rstrip("fF")), F32 if single else F64), F32 if single else F64
                )
            value = float(text.rstrip("fF"))
            return Number(Const(value, F32 if single else F64), F32 if single else F64)
        raise self.refused(e, f"constants of type {e.type} are not part of nests")

    def condition(self, e: Any) -> Expr:
        """Whether an expression is not zero, as a condition."""
        self.at = e
        c = self.c
        match e:
            case c.BinaryOp(op="&&" | "||"):
                join = both if e.op == "&&" else either
                return join(self.condition(e.left), self.condition(e.right))
            case c.UnaryOp(op="!"):
                return opposite(self.condition(e.expr))
            case c.BinaryOp() if e.op in COMPARE:
                a, b = self.value(e.left), self.value(e.right)
                self.at = e
                return self.arith.compared(COMPARE[e.op], a, b)
        found = self.value(e)
        self.at = e
        return self.arith.truth(found)
