"""OpenCL C 1.2."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tilewright.codegen.clike.device import DeviceSource, emit_device
from tilewright.codegen.clike.dialect import Dialect
from tilewright.ir import ATOMIC, CALLS, LoopFunction

OPENCL: Final = Dialect(
    name="OpenCL C",
    types=MappingProxyType({
        "f64": "double", "f32": "float", "f16": "float", "bf16": "float", "i64": "long", "i32": "int",
        "i16": "short", "i8": "char", "u64": "ulong", "u32": "uint", "u16": "ushort", "u8": "uchar",
        "bool": "int",
    }),
    storage=MappingProxyType({"f16": "ushort", "bf16": "ushort", "bool": "uchar"}),
    inline="static inline",
    restrict="restrict",
    # one name for all types
    functions=MappingProxyType({fn: (fn, fn) for fn in (*CALLS, "fabs", "rint", "fmod")}),
    extensions=MappingProxyType({
        "f64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "atomic64": "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
        "#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable",
    }),
    kernel="__kernel {bounds}void {name}",
    bounds="__attribute__((reqd_work_group_size({x}, {y}, {z}))) ",
    global_space="__global",
    shared_space="__local {type} {name}[{count}] __attribute__((aligned(16)));",
    barrier=(
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    ),
    group_id="get_group_id({n})",
    local_id="get_local_id({n})",
    atomics=MappingProxyType({
        **{(op, 32): f"atomic_{op}(&{{at}}, {{value}});" for op in ATOMIC},
        **{(op, 64): f"atom_{op}(&{{at}}, {{value}});" for op in ATOMIC},
    }),
    vectors=True,
)  # fmt: skip


def emit_opencl(func: LoopFunction) -> DeviceSource:
    """A lowered function as OpenCL C. Raises ScheduleError and TargetError for what a device cannot do."""
    return emit_device(func, OPENCL)
