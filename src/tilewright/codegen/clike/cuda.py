"""CUDA C++, as NVRTC takes it: no header is included."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tilewright.codegen.clike.device import DeviceSource, emit_device
from tilewright.codegen.clike.dialect import Dialect, GroupInstruction
from tilewright.codegen.clike.late_copies import arrive_function, copy_function
from tilewright.codegen.clike.mma import WARP_INSTRUCTIONS, mma_function, product_function
from tilewright.codegen.clike.shuffles import WARP_REDUCTIONS, shuffle_function
from tilewright.codegen.clike.warps import WARP
from tilewright.ir import LoopFunction
from tilewright.target import BUILT_IN


def _group_mnemonic(name: str) -> str:
    """``wgmma_m64n256k16_bf16`` in PTX."""
    _, shape, kind = name.split("_")
    return f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind}"


CUDA: Final = Dialect(
    name="CUDA",
    types=MappingProxyType({
        "f64": "double", "f32": "float", "f16": "float", "bf16": "float", "i64": "long long", "i32": "int",
        "i16": "short", "i8": "signed char", "u64": "unsigned long long", "u32": "unsigned int",
        "u16": "unsigned short", "u8": "unsigned char", "bool": "bool",
    }),
    storage=MappingProxyType({"f16": "unsigned short", "bf16": "unsigned short", "bool": "unsigned char"}),
    inline="static __device__ __forceinline__",
    restrict="__restrict__",
    functions=MappingProxyType({"rsqrt": ("rsqrtf", "rsqrt")}),
    prelude=(
        "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n"
        "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n"
    ),
    overrides=MappingProxyType({
        "from_f16": """$f32 $name($u16 h) {
    $f32 f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}""",
        "to_f16": """$u16 $name($f32 f) {
    $u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}""",
    }),
    kernel='extern "C" __global__ void {bounds}{name}',
    bounds="__launch_bounds__({threads}) ",
    shared_space="__shared__ __align__({align}) {type} {name}[{count}];",
    dynamic_shared="extern __shared__ __align__({align}) unsigned char tw_shared[];",
    barrier=("__syncthreads();", "__syncthreads();"),
    group_id="blockIdx.{axis}",
    local_id="threadIdx.{axis}",
    atomics=MappingProxyType({
        ("add", 32): "atomicAdd(&{at}, {value});",
        ("add", 64): "atomicAdd((unsigned long long *)&{at}, (unsigned long long)({value}));",
        **{("min", bits): "atomicMin(&{at}, {value});" for bits in (32, 64)},
        **{("max", bits): "atomicMax(&{at}, {value});" for bits in (32, 64)},
    }),
    single_blocks_are_constants=True,
    copy_later=copy_function,
    copies_arrive=arrive_function,
    warp_instructions=MappingProxyType(dict.fromkeys(WARP_REDUCTIONS, shuffle_function)),
    lane_instructions=MappingProxyType(dict.fromkeys(WARP_INSTRUCTIONS, mma_function)),
    fragments=MappingProxyType(dict.fromkeys(WARP_INSTRUCTIONS, product_function)),
    group_instructions=MappingProxyType({
        row.name: GroupInstruction(_group_mnemonic(row.name), turns=row.name.endswith("f16"))
        for row in BUILT_IN.values() if row.gathers and row.threads > WARP
    }),
)  # fmt: skip


def emit_cuda(func: LoopFunction) -> DeviceSource:
    """A lowered function as CUDA C++. Raises ScheduleError and TargetError for what a device cannot do."""
    return emit_device(func, CUDA)
