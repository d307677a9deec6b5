"""The table of accesses: which elements of a buffer a stage reads, by ranges of its iterators.

Made once a program. Of each dimension it has the affine part of the indices, the range of the constants
beside it, and a tag for what is not affine. Boxes of tiles are interval arithmetic on it, linear in a chain's
length: for one tile in integers, for many at once in arrays. They hold every element that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tilewright.analysis.borders import UNKNOWN, inside
from tilewright.ir import (
    Atom,
    Env,
    FloorDiv,
    Index,
    Iter,
    Load,
    MinMax,
    Mod,
    Param,
    Program,
    Stage,
    Var,
    iter_env,
    stmt_loads,
    var,
)

#: First and last value: two integers, or two arrays with one of each a tile.
Span: TypeAlias = tuple[Any, Any]
#: One span a dimension.
Box: TypeAlias = tuple[Span, ...]
#: What an index is beside affine: cut by a clamp, divided, or looked up.
Tag: TypeAlias = Literal["affine", "clamp", "quotient", "data"]
#: Stands for no bound.
FAR: Final = 1 << 40
ANYWHERE: Final = (-FAR, FAR)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The smaller and the larger of two numbers, and a choice between two."""

    least: Callable[[Any, Any], Any]
    greatest: Callable[[Any, Any], Any]
    choose: Callable[[Any, Any, Any], Any]


#: Of one tile, in integers.
INTEGERS: Final = Arithmetic(min, max, lambda condition, a, b: a if condition else b)
#: Of many tiles at once, in arrays.
ARRAYS: Final = Arithmetic(np.minimum, np.maximum, np.where)


@dataclass(frozen=True, slots=True)
class Reach:
    """Indices of one dimension that differ in constants only: ``terms``, plus ``first`` to ``last``."""

    terms: tuple[tuple[Atom, int], ...]
    first: int
    last: int
    tag: Tag

    def span(self, env: Mapping[str, Span], ops: Arithmetic = INTEGERS) -> Span:
        """The least and the largest index while the iterators take the values of ``env``."""
        return _sum(self.terms, self.first, self.last, env, ops)


@dataclass(frozen=True, slots=True)
class Access:
    """What a stage reads of one buffer; ``maker`` is the stage that makes it, if it is one alone.

    ``dims`` has the reaches of each dimension, ``shape`` the buffer's elements, ``width`` bytes of each,
    ``loads`` the different loads of an instance, ``env`` the ranges of the stage's iterators.
    """

    buffer: str
    maker: str
    dims: tuple[tuple[Reach, ...], ...]
    shape: tuple[int, ...]
    width: int
    loads: tuple[Load, ...]
    env: Env

    @property
    def bytes(self) -> int:
        """All of the buffer."""
        return prod(self.shape) * self.width

    def box(self, env: Mapping[str, Span], ops: Arithmetic = INTEGERS) -> Box:
        """The box that is read while the stage's iterators take the values of ``env``, cut by the buffer."""
        out = []
        for reaches, n in zip(self.dims, self.shape, strict=True):
            first, last = reaches[0].span(env, ops)
            for reach in reaches[1:]:
                a, b = reach.span(env, ops)
                first, last = ops.least(first, a), ops.greatest(last, b)
            out.append((ops.least(ops.greatest(first, 0), n - 1), ops.least(ops.greatest(last, 0), n - 1)))
        return tuple(out)

    def steps(self, axis: str, *, away: bool = False) -> int | None:
        """Elements by which it moves in memory with an axis; ``None`` where it jumps.

        ``away``: indices count as what they are away from borders, where code has nothing else.
        """
        moves = 0
        known: dict[Index, Index] = {}
        for ld in self.loads:
            place, stride = Index(0), 1
            for i, n in zip(reversed(ld.indices), reversed(self.shape), strict=True):
                if i not in known:
                    known[i] = inside(i, axis, self.env) if away else i
                place, stride = place + known[i] * stride, stride * n
            step = place.coefficient(axis)
            if abs(step) > 1 or axis in (place - var(axis) * step).vars:
                return None
            moves |= abs(step)
        return moves


@dataclass(frozen=True, slots=True, eq=False)
class AccessTable:
    """What each stage reads, by the stage's name, and the stages in order."""

    stages: Mapping[str, Stage]
    accesses: Mapping[str, tuple[Access, ...]]

    def boxes(
        self,
        root: str,
        box: Box,
        members: Collection[str],
        ops: Arithmetic = INTEGERS,
        sums: Mapping[str, Span] = MappingProxyType({}),
    ) -> dict[str, Box]:
        """What the instances ``box`` of a root need of the stages ``members``, the root included.

        ``sums`` are ranges of the root's iterators of sums that do not take all values.
        """
        found: dict[str, Box] = {root: box}
        for name in reversed(tuple(self.stages)):
            if name not in found:
                continue
            env = iterator_spans(self.stages[name], found[name])
            if name == root:
                env |= sums
            for access in self.accesses[name]:
                if access.maker in members:
                    read, known = access.box(env, ops), found.get(access.maker)
                    found[access.maker] = read if known is None else around(known, read, ops)
        return found


def table_of(program: Program, only: Collection[str] | None = None) -> AccessTable:
    """The table of a program, or of some of its stages, by their names."""
    makers: dict[str, list[str]] = {}
    for stage in program.stages:
        for name in stage.writes:
            makers.setdefault(name, []).append(stage.name)
    alone = {name: found[0] for name, found in makers.items() if len(found) == 1}
    stages = {stage.name: stage for stage in program.stages if only is None or stage.name in only}
    accesses = {
        name: accesses_of(program, stage, stmt_loads(stage.body), alone) for name, stage in stages.items()
    }
    return AccessTable(MappingProxyType(stages), MappingProxyType(accesses))


def iterator_spans(stage: Stage, box: Box) -> dict[str, Span]:
    """Ranges of a stage's iterators for a box of its result: those of sums take all values."""
    left = iter(box)
    return {it.name: _all(it) if it.kind == "red" else next(left) for it in stage.iters}


def _all(it: Iter) -> Span:
    """All values of an iterator, from 0 on where it is known only at run time where they begin."""
    first = 0 if it.lo.terms else it.lo.const
    return first, first + extent_of(it.extent) - 1


def around(a: Box, b: Box, ops: Arithmetic = INTEGERS) -> Box:
    """The smallest box around two."""
    return tuple((ops.least(x[0], y[0]), ops.greatest(x[1], y[1])) for x, y in zip(a, b, strict=True))


def extent_of(n: Index) -> int:
    """A size, at least 1; a stand-in for one that is known only at run time."""
    return UNKNOWN if n.terms else max(1, n.const)


def accesses_of(
    program: Program, stage: Stage, loads: Iterable[Load], makers: Mapping[str, str]
) -> tuple[Access, ...]:
    """What the loads of a stage read of each buffer; ``makers`` are the stages that make a buffer alone."""
    by_buffer: dict[str, list[Load]] = {}
    for ld in dict.fromkeys(loads):
        if ld.buffer not in stage.writes:
            by_buffer.setdefault(ld.buffer, []).append(ld)
    out, env = [], iter_env(stage.iters)
    for name, found in by_buffer.items():
        buffer = program.buffer(name)
        dims = []
        for d in range(len(buffer.shape)):
            hulls: dict[tuple[tuple[Atom, int], ...], tuple[int, int]] = {}
            for ld in found:
                i = ld.indices[d]
                lo, hi = hulls.get(i.terms, (i.const, i.const))
                hulls[i.terms] = min(lo, i.const), max(hi, i.const)
            dims.append(tuple(Reach(terms, lo, hi, _tag(terms)) for terms, (lo, hi) in hulls.items()))
        shape = tuple(extent_of(n) for n in buffer.shape)
        out.append(
            Access(name, makers.get(name, ""), tuple(dims), shape, buffer.dtype.bytes, tuple(found), env)
        )
    return tuple(out)


def _tag(terms: tuple[tuple[Atom, int], ...]) -> Tag:
    atoms = [atom for atom, _ in terms]
    if all(isinstance(a, Var | Param) for a in atoms):
        return "affine"
    inner = [i for a in atoms if isinstance(a, FloorDiv | Mod) for i in (a.arg,)]
    inner += [i for a in atoms if isinstance(a, MinMax) for i in a.args]
    plain = all(isinstance(a, Var | Param | FloorDiv | Mod | MinMax) for a in atoms)
    if not plain or any(_tag(i.terms) == "data" for i in inner):
        return "data"
    return "quotient" if any(isinstance(a, FloorDiv | Mod) for a in atoms) else "clamp"


def _sum(
    terms: tuple[tuple[Atom, int], ...], lo: Any, hi: Any, env: Mapping[str, Span], ops: Arithmetic
) -> Span:
    for atom, c in terms:
        # most are iterators
        a, b = env.get(atom.name, ANYWHERE) if isinstance(atom, Var) else _atom(atom, env, ops)
        lo, hi = (lo + c * a, hi + c * b) if c > 0 else (lo + c * b, hi + c * a)
    return lo, hi


def _atom(atom: Atom, env: Mapping[str, Span], ops: Arithmetic) -> Span:
    match atom:
        case FloorDiv() | Mod():
            a, b = _sum(atom.arg.terms, atom.arg.const, atom.arg.const, env, ops)
            d = atom.divisor
            if isinstance(atom, FloorDiv):
                return a // d, b // d
            same = a // d == b // d
            return ops.choose(same, a % d, 0), ops.choose(same, b % d, d - 1)
        case MinMax():
            pick = ops.least if atom.op == "min" else ops.greatest
            lo, hi = _sum(atom.args[0].terms, atom.args[0].const, atom.args[0].const, env, ops)
            for i in atom.args[1:]:
                a, b = _sum(i.terms, i.const, i.const, env, ops)
                lo, hi = pick(lo, a), pick(hi, b)
            return lo, hi
        case Param():
            return atom.lo, atom.hi
        case _:
            return ANYWHERE
