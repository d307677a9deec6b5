"""Batches in parts: which kernels run on a few elements of a batch at a time, a thread on parts of its own.

Run one after another over a whole batch, kernels write values that no cache holds until the next one reads
them. A run of kernels that treat the elements of a batch apart can instead take a part of the batch all the
way through: what lies between them then stays in the caches of one core, and threads need not wait for each
other. The price is that each part reads the weights again. Where that pays is decided by bytes and
bandwidths alone: a shortest path through the kernels, each at one of several numbers of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, isqrt, prod
from typing import Final

from tilewright.cost import KEPT_SHARE, Machine
from tilewright.ir import (
    CONST,
    F32,
    Buffer,
    FloorDiv,
    If,
    Index,
    IndexMap,
    MinMax,
    Mod,
    OfIndex,
    Opaque,
    Param,
    Program,
    Stage,
    Store,
    Var,
    children,
    stmt_exprs,
    stmt_loads,
    stmt_writes,
    walk,
    walk_index,
)
from tilewright.plan.contraction.register_tiling import MAX_ROWS
from tilewright.plan.contraction.sharing import MIN_PARALLEL_PRODUCTS, TILES_PER_PANEL
from tilewright.plan.graph.layouts import Flow
from tilewright.target import Target

#: Parts for each thread from which on it does not matter that some threads have one more.
EVEN_PARTS: Final = 8
#: Bytes that divide the addresses at which parts begin.
ALIGNMENT: Final = 64
#: The least part of the cycles of computing that must be saved.
LEAST_GAIN: Final = 0.01
#: Cycles that one more call of a kernel costs: entering it, and its partial tiles.
CALL_CYCLES: Final = 3000.0
#: Cycles more where threads share a call: starting them, waiting for the slowest, and lines of other cores.
SHARED_CYCLES: Final = 10000.0


def slice_program(program: Program, parts: int) -> Program:
    """The program of one of ``parts`` equal parts along the outermost dimension.

    Raises ``ValueError`` where ``parts`` does not divide its extent, or elements along it are not computed
    apart from each other: outputs must all have that extent, and every stage on the way to them must read
    element ``i`` of buffers of that extent for its element ``i``.
    """
    found = _moving(program)
    if found is None or found[0] % parts:
        raise ValueError(f"{program.name} has no {parts} equal parts")
    extent, moving, axes = found

    def buffers(all_of: Sequence[Buffer]) -> tuple[Buffer, ...]:
        return tuple(resized(b, extent // parts) if b.name in moving else b for b in all_of)

    def stage(s: Stage) -> Stage:
        if s.name not in axes:
            return s
        iters = tuple(
            replace(it, hi=Index(extent // parts)) if it.name == axes[s.name] else it for it in s.iters
        )
        return replace(s, iters=iters)

    return replace(
        program,
        inputs=buffers(program.inputs),
        outputs=buffers(program.outputs),
        temps=buffers(program.temps),
        stages=tuple(map(stage, program.stages)),
    )


def sliced_buffers(program: Program) -> frozenset[str]:
    """The buffers of which a part holds only its own elements; others are the same for all parts.

    None where there are no parts, or none can be seen.
    """
    found = _moving(program)
    return frozenset() if found is None else frozenset(found[1])


def resized(buffer: Buffer, extent: int) -> Buffer:
    """The buffer with another extent of its outermost dimension, which must be outermost in memory too."""
    shape = (Index(extent), *buffer.shape[1:])
    layout = buffer.layout
    if layout is None:
        return buffer.with_(shape=shape)
    return buffer.with_(
        shape=shape, layout=IndexMap(layout.dims, layout.exprs, (Index(extent), *layout.shape[1:]))
    )


def _moving(program: Program) -> tuple[int, dict[str, None], dict[str, str]] | None:
    """The extent, the buffers that move with the outermost dimension, and each stage's iterator along it."""
    extents = {b.shape[0] if b.shape else None for b in program.outputs}
    extent = extents.pop() if len(extents) == 1 else None
    if extent is None or not extent.is_const or program.params:
        return None
    moving: dict[str, None] = {b.name: None for b in program.outputs}
    axes: dict[str, str] = {}
    for stage in reversed(program.stages):
        axis = _axis(stage, extent)
        written = set(stage.writes)
        if not written & moving.keys():
            continue
        if axis is None or not written <= moving.keys():
            return None
        axes[stage.name] = axis
        for load in stmt_loads(stage.body):
            if any(axis in _counted(i) for i in load.indices):
                if load.indices[0].as_var() != axis or any(axis in _counted(i) for i in load.indices[1:]):
                    return None
                moving[load.buffer] = None
    for stage in program.stages:
        axis = axes.get(stage.name)
        for load in stmt_loads(stage.body):
            if load.buffer in moving and (axis is None or load.indices[0].as_var() != axis):
                return None
    if not all(_sliceable(program.buffer(name), extent) for name in moving):
        return None
    return extent.as_int(), moving, axes


def _axis(stage: Stage, extent: Index) -> str | None:
    """The iterator along the outermost dimension of all that a stage writes, if it does nothing else."""
    writes = stmt_writes(stage.body)
    names = {indices[0].as_var() if indices else None for _, indices in writes}
    name = names.pop() if len(names) == 1 else None
    if any(name in _counted(i) for _, indices in writes for i in indices[1:]):
        return None
    for it in stage.iters:
        if it.name == name:
            plain = it.kind == "par" and it.lo == Index(0) and it.hi == extent
            return name if plain and _only_addresses(stage, it.name) else None
    return None


def _only_addresses(stage: Stage, axis: str) -> bool:
    """Whether an iterator occurs in indices of accesses alone, not in values or conditions."""
    for body in (stage.body, stage.init):
        if body is None:
            continue
        while isinstance(body, If):
            counted = (c.index for c in body.cond if c.index is not None)
            if body.orelse is not None or any(axis in _counted(i) for i in counted):
                return False
            body = body.then
        if not isinstance(body, Store):
            return False
        values = (e for root in stmt_exprs(body) for e in walk(root))
        if any(isinstance(e, OfIndex) and axis in _counted(e.index) for e in values):
            return False
    return True


def _counted(x: Index) -> frozenset[str]:
    """The variables that an index is computed from; those that only say which elements it reads are none."""
    out: set[str] = set()
    for atom, _ in x.terms:
        match atom:
            case FloorDiv() | Mod():
                out |= _counted(atom.arg)
            case MinMax():
                out.update(*(_counted(arg) for arg in atom.args))
            case Var(name):
                out.add(name)
            case Opaque() | Param():
                pass
    return frozenset(out)


def _sliceable(buffer: Buffer, extent: Index) -> bool:
    """Whether equal parts along the outermost dimension lie one after another in memory."""
    if buffer.scope == CONST or not buffer.shape or buffer.shape[0] != extent:
        return False
    layout = buffer.layout
    if layout is None:
        return True
    first = layout.dims[0]
    return (
        layout.exprs[0].as_var() == first
        and layout.shape[0] == extent
        and not any(first in e.vars for e in layout.exprs[1:])
    )


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Bytes that a kernel moves for a whole batch; ``weights`` are the same for all its parts.

    Parts whose number divides ``grain`` begin on a cache line in every buffer. ``work`` is the number of
    iterations of its stages; ``alone`` are cycles of one core for those that threads do not share in a kernel
    for the whole batch.
    """

    extent: int
    reads: float
    writes: float
    weights: float
    grain: int
    work: float
    alone: float


def choose_parts(flows: Sequence[Flow], batch: int, machine: Machine) -> tuple[int, ...]:
    """Into how many parts of the batch each kernel is best divided, 1 for not at all.

    ``flows`` are the kernels in the order in which they run, ``batch`` the elements of a batch. Kernels next
    to each other with the same number of parts above 1 take a part through all of them, each thread parts of
    its own.
    """
    target = machine.target
    options = [1, *(p for p in _divisors(batch) if p > 1 and _even(p, machine))]
    traffic = [_traffic(flow, target) for flow in flows] if len(options) > 1 else []
    if len(flows) < 2 and not any(t.alone for t in traffic):
        return (1,) * len(flows)
    prices = _Prices(machine, sum(t.weights for t in traffic))
    # the model's inputs lie there as a whole, and the first kernel may read them in any way
    start = SHARED_CYCLES if machine.threads > 1 else 0.0
    best: dict[int, tuple[float, tuple[int, ...]]] = {p: (start if p > 1 else 0.0, ()) for p in options}
    for t in traffic:
        step: dict[int, tuple[float, tuple[int, ...]]] = {}
        for p in options:
            if p > 1 and (not t.extent or t.extent % p or t.grain % p):
                continue
            own = prices.cycles(t, p)
            cost, path = min(
                (before + own + (prices.exchange(t, p) if p != q else 0.0), path)
                for q, (before, path) in best.items()
            )
            step[p] = (cost, (*path, p))
        best = step
    cost, path = min(best.values())
    whole = sum(prices.cycles(t, 1) for t in traffic)
    work = sum(t.work for t in traffic) / (target.lanes(F32) * target.fma_per_cycle * machine.threads)
    return path if whole - cost > LEAST_GAIN * work else (1,) * len(flows)


def _divisors(n: int) -> list[int]:
    """In increasing order; ``n``, a size in a model that nobody has vouched for, may be large."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _even(parts: int, machine: Machine) -> bool:
    return parts % machine.threads == 0 or parts >= EVEN_PARTS * machine.threads


def _traffic(flow: Flow, target: Target) -> _Traffic:
    program = flow.program
    found = None if flow.repeated else _moving(program)
    moving = {} if found is None else found[1]
    inner = {b.name: _nbytes(b) for b in program.inputs}
    reads = sum(n for name, n in inner.items() if name in moving)
    whole = sum(n for name, n in inner.items() if name not in moving)
    writes = sum(_nbytes(b) for b in program.outputs)
    lines = [int(_nbytes(program.buffer(name))) // ALIGNMENT for name in moving]
    work = sum(
        prod(it.extent.as_int() if it.extent.is_const else 1 for it in s.iters) for s in program.stages
    )
    alone = _alone(program, target)
    return _Traffic(0 if found is None else found[0], reads, writes, whole, gcd(*lines), work, alone)


def _alone(program: Program, target: Target) -> float:
    """Cycles of the stages that threads do not share.

    A stage that runs in order keeps those around it from sharing a loop over rows; each is then a nest of its
    own, and one that does little is left to one thread. Counted are operations, in vectors but for what runs
    in order or looks elements up.
    """
    if not any(it.kind == "ord" for s in program.stages for it in s.iters):
        return 0.0
    cycles = 0.0
    for s in program.stages:
        work = prod(it.extent.as_int() if it.extent.is_const else 1 for it in s.iters)
        if work >= MIN_PARALLEL_PRODUCTS:
            continue
        operations = [e for root in stmt_exprs(s.body) for e in walk(root) if children(e)]
        found = any(_looks_up(i) for ld in stmt_loads(s.body) for i in ld.indices)
        single = found or any(it.kind == "ord" for it in s.iters)
        widest = max((e.dtype for e in operations), key=lambda dtype: dtype.bits, default=F32)
        cycles += work * len(operations) / target.fma_per_cycle / (1 if single else target.lanes(widest))
    return cycles


def _looks_up(x: Index) -> bool:
    """Whether an index depends on elements that were read."""
    return next(walk_index(x), None) is not None


def _nbytes(buffer: Buffer) -> float:
    sizes = [e.as_int() if e.is_const else 1 for e in buffer.physical_shape]
    return float(prod(sizes) * buffer.dtype.bytes)


@dataclass(frozen=True, slots=True)
class _Prices:
    """What moving bytes costs, in cycles of one core; ``weights`` are the bytes of all kernels' weights."""

    machine: Machine
    weights: float

    def cycles(self, t: _Traffic, parts: int) -> float:
        """A kernel in so many parts: its values, its weights once a part, and its calls."""
        turns = -(-parts // self.machine.threads) if parts > 1 else 1
        values = (t.reads + t.writes) / self.machine.threads
        around = self._price((t.reads + t.writes) / parts, 1 if parts > 1 else self.machine.threads)
        weights = t.weights * self._price(self.weights, self.machine.threads)
        if parts > 1 or self.machine.threads == 1:
            return values * around + turns * (weights + CALL_CYCLES + t.alone / parts)
        # threads divide rows, and each reads all weights, unless rows are few and values the smaller operand
        rows = t.work / max(1.0, t.weights / F32.bytes)
        few = rows < TILES_PER_PANEL * MAX_ROWS * self.machine.threads
        shared = weights / self.machine.threads if few and t.weights > t.reads + t.writes else weights
        together = SHARED_CYCLES if t.work >= MIN_PARALLEL_PRODUCTS else 0.0
        return values * around + shared + CALL_CYCLES + together + t.alone

    def exchange(self, t: _Traffic, parts: int) -> float:
        """What a kernel reads goes through memory as a whole where the one before has other parts.

        It is written there and read again, by threads that start and wait for each other.
        """
        start = SHARED_CYCLES if parts > 1 and self.machine.threads > 1 else 0.0
        return start + 2 * t.reads / self.machine.threads * self._price(t.reads, self.machine.threads)

    def _price(self, nbytes: float, cores: int) -> float:
        """Cycles a byte for values of so many bytes that ``cores`` work on; the innermost caches are free."""
        for level in self.machine.target.memory:
            if level.size is None:
                break
            shared = level.shared_by > 1
            room = level.size * KEPT_SHARE * (cores / self.machine.threads if shared else cores)
            if nbytes <= room:
                return 0.0 if not shared else 1 / level.bandwidth
        return 1 / self.machine.target.memory[-1].bandwidth
