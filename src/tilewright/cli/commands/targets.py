"""``tilewright targets``: the machines that can be compiled for."""

from __future__ import annotations

from typing import Any

import click

from tilewright.cli.options import common_options
from tilewright.cli.state import State
from tilewright.ir import F32
from tilewright.support import InstallationError, TargetError, format_bytes
from tilewright.target import CpuTarget, GpuTarget, TargetBase, find_target, target_names


@click.command()
@common_options
def targets(state: State) -> None:
    """List the targets; `cpu` is this machine, `opencl` and `cuda` its first such devices."""
    found = {name: find_target(name) for name in target_names()}
    missing: dict[str, str] = {}
    for name in ("opencl", "cuda"):
        try:
            found[name] = find_target(name)
        except (InstallationError, TargetError) as error:
            missing[name] = error.what
    if state.json:
        rows = [_row(n, t) for n, t in found.items()]
        state.print_json({"command": "targets", "targets": rows, "missing": missing})
        return
    for name, target in found.items():
        levels = ", ".join(
            f"{level.name} {'' if level.size is None else format_bytes(level.size)}".strip()
            for level in target.memory
        )
        state.say(f"{name:<16} {_described(target)}")
        state.say(f"{'':<16} {levels}")
    for name, why in missing.items():
        state.say(f"{name:<16} not here: {why}")


def _described(target: TargetBase) -> str:
    if isinstance(target, CpuTarget):
        return (
            f"{target.llvm_cpu}, {target.units} cores, {target.vector_registers} registers of "
            f"{target.vector_bits} bits"
        )
    assert isinstance(target, GpuTarget)
    return (
        f"{target.language} {target.arch}, {target.units} multiprocessors, "
        f"{target.threads_per_block} threads and {format_bytes(target.shared_per_block)} a block"
    )


def _row(name: str, target: TargetBase) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name,
        "arch": target.arch,
        "units": target.units,
        "memory": [{"name": level.name, "bytes": level.size} for level in target.memory],
    }
    if isinstance(target, CpuTarget):
        return row | {
            "kind": "cpu",
            "cpu": target.llvm_cpu,
            "vector_bits": target.vector_bits,
            "preferred_vector_bits": target.preferred_vector_bits,
            "vector_registers": target.vector_registers,
            "f32_lanes": target.lanes(F32),
        }
    assert isinstance(target, GpuTarget)
    return row | {
        "kind": "gpu",
        "language": target.language,
        "warp": target.warp,
        "threads_per_block": target.threads_per_block,
        "shared_per_block": target.shared_per_block,
        "registers_per_thread": target.registers_per_thread,
        "fma_per_cycle": target.fma_per_cycle,
    }
