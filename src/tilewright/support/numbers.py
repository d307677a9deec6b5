"""Numbers that callers give, as Python's own."""

from numbers import Integral


def whole_number(value: object) -> int | None:
    """A whole number of Python's or numpy's as an ``int``; ``None`` for what is none, as a truth value.

    >>> import numpy as np
    >>> whole_number(np.int32(3)), whole_number(True), whole_number(2.0)
    (3, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return int(value)
