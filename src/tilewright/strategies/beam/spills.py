"""The filter after compiling: candidates that keep their vectors in registers come first (Section 5).

What is stored and loaded again depends on the compiler's allocator, which no feature foresees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from tilewright.codegen import assembly, count_vector_spills, emit_kernel
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, TargetError
from tilewright.target import CpuTarget

T = TypeVar("T")
#: Where all candidates spill, how many times the least those may spill that come first.
WITHIN: Final = 1.5


def vector_spills(s: Schedule, target: CpuTarget) -> int | None:
    """How often compiled code stores and loads vectors that no register holds; ``None``: it is refused."""
    try:
        text = emit_kernel(
            lower(s.func, native=target.functions),
            triple=target.llvm_triple,
            vector_bits=target.preferred_vector_bits,
            operations=target.operations,
        )
    except (ScheduleError, TargetError):
        return None
    return sum(count_vector_spills(assembly(text.text, target)).values())


def least_spilled(found: Iterable[T], spills: Callable[[T], int | None]) -> Iterator[tuple[T, bool]]:
    """Those that spill nothing, where all do those within 50 % of the least, then the others (``False``).

    Each comes as soon as it is known to be one of the first. What cannot be compiled is one of the others.
    """
    others: list[tuple[int | None, T]] = []
    least: int | None = None
    for each in found:
        n = spills(each)
        if n == 0:
            yield each, True
        else:
            others.append((n, each))
        if n is not None:
            least = n if least is None else min(n, least)
    most = WITHIN * (least or 0)
    for wanted in (True, False):
        for n, each in others:
            if (n is not None and n <= most) is wanted:
                yield each, wanted
