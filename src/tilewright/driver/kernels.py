"""Programs to loaded kernels: schedule, lower, emit, compile; equal programs once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from tilewright.codegen import (
    CompilePool,
    CompileRequest,
    LoadedObject,
    Memory,
    assembly,
    compile_request,
    emit_kernel,
    load_object,
    optimised_ir,
)
from tilewright.driver.progress import Progress
from tilewright.driver.units import Unit
from tilewright.driver.work import flops
from tilewright.ir import Buffer, LoopFunction, Program
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.support import InternalError, Settings
from tilewright.target import Target

_FEW = 3
"""Up to so many kernels are compiled in this process: starting a worker takes longer."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelKernel:
    """One compiled kernel of a model: its program, the schedule it was compiled with, and its code.

    ``buffers`` are the argument buffers in the order in which the kernel takes them, in the layouts that the
    schedule gave them. Text of any form is made again on demand, not kept.
    """

    name: str
    program: Program
    schedule: Schedule
    target: Target
    buffers: tuple[Buffer, ...]
    symbol: str
    memory: Memory
    code: LoadedObject
    flops: int

    @property
    def address(self) -> int:
        """Where the kernel is in this process."""
        return self.code.address(self.symbol)

    def loops(self) -> LoopFunction:
        """The scheduled loop function, before lowering."""
        return self.schedule.func

    def lowered(self) -> LoopFunction:
        """The loop function that code generation took."""
        return lower(self.schedule.func)

    def llvm(self, *, optimised: bool = False) -> str:
        """LLVM IR of the kernel's module, as emitted or after LLVM's passes."""
        text = _emit(self.lowered(), self.target)[1]
        return optimised_ir(text, self.target) if optimised else text

    def assembly(self) -> str:
        """Assembly of the kernel's module."""
        return assembly(_emit(self.lowered(), self.target)[1], self.target)


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """A kernel on its way through the compiler."""

    schedule: Schedule
    buffers: tuple[Buffer, ...]
    symbol: str
    memory: Memory
    request: CompileRequest


def build_kernels(
    units: Sequence[Unit], target: Target, threads: int, settings: Settings, progress: Progress
) -> tuple[ModelKernel, ...]:
    """The kernel of each unit; units with equal programs share one.

    This process schedules and emits while workers compile. Raises what scheduling and compiling raise, naming
    the unit.
    """
    first: dict[Program, Unit] = {}
    for unit in units:
        first.setdefault(unit.program, unit)
    with CompilePool.of_settings(settings) as pool:
        drafts: list[_Draft] = []
        running: list[Future[bytes]] = []
        for unit in first.values():
            progress("schedule", len(drafts), len(first), unit.label)
            drafts.append(_draft(unit, target, threads))
            if len(first) > _FEW:
                running.append(pool.submit(drafts[-1].request))
        progress("schedule", len(first), len(first), "")
        if len(first) <= _FEW:
            objects = pool.compile_many([draft.request for draft in drafts])
        else:
            objects = []
            for future, unit in zip(running, first.values(), strict=True):
                progress("compile", len(objects), len(first), unit.label)
                objects.append(future.result())
        progress("compile", len(first), len(first), "")
    kernels = {
        program: ModelKernel(
            name=f"{draft.symbol}_{at}",
            program=program,
            schedule=draft.schedule,
            target=target,
            buffers=draft.buffers,
            symbol=draft.symbol,
            memory=draft.memory,
            code=load_object(content),
            flops=flops(program),
        )
        for at, (program, draft, content) in enumerate(zip(first, drafts, objects, strict=True))
    }
    return tuple(kernels[unit.program] for unit in units)


def _draft(unit: Unit, target: Target, threads: int) -> _Draft:
    try:
        schedule = default_schedule(unit.program, target, threads)
        symbol, text, memory = _emit(lower(schedule.func), target)
    except InternalError as error:
        if error.where is None:
            error.where = unit.nodes[0].location
        raise
    return _Draft(schedule, schedule.func.buffers, symbol, memory, compile_request(text, target))


def _emit(lowered: LoopFunction, target: Target) -> tuple[str, str, Memory]:
    made = emit_kernel(lowered, triple=target.llvm_triple, vector_bits=target.preferred_vector_bits)
    return made.symbol, made.text, made.memory
