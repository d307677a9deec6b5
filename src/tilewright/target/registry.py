"""Targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tilewright.support import TargetError, known_names
from tilewright.target import (
    aarch64_neon,
    nvidia_mma,
    nvidia_warp,
    nvidia_wgmma,
    x86_amx,
    x86_avx2,
    x86_avx512,
)
from tilewright.target.aarch64_neon import AARCH64_NEON
from tilewright.target.aarch64_sve import AARCH64_SVE
from tilewright.target.detect import detect
from tilewright.target.detect_cuda import detect_cuda
from tilewright.target.detect_opencl import detect_opencl
from tilewright.target.instruction import Instruction
from tilewright.target.model import Operations, TargetBase
from tilewright.target.nvidia import NVIDIA
from tilewright.target.simulated import POCL, SIMULATED
from tilewright.target.x86_avx2 import X86_AVX2
from tilewright.target.x86_avx512 import X86_AVX512

HOST: Final = "cpu"
"""The name of this machine."""

_CPUS: Final = (X86_AVX512, X86_AVX2, AARCH64_NEON, AARCH64_SVE)

_TABLES: Final[Mapping[str, TargetBase]] = MappingProxyType(
    {table.name: table for table in (*_CPUS, *NVIDIA, POCL, SIMULATED)}
)

_ARCHITECTURES: Final = MappingProxyType({table.arch.rstrip("a"): table for table in NVIDIA})
"""The table that stands for all devices of an architecture: the code is for any of them."""


_INSTRUCTIONS: Final[Mapping[str, Instruction]] = MappingProxyType(
    {
        instruction.name: instruction
        for table in (x86_avx2, x86_avx512, x86_amx, aarch64_neon, nvidia_mma, nvidia_wgmma, nvidia_warp)
        for instruction in table.INSTRUCTIONS
    }
)


BUILT_IN: Final[Operations] = MappingProxyType(
    {**_INSTRUCTIONS, **{move.name: move for move in x86_amx.MOVES}}
)
"""The operations of all tables: what a schedule may name that is for no target in particular."""


def find_operation(name: str, operations: Operations = BUILT_IN) -> Instruction:
    """The instruction or move called ``name``, of any machine or among those given.

    Raises TargetError for an unknown name.
    """
    found = operations.get(name)
    if found is None:
        raise TargetError(
            f"there is no instruction {name!r}",
            hint=known_names(name, operations, "the instructions"),
        )
    return found


def find_instruction(name: str) -> Instruction:
    """The instruction called ``name``, of any machine. Raises TargetError for an unknown name."""
    if name in _INSTRUCTIONS:
        return _INSTRUCTIONS[name]
    raise TargetError(
        f"there is no instruction {name!r}",
        hint=known_names(name, _INSTRUCTIONS, "the instructions"),
    )


def target_names() -> tuple[str, ...]:
    """All names that :func:`find_target` knows of tables, and this machine's first."""
    return (HOST, *_TABLES)


def find_target(name: str) -> TargetBase:
    """The target called ``name``, which is its name everywhere: ``cpu`` is this machine.

    ``opencl`` is the first OpenCL device here, ``opencl:NAME`` one whose name holds NAME, ``cuda`` the first
    CUDA device here, ``cuda:sm_90`` any NVIDIA device of that architecture, present or not. Raises
    TargetError for an unknown name, InstallationError where finding a device needs a package or a driver
    that is missing.
    """
    if name == HOST:
        return detect()
    if name in _TABLES:
        return _TABLES[name]
    kind, _, rest = name.partition(":")
    if kind == "opencl":
        return detect_opencl(rest)
    if name == "cuda":
        return detect_cuda()
    if kind == "cuda":
        if rest.rstrip("a") not in _ARCHITECTURES:
            raise TargetError(
                f"there is no table of the architecture {rest!r}",
                hint=known_names(rest, _ARCHITECTURES, "the architectures"),
            )
        return replace(_ARCHITECTURES[rest.rstrip("a")], name=name)
    raise TargetError(
        f"there is no target {name!r}",
        hint=known_names(name, (*target_names(), "opencl", "cuda", "cuda:sm_90"), "the targets"),
    )
