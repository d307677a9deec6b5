"""Budgets of isl: a count of its operations, which is the same in every run, stops what would run away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import islpy as isl

from tilewright.poly.spaces import CONTEXT
from tilewright.support import ResourceError

OPERATIONS: Final = 200_000_000
"""Limit on isl's operations of one question (about ten seconds)."""

# isl tells by the text alone why it gave up; some wrappers leave even that out
_SPENT: Final = "maximal number of operations exceeded"


def is_spent(error: isl.Error) -> bool:
    """Whether isl gave up because the budget around is spent: then nothing else works either."""
    if _SPENT in str(error):
        return True
    try:
        isl.Val.int_from_si(CONTEXT, 1).add(isl.Val.int_from_si(CONTEXT, 1))
        isl.Set.universe(isl.Space.set_alloc(CONTEXT, 0, 1)).subtract(isl.Set("{ [i] : i > 0 }"))
    except isl.Error:
        return True
    return False


@contextmanager
def budget(operations: int, what: str, hint: str) -> Iterator[None]:
    """Stop isl after so many operations; raises ResourceError, saying ``what`` was too much, when it does.

    A budget inside of another one has no limit of its own: the outer one holds.
    """
    if CONTEXT.get_max_operations():
        yield
        return
    CONTEXT.reset_operations()
    CONTEXT.set_max_operations(operations)
    try:
        yield
    except isl.Error as error:
        if not is_spent(error):
            raise
        raise ResourceError(f"{what}: isl gave up after {operations} operations", hint=hint) from error
    finally:
        CONTEXT.set_max_operations(0)
        CONTEXT.reset_operations()
