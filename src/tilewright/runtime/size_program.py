"""What a run computes of its sizes: parameters of kernels, extents, bytes and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.runtime.executor import MAX_BYTES
from tilewright.support import ResourceError, format_bytes

#: What instructions do with two numbers before them; ``number`` is its first operand itself.
SIZE_OPS: Final = ("number", "add", "mul", "div", "mod", "min", "max")


@dataclass(frozen=True, slots=True)
class SizeProgram:
    """The numbers of a run: the ``count`` sizes that it is given, then what each instruction makes of them.

    An instruction is its operation and two operands: the places of numbers before its own.
    """

    count: int
    instructions: tuple[tuple[str, int, int], ...]

    def values(self, sizes: Sequence[int]) -> list[int]:
        """All numbers of a run at some sizes.

        Raises ResourceError where one is so large that no memory holds what it counts.
        """
        values = list(sizes)
        for op, a, b in self.instructions:
            if op == "number":
                made = a
            elif op == "mul":
                made = values[a] * values[b]
            elif op == "add":
                made = values[a] + values[b]
            elif op == "div":
                made = values[a] // values[b]
            elif op == "mod":
                made = values[a] % values[b]
            elif op == "min":
                made = min(values[a], values[b])
            else:
                made = max(values[a], values[b])
            values.append(made)
        if values and max(values) > MAX_BYTES:
            raise ResourceError(f"at these sizes a run would take more than {format_bytes(MAX_BYTES)}")
        return values
