"""The default schedule of GPUs: one thread an output element, reductions in order within it.

Each stage that is not inlined is a kernel, or several where its iterators depend on each other. It is right
everywhere and fast nowhere: rules for single kinds of stages are to take its place, behind the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.ir import ONE, Program, Stage, fresh_name
from tilewright.plan.fallback import fell_back
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget

THREADS: Final = 128
"""Threads of a block: four warps, of which a multiprocessor holds enough blocks to hide latencies."""


def schedule_for_gpu(program: Program, target: GpuTarget) -> Schedule:
    """Schedule a whole program for a GPU. Deterministic."""
    s = inline_stages(Schedule(program))
    made = s.require_program()
    homes: dict[str, str | None] = {}
    # from the results backwards: a stage goes to the threads that read it, where each reads one element
    for stage in reversed(made.stages):
        home = _home(made, stage, homes)
        placed = None if home is None else _place(s, stage, home)
        if placed is not None:
            s, homes[stage.name] = placed, home
        else:
            s, homes[stage.name] = _spread(s, stage.name, target)
    return s


def _home(program: Program, stage: Stage, homes: Mapping[str, str | None]) -> str | None:
    """The loop over threads in which a stage is computed without doing anything twice.

    It is that of its readers, if that is one loop and they have as many elements as the stage.
    """
    (written, *others) = stage.writes
    if others or written in {b.name for b in program.outputs}:
        return None
    readers = program.consumers(written)
    found = {homes[reader.name] for reader in readers}
    counts = {_elements(program, reader) for reader in readers} | {_elements(program, stage)}
    return found.pop() if len(found) == 1 and len(counts) == 1 and counts != {None} else None


def _elements(program: Program, stage: Stage) -> int | None:
    """Elements that a stage computes; ``None`` where they are no constant."""
    count = 1
    for it in stage.iters:
        if it.kind == "ord" or not it.extent.is_const:
            return None
        count *= it.extent.const if it.kind == "par" else 1
    return count


def _place(s: Schedule, stage: Stage, home: str) -> Schedule | None:
    """The stage in a thread's loop, its results in a buffer of the thread; ``None`` where that is refused."""
    try:
        placed = s.compute_at(stage.name, home)
        buffer = placed.buffers()[stage.writes[0]]
        one = all(extent == ONE for extent in buffer.physical_shape)
        return placed.set_scope(buffer.name, "local") if one else None
    except ScheduleError:
        return None


def _spread(s: Schedule, name: str, target: GpuTarget) -> tuple[Schedule, str | None]:
    """Give the parallel iterations of one block to threads, all of them or those of one loop.

    Returns the loop over the threads of a block as well, if there is one now.
    """
    outer = _parallel_loops(s, name)
    refused: ScheduleError | None = None
    for loops in (outer, *([loop] for loop in outer if len(outer) > 1)):
        if not loops:
            return s, None
        try:
            return _bind(s, loops, target)
        except ScheduleError as error:
            refused = refused or error
    assert refused is not None  # without loops there was nothing to refuse
    return fell_back(s, f"{name} runs in one thread", refused), None


def _parallel_loops(s: Schedule, name: str) -> list[str]:
    """The outermost loops around a block, as far as they feed parallel iterators alone."""
    block = s.block(name)
    kinds: dict[str, set[str]] = {}
    for it, bound in zip(block.iters, block.bind, strict=True):
        for var in bound.vars:
            kinds.setdefault(var, set()).add(it.kind)
    found: list[str] = []
    for loop in s.loops(name):
        if kinds.get(loop, {"par"}) != {"par"}:
            break
        found.append(loop)
    return found


def _bind(s: Schedule, loops: list[str], target: GpuTarget) -> tuple[Schedule, str]:
    taken = set(s.func.body.names)

    def name(base: str) -> str:
        found = fresh_name(base, taken)
        taken.add(found)
        return found

    first, *rest = loops
    for loop in rest:
        fused = name("element")
        s = s.fuse(first, loop, names=[fused])
        first = fused
    threads = min(THREADS, target.threads_per_block)
    block, thread = name("block"), name("thread")
    s = s.split(first, threads, names=[block, thread]).bind(block, "block.x").bind(thread, "thread.x")
    return s, thread
