"""Reductions over the threads of a warp in CUDA text: butterflies of register exchanges."""

from __future__ import annotations

from typing import Final

from tilewright.codegen.clike.helpers import Helpers
from tilewright.ir import F32, I32

WARP_REDUCTIONS: Final = {
    f"warp_{op}_{dtype.name}": (op, dtype) for dtype in (F32, I32) for op in ("add", "max", "min")
}


def shuffle_function(helpers: Helpers, name: str) -> str:
    """The name of the function that reduces 32 elements, a stride apart, onto the first argument.

    All threads of a warp call it; the first one writes.
    """
    op, dtype = WARP_REDUCTIONS[name]
    kind = {F32: "float", I32: "int"}[dtype]

    def joined(a: str, b: str) -> str:
        return f"{a} + {b}" if op == "add" else f"{helpers.function(op, dtype)}({a}, {b})"

    lines = [
        f"void tw_{name}({kind} *result, const {kind} *a, int al) {{",
        "    const int lane = threadIdx.x & 31;",
        "    __syncwarp();",
        f"    {kind} part = a[lane * al];",
        "    #pragma unroll",
        "    for (int far = 16; far > 0; far >>= 1) {",
        f"        const {kind} other = __shfl_xor_sync(0xffffffffu, part, far);",
        f"        part = {joined('part', 'other')};",
        "    }",
        f"    if (lane == 0) *result = {joined('*result', 'part')};",
        "    __syncwarp();",
        "}",
    ]
    return helpers.verbatim(f"tw_{name}", "\n".join(lines))
