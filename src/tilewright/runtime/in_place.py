"""Arrays that a function changes where they lie: what they must be, and a run on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.memory import aligned_copy
from tilewright.support import InputError, quoted

Array = npt.NDArray[Any]


def named_arguments(
    name: str, order: Sequence[str], placed: Sequence[object], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call by their names. Raises InputError for too many, and one that is given twice."""
    if len(placed) > len(order):
        raise InputError(
            f"the nest {quoted(name)} takes {len(order)} arguments, got {len(placed)}", hint=", ".join(order)
        )
    out = dict(zip(order, placed, strict=False))
    if twice := next((argument for argument in out if argument in named), None):
        raise InputError(f"the argument {quoted(twice)} of {quoted(name)} is given twice")
    return {**out, **named}


def pointed_at(name: str, array: Array, rank: int) -> Array:
    """What a pointer to numbers points at: all elements of an array, one after another.

    Raises InputError for arrays whose rows do not lie in order.
    """
    if rank != 1 or array.ndim == 1:
        return array
    if not array.flags.c_contiguous:
        raise InputError(f"{quoted(name)} is read through a pointer: its rows must lie in order")
    return array.reshape(-1)


def run_in_place(
    given: Mapping[str, object],
    arrays: Mapping[str, Array],
    written: Collection[str],
    run: Callable[[Mapping[str, Array]], None],
) -> None:
    """Run on arrays where they lie; those that are not row-major or not aligned are copied to and fro.

    ``given`` is what the caller gave for them. Raises InputError for one of ``written`` that may not be
    written, or that shares memory with another.
    """
    for name in written:
        value = given[name]
        if not isinstance(value, np.ndarray) or not value.flags.writeable:
            raise InputError(f"{quoted(name)} is written: it must be an array that may be written")
    for (one, a), (two, b) in combinations(arrays.items(), 2):
        if {one, two} & set(written) and _may_overlap(a, b):
            raise InputError(
                f"{quoted(one)} and {quoted(two)} share memory: a nest takes arrays that are apart",
                hint=f"give a copy of {quoted(two if one in written else one)}",
            )
    table = {
        name: a if a.flags.c_contiguous and a.flags.aligned else aligned_copy(a) for name, a in arrays.items()
    }
    run(table)
    for name in written:
        if table[name] is not arrays[name]:
            arrays[name][...] = table[name]


def _may_overlap(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=1000)  # type: ignore[arg-type]  # any number is allowed
    except np.exceptions.TooHardError:
        return True
