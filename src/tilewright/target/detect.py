"""Finding out what machine this is: CPU model and features, caches, clock and the CPUs of this process.

Linux reports what ``cpuid`` says in ``/proc/cpuinfo``, and caches and clocks below ``/sys``. Containers and
emulators often hide the latter: whatever is missing keeps the value of the machine's table.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tilewright.support import TargetError, allow_tiles, available_cpus, get_logger
from tilewright.target import aarch64_neon, x86_amx, x86_avx2, x86_avx512
from tilewright.target.calibration import calibrated
from tilewright.target.cpu import CpuTarget
from tilewright.target.cpu_names import ARM_FEATURES, X86_FEATURES, arm_cpu_name, unmasked, x86_cpu_name
from tilewright.target.instruction import Instruction
from tilewright.target.model import MemoryLevel
from tilewright.target.x86_cores import Core, core

CPUINFO: Final = Path("/proc/cpuinfo")
SYSTEM_CPUS: Final = Path("/sys/devices/system/cpu")
AVX512_LEVEL: Final = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})
AVX2_LEVEL: Final = frozenset({"avx2", "fma"})

_UNITS: Final = {"": 1, "K": 1024, "M": 1024 * 1024, "G": 1024**3}
_log = get_logger("target")


def detect(
    *,
    cpuinfo: Path = CPUINFO,
    system_cpus: Path = SYSTEM_CPUS,
    machine: str | None = None,
    units: int | None = None,
    measured: bool = True,
    calibration: bool = True,
) -> CpuTarget:
    """The target of this machine, named ``cpu``, with what :mod:`~tilewright.target.calibration` keeps of it.

    Without ``measured`` it has what its class has, and none of the figures that are known of its CPU model.
    The paths, ``machine`` (as ``platform.machine()``) and ``units`` (default: the CPUs that this process may
    use) are parameters for tests and for describing another machine from copies of its files; without
    ``calibration`` the quantities are those of the table of its CPU model. Raises
    TargetError on a machine of another kind, or one without AVX2 and FMA.
    """
    kind = (machine or platform.machine()).lower()
    facts = _first_processor(cpuinfo)
    if kind in ("x86_64", "amd64"):
        # of another machine, what it says; here also what the kernel allows
        target = _x86(facts, system_cpus, cpuinfo != CPUINFO or allow_tiles(), measured)
    elif kind in ("aarch64", "arm64"):
        target = _aarch64(facts)
    else:
        raise TargetError(
            f"machines of the kind {kind!r} are not supported", hint="supported are x86_64 and aarch64"
        )
    count = available_cpus() if units is None else units
    own = core(target.llvm_cpu) if measured else Core()
    found = replace(
        target,
        name="cpu",
        units=count,
        memory=own.own_share(_caches(target.memory, system_cpus, count), count),
        clock_hz=_clock(system_cpus),
    )
    return calibrated(found) if measured and calibration else found


def _first_processor(cpuinfo: Path) -> Mapping[str, str]:
    """The fields of the first processor that ``cpuinfo`` describes; empty where it cannot be read."""
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        _log.warning("cannot read %s (%s): assuming the least machine of this kind", cpuinfo, error.strerror)
        return {}
    facts: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts


def _number(text: str | None) -> int:
    try:
        return int(text or "-1", 0)
    except ValueError:
        return -1


def _x86(facts: Mapping[str, str], system_cpus: Path, tiles: bool, measured: bool) -> CpuTarget:
    if not facts:
        return x86_avx2.X86_AVX2
    flags = frozenset(facts.get("flags", "").split())
    present = frozenset(name for flag, name in X86_FEATURES.items() if flag in flags)
    if not tiles:
        present -= frozenset(name for name in present if name.startswith("amx-"))
    missing = frozenset(X86_FEATURES.values()) - present
    cpu = x86_cpu_name(
        facts.get("vendor_id", ""), _number(facts.get("cpu family")), _number(facts.get("model"))
    )
    code = [row.size for row in _cache_rows(system_cpus) if row.kind == "Instruction"]
    cpu = unmasked(cpu, flags, max(code, default=0))
    instructions: tuple[Instruction, ...]
    if present >= AVX512_LEVEL:
        table = x86_avx512.X86_AVX512
        instructions = (*x86_amx.INSTRUCTIONS, *x86_avx512.INSTRUCTIONS)
        own = core(cpu or "") if measured else Core()
        table, instructions = own.applied(table), own.rated(instructions)
    elif present >= AVX2_LEVEL:
        table, instructions = x86_avx2.X86_AVX2, x86_avx2.INSTRUCTIONS
    else:
        lacking = ", ".join(sorted(AVX2_LEVEL - present))
        raise TargetError(f"this machine lacks {lacking}", hint="x86-64 machines need AVX2 and FMA")
    return replace(
        table,
        llvm_cpu=cpu or table.llvm_cpu,
        features=present,
        missing_features=missing,
        instructions=_usable(instructions, present),
        moves=tuple(move for move in x86_amx.MOVES if move.features <= present),
        tiles=x86_amx.TILES if "amx-tile" in present else 0,
    )


def _aarch64(facts: Mapping[str, str]) -> CpuTarget:
    table = aarch64_neon.AARCH64_NEON
    if not facts:
        return replace(table, llvm_cpu="generic", features=frozenset({"neon", "fp-armv8"}), instructions=())
    flags = frozenset(facts.get("Features", "").split())
    present = frozenset(name for flag, name in ARM_FEATURES.items() if flag in flags)
    cpu = arm_cpu_name(_number(facts.get("CPU implementer")), _number(facts.get("CPU part")))
    return replace(
        table,
        llvm_cpu=cpu or "generic",
        features=present,
        missing_features=frozenset(ARM_FEATURES.values()) - present,
        instructions=_usable(aarch64_neon.INSTRUCTIONS, present),
    )


def _usable(instructions: tuple[Instruction, ...], present: frozenset[str]) -> tuple[Instruction, ...]:
    return tuple(instruction for instruction in instructions if instruction.features <= present)


@dataclass(frozen=True, slots=True)
class _CacheRow:
    """A cache of the first CPU: what it holds, its level's name, bytes of it and of a line, and its CPUs."""

    kind: str
    level: str
    size: int
    line: int
    shared: str


def _cache_rows(system_cpus: Path) -> list[_CacheRow]:
    """The caches of the first CPU as the kernel reports them; those it says nonsense of are left out."""
    rows: list[_CacheRow] = []
    for folder in sorted(system_cpus.glob("cpu0/cache/index*")):
        try:
            kind, number, size, line, shared = (
                (folder / name).read_text(encoding="ascii").strip()
                for name in ("type", "level", "size", "coherency_line_size", "shared_cpu_list")
            )
        except (OSError, UnicodeDecodeError):
            continue
        amount = re.fullmatch(r"(\d+)([KMG]?)", size)
        if amount is None or not line.isdigit():
            continue
        count = int(amount[1]) * _UNITS[amount[2]]
        if count > 0 and int(line) > 0 and int(line) & (int(line) - 1) == 0:
            rows.append(_CacheRow(kind, f"l{number}", count, int(line), shared))
    return rows


def _caches(table: tuple[MemoryLevel, ...], system_cpus: Path, units: int) -> tuple[MemoryLevel, ...]:
    """The table's levels with the sizes, lines and sharing that the kernel reports for the first CPU."""
    found = {row.level: row for row in _cache_rows(system_cpus) if row.kind != "Instruction"}
    if not found:
        return tuple(replace(level, shared_by=min(level.shared_by, units)) for level in table)
    levels: list[MemoryLevel] = []
    for level in table:
        if level.size is None:
            levels.append(replace(level, shared_by=units))
        elif level.name in found:
            row = found[level.name]
            sharing = max(1, min(_count_cpus(row.shared), units))
            levels.append(replace(level, size=row.size, line=row.line, shared_by=sharing))
    sizes = [level.size for level in levels if level.size is not None]
    # an emulator may report nonsense: the table is the better guess then
    return tuple(levels) if sizes and sizes == sorted(sizes) else table


def _count_cpus(text: str) -> int:
    """The length of a list such as ``0-3,8``; 1 where it cannot be read."""
    total = 0
    for part in text.split(","):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if bounds is None:
            return 1
        total += int(bounds[2] or bounds[1]) - int(bounds[1]) + 1
    return max(1, total)


def _clock(system_cpus: Path) -> float | None:
    """The highest clock of the first CPU in Hz, as the frequency driver reports it (in kHz)."""
    try:
        text = (system_cpus / "cpu0/cpufreq/cpuinfo_max_freq").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return float(text) * 1e3 if text.isdigit() and int(text) > 0 else None
