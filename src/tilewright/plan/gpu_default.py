"""The default schedule of GPUs."""

from __future__ import annotations

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.gpu.assembly import plan_on_gpu
from tilewright.schedule import Schedule
from tilewright.target import GpuTarget


def schedule_for_gpu(program: Program, target: GpuTarget) -> Schedule:
    """Schedule a whole program for a GPU. Deterministic."""
    return plan_on_gpu(program, Machine(target, 1)).schedule
