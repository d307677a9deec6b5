"""Kernels as a model has them: what they compute, how that was decided, and the code."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen import Memory
from tilewright.build.device_kernel import LoadedKernels
from tilewright.build.kernel import Kernel
from tilewright.ir import Buffer, LoopFunction, Program
from tilewright.plan import UnitPlan
from tilewright.schedule import Schedule
from tilewright.target import TargetBase


@dataclass(frozen=True, slots=True, eq=False)
class UnitKernel:
    """One kernel of a model: its program, the schedule that it was compiled with, and the code.

    ``buffers`` are the argument buffers in the order in which the kernel takes them, in the layouts that the
    schedule gave them; ``threads`` those of a call. ``sizes`` are the values of the program's symbolic sizes,
    in their order. A kernel that was scheduled by hand has no plan.
    """

    name: str
    program: Program
    schedule: Schedule
    plan: UnitPlan | None
    threads: int
    target: TargetBase
    buffers: tuple[Buffer, ...]
    flops: int
    code: Kernel | LoadedKernels
    sizes: tuple[int, ...] = ()

    @property
    def memory(self) -> Memory:
        """The bytes that a call needs beside its arguments."""
        return self.code.memory

    def on_cpu(self) -> Kernel:
        """The code of a kernel that is known to be one of a CPU."""
        assert isinstance(self.code, Kernel)
        return self.code

    def lowered(self) -> LoopFunction:
        """The loop function that code generation took."""
        return self.code.lowered()

    def code_text(self, form: str) -> str:
        """The code in a form that the machine has: ``llvm``, ``asm`` or ``source``.

        Raises TargetError for a form that there is not.
        """
        return self.code.code_text(form)

    def decided(self) -> tuple[int, UnitPlan] | None:
        """The threads of a call, and the plan that the kernel was made by; ``None`` where there is none."""
        return None if self.plan is None else (self.threads, self.plan)

    def loops(self) -> LoopFunction:
        """The scheduled loop function, before lowering."""
        return self.schedule.func
