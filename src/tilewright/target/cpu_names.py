"""Names: of CPU models and of CPU features, as the kernel reports them and as LLVM spells them.

The models are those of LLVM's ``Host.cpp`` from 2013 on. An unknown model gets the generic name of its level.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Final

_INTEL_FAMILY_6: Final = MappingProxyType(
    {
        "haswell": (0x3C, 0x3F, 0x45, 0x46),
        "broadwell": (0x3D, 0x47, 0x4F, 0x56),
        "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
        "skylake-avx512": (0x55,),
        "cannonlake": (0x66,),
        "icelake-client": (0x7D, 0x7E),
        "icelake-server": (0x6A, 0x6C),
        "tigerlake": (0x8C, 0x8D),
        "rocketlake": (0xA7,),
        "alderlake": (0x97, 0x9A, 0xB7, 0xBA, 0xBE, 0xBF),
        "meteorlake": (0xAA, 0xAC),
        "arrowlake": (0xB5, 0xC5),
        "arrowlake-s": (0xC6,),
        "lunarlake": (0xBD,),
        "sapphirerapids": (0x8F,),
        "emeraldrapids": (0xCF,),
        "graniterapids": (0xAD,),
        "graniterapids-d": (0xAE,),
        "sierraforest": (0xAF,),
    }
)
_WITH_TILES: Final = frozenset({"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"})
# family -> (first model, last model, name)
_AMD: Final = MappingProxyType(
    {
        0x17: ((0x00, 0x2F, "znver1"), (0x30, 0xAF, "znver2")),
        0x19: (
            (0x00, 0x0F, "znver3"),
            (0x20, 0x5F, "znver3"),
            (0x10, 0x1F, "znver4"),
            (0x60, 0xAF, "znver4"),
        ),
        0x1A: ((0x00, 0x7F, "znver5"),),
    }
)
_ARM_PARTS: Final = MappingProxyType(
    {
        (0x41, 0xD08): "cortex-a72",
        (0x41, 0xD0B): "cortex-a76",
        (0x41, 0xD0C): "neoverse-n1",
        (0x41, 0xD40): "neoverse-v1",
        (0x41, 0xD49): "neoverse-n2",
        (0x41, 0xD4F): "neoverse-v2",
        (0x41, 0xD84): "neoverse-v3",
        (0x41, 0xD8E): "neoverse-n3",
        (0xC0, 0xAC3): "ampere1",
        (0xC0, 0xAC4): "ampere1a",
    }
)

X86_FEATURES: Final = MappingProxyType(
    {
        "pni": "sse3",
        "ssse3": "ssse3",
        "sse4_1": "sse4.1",
        "sse4_2": "sse4.2",
        "popcnt": "popcnt",
        "movbe": "movbe",
        "abm": "lzcnt",
        "avx": "avx",
        "avx2": "avx2",
        "f16c": "f16c",
        "fma": "fma",
        "bmi1": "bmi",
        "bmi2": "bmi2",
        "avx_vnni": "avxvnni",
        "avx512f": "avx512f",
        "avx512cd": "avx512cd",
        "avx512bw": "avx512bw",
        "avx512dq": "avx512dq",
        "avx512vl": "avx512vl",
        "avx512ifma": "avx512ifma",
        "avx512vbmi": "avx512vbmi",
        "avx512_vbmi2": "avx512vbmi2",
        "avx512_vnni": "avx512vnni",
        "avx512_bitalg": "avx512bitalg",
        "avx512_vpopcntdq": "avx512vpopcntdq",
        "avx512_bf16": "avx512bf16",
        "avx512_fp16": "avx512fp16",
        "amx_tile": "amx-tile",
        "amx_int8": "amx-int8",
        "amx_bf16": "amx-bf16",
    }
)
"""Flags of ``/proc/cpuinfo`` on x86-64 -> LLVM's features, for what generated code could use."""

ARM_FEATURES: Final = MappingProxyType(
    {
        "fp": "fp-armv8",
        "asimd": "neon",
        "asimddp": "dotprod",
        "asimdhp": "fullfp16",
        "bf16": "bf16",
        "i8mm": "i8mm",
        "sve": "sve",
        "sve2": "sve2",
    }
)
"""Flags of ``/proc/cpuinfo`` on AArch64 -> LLVM's features."""


def cpuinfo_flags(arch: str, features: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """How ``/proc/cpuinfo`` states LLVM's ``features``: the name of the line, and the flags on it, sorted."""
    line, names = ("flags", X86_FEATURES) if arch == "x86_64" else ("Features", ARM_FEATURES)
    return line, tuple(sorted(flag for flag, name in names.items() if name in features))


def x86_cpu_name(vendor: str, family: int, model: int) -> str | None:
    """LLVM's name of an x86 CPU; ``None`` for one that is not listed."""
    if vendor == "GenuineIntel" and family == 6:
        return next((name for name, models in _INTEL_FAMILY_6.items() if model in models), None)
    if vendor == "AuthenticAMD":
        return next((name for lo, hi, name in _AMD.get(family, ()) if lo <= model <= hi), None)
    return None


def unmasked(name: str | None, flags: Collection[str], code_cache: int) -> str | None:
    """LLVM's name of an x86 CPU that calls itself ``name`` but whose ``flags`` may say otherwise.

    A hypervisor may report the model of another CPU than it runs on. One with tile registers is at least
    Sapphire Rapids, and Granite Rapids where its first cache level keeps 64 KiB of instructions
    (``code_cache``, bytes).
    """
    if "amx_tile" not in flags or name in _WITH_TILES:
        return name
    return "graniterapids" if code_cache >= 64 * 1024 else "sapphirerapids"


def arm_cpu_name(implementer: int, part: int) -> str | None:
    """LLVM's name of an AArch64 CPU; ``None`` for one that is not listed."""
    return _ARM_PARTS.get((implementer, part))
