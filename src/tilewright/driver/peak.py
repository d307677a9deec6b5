"""What cores can do: multiply-adds of full vectors, as many as start, all operands in registers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.codegen import compile_ir, load_object
from tilewright.ir import F32, TILE
from tilewright.runtime import PlanBuilder, PoolOptions, aligned_copy, shared_pool
from tilewright.support import TargetError, read_settings
from tilewright.target import ROW_BYTES, ROWS, TILES, Emission, Instruction, Target, detect

CHAINS: Final = 12
"""Independent sums: more than latency times throughput of any unit, and within 16 registers."""
DOT_CHAINS: Final = 24
"""The same for dot products, which take longer and come with 32 registers."""
ITERATIONS: Final = 2_000_000
TILE_CHAINS: Final = 4
"""The same for products of tiles, of which eight are registers."""
TILE_ITERATIONS: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """An instruction as LLVM has it: ``accumulator`` and ``operand`` types, and the products of one call."""

    intrinsic: str
    accumulator: str
    operand: str
    accumulator_first: bool
    chains: int
    products: int


def peak_gflops(target: Target | None = None, seconds: float = 0.5, threads: int = 1) -> float:
    """The best rate of so many threads at once in f32, in GFLOP/s.

    From as many short runs as fit into so many seconds.
    """
    return _best(peak_meter(target, threads), seconds)


def peak_meter(target: Target | None = None, threads: int = 1) -> Callable[[], float]:
    """A function that measures the rate of so many threads at once in f32, in GFLOP/s, in a few milliseconds.

    At once: virtual CPUs may be hardware threads of one core, and then two have no more than one.
    """
    machine = target or detect()
    lanes = machine.lanes(F32)
    vector = f"<{lanes} x float>"
    return _meter(machine, _Kind(f"llvm.fma.v{lanes}f32", vector, vector, False, CHAINS, lanes), threads)


def chain_rate(target: Target, seconds: float = 0.5) -> float:
    """The rate in f32, in GFLOP/s, where each multiply-add waits for the one before: it tells the clock."""
    lanes = target.lanes(F32)
    vector = f"<{lanes} x float>"
    kind = _Kind(f"llvm.fma.v{lanes}f32", vector, vector, False, 1, lanes)
    return _best(_meter(target, kind, 1), seconds)


def dot_gops(name: str, target: Target | None = None, seconds: float = 0.5, threads: int = 1) -> float:
    """The best rate of so many threads at once with the instruction ``name`` of the target, in GOP/s.

    Products of tiles are measured on one core and count once a thread.
    """
    machine = target or detect()
    instruction = machine.instruction(name)
    if instruction.result.scope == TILE:
        operations = 2.0 * TILE_CHAINS * instruction.products * TILE_ITERATIONS
        module = _tile_module(machine.llvm_triple, instruction)
        return threads * _best(_meter_of(module, machine, 1, TILE_ITERATIONS, operations), seconds)
    operand = "<32 x bfloat>" if instruction.a.dtype.is_float else "<16 x i32>"
    accumulator = "<16 x float>" if instruction.result.dtype.is_float else "<16 x i32>"
    emission = _emission(instruction)
    total, element = instruction.result.dtype.bits, instruction.a.dtype.bits
    intrinsic = emission.name(emission.bits[-1], total, element)
    kind = _Kind(intrinsic, accumulator, operand, True, DOT_CHAINS, instruction.products)
    return _best(_meter(machine, kind, threads), seconds)


def _emission(instruction: Instruction) -> Emission:
    if instruction.emission is None:
        raise TargetError(f"no code can be generated for the instruction {instruction.name}")
    return instruction.emission


def _best(meter: Callable[[], float], seconds: float) -> float:
    best, begin = 0.0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        best = max(best, meter())
    return best


def _meter(machine: Target, kind: _Kind, threads: int) -> Callable[[], float]:
    operations = 2.0 * kind.chains * kind.products * ITERATIONS * threads
    module = _module(machine.llvm_triple, kind, threads)
    return _meter_of(module, machine, kind.chains * threads, ITERATIONS, operations, threads)


def _meter_of(
    module: str, machine: Target, sums_of: int, iterations: int, operations: float, threads: int = 1
) -> Callable[[], float]:
    code = load_object(compile_ir(module, machine))
    pool = shared_pool(PoolOptions.of(read_settings(), threads))
    builder = PlanBuilder(pool)
    factors = np.concatenate([np.full(16, 0.999, np.float32), np.full(16, 0.001, np.float32)])
    sums = builder.constant(aligned_copy(np.zeros(sums_of * 16, np.float32)))
    builder.step(code.address("peak"), [builder.constant(aligned_copy(factors)), sums], [iterations])
    plan = builder.build([code])
    return lambda: operations / float(plan.measure([], []).min())


def _tile_module(triple: str, instruction: Instruction) -> str:
    """Products of whole tiles; which numbers they hold does not matter."""
    configuration = bytes([1, *[0] * 15, *[ROW_BYTES, 0] * TILES, *[0] * 16, *[ROWS] * TILES, *[0] * 8])
    text = "".join(f"\\{byte:02x}" for byte in configuration)
    name = _emission(instruction).intrinsic
    zeros = "\n".join(f"  call void @llvm.x86.tilezero(i8 {n})" for n in range(TILES))
    calls = "\n".join(
        f"  call void @{name}(i8 {n}, i8 {TILE_CHAINS + n // 2}, i8 {TILE_CHAINS + 2 + n % 2})"
        for n in range(TILE_CHAINS)
    )
    return f"""
target triple = "{triple}"
@tiles = internal constant [64 x i8] c"{text}", align 64
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @{name}(i8 immarg, i8 immarg, i8 immarg)
define i32 @peak(ptr %context, ptr %buffers, ptr %params, ptr %workspace, ptr %scratch) {{
entry:
  %n = load i64, ptr %params
  call void @llvm.x86.ldtilecfg(ptr @tiles)
{zeros}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{calls}
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  call void @llvm.x86.tilerelease()
  ret i32 0
}}
"""


def _module(triple: str, kind: _Kind, threads: int) -> str:
    """Each thread keeps its own sums; `tw_runtime.h` says how loops are shared."""
    sums, operand = kind.accumulator, kind.operand
    every = range(kind.chains)
    types = [sums, operand, operand] if kind.accumulator_first else [operand, operand, sums]
    phis = "\n".join(f"  %a{k} = phi {sums} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in every)

    def call(k: int) -> str:
        names = [f"%a{k}", "%x", "%y"] if kind.accumulator_first else ["%x", "%y", f"%a{k}"]
        given = ", ".join(f"{t} {name}" for t, name in zip(types, names, strict=True))
        return f"  %b{k} = call {sums} @{kind.intrinsic}({given})"

    stores = "\n".join(
        f"  %p{k} = getelementptr {sums}, ptr %own, i64 {k}\n  store {sums} %b{k}, ptr %p{k}, align 4"
        for k in every
    )
    calls = "\n".join(map(call, every))
    return f"""
target triple = "{triple}"
declare {sums} @{kind.intrinsic}({", ".join(types)})
define i32 @peak(ptr %context, ptr %buffers, ptr %params, ptr %workspace, ptr %scratch) {{
entry:
  %given = alloca [2 x ptr]
  store ptr %buffers, ptr %given
  %other = getelementptr ptr, ptr %given, i64 1
  store ptr %params, ptr %other
  %share = load ptr, ptr %context
  call void %share(ptr %context, ptr @work, ptr %given, i64 {threads})
  ret i32 0
}}
define internal void @work(ptr %given, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %buffers = load ptr, ptr %given
  %other = getelementptr ptr, ptr %given, i64 1
  %params = load ptr, ptr %other
  %n = load i64, ptr %params
  %in = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %second
  %at = mul i64 %begin, {kind.chains}
  %own = getelementptr {sums}, ptr %out, i64 %at
  %x = load {operand}, ptr %in, align 4
  %next = getelementptr {operand}, ptr %in, i64 1
  %y = load {operand}, ptr %next, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{phis}
{calls}
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
"""
