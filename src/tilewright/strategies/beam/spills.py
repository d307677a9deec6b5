"""The filter after compiling: candidates that keep their vectors in registers come first (Section 5).

What is stored and loaded again depends on the compiler's allocator, which no feature foresees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def least_spilled(found: Sequence[T], spills: Callable[[T], int | None]) -> tuple[list[T], list[T]]:
    """Those that spill nothing, where all do those within 50 % of the least, and the others.

    What cannot be compiled is one of the others.
    """
    counted = [(spills(each), each) for each in found]
    most = WITHIN * min((n for n, _ in counted if n is not None), default=0)
    kept = [each for n, each in counted if n is not None and n <= most]
    return kept, [each for n, each in counted if n is None or n > most]
