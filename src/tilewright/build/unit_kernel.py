"""What the kernels of a model have in common, whatever machine runs them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen import Memory
from tilewright.ir import Buffer, LoopFunction, Program
from tilewright.plan import UnitPlan
from tilewright.schedule import Schedule
from tilewright.support import TargetError
from tilewright.target import TargetBase


@dataclass(frozen=True, slots=True, eq=False)
class UnitKernel:
    """One kernel of a model: its program, and the schedule that it was compiled with.

    ``buffers`` are the argument buffers in the order in which the kernel takes them, in the layouts that the
    schedule gave them.
    """

    name: str
    program: Program
    schedule: Schedule
    target: TargetBase
    buffers: tuple[Buffer, ...]
    memory: Memory
    flops: int

    def lowered(self) -> LoopFunction:
        """The loop function that code generation took."""
        raise NotImplementedError

    def code_text(self, form: str) -> str:
        """The code in a form that the machine has: ``llvm``, ``asm`` or ``source``.

        Raises TargetError for a form that there is not.
        """
        raise TargetError(
            f"kernels for {self.target.name} have no text of the form {form!r}",
            hint="those of CPUs have llvm, asm and source (C), those of devices source",
        )

    def decided(self) -> tuple[int, UnitPlan] | None:
        """The threads of a call, and the plan that the kernel was made by; ``None`` where there is none."""
        return None

    def loops(self) -> LoopFunction:
        """The scheduled loop function, before lowering."""
        return self.schedule.func
