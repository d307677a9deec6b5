"""Counting spilled vector registers in assembly."""

from __future__ import annotations

import re
from typing import Final

SMALLEST_VECTOR: Final = 16
"""Bytes of the smallest vector register: what LLVM spills in less is a scalar or a mask."""

_FUNCTION: Final = re.compile(r"^\s*\.type\s+\"?([^\",]+?)\"?,\s*[@%]function")
_LABEL: Final = re.compile(r"^\"?([^\s\":][^\":]*)\"?:")
_COMMENT: Final = re.compile(r"(\d+)-byte (?:Folded )?(?:Spill|Reload)")
_X86_STACK: Final = re.compile(r"%[xyz]mm\d+[^#]*\(%rsp\b|\(%rsp\b[^#]*%[xyz]mm\d+")


def count_vector_spills(assembly: str) -> dict[str, int]:
    """Spills and reloads of vector registers by function, for every function of the assembly.

    LLVM's comments (``64-byte Spill``) decide where there are any; in x86 assembly without comments, every
    instruction counts that has both a vector register and an operand at the stack pointer.
    """
    commented = _COMMENT.search(assembly) is not None
    counts: dict[str, int] = {}
    current: str | None = None
    for line in assembly.splitlines():
        declared = _FUNCTION.match(line)
        if declared:
            counts[declared[1]] = 0
            continue
        label = _LABEL.match(line)
        if label and label[1] in counts:
            current = label[1]
        if current is None:
            continue
        if commented:
            counts[current] += sum(int(size) >= SMALLEST_VECTOR for size in _COMMENT.findall(line))
        elif _X86_STACK.search(line):
            counts[current] += 1
    return counts
