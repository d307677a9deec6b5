"""The three-operand form of a stage and its access matrices.

A stage becomes operations ``dst[access] op= src[access]`` over one set of loop axes, each running over the
whole domain before the next; temporaries carry all the axes. An operand's access matrix has a row per buffer
dimension and a column per axis. (ISA Mapper: the representation.) For a matrix product:

    C[i, j] := 0;   t0[i, j, k] := A[i, k];   t0[i, j, k] *= B[k, j];   C[i, j] += t0[i, j, k]

An element that is widened where it is used stays an operand of its own type. Sums and products of several
terms are one chain, whatever their brackets, what is computed first and constants last: the form is for
programs whose rounding may be reassociated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from tilewright.analysis import operands_of
from tilewright.ir import (
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    If,
    Index,
    Load,
    OfIndex,
    Pred,
    Select,
    Stage,
    Stmt,
    Store,
    Unary,
    Var,
    children,
    var,
)
from tilewright.mapping.digits import in_digits
from tilewright.support import InternalError, ProgramError

_SYMBOLS: Final = {"add": "+=", "sub": "-=", "mul": "*=", "div": "/=", "max": "max=", "min": "min="}
_CHAINS: Final = frozenset({"add", "mul", "max", "min"})
"""Operations whose brackets and order do not count."""
_DIGITS: Final = MappingProxyType({"f64": 53, "f32": 24, "f16": 11, "bf16": 8})
"""Binary digits that every integer of so many has in a type."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Where an access or an operation takes place; ``axes`` occur in it.

    Elsewhere an access has the value ``otherwise``, and an operation is not done (``None``).
    """

    condition: Expr | Pred
    axes: tuple[str, ...]
    otherwise: Const | None = None

    def __str__(self) -> str:
        shown = (
            " and ".join(map(str, self.condition))
            if isinstance(self.condition, tuple)
            else str(self.condition)
        )
        return f" if {shown}" + ("" if self.otherwise is None else f" else {self.otherwise.value}")


@dataclass(frozen=True, slots=True)
class AccessMatrix:
    """An operand: ``buffer[rows . axes + offsets]``, a row per dimension and a column per axis.

    An entry is ``None`` where the dimension moves with the axis in no affine way. ``offsets`` hold what no
    axis decides: constants and symbolic parameters, or the whole index of a row that is not affine.
    ``temporary`` operands exist only in the form; their matrix is the identity. An access with a ``guard``
    takes place only where that holds.
    """

    buffer: str
    rows: tuple[tuple[int | None, ...], ...]
    offsets: tuple[Index, ...]
    dtype: DType
    temporary: bool = False
    guard: Guard | None = None

    def column(self, axis: int) -> tuple[int | None, ...]:
        """How each dimension moves with an axis."""
        return tuple(row[axis] for row in self.rows)


@dataclass(frozen=True, slots=True)
class Operation:
    """``dst op src``, with ``op`` one of ``:=``, ``+=``, ``-=``, ``*=``, ``/=``, ``max=``, ``min=``.

    A scalar function or a conversion is the assignment ``exp:=`` and the like. ``src`` may be a constant.
    The operation is of the element type of ``dst``, to which ``src`` is widened.
    """

    dst: AccessMatrix
    op: str
    src: AccessMatrix | Const
    guard: Guard | None = None

    @property
    def accesses(self) -> tuple[AccessMatrix, ...]:
        """Both sides that are buffers."""
        return (self.dst,) if isinstance(self.src, Const) else (self.dst, self.src)


@dataclass(frozen=True, slots=True)
class ThreeOperandForm:
    """The operations of a stage over ``axes``, with the axes' ``extents`` and ``kinds`` (as iterators').

    ``origins`` give for each axis the stage's iterator and the axis's stride in it: an iterator that indices
    divide is several axes.
    """

    stage: str
    axes: tuple[str, ...]
    extents: tuple[Index, ...]
    kinds: tuple[str, ...]
    operations: tuple[Operation, ...]
    origins: tuple[tuple[str, int], ...]
    initialised: int = 0
    """How many of the operations, the first ones, are the stage's initialisation."""

    def operand(self, buffer: str) -> AccessMatrix:
        """The first operand that is a buffer of this name; ``KeyError`` where there is none."""
        for o in self.operations:
            for side in o.accesses:
                if side.buffer == buffer:
                    return side
        raise KeyError(buffer)

    def __str__(self) -> str:
        def shown(side: AccessMatrix | Const) -> str:
            if isinstance(side, Const):
                return str(side.value)
            guard = "" if side.guard is None else f"({str(side.guard).strip()})"
            return f"{side.buffer}[{', '.join(str(i) for i in self.indices(side))}]{guard}"

        return "\n".join(
            f"{shown(o.dst)} {o.op} {shown(o.src)}{o.guard if o.guard is not None else ''}"
            for o in self.operations
        )

    def indices(self, operand: AccessMatrix) -> tuple[Index, ...]:
        """The indices of an operand as expressions of the axes."""
        return tuple(
            offset
            if None in row
            else sum((var(a) * (c or 0) for a, c in zip(self.axes, row, strict=True)), offset)
            for row, offset in zip(operand.rows, operand.offsets, strict=True)
        )


class _Builder:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.axes = tuple(it.name for it in stage.iters)
        self.operations: list[Operation] = []
        self.taken = {*stage.reads, *stage.writes}
        self.guard: Guard | None = None

    def matrix(self, buffer: str, indices: tuple[Index, ...], dtype: DType) -> AccessMatrix:
        """The access matrix of indices."""
        rows: list[tuple[int | None, ...]] = []
        offsets: list[Index] = []
        for x in indices:
            affine = {atom.name: c for atom, c in x.terms if isinstance(atom, Var)}
            rest = x - sum((var(a) * c for a, c in affine.items() if a in self.axes), ZERO)
            if rest.vars & set(self.axes):
                rows.append(tuple(None if a in rest.vars else affine.get(a, 0) for a in self.axes))
                offsets.append(x)
            else:
                rows.append(tuple(affine.get(a, 0) for a in self.axes))
                offsets.append(rest)
        return AccessMatrix(buffer, tuple(rows), tuple(offsets), dtype)

    def temporary(self, dtype: DType) -> AccessMatrix:
        n = 0
        while f"t{n}" in self.taken:
            n += 1
        name = f"t{n}"
        self.taken.add(name)
        size = len(self.axes)
        rows = tuple(tuple(int(r == c) for c in range(size)) for r in range(size))
        return AccessMatrix(name, rows, tuple(Index(0) for _ in range(size)), dtype, True)

    def emit(self, dst: AccessMatrix, op: str, src: AccessMatrix | Const, guard: Guard | None = None) -> None:
        self.operations.append(Operation(dst, op, src, guard or self.guard))

    def guarded(self, e: Select) -> AccessMatrix | None:
        """An element that is read only where a condition holds, and a constant elsewhere."""
        inner = self.leaf(e.a)
        if not isinstance(inner, AccessMatrix) or not isinstance(e.b, Const) or inner.guard is not None:
            return None
        axes = tuple(a for a in self.axes if a in e.cond.vars)
        return replace(inner, guard=Guard(e.cond, axes, e.b))

    def leaf(self, e: Expr) -> AccessMatrix | Const | None:
        match e:
            case Const():
                return e
            case Load():
                return self.matrix(e.buffer, e.indices, e.dtype)
            case OfIndex():
                return self.matrix("", (e.index,), e.dtype)
            case Cast() if e.mode != "bits" and widens(e.a.dtype, e.dtype):
                inner = self.leaf(e.a)
                return inner if isinstance(inner, AccessMatrix) else None
            case Select():
                return self.guarded(e)
            case _:
                return None

    def rank(self, e: Expr) -> int:
        """Where a term stands in a chain: what is computed, elements, constants."""
        found = self.leaf(e)
        return 0 if found is None else 1 + isinstance(found, Const)

    def operand(self, e: Expr) -> AccessMatrix | Const:
        """A leaf itself, or the temporary that holds the value."""
        found = self.leaf(e)
        return found if found is not None else self.value(e)

    def value(self, e: Expr) -> AccessMatrix:
        """Emit the operations that compute ``e`` into a temporary."""
        leaf = self.leaf(e)
        if leaf is not None:
            into = self.temporary(e.dtype)
            self.emit(into, ":=", leaf)
            return into
        match e:
            case Binary(op=op):
                first, *others = sorted(operands_of(e, op), key=self.rank) if op in _CHAINS else (e.a, e.b)
                into = self.value(first)
                for term in others:
                    self.emit(into, operation_names(e)[0], self.operand(term))
                return into
            case Unary(a=arg) | Cast(a=arg) | Call(args=(arg,)):
                source = self.operand(arg)
                into = self.temporary(e.dtype)
                (name,) = operation_names(e)
                self.emit(into, name, source)
                return into
            case Compare() | Call():
                arg, *more = children(e)
                into = self.value(arg)
                for name, other in zip(operation_names(e), more, strict=True):
                    self.emit(into, name, self.operand(other))
                return into
            case Select():
                into = self.value(e.b)
                chosen = self.operand(e.a)
                axes = tuple(a for a in self.axes if a in e.cond.vars)
                self.emit(into, ":=", chosen, Guard(e.cond, axes))
                return into
            case _:
                raise InternalError(f"stage {self.stage.name} computes {e}, which has no three-operand form")

    def store(self, s: Stmt, *, accumulates: bool) -> None:
        if isinstance(s, If) and s.orelse is None and self.guard is None:
            used = {v for c in s.cond for v in c.vars}
            self.guard = Guard(s.cond, tuple(a for a in self.axes if a in used))
            self.store(s.then, accumulates=accumulates)
            self.guard = None
            return
        if not isinstance(s, Store):
            raise ProgramError(f"stage {self.stage.name} is not a single assignment")
        if len(s.writes) > 1:
            # all values are computed before any is stored
            held = [self.value(each.value) for each in s.writes]
            for each, made in zip(s.writes, held, strict=True):
                self.emit(self.matrix(each.buffer, each.indices, each.value.dtype), ":=", made)
            return
        (w,) = s.writes
        dst = self.matrix(w.buffer, w.indices, w.value.dtype)
        value = w.value
        if accumulates and isinstance(value, Binary) and value.op in _SYMBOLS:
            parts = operands_of(value, value.op) if value.op in _CHAINS else [value.a, value.b]
            own = [e for e in parts if e != Load(w.buffer, w.indices, value.dtype)]
            if len(own) == len(parts) - 1 and (value.op in _CHAINS or own[0] == value.b):
                self.emit(dst, _SYMBOLS[value.op], self.joined(own, value.op))
                return
        self.emit(dst, ":=", self.operand(value))

    def joined(self, parts: list[Expr], op: str) -> AccessMatrix | Const:
        """The operand that the parts are together."""
        total = parts[0]
        for part in parts[1:]:
            total = Binary(op, total, part)
        return self.operand(total)


def operation_names(e: Expr) -> tuple[str, ...]:
    """What the operations are called that an expression's own node is in the form; none of a selection.

    A conversion of an element that loses nothing is none there: the element is an operand of its own type.
    """
    match e:
        case Binary(op=op):
            return (_SYMBOLS.get(op, f"{op}="),)
        case Compare(op=op):
            return (f"{op}=",)
        case Unary(op=op):
            return (f"{op}:=",)
        case Cast():
            return (f"{e.dtype}:=" if e.mode == "wrap" else f"{e.dtype} {e.mode}:=",)
        case Call(fn=fn, args=(_,)):
            return (f"{fn}:=",)
        case Call(fn=fn, args=(_, *more)):
            return tuple(f"{fn}{n if len(more) > 1 else ''}=" for n in range(1, len(more) + 1))
        case _:
            return ()


def widens(old: DType, new: DType) -> bool:
    """Whether every value of one element type is one of the other.

    >>> from tilewright.ir import BF16, F32, I32, I8, U8
    >>> widens(U8, I32), widens(I8, U8), widens(BF16, F32), widens(I32, F32)
    (True, False, True, False)
    """
    if old == new:
        return True
    if old.is_float:
        return new.is_float and old.bits < new.bits
    if old.kind == "bool":
        return new.kind != "bool"
    if new.is_float:
        return old.bits - (old.kind == "int") <= _DIGITS[new.name]
    return old.bits < new.bits and (old.kind == new.kind or new.kind == "int")


def three_operand_form(stage: Stage) -> ThreeOperandForm:
    """The three-operand form of a stage, its initialisation first.

    >>> from tilewright.ir import *
    >>> i, j, k = map(var, "ijk")
    >>> product = Binary("mul", Load("A", (i, k), F32), Load("B", (k, j), F32))
    >>> par = [Iter(n, ZERO, index(4), "par") for n in "ij"]
    >>> iters = (*par, Iter("k", ZERO, index(6), "red"))
    >>> body = store("C", (i, j), Binary("add", Load("C", (i, j), F32), product))
    >>> form = three_operand_form(Stage("C", iters, body, store("C", (i, j), Const(0.0, F32))))
    >>> print(form)
    C[i, j] := 0.0
    t0[i, j, k] := A[i, k]
    t0[i, j, k] *= B[k, j]
    C[i, j] += t0[i, j, k]
    >>> form.operand("A").rows
    ((1, 0, 0), (0, 0, 1))

    Raises :class:`~tilewright.support.ProgramError` for stages that are no assignments.
    """
    apart, origins = in_digits(stage)
    builder = _Builder(apart)
    initialised = 0
    for part, accumulates in ((apart.init, False), (apart.body, True)):
        if part is None:
            continue
        builder.store(part, accumulates=accumulates)
        initialised = initialised or (len(builder.operations) if not accumulates else 0)
    return ThreeOperandForm(
        stage.name,
        builder.axes,
        tuple(it.extent for it in apart.iters),
        tuple(it.kind for it in apart.iters),
        tuple(builder.operations),
        origins,
        initialised,
    )
