"""Updates of elements, and sums of products among them: the one place that recognises either.

``C[i, j] = C[i, j] + A[i, k] * B[k, j]`` updates an element by ``add`` with the term ``A[i, k] * B[k, j]``,
whose factors are the two loads. What else there is to a stage (roles of axes, windows, types that an
instruction takes) is asked by those who need it, of what is found here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Access, Binary, Cast, Const, Expr, Load, Pred, Stage, Store, condition_of


@dataclass(frozen=True, slots=True)
class Update:
    """An assignment that combines an element with a term: ``op(old, term)``, or the other way around.

    ``first`` says whether the old value is the first operand, ``guard`` where the update takes place.
    """

    write: Access
    op: str
    old: Load
    term: Expr
    first: bool
    guard: Pred = ()

    @property
    def factors(self) -> tuple[Expr, Expr] | None:
        """The two factors, where products are summed."""
        return two_factors(self.term) if self.op == "add" else None

    @property
    def loaded_factors(self) -> tuple[Load, Load] | None:
        """The two factors as they are loaded: from perhaps narrower float types than that of the product."""
        if self.factors is None:
            return None
        a, b = (e.a if isinstance(e, Cast) and e.a.dtype.is_float else e for e in self.factors)
        return (a, b) if isinstance(a, Load) and isinstance(b, Load) else None

    def by(self, term: Expr) -> Binary:
        """The value that is stored with another term in place of this one."""
        return Binary(self.op, self.old, term) if self.first else Binary(self.op, term, self.old)


def update_of(write: Access, guard: Pred = ()) -> Update | None:
    """How an assignment updates its element; ``None`` where it does not read it as an operand."""
    value = write.value
    if not isinstance(value, Binary):
        return None
    old = Load(write.buffer, write.indices, value.dtype)
    if value.a == old:
        return Update(write, value.op, old, value.b, True, guard)
    return Update(write, value.op, old, value.a, False, guard) if value.b == old else None


def reduction_of(stage: Stage) -> Update | None:
    """The one update that a reduction stage makes; ``None`` for other stages, and several results."""
    guard, body = condition_of(stage.body)
    if not stage.is_reduction or not isinstance(body, Store) or len(body.writes) != 1:
        return None
    return update_of(body.writes[0], guard)


def starts_at_zero(stage: Stage) -> bool:
    """Whether a stage of one result sets it to zero before the first update."""
    init = stage.init
    if not isinstance(init, Store) or len(init.writes) != 1:
        return False
    start = init.writes[0].value
    return isinstance(start, Const) and start.value == 0


def two_factors(term: Expr) -> tuple[Expr, Expr] | None:
    """The operands of a product; ``None`` of other values."""
    return (term.a, term.b) if isinstance(term, Binary) and term.op == "mul" else None


def operands_of(e: Expr, op: str) -> list[Expr]:
    """The terms of a sum, the factors of a product …: through brackets, in order; else the value itself."""
    if isinstance(e, Binary) and e.op == op:
        return [*operands_of(e.a, op), *operands_of(e.b, op)]
    return [e]
