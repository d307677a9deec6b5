"""The roles of a stage's axes, read off its access functions; default schedules are chosen by them.

For ``out[...] += a[...] * b[...]`` an axis of the result is

* ``batch`` where both operands move with it, ``m`` where only ``a`` does, ``n`` where only ``b`` does
  (``a`` is the operand that does not move with the vector axis, if there is one);

and a reduction axis is a ``window`` where it occurs together with an axis of the result in one index (the
taps of a convolution), else ``k``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.ir import Access, Binary, Expr, If, Load, Mod, Pred, Program, Stage, Store, loads

Role = Literal["batch", "m", "n", "k", "window"]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A stage that sums products: its operands and the role of each iterator, in iterator order.

    ``vector`` is the iterator that moves the last dimension of the result with stride 1. ``b`` is ``None``
    for reductions of one operand (sums, maxima over windows). Terms count where ``guard`` holds.
    """

    stage: Stage
    vector: str
    a: Load
    b: Load | None
    roles: tuple[tuple[str, Role], ...]
    write: Access
    guard: Pred = ()

    def axes(self, *roles: Role) -> tuple[str, ...]:
        """Iterators with one of the roles, in order."""
        return tuple(name for name, role in self.roles if role in roles)

    def extent(self, name: str) -> int | None:
        """Extent of an iterator, ``None`` where it is symbolic."""
        for it in self.stage.iters:
            if it.name == name:
                return it.extent.as_int() if it.extent.is_const else None
        raise KeyError(name)


def contraction(program: Program, stage: Stage) -> Contraction | None:
    """The roles of a reduction stage whose result has a stride-1 parallel axis; ``None`` for other stages.

    The vector axis must move the loads of the term by single steps in their last dimension, or not at all.
    """
    body = stage.body
    guard: Pred = ()
    if isinstance(body, If) and body.orelse is None:
        guard, body = body.cond, body.then
    if not stage.is_reduction or not isinstance(body, Store) or len(body.writes) != 1:
        return None
    write = body.writes[0]
    if not write.indices or not isinstance(write.value, Binary):
        return None
    vector = write.indices[-1].as_var()
    kinds = {it.name: it.kind for it in stage.iters}
    if vector is None or kinds.get(vector) != "par":
        return None
    old = Load(write.buffer, write.indices, write.value.dtype)
    if old == write.value.a:
        term: Expr = write.value.b
    elif old == write.value.b:
        term = write.value.a
    else:
        return None
    a, b = _operands(term, vector)
    if a is None:
        return None
    roles: list[tuple[str, Role]] = []
    for it in stage.iters:
        in_a = _moves(a, it.name)
        in_b = b is not None and _moves(b, it.name)
        if it.kind == "red":
            windowed = any(
                it.name in i.vars and any(kinds.get(v) == "par" for v in i.vars if v != it.name)
                for i in (*a.indices, *(b.indices if b is not None else ()))
            )
            roles.append((it.name, "window" if windowed else "k"))
        elif b is None:
            roles.append((it.name, "batch" if it.name == vector else "m"))
        else:
            roles.append((it.name, "batch" if in_a and in_b else "n" if in_b else "m"))
    return Contraction(stage, vector, a, b, tuple(roles), write, guard)


def _operands(term: Expr, vector: str) -> tuple[Load | None, Load | None]:
    if isinstance(term, Binary) and term.op == "mul":
        left, right = list(loads(term.a)), list(loads(term.b))
        if len(left) == 1 and len(right) == 1:
            a, b = left[0], right[0]
            return (b, a) if _moves(a, vector) and not _moves(b, vector) else (a, b)
    found = list(dict.fromkeys(loads(term)))
    return (found[0], None) if len(found) == 1 else (None, None)


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
        if isinstance(atom, Mod) and c == 1 and atom.arg.as_var() == name:
            return atom.divisor
    return 0


def group_length(ld: Load, name: str) -> int | None:
    """Steps of an iterator inside one panel of the last dimension: ``d`` of a term ``w*(name % d)``."""
    for atom, _ in ld.indices[-1].terms if ld.indices else ():
        if isinstance(atom, Mod) and atom.arg.as_var() == name:
            return atom.divisor
    return None
