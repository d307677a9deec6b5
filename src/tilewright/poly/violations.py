"""Ways in which a scheduled function can differ, and when two statements compute the same expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tilewright.ir import Const, Exec, Expr, Load, OfIndex, Stmt, Store, children, walk

ViolationKind = Literal["flow", "final", "missing", "extra", "race", "bounds", "arguments"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which the second function differs: the ``stage`` or buffer concerned and an example."""

    kind: ViolationKind
    stage: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Reading(Protocol):
    """A read of a statement, of either mode: ``load`` is ``None`` where no load of the text stands for it."""

    @property
    def load(self) -> Load | None:
        """The load."""


class Computing(Protocol):
    """A statement of either mode."""

    @property
    def node(self) -> Stmt:
        """What it does."""

    @property
    def reads(self) -> Sequence[Reading]:
        """What it reads."""


def same_computation(a: Computing, b: Computing) -> bool:
    """Whether two statements are the same expression but for what their loads address."""
    if len(a.reads) != len(b.reads) or any(
        (x.load is None) != (y.load is None) for x, y in zip(a.reads, b.reads, strict=True)
    ):
        return False
    one, two = a.node, b.node
    if isinstance(one, Exec) or isinstance(two, Exec):
        return isinstance(one, Exec) and isinstance(two, Exec) and one.instr == two.instr
    if isinstance(one, Store) and isinstance(two, Store):
        return _same_store(one, two)
    return one == two


def constant_value(s: Computing, w: int) -> str | None:
    """The text of what write ``w`` stores where that depends on nothing, else ``None``.

    Where a write may not happen the statement reads what then stays, and nothing in it is constant.
    """
    if not isinstance(s.node, Store) or any(r.load is None for r in s.reads):
        return None
    value = s.node.writes[w].value
    for e in walk(value):
        if isinstance(e, Load) or (isinstance(e, OfIndex) and e.index.terms):
            return None
    return str(value)


def _same_store(a: Store, b: Store) -> bool:
    if a is b:
        return True
    seen: set[tuple[int, int]] = set()
    return len(a.writes) == len(b.writes) and all(
        _same_expr(x.value, y.value, seen) for x, y in zip(a.writes, b.writes, strict=True)
    )


def _same_expr(a: Expr, b: Expr, seen: set[tuple[int, int]]) -> bool:
    """Equality up to what loads address; ``seen`` holds pairs found equal (expressions share parts)."""
    if a is b or (id(a), id(b)) in seen:
        return True
    if type(a) is not type(b) or a.dtype != b.dtype:
        return False
    match a:
        case Load():
            return True
        case Const() | OfIndex():
            return a == b
        case _:
            for name in ("op", "fn", "mode"):
                if getattr(a, name, None) != getattr(b, name, None):
                    return False
            mine, theirs = children(a), children(b)
            if len(mine) != len(theirs):
                return False
            if all(_same_expr(x, y, seen) for x, y in zip(mine, theirs, strict=True)):
                seen.add((id(a), id(b)))
                return True
            return False
