"""The roles of a stage's axes, read off its access functions; default schedules are chosen by them.

For ``out[...] += a[...] * b[...]`` an axis of the result is

* ``batch`` where both operands move with it, ``m`` where only ``a`` does, ``n`` where only ``b`` does
  (``a`` is the operand that does not move with the vector axis, if there is one);

and a reduction axis is a ``window`` where it occurs together with an axis of the result in one index (taps
of a convolution), else ``k``. Accesses are looked at where they lie in memory: layouts are applied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from tilewright.analysis.updates import reduction_of, two_factors
from tilewright.ir import (
    Access,
    Expr,
    FloorDiv,
    If,
    Index,
    Load,
    Mod,
    Pred,
    Program,
    Stage,
    Store,
    Var,
    loads,
)

Role = Literal["batch", "m", "n", "k", "window"]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A stage that sums products (or takes maxima), and the role of each iterator in iterator order.

    ``vector`` is the iterator along which the result lies contiguously, in runs of ``run`` elements
    (``None``: as a whole). ``a`` and ``b`` are the operands with physical indices; ``b`` is ``None`` for
    reductions of one operand, ``b_logical`` is the load as the stage has it. Terms count where ``guard``
    holds. Where ``a`` moves along ``vector`` in steps of ``group`` elements
    only, as in a grouped convolution, that axis is ``n``: within a group it is. Where ``b`` moves so along
    an axis that ``a`` moves along by elements, that one is ``m``, in groups of ``rows``.
    """

    stage: Stage
    vector: str
    run: int | None
    a: Load
    b: Load | None
    roles: tuple[tuple[str, Role], ...]
    write: Access
    b_logical: Load | None
    guard: Pred = ()
    group: int | None = None
    rows: int | None = None

    def axes(self, *roles: Role) -> tuple[str, ...]:
        """Iterators with one of the roles, in order."""
        return tuple(name for name, role in self.roles if role in roles)

    def extent(self, name: str) -> int:
        """Extent of an iterator; ``ValueError`` where it is symbolic."""
        return self.stage.extent(name)


def match_contraction(program: Program, stage: Stage, last: Stage | None = None) -> Contraction | None:
    """The roles of a reduction stage whose result has a contiguous parallel axis; ``None`` for other stages.

    ``last`` is the stage that reads the result element by element, if there is one: then it is its result
    that counts.
    """
    update = reduction_of(stage)
    pars = [it.name for it in stage.iters if it.kind == "par"]
    if update is None or [i.as_var() for i in update.write.indices] != pars:
        return None
    write = update.write
    found = _contiguous_axis(program, stage, last or stage, write)
    if found is None:
        return None
    vector, run = found
    a, b = _operands(update.term, vector)
    if a is None:
        return None
    logical, first = b, a
    a = physical(program, a)
    b = None if b is None else physical(program, b)
    if b is not None and _group(b, vector) is not None and _group(a, vector) is None:
        a, b, logical = b, a, first
    group = _group(a, vector) if b is not None and _moves(b, vector) and _group(b, vector) is None else None
    if group is not None:
        pars.remove(vector)
    grouped = {name: d for name in pars if b is not None and name != vector and (d := _group(b, name))}
    grouped = {name: d for name, d in grouped.items() if _moves(a, name) and _group(a, name) is None}
    rows = next(iter(grouped.values())) if len(grouped) == 1 else None
    alone = b is None
    if b is not None and group is None and rows is None and _shares_windows(stage, a, b, vector):
        # rows of the result share what they read of ``b``, as in reductions of one operand
        a, b, logical, alone = b, a, first, True
    roles: list[tuple[str, Role]] = []
    for it in stage.iters:
        in_a = _moves(a, it.name) and (group is None or it.name != vector)
        in_b = b is not None and _moves(b, it.name) and (rows is None or it.name not in grouped)
        if it.kind == "red":
            together = (*a.indices, *(b.indices if b is not None else ()))
            windowed = any(it.name in i.vars and any(v in pars for v in i.vars) for i in together)
            roles.append((it.name, "window" if windowed else "k"))
        elif alone and it.name == vector:
            roles.append((it.name, "batch"))
        elif b is None:
            roles.append((it.name, "m"))
        else:
            roles.append((it.name, "batch" if in_a and in_b else "n" if in_b else "m"))
    named, guard = tuple(roles), update.guard
    return Contraction(stage, vector, run, a, b, named, write, logical, guard, group=group, rows=rows)


def _shares_windows(stage: Stage, a: Load, b: Load, vector: str) -> bool:
    """Whether ``b`` alone moves with axes of the result, and a window lies along one besides the vectors.

    That is a depthwise convolution whose vectors run along its rows.
    """
    pars = {it.name for it in stage.iters if it.kind == "par"}
    reds = {it.name for it in stage.iters if it.kind == "red"}
    if _moves(a, vector) or any(_moves(a, name) and not _moves(b, name) for name in pars):
        return False
    # what both operands move along is a part of the reduction that rfactor cut
    along = {name for name in pars if name != vector and not _moves(a, name)}
    return any(reds & i.vars and along & i.vars for i in b.indices)


def _group(ld: Load, name: str) -> int | None:
    """``d`` of a load that moves with an iterator only as ``name // d``; ``None`` of any other."""
    found: set[int] = set()
    for i in ld.indices:
        for atom, _ in i.terms:
            if isinstance(atom, FloorDiv) and atom.arg.as_var() == name:
                found.add(atom.divisor)
            elif name in Index(0, ((atom, 1),)).vars:
                return None
    return gcd(*found) if found else None


def _contiguous_axis(
    program: Program, stage: Stage, last: Stage, write: Access
) -> tuple[str, int | None] | None:
    """The iterator of ``stage`` along the last physical dimension of what ``last`` writes, and its run."""
    if not isinstance(last.body, Store | If):
        return None
    final = write if last is stage else _only_write(last)
    if final is None or not final.indices:
        return None
    names = [it.name for it in last.iters if it.kind == "par"]
    if [i.as_var() for i in final.indices] != names or len(names) != len(write.indices):
        return None
    buffer = program.buffer(final.buffer)
    # dimensions of one element do not separate the others
    places = [
        i
        for i, extent in zip(buffer.physical(final.indices), buffer.physical_shape, strict=True)
        if extent != Index(1)
    ]
    name, run = run_of(places[-1]) if places else (None, None)
    if name is None:
        return None
    own = write.indices[names.index(name)].as_var()
    return None if own is None else (own, run)


def _only_write(stage: Stage) -> Access | None:
    if isinstance(stage.body, Store) and len(stage.body.writes) == 1:
        return stage.body.writes[0]
    return None


def run_of(last: Index) -> tuple[str | None, int | None]:
    """``(name, None)`` for an index that is a variable, ``(name, d)`` for ``name % d``, else no name."""
    name = last.as_var()
    if name is not None:
        return name, None
    if last.const == 0 and len(last.terms) == 1:
        atom, c = last.terms[0]
        if isinstance(atom, Mod) and c == 1 and atom.arg.as_var() is not None:
            return atom.arg.as_var(), atom.divisor
    return None, None


def _operands(term: Expr, vector: str) -> tuple[Load | None, Load | None]:
    factors = two_factors(term)
    if factors is not None:
        left, right = (list(loads(f)) for f in factors)
        if len(left) == 1 and len(right) == 1 and left != right:
            a, b = left[0], right[0]
            return (b, a) if _moves(a, vector) and not _moves(b, vector) else (a, b)
    found = list(dict.fromkeys(loads(term)))
    return (found[0], None) if len(found) == 1 else (None, None)


def physical(program: Program, ld: Load) -> Load:
    """The load where it lies in memory; dimensions of one element do not separate the others."""
    buffer = program.buffer(ld.buffer)
    places = zip(buffer.physical(ld.indices), buffer.physical_shape, strict=True)
    return replace(ld, indices=tuple(i for i, extent in places if extent != Index(1)))


def flat_index(program: Program, buffer: str, indices: Sequence[Index]) -> Index | None:
    """The position of an access in its buffer, counted in elements; ``None`` where a size is symbolic."""
    b = program.buffer(buffer)
    total, stride = Index(0), 1
    for i, extent in zip(reversed(b.physical(tuple(indices))), reversed(b.physical_shape), strict=True):
        total += i * stride
        if not extent.is_const:
            return None
        stride *= extent.as_int()
    return total


def _moves(ld: Load, name: str) -> bool:
    return any(name in i.vars for i in ld.indices)


def run_length(ld: Load, name: str) -> int | None:
    """How many steps of an iterator move a load by single elements of its last dimension.

    0 for no movement along it by single steps, ``None`` for the whole extent, ``d`` for a panel ``name % d``
    (with ``name // d`` in the other dimensions).
    """
    if not ld.indices:
        return 0
    last = ld.indices[-1]
    if last.coefficient(name) == 1 and not any(name in i.vars for i in ld.indices[:-1]):
        return None
    for atom, c in last.terms:
        if isinstance(atom, Mod) and c == 1 and atom.arg.coefficient(name) == 1:
            return atom.divisor
    return 0


def contiguous_reduction(c: Contraction, axes: Sequence[str] | None = None) -> tuple[str | None, int | None]:
    """The reduction axis (of ``axes``) along the last dimension of ``a``; its run (``None``: all of it)."""
    known = c.axes("k", "window") if axes is None else axes
    if not c.a.indices:
        return None, None
    for atom, coefficient in c.a.indices[-1].terms:
        if coefficient != 1:
            continue
        if isinstance(atom, Var) and atom.name in known:
            return atom.name, None
        if isinstance(atom, Mod):
            name = atom.arg.as_var()
            if name in known:
                return name, atom.divisor
    return None, None


def row_axis(c: Contraction) -> str | None:
    """The m axis whose results share a register tile: the one that lies closest together, of one row only
    where all are.
    """
    axes = [a for a in c.axes("m") if a != c.vector]
    single = {it.name for it in c.stage.iters if it.extent == Index(1)}
    rows = [a for a in axes if a not in single] or axes
    return rows[-1] if rows else None
