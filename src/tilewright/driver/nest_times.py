"""How long each nest of a scheduled function takes by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from tilewright.build import Kernel, build
from tilewright.ir import Alloc, Block, Buffer, LoopFunction, Seq, Stmt, locate, stmt_loads, stmt_writes
from tilewright.runtime import aligned_empty
from tilewright.target import Target

#: Runs of each nest, of which the shortest counts.
REPEATS: Final = 9


def nest_times(
    func: LoopFunction, target: Target, threads: int, repeats: int = REPEATS, *, apart: bool = False
) -> dict[str, float]:
    """Seconds of each nest by the last stage in it: the shortest of some runs, on ones.

    Nests are compiled one by one, with all that they read and write as arguments; those of one stage (its
    initialisation, peeled parts) are counted together. ``apart`` is as in :func:`tilewright.build.build`,
    whose errors this raises.
    """
    known = {b.name: b for b in func.buffers}
    out: dict[str, float] = {}
    for nest, inside in _nests(func.body, {}):
        blocks = [each.node for each in locate(nest, Block)]
        if not blocks:
            continue
        buffers = {**known, **inside}
        own = {each.node.buffer.name for each in locate(nest, Alloc)}
        written = dict.fromkeys(name for b in blocks for name, _ in stmt_writes(b) if name not in own)
        read = dict.fromkeys(ld.buffer for b in blocks for ld in stmt_loads(b) if ld.buffer not in own)
        used = [buffers[name] for name in dict.fromkeys((*read, *written))]
        part = LoopFunction(func.name, func.params, tuple(used), tuple(written), nest, func.assumes)
        label = blocks[-1].stage
        kernel = build(part, target=target, threads=threads, apart=apart)
        out[label] = out.get(label, 0.0) + _seconds(kernel, used, repeats)
    return out


def _nests(s: Stmt, inside: dict[str, Buffer]) -> Iterator[tuple[Stmt, dict[str, Buffer]]]:
    """The nests of a body, each with the buffers that are allocated around it."""
    match s:
        case Alloc():
            yield from _nests(s.body, {**inside, s.buffer.name: s.buffer})
        case Seq():
            for each in s.stmts:
                yield from _nests(each, inside)
        case _:
            yield s, inside


def _seconds(kernel: Kernel, used: list[Buffer], repeats: int) -> float:
    table = []
    for b in used:
        array = aligned_empty(tuple(n.as_int() for n in b.physical_shape), b.dtype.numpy)
        array[...] = np.ones((), b.dtype.numpy)
        table.append(array)
    plan, best = kernel.plan(table), float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        plan.run([], [])
        best = min(best, time.perf_counter() - begin)
    return best
