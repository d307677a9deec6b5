"""``tilewright targets``: the machines that can be compiled for."""

from __future__ import annotations

from typing import Any

import click

from tilewright.cli.options import common_options
from tilewright.cli.state import State
from tilewright.ir import F32
from tilewright.support import format_bytes
from tilewright.target import HOST, Target, find_target, target_names


@click.command()
@common_options
def targets(state: State) -> None:
    """List the targets; `cpu` is this machine."""
    found = {name: find_target(name) for name in target_names() if name != HOST[1]}
    if state.json:
        state.print_json({"command": "targets", "targets": [_row(n, t) for n, t in found.items()]})
        return
    for name, target in found.items():
        levels = ", ".join(
            f"{level.name} {'' if level.size is None else format_bytes(level.size)}".strip()
            for level in target.memory
        )
        state.say(
            f"{name:<16} {target.llvm_cpu}, {target.units} cores, {target.vector_registers} registers of "
            f"{target.vector_bits} bits; {levels}"
        )


def _row(name: str, target: Target) -> dict[str, Any]:
    return {
        "name": name,
        "table": target.name,
        "arch": target.arch,
        "cpu": target.llvm_cpu,
        "units": target.units,
        "vector_bits": target.vector_bits,
        "preferred_vector_bits": target.preferred_vector_bits,
        "vector_registers": target.vector_registers,
        "f32_lanes": target.lanes(F32),
        "memory": [{"name": level.name, "bytes": level.size} for level in target.memory],
    }
