"""The three-operand form of a stage and its access matrices.

A stage becomes operations ``dst[access] op= src[access]`` over one set of loop axes, each running over the
whole domain before the next; temporaries carry all the axes. An operand's access matrix has a row per buffer
dimension and a column per axis. (ISA Mapper: the representation.) For a matrix product:

    C[i, j] := 0;   t0[i, j, k] := A[i, k];   t0[i, j, k] *= B[k, j];   C[i, j] += t0[i, j, k]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.ir import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Stage,
    Store,
    Unary,
    var,
)
from tilewright.support import ProgramError

_SYMBOLS: Final = {"add": "+=", "sub": "-=", "mul": "*=", "div": "/=", "max": "max=", "min": "min="}


@dataclass(frozen=True, slots=True)
class AccessMatrix:
    """An operand: ``buffer[rows . axes + offsets]``, a row per dimension and a column per axis.

    ``offsets`` hold what no axis decides: constants and symbolic parameters. ``temporary`` operands exist
    only in the form; their matrix is the identity.
    """

    buffer: str
    rows: tuple[tuple[int, ...], ...]
    offsets: tuple[Index, ...]
    temporary: bool = False

    def column(self, axis: int) -> tuple[int, ...]:
        """How each dimension moves with an axis."""
        return tuple(row[axis] for row in self.rows)


@dataclass(frozen=True, slots=True)
class Operation:
    """``dst op src``, with ``op`` one of ``:=``, ``+=``, ``-=``, ``*=``, ``/=``, ``max=``, ``min=``.

    A scalar function or a conversion is the assignment ``exp:=`` and the like. ``src`` may be a constant.
    """

    dst: AccessMatrix
    op: str
    src: AccessMatrix | Const


@dataclass(frozen=True, slots=True)
class ThreeOperandForm:
    """The operations of a stage over ``axes``, with the axes' ``extents`` and ``kinds`` (as iterators')."""

    axes: tuple[str, ...]
    extents: tuple[Index, ...]
    kinds: tuple[str, ...]
    operations: tuple[Operation, ...]

    def operand(self, buffer: str) -> AccessMatrix:
        """The first operand that is a buffer of this name; ``KeyError`` where there is none."""
        for o in self.operations:
            for side in (o.dst, o.src):
                if isinstance(side, AccessMatrix) and side.buffer == buffer:
                    return side
        raise KeyError(buffer)

    def __str__(self) -> str:
        def shown(side: AccessMatrix | Const) -> str:
            if isinstance(side, Const):
                return str(side.value)
            return f"{side.buffer}[{', '.join(str(i) for i in self.indices(side))}]"

        return "\n".join(f"{shown(o.dst)} {o.op} {shown(o.src)}" for o in self.operations)

    def indices(self, operand: AccessMatrix) -> tuple[Index, ...]:
        """The indices of an operand as expressions of the axes."""
        return tuple(
            sum((var(a) * c for a, c in zip(self.axes, row, strict=True)), offset)
            for row, offset in zip(operand.rows, operand.offsets, strict=True)
        )


class _Builder:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.axes = tuple(it.name for it in stage.iters)
        self.operations: list[Operation] = []
        self.taken = {*stage.reads, *stage.writes}

    def matrix(self, buffer: str, indices: tuple[Index, ...]) -> AccessMatrix:
        """The access matrix of affine indices."""
        rows, offsets = [], []
        for x in indices:
            row = tuple(x.coefficient(a) for a in self.axes)
            rest = x
            for a, c in zip(self.axes, row, strict=True):
                rest = rest - var(a) * c
            if rest.vars:
                raise ProgramError(
                    f"the access {buffer}[{', '.join(map(str, indices))}] of stage {self.stage.name} is not"
                    f" affine: {x}",
                    hint="only sums of multiples of the axes have an access matrix",
                )
            rows.append(row)
            offsets.append(rest)
        return AccessMatrix(buffer, tuple(rows), tuple(offsets))

    def temporary(self) -> AccessMatrix:
        n = 0
        while f"t{n}" in self.taken:
            n += 1
        name = f"t{n}"
        self.taken.add(name)
        size = len(self.axes)
        rows = tuple(tuple(int(r == c) for c in range(size)) for r in range(size))
        return AccessMatrix(name, rows, tuple(Index(0) for _ in range(size)), True)

    def emit(self, dst: AccessMatrix, op: str, src: AccessMatrix | Const) -> None:
        self.operations.append(Operation(dst, op, src))

    def leaf(self, e: Expr) -> AccessMatrix | Const | None:
        match e:
            case Const():
                return e
            case Load():
                return self.matrix(e.buffer, e.indices)
            case _:
                return None

    def operand(self, e: Expr) -> AccessMatrix | Const:
        """A leaf itself, or the temporary that holds the value."""
        found = self.leaf(e)
        return found if found is not None else self.value(e)

    def value(self, e: Expr) -> AccessMatrix:
        """Emit the operations that compute ``e`` into a temporary."""
        match e:
            case Binary(op=op) if op in _SYMBOLS:
                into = self.value(e.a)
                self.emit(into, _SYMBOLS[op], self.operand(e.b))
                return into
            case Unary() | Cast():
                source = self.operand(e.a)
                into = self.temporary()
                self.emit(into, f"{e.op if isinstance(e, Unary) else e.dtype}:=", source)
                return into
            case Call(fn=fn, args=(arg,)):
                source = self.operand(arg)
                into = self.temporary()
                self.emit(into, f"{fn}:=", source)
                return into
            case Const() | Load():
                into = self.temporary()
                self.emit(into, ":=", self.operand(e))
                return into
            case _:
                raise ProgramError(
                    f"stage {self.stage.name} computes {e}, which has no three-operand form",
                    hint="it knows + - * /, min, max and functions of one value",
                )

    def store(self, s: Store, *, accumulates: bool) -> None:
        if len(s.writes) != 1:
            raise ProgramError(f"stage {self.stage.name} writes several values at once")
        (w,) = s.writes
        dst = self.matrix(w.buffer, w.indices)
        value = w.value
        if accumulates and isinstance(value, Binary) and value.op in _SYMBOLS:
            own = isinstance(value.a, Load) and (value.a.buffer, value.a.indices) == (w.buffer, w.indices)
            if own:
                self.emit(dst, _SYMBOLS[value.op], self.operand(value.b))
                return
        self.emit(dst, ":=", self.operand(value))


def three_operand_form(stage: Stage) -> ThreeOperandForm:
    """The three-operand form of a stage that is one assignment, its initialisation first.

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

    Raises :class:`~tilewright.support.ProgramError` for accesses that are not affine and expressions that the
    form does not know.
    """
    builder = _Builder(stage)
    for part, accumulates in ((stage.init, False), (stage.body, True)):
        if part is None:
            continue
        if not isinstance(part, Store):
            raise ProgramError(f"stage {stage.name} is not a single assignment")
        builder.store(part, accumulates=accumulates)
    return ThreeOperandForm(
        builder.axes,
        tuple(it.extent for it in stage.iters),
        tuple(it.kind for it in stage.iters),
        tuple(builder.operations),
    )
