"""AArch64 with the Scalable Vector Extension, at a vector length fixed when compiling: 32 registers, masks.

Figures: Arm Neoverse V1 Software Optimization Guide (PJDOC-466751330-9685): 256-bit vectors, two pipes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.target.aarch64_neon import AARCH64_NEON, BFMMLA

AARCH64_SVE: Final = replace(
    AARCH64_NEON,
    name="aarch64_sve",
    vector_bits=256,
    preferred_vector_bits=256,
    instructions=(*AARCH64_NEON.instructions, BFMMLA),
    llvm_cpu="neoverse-v1",
    features=AARCH64_NEON.features | {"sve", "bf16", "i8mm"},
)
"""A machine of this class with vectors of 256 bits; another length is ``replace(AARCH64_SVE,
vector_bits=...)``.
"""
