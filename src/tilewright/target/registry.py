"""Targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tilewright.support import TargetError, known_names
from tilewright.target import aarch64_neon, x86_amx, x86_avx2, x86_avx512
from tilewright.target.aarch64_neon import AARCH64_NEON
from tilewright.target.aarch64_sve import AARCH64_SVE
from tilewright.target.detect import detect
from tilewright.target.instruction import Instruction
from tilewright.target.model import Operations, Target
from tilewright.target.x86_avx2 import X86_AVX2
from tilewright.target.x86_avx512 import X86_AVX512

HOST: Final = ("cpu", "host")
"""The names of this machine."""

_TABLES: Final = MappingProxyType(
    {table.name: table for table in (X86_AVX512, X86_AVX2, AARCH64_NEON, AARCH64_SVE)}
)


_INSTRUCTIONS: Final[Mapping[str, Instruction]] = MappingProxyType(
    {
        instruction.name: instruction
        for table in (x86_avx2, x86_avx512, x86_amx, aarch64_neon)
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
    """All names that :func:`find_target` knows, those of this machine first."""
    return (*HOST, *_TABLES)


def find_target(name: str) -> Target:
    """The target called ``name``: ``cpu`` or ``host`` is this machine. Raises TargetError for an unknown
    name.
    """
    if name in HOST:
        return detect()
    if name in _TABLES:
        return _TABLES[name]
    raise TargetError(
        f"there is no target {name!r}",
        hint=known_names(name, target_names(), "the targets"),
    )
