"""Broadcasts as operands of multiply-adds, where a core shares the instructions that it starts.

A register tile broadcasts an element of each row for all of its vectors: one instruction a row and step. As
an operand in memory of each multiply-add it is no instruction, but a load for each vector. A core whose other
hardware thread works for somebody else starts about half as many instructions, too few for both; loads are
left over. So a part of the rows does without the broadcast: as many as make both last equally long.
"""

from __future__ import annotations

from typing import Final

from tilewright.target import Target

#: Instructions of a loop's turn besides its work, for each step.
LOOP_INSTRUCTIONS: Final = 0.75


def reloaded_rows(target: Target, rows: int, vectors: int) -> int:
    """How many rows of a register tile have their element loaded by each multiply-add; 0 elsewhere."""
    if target.shared_issue is None:
        return 0
    if vectors == 1:
        # no load more; but addresses without an index, with which processors take operands apart
        return rows
    instructions, loads = target.shared_issue
    started = _started(rows, vectors)
    # (started - n) / instructions = (rows + vectors + n * (vectors - 1)) / loads
    even = (loads * started - instructions * (rows + vectors)) / (loads + instructions * (vectors - 1))
    return max(0, min(rows, int(even)))


def shared_cycles(target: Target, rows: int, vectors: int) -> float | None:
    """Cycles of a step of a register tile on a core that shares what it starts; ``None`` elsewhere."""
    if target.shared_issue is None:
        return None
    instructions, loads = target.shared_issue
    again = reloaded_rows(target, rows, vectors)
    loaded = rows + vectors + again * (vectors - 1)
    return max((_started(rows, vectors) - again) / instructions, loaded / loads)


def _started(rows: int, vectors: int) -> float:
    """Instructions of a step with every element broadcast."""
    return rows * vectors + rows + vectors + LOOP_INSTRUCTIONS
