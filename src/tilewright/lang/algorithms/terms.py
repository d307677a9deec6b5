"""The terms of sums of products: their two factors, as they are loaded."""

from __future__ import annotations

from tilewright.ir import Binary, Cast, Expr, Load


def factors(value: Expr, accumulator: Load) -> tuple[Load, Load] | None:
    """The loads ``a`` and ``b`` of ``accumulator + a * b``, ``None`` for other values.

    Factors may be stored in a narrower float type than they are multiplied in.
    """
    if not (isinstance(value, Binary) and value.op == "add" and accumulator in (value.a, value.b)):
        return None
    term = value.b if value.a == accumulator else value.a
    if not isinstance(term, Binary) or term.op != "mul":
        return None
    a, b = (e.a if isinstance(e, Cast) and e.a.dtype.is_float else e for e in (term.a, term.b))
    if isinstance(a, Load) and isinstance(b, Load):
        return a, b
    return None
