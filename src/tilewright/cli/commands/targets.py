"""``tilewright targets``: the machines that can be compiled for."""

from __future__ import annotations

from typing import Any

import click

from tilewright.cli.options import FiniteRange, common_options
from tilewright.cli.state import State
from tilewright.cost import Fit
from tilewright.driver import measure_quantities
from tilewright.ir import F32
from tilewright.mapping import system
from tilewright.support import (
    InputError,
    InstallationError,
    TargetError,
    counted,
    format_bytes,
    read_settings,
)
from tilewright.target import (
    CpuTarget,
    GpuTarget,
    TargetBase,
    detect,
    find_target,
    keep_calibration,
    target_names,
)
from tilewright.tune import Database, fitted


@click.command()
@click.option(
    "--fit",
    type=click.Path(exists=True, dir_okay=False),
    metavar="DB",
    help="Fit the quantities of this machine that the analytic model asks for to what plans took, by a "
    "database of tuning; they begin with what its class has.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure what decisions ask of this machine, and keep it: later compilations decide by it.",
)
@click.option("--forget", is_flag=True, help="Forget what was measured: the table of its model counts again.")
@click.option(
    "--seconds",
    type=FiniteRange(min=0.01, max=600.0),
    default=1.0,
    show_default=True,
    help="About how long --calibrate measures each quantity.",
)
@common_options
def targets(state: State, fit: str | None, calibrate: bool, forget: bool, seconds: float) -> None:
    """List the targets; `cpu` is this machine, `opencl` and `cuda` its first such devices."""
    if (fit is not None) + calibrate + forget > 1:
        raise click.UsageError("--fit, --calibrate and --forget exclude one another")
    if fit is not None:
        with Database(fit, read_only=True) as database:
            _show_fit(state, fit, fitted(database, detect(), detect(measured=False)))
        return
    if calibrate or forget:
        _calibrate(state, None if forget else seconds)
        return
    found = {name: find_target(name) for name in target_names()}
    missing: dict[str, str] = {}
    for name in ("opencl", "cuda"):
        try:
            found[name] = find_target(name)
        except (InstallationError, TargetError) as error:
            missing[name] = error.what
    machines = [system.load_machine(name) for name in system.shipped_machines()]
    if state.json:
        rows = [_row(n, t) for n, t in found.items()]
        managed = [
            {
                "name": g.name,
                "streams": list(g.streams),
                "units": list(g.units),
                "instructions": list(g.instructions),
                "memory": [{"name": m.name, "bytes": m.bytes} for m in g.memories.values()],
            }
            for g in machines
        ]
        state.print_json({"command": "targets", "targets": rows, "machines": managed, "missing": missing})
        return
    for name, target in found.items():
        levels = ", ".join(
            f"{level.name} {'' if level.size is None else format_bytes(level.size)}".strip()
            for level in target.memory
        )
        state.say(f"{name:<16} {_described(target)}")
        state.say(f"{'':<16} {levels}")
    for g in machines:
        parts = (counted(len(g.streams), "stream"), counted(len(g.units), "unit"))
        state.say(f"{g.name:<16} managed machine (map, simulate): {', '.join(parts)}")
        state.say(f"{'':<16} {', '.join(g.instructions)}")
    for name, why in missing.items():
        state.say(f"{name:<16} not here: {why}")


def _show_fit(state: State, path: str, found: Fit) -> None:
    if state.json:
        state.print_json(
            {
                "command": "targets",
                "fit": path,
                "samples": found.samples,
                "tasks": found.tasks,
                "quantities": {n: {"class": a, "fitted": b} for n, (a, b) in found.quantities.items()},
                "error": {"class": found.error[0], "fitted": found.error[1]},
                "held_out": {"class": found.held_out[0], "fitted": found.held_out[1]},
            }
        )
        return
    state.say(f"{found.samples} plans of {found.tasks} tasks of this machine")
    width = max(map(len, found.quantities))
    for name, (before, after) in found.quantities.items():
        changed = "stays" if after == before else f"-> {after:.4g}"
        state.say(f"{name:<{width}}  {before:.4g} {changed}")
    for what, (before, after) in (("fitted to", found.error), ("held out", found.held_out)):
        state.say(f"error of the model, tasks {what}: {before:.3f} -> {after:.3f}")


def _calibrate(state: State, seconds: float | None) -> None:
    """Measure this machine's quantities for so long each, and keep them; ``None``: forget them."""
    table = detect(calibration=False)
    threads = read_settings().thread_count
    measured = None
    if seconds is not None:

        def progress(phase: str, done: int, total: int, what: str = "") -> None:
            state.note(f"{done}/{total} {phase}")

        measured = measure_quantities(table, threads, seconds, progress)
    try:
        path = keep_calibration(table, measured)
    except OSError as error:
        why = error.strerror or error
        raise InputError(
            f"the quantities cannot be kept: {why}", hint="TILEWRIGHT_CACHE_DIR says where they are"
        ) from None
    now = detect()
    fields = now.quantities.to_data()
    found = None if measured is None else measured.to_data()
    if state.json:
        state.print_json(
            {
                "command": "targets",
                "file": str(path),
                "fingerprint": now.fingerprint,
                "digest": now.quantities.digest,
                "table": table.quantities.to_data(),
                "measured": found,
                "quantities": fields,
            }
        )
        return
    state.say(f"{'quantity':<16} {'table':<32} {'measured':<32} class")
    for name, value in fields.items():
        row = (table.quantities.to_data()[name], None if found is None else found[name], value)
        known, here, used = (_number(each) for each in row)
        state.say(f"{name:<16} {known:<32} {here:<32} {used}")
    state.say(f"kept in {path}" if measured is not None else f"forgotten in {path}")


def _number(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_number, value))
    return "-" if value is None else f"{value:.4g}"


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
