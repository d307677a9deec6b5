"""Functions of C as nests: parameters, declarations and statements, in the order in which they run.

    void kernel(int n, double A[n][n], double x[n]) {
      for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
          x[i] -= A[i][j] * x[j];
    }

Integer parameters are sizes, or numbers that a call gives; arrays and real numbers become arguments. Arrays
never overlap. Where ``#pragma scop`` and ``#pragma endscop`` stand in the function, the nest is what is
between them, and what gives variables their values before. ``docs/c.md`` says what is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.frontend.c.expressions import Pointer, Variable
from tilewright.frontend.c.flow import all_of, assigned, changed, mentioned
from tilewright.frontend.c.numbers import number
from tilewright.frontend.c.source import Part
from tilewright.frontend.c.statements import Statements
from tilewright.frontend.nests import Place
from tilewright.ir import I64, NOTHING, Index, LoopFunction, Stmt, index, seq
from tilewright.support import quoted

Array = npt.NDArray[np.generic]

LARGEST_SIZE: Final = 1 << 31
"""Largest value of a size."""
SIZE_OF: Final = "{}_size"
"""The name of the number of elements, or rows, that a pointer's array has."""


@dataclass(slots=True)
class Reader(Statements):
    """Reads one function, with numbers in the place of the sizes that are ``given``."""

    part: Part | None = None
    given: Mapping[str, int] = field(default_factory=dict)
    signature: list[str] = field(default_factory=list)
    """The names of parameters and of arrays outside of functions that are used, in order."""
    globals: list[str] = field(default_factory=list)
    """Those of them that are outside of functions."""
    implied: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Sizes that stand for extents which C does not say, or by formulas: their arrays and dimensions."""
    result: str | None = None
    """The argument that what the function returns is written to."""
    left_out: list[Any] = field(default_factory=list)
    """Statements of the function that are outside of the marks, and are not part of the nest."""
    contents: dict[str, Array] = field(default_factory=dict)
    """Arrays outside of functions that nothing changes, and what is in them."""

    # -- the function ----------------------------------------------------------------------------------------

    def function(self, *, body: bool = True) -> LoopFunction:
        """The nest, or its arguments alone; raises ProgramError, with line and column."""
        assert self.part is not None
        f = self.source.parsed(self.part)[0]
        self.at = f
        self.builder.name = f.decl.name
        before, inside, after = self.marked(f)
        effects = changed(self.source, self.c.Compound([*before, *inside]))
        listed = f.decl.type.args.params if f.decl.type.args is not None else ()
        named = [p for p in listed if isinstance(p, self.c.Decl)]
        for p in listed:
            if p not in named and not (isinstance(p, self.c.Typename) and self.kind(p.type, p) is None):
                raise self.refused(p, "a parameter without a name")
        self.parameters(named, assigned(self.c, self.c.Compound([*before, *inside])))
        whole = self.c.Compound([*before, *inside])
        own = {*self.scopes[1], *(d.name for d in all_of(self.c.Decl, whole))}
        for e in all_of(self.c.ID, whole):
            if e.name not in own and self.found(e.name) is None:
                self.global_variable(e)
        value = self.returned(f, inside, after)
        if not body:
            return self.builder.function(NOTHING)
        if inside and isinstance(inside[-1], self.c.Return):
            inside = inside[:-1]
        start = [self.copied(self.scopes[1][p.name], p) for p in named if p.name in effects]
        early = [self.stmt(s, Place()) for s in before]
        nest = [*start, *early, *(self.stmt(s, Place()) for s in inside)]
        if value is not None and self.result is not None:
            self.place = Place()
            dtype = self.builder.buffers[self.result].dtype
            held = self.arith.converted(self.value(value), dtype)
            nest.append(self.store(Variable(self.result, dtype, self.result), [], held, Place()))
        return self.builder.function(seq(*nest))

    def returned(self, f: Any, inside: Sequence[Any], after: Sequence[Any]) -> Any | None:
        """What the function returns at its end, which becomes an argument; ``None`` for nothing."""
        dtype = self.kind(f.decl.type.type, f)
        if dtype is None:
            return None
        last = (after or inside or [None])[-1]
        if not isinstance(last, self.c.Return) or last.expr is None:
            raise self.refused(f, f"{quoted(f.decl.name)} returns a value, which its end does not say")
        if self.left_out == [last]:
            self.left_out.clear()
        self.result = self.builder.argument("returned", dtype)
        return last.expr

    def marked(self, f: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """What gives variables of the nest their values, the nest, and what is behind it."""
        c = self.c
        items = list(f.body.block_items or ())
        assert self.part is not None
        if not self.part.marked:
            return [], items, []
        marks = [n for n, s in enumerate(items) if isinstance(s, c.Pragma)]
        if [items[n].string.split()[0] for n in marks] != ["scop", "endscop"]:
            raise self.refused(
                f, "#pragma scop and #pragma endscop stand around whole statements of a function"
            )
        first, last = marks
        inside = items[first + 1 : last]
        wanted = mentioned(c, c.Compound(inside))
        before: list[Any] = []
        for s in reversed(items[:first]):
            declared = isinstance(s, c.Decl) and s.init is None
            if (s.name if declared else None) in wanted or (
                not declared and changed(self.source, s) & wanted
            ):
                before.insert(0, s)
                wanted |= mentioned(c, s)
            elif not declared:
                self.left_out.append(s)
        after = items[last + 1 :]
        self.left_out += [s for s in after if not (isinstance(s, c.Return) and s.expr is None)]
        return before, inside, after

    def parameters(self, params: Sequence[Any], moved: Collection[str]) -> None:
        """Declare the parameters: integers are sizes, other numbers and arrays are arguments."""
        c = self.c
        extents: set[str] = set()
        for p in params:
            if isinstance(p.type, c.ArrayDecl | c.PtrDecl):
                extents |= mentioned(c, p.type)
        for p in params:
            self.at = p
            if isinstance(p.type, c.ArrayDecl | c.PtrDecl):
                v = self.array(p)
                if p.name in moved:
                    # what is a pointer in C may point at something else later on
                    pointer = Variable(p.name, v.dtype, pointer=True)
                    self.scopes[-1][p.name] = pointer
                    self.facts[pointer] = Pointer(v, (number(0, I64),))
                continue
            dtype = self.kind(p.type, p)
            if dtype is None:
                raise self.refused(p, f"{quoted(p.name)} is void")
            v = self.declare(Variable(p.name, dtype), p)
            if dtype.is_float:
                v.buffer = p.name
                self.builder.array(p.name, (), dtype)
            else:
                least = 0 if p.name in extents or dtype.kind == "uint" else -LARGEST_SIZE
                self.facts[v] = self.sized(p.name, least)
            self.signature.append(p.name)

    def sized(self, name: str, least: int = 0) -> Index:
        """The size ``name``: its number, where that is given."""
        if name in self.given:
            return index(self.given[name])
        return self.builder.size(name, least)

    def array(self, d: Any) -> Variable:
        """Declare an argument that is an array; of a pointer, of as many elements as a size says."""

        def implied(dim: int) -> Index:
            name = SIZE_OF.format(d.name) + (f"_{dim}" if dim else "")
            self.implied[name] = d.name, dim
            return self.sized(name)

        dtype, extents = self.shape(d.type, d, implied)
        v = self.declare(Variable(d.name, dtype, d.name, len(extents)), d)
        self.builder.array(d.name, extents, dtype)
        self.signature.append(d.name)
        return v

    def copied(self, v: Variable, at: Any) -> Stmt:
        """A parameter that the function changes, in a variable of its own: callers keep theirs."""
        if v.rank or v.pointer:
            return NOTHING
        self.at = at
        value = self.named(self.c.ID(v.name, at.coord))
        v.buffer = None
        return self.put(v, value, Place())

    # -- outside of functions --------------------------------------------------------------------------------

    def global_variable(self, e: Any) -> Variable | None:
        """A variable outside of functions; ``None`` where the file declares none of this name."""
        part = self.source.declaration(e.name)
        declared = [] if part is None else self.source.parsed(part)
        d = next((d for d in declared if isinstance(d, self.c.Decl) and d.name == e.name), None)
        if d is None or isinstance(d.type, self.c.FuncDecl):
            return None
        kept, self.scopes = self.scopes, self.scopes[:1]
        try:
            return self.outside(d)
        finally:
            self.scopes = kept

    def outside(self, d: Any) -> Variable:
        """A variable outside of functions: an argument, or what it holds where nothing changes it."""
        self.at = d
        functions = [p for p in self.source.parts if p.name is not None]
        fixed = d.init is not None and (
            "const" in d.quals
            or (
                "static" in d.storage
                and not any(d.name in changed(self.source, self.source.parsed(p)[0]) for p in functions)
            )
        )
        if isinstance(d.type, self.c.ArrayDecl | self.c.PtrDecl):
            v = self.array(d)
            if fixed:
                self.signature.remove(d.name)
                self.contents[d.name] = self.listed(d, v)
            else:
                self.globals.append(d.name)
            return v
        dtype = self.kind(d.type, d)
        if dtype is None:
            raise self.refused(d, f"{quoted(d.name)} is void")
        v = self.declare(Variable(d.name, dtype), d)
        if fixed:
            v.value = self.arith.converted(self.value(d.init), dtype)
            return v
        assert self.part is not None
        self.signature.append(d.name)
        self.globals.append(d.name)
        if dtype.is_float or d.name in changed(self.source, self.source.parsed(self.part)[0]):
            v.buffer = d.name
            self.builder.array(d.name, (), dtype)
        else:
            self.facts[v] = self.sized(d.name, -LARGEST_SIZE)
        return v
