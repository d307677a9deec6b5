"""Accesses of many elements at once: vector loops over elements that lie together, as one access each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from math import copysign, gcd
from typing import Final

from tilewright.codegen.clike.dialect import Dialect
from tilewright.codegen.clike.helpers import Helpers
from tilewright.codegen.clike.late_copies import SIZES
from tilewright.codegen.clike.statements import Statements, constant_extent
from tilewright.codegen.clike.writer import Writer
from tilewright.ir import (
    ASYNCHRONOUS,
    Condition,
    Const,
    Expr,
    For,
    If,
    Index,
    Load,
    Select,
    Seq,
    Store,
    children,
    simplify,
    stmt_exprs,
    substitute,
    substitute_index,
    var,
)

VECTOR_BYTES: Final = 16
"""Bytes of the widest access to memory by one thread."""


class WideAccesses(Statements):
    """Statements of a kernel, of whose buffers some are ``private`` to a thread and some a block's."""

    def __init__(self, dialect: Dialect, helpers: Helpers, writer: Writer, *, wide: bool) -> None:
        super().__init__(dialect, helpers, writer, wide=wide)
        self.private: set[str] = set()
        self.shared: set[str] = set()
        self.late = False
        """Whether what is stored may arrive at the next barrier."""

    def vector(self, s: For) -> bool:
        """Write a vector loop as wide accesses, if it is stores of elements that lie together."""
        lanes = constant_extent(s)
        if isinstance(s.body, If) and s.body.orelse is None and all(_alike(c, s) for c in s.body.cond):
            first = {s.var: s.lo}
            text = self.conditions(tuple(_where(c, first) for c in s.body.cond))
            inner = replace(s, body=s.body.then)
            with self.writer.block(f"if ({text})") if text else nullcontext():
                if not self.vector(inner):
                    super().loop(inner)
            return True
        parts = s.body.stmts if isinstance(s.body, Seq) else (s.body,)
        if lanes is None or not s.lo.is_const or s.step != 1 or not 1 < lanes <= 64:
            return False
        stores = [
            part
            for part in parts
            if isinstance(part, Store) and len(part.writes) == 1 and part.writes[0].buffer not in self.atomic
        ]
        if len(stores) != len(parts):
            return False
        if not all(self._together(st, s, lanes) or self._reads_together(st, s, lanes) for st in stores):
            return False
        for part in stores:
            self._by_cases(part, s, lanes)
        return True

    def _by_cases(self, part: Store, s: For, lanes: int) -> None:
        """Write a store of many elements; conditions that all of them share become branches."""
        if self._later(part, s, lanes):
            return
        (w,) = part.writes
        cond = w.value.cond if isinstance(w.value, Select) else None
        if cond is None or s.var in cond.vars:
            self._wide(part, s, lanes)
            return
        assert isinstance(w.value, Select)  # it has a condition
        yes, no = (Store((replace(w, value=value),)) for value in (w.value.a, w.value.b))
        with self.statement([cond]):
            text = self.value(cond)
        with self.writer.block(f"if ({text})"):
            self._by_cases(yes, s, lanes)
        with self.writer.block("else"):
            self._by_cases(no, s, lanes)

    def _pieces(self, lanes: int, nbytes: int) -> list[int]:
        """Widths of the accesses that ``lanes`` elements take."""
        width = min(lanes, VECTOR_BYTES // nbytes)
        return [width] * (lanes // width) if lanes % width == 0 and width & (width - 1) == 0 else []

    def _aligned(self, buffer: str, indices: tuple[Index, ...], s: For, lanes: int) -> bool:
        """Whether the elements of all lanes lie side by side at a place that a wide access may begin at."""
        place = self.place(buffer)
        pieces = self._pieces(lanes, place.buffer.dtype.bytes)
        if buffer in self.private or not pieces:
            return False
        total, products = self.offset(place, indices)
        if products:
            return False
        # rings of tiles: elements of one tile do not wrap around
        rest = simplify(total, {**self.env, s.var: (s.lo, s.hi - 1)}) - var(s.var)
        first = rest + s.lo.const
        return s.var not in rest.vars and all(
            number % pieces[0] == 0 for number in (first.const, *(c for _, c in rest.terms))
        )

    def _together(self, part: Store, s: For, lanes: int) -> bool:
        (w,) = part.writes
        return self._aligned(w.buffer, w.indices, s, lanes)

    def _reads_together(self, part: Store, s: For, lanes: int) -> bool:
        """Whether what is read lies together, if only what is written does not."""
        (w,) = part.writes
        value = w.value
        while isinstance(value, Select) and s.var not in value.cond.vars:
            value = value.a
        return any(
            s.var in ld.vars and self._aligned(ld.buffer, ld.indices, s, lanes) for ld in _certain(value)
        )

    def _later(self, part: Store, s: For, lanes: int) -> bool:
        """Write copies to shared memory that arrive at the next barrier, where the hint allows that.

        One copy of many elements where they lie together in both, or one of each.
        """
        (w,) = part.writes
        dtype = self.place(w.buffer).buffer.dtype
        if ASYNCHRONOUS not in dict(s.hints):
            return False
        with self.statement(stmt_exprs(part)):
            conds, value, _ = self.guarded(w.value)
        if not isinstance(value, Load) or any(s.var in cond.vars for cond in conds):
            return False
        pieces = self._pieces(lanes, dtype.bytes)
        wide = bool(pieces) and self._together(part, s, lanes)
        wide = wide and self._aligned(value.buffer, value.indices, s, lanes)
        width = pieces[0] if wide else 1
        begun = [self._begin(part, width, {s.var: Index(s.lo.const + at)}) for at in range(0, lanes, width)]
        return all(begun)

    def _begin(self, part: Store, width: int, at: Mapping[str, Index]) -> bool:
        """Write one copy of ``width`` elements that arrives later; not if there is none of so many bytes."""
        (w,) = part.writes
        copy, dtype = self.dialect.copy_later, self.place(w.buffer).buffer.dtype
        if copy is None or width * dtype.bytes not in SIZES:
            return False
        one = substitute(part, at)
        assert isinstance(one, Store)  # as it was
        (w,) = one.writes
        with self.statement(stmt_exprs(one)):
            conds, value, other = self.guarded(w.value)
            if not isinstance(value, Load) or value.dtype != dtype or w.buffer not in self.shared:
                return False
            if other is not None and not _is_zero(other):
                return False
            target, source = self.element(w.buffer, w.indices), self.element(value.buffer, value.indices)
            guard = f", {' & '.join(map(self.value, conds))}" if conds else ""
            self.writer.line(
                f"{copy(self.helpers, width * dtype.bytes, bool(conds))}(&{target}, &{source}{guard});"
            )
        return True

    def store(self, s: Store) -> None:
        """Write a store; a copy that may arrive later is begun where the language can."""
        if not (self.late and len(s.writes) == 1 and self._begin(s, 1, {})):
            super().store(s)

    def _wide(self, part: Store, s: For, lanes: int) -> None:
        (w,) = part.writes
        place = self.place(w.buffer)
        known: dict[Load, str] = {}
        # what only one side of a selection reads may not be there
        for load in dict.fromkeys(_certain(w.value)):
            if s.var in load.vars and self._aligned(load.buffer, load.indices, s, lanes):
                self._wide_load(load, s, lanes, known)
        outer, self.known = self.known, {**self.known, **known}
        together = self._together(part, s, lanes)
        values: list[str] = []
        for lane in range(s.lo.const, s.lo.const + lanes):
            one = substitute(part, {s.var: Index(lane)})
            assert isinstance(one, Store)
            if not together:
                self.store(one)
                continue
            with self.statement(stmt_exprs(one)):
                value, dtype = one.writes[0].value, place.buffer.dtype
                values.append(self.kept(value, dtype) or self.stored(self.value(value), dtype))
        self.known = outer
        at = 0
        for width in self._pieces(lanes, place.buffer.dtype.bytes) if together else ():
            indices = _at(w.indices, s.var, s.lo.const + at)
            pointer = f"&{self.element(w.buffer, indices)}"
            space = self.space(w.buffer)
            line = self.helpers.wide_store(place.buffer.dtype, width, pointer, values[at : at + width], space)
            self.writer.line(line)
            at += width

    def _wide_load(self, load: Load, s: For, lanes: int, known: dict[Load, str]) -> None:
        place = self.place(load.buffer)
        at = 0
        for width in self._pieces(lanes, place.buffer.dtype.bytes):
            name = self.writer.name("v")
            indices = _at(load.indices, s.var, s.lo.const + at)
            pointer = f"&{self.element(load.buffer, indices)}"
            kind = self.helpers.vector(place.buffer.dtype, width)
            text = self.helpers.wide_load(place.buffer.dtype, width, pointer, self.space(load.buffer))
            self.writer.line(f"const {kind} {name} = {text};")
            for lane in range(width):
                one = load.substitute({s.var: Index(s.lo.const + at + lane)})
                assert isinstance(one, Load)
                known[one] = self.loaded(f"{name}.s{lane:X}", place.buffer.dtype)
            at += width

    def space(self, buffer: str) -> str:
        """How the language calls the memory of a buffer."""
        if not self.dialect.global_space:
            return ""
        return "__local " if buffer in self.shared else f"{self.dialect.global_space} "


def _alike(c: Condition, s: For) -> bool:
    """Whether a condition holds in all iterations of a loop or in none, whatever is around it."""
    if s.var not in c.vars:
        return True
    if c.op != "ge" or c.index is None or not (s.lo.is_const and s.hi.is_const):
        return False
    step = c.index.coefficient(s.var)
    rest = c.index - var(s.var) * step
    if s.var in rest.vars:
        return False
    # values are a constant plus multiples of what all other coefficients are multiples of
    unit = gcd(*(n for _, n in rest.terms))
    ends = (s.lo.const, s.hi.const - 1)
    return unit > 0 and len({(rest.const + step * at) // unit for at in ends}) == 1


def _where(c: Condition, values: dict[str, Index]) -> Condition:
    return c if c.index is None else replace(c, index=substitute_index(c.index, values))


def _certain(e: Expr) -> Iterator[Load]:
    """The loads of an expression that are made whatever its selections choose."""
    if isinstance(e, Load):
        yield e
    for child in (e.cond,) if isinstance(e, Select) else children(e):
        yield from _certain(child)


def _is_zero(e: Const) -> bool:
    """Whether all bits of a constant are zero."""
    return e.value == 0 and copysign(1, e.value) > 0


def _at(indices: tuple[Index, ...], name: str, value: int) -> tuple[Index, ...]:
    return tuple(substitute_index(i, {name: Index(value)}) for i in indices)
