"""Pipelines on a GPU: the default schedule, the beam search's, and Halide's where it can use the device.

    python benchmarks/pipelines_devices.py harris unsharp --device cuda [--halide] [--size 1536 2560] [--json]

Milliseconds are of a run whose arrays lie on the device, the mean of as many as take 50 ms, the least of
``--turns`` interleaved. ``one_shot`` is the search's first by its model, ``beam`` the fastest of its first
``--candidates``, measured. Every result is held against the default schedule on this CPU. Halide
schedules by Anderson2021 for CUDA. ``--lock FILE`` lets several processes prepare at once and measure one
after another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from arguments import parser_of
from gpu import interleaved

from pipelines import IN_HALIDE, Halide, application, dtype_of, prepared
from tilewright.build import DeviceFunction
from tilewright.cost import Machine
from tilewright.devices import open_device
from tilewright.schedule import Schedule
from tilewright.strategies import History, Task, find_strategy
from tilewright.support import UserError, read_settings
from tilewright.target import GpuTarget, detect, find_target


def on_device(
    schedule: Schedule, arrays: Mapping[str, Any], device: str
) -> tuple[Callable[[int], float], dict[str, Any]]:
    """Seconds a run of so many runs on the device, and the results of one."""
    function = DeviceFunction(schedule.func, open_device(device), read_settings())
    plan, inputs, outputs = function.plan(dict(arrays), {})
    plan.run(inputs, list(outputs.values()))
    return plan.seconds, outputs


class HalideOnCuda(Halide):
    """Halide's own schedules for a card."""

    def compiled_for(
        self, name: str, arrays: Mapping[str, Any], shape: tuple[int, ...], target: GpuTarget
    ) -> tuple[Callable[[int], float], Callable[[], Any]]:
        """Seconds a run of so many runs, and the result."""
        hl = self.hl
        (plugin,) = Path(hl.__file__).parent.glob("lib*/libautoschedule_anderson2021.so")
        hl.load_plugin(str(plugin))
        inputs = {k: hl.Buffer(a) for k, a in arrays.items()}
        f = getattr(self, name)(**inputs, shape=shape)
        f.set_estimates([hl.Range(0, n) for n in reversed(shape)])
        # the newest architecture that Halide names; the driver compiles its text for the card
        wanted = hl.Target(f"{hl.get_host_target()}-cuda-cuda_capability_86")
        pipeline = hl.Pipeline([f])
        limits = {"parallelism": target.units, "shared_memory_limit_kb": 48}
        params = {key: str(value) for key, value in limits.items()}
        pipeline.apply_autoscheduler(wanted, hl.AutoschedulerParams("Anderson2021", params))
        pipeline.compile_jit(wanted)
        out = np.empty(shape, dtype_of(f))
        buffer = hl.Buffer(out)
        pipeline.realize(buffer)

        def seconds(count: int) -> float:
            buffer.device_sync()
            begin = time.perf_counter()
            for _ in range(count):
                pipeline.realize(buffer)
            buffer.device_sync()
            return (time.perf_counter() - begin) / count

        def result() -> Any:
            buffer.copy_to_host()
            return out

        return seconds, result


@contextmanager
def alone(lock: str) -> Iterator[None]:
    """While no other process that was given the same file is in here."""
    if not lock:
        yield
        return
    with Path(lock).open("w") as file:
        flock(file, LOCK_EX)
        yield


def measure(name: str, options: Any) -> dict[str, Any]:
    """One pipeline."""
    app = application(name)
    arrays = app.inputs(*options.size)
    program = app.program(*options.size)
    want = prepared(Task(program, Machine(detect(), 2)).default().schedule, arrays, 2)()
    target = find_target(options.device)
    assert isinstance(target, GpuTarget)
    task, row = Task(program, Machine(target, 1)), {"pipeline": name, "size": options.size}
    calls: dict[str, Callable[[int], float]] = {}

    def add(kind: str, schedule: Schedule) -> None:
        call, outputs = on_device(schedule, arrays, target.language)
        if fault := app.check(next(iter(outputs.values())), want):
            row[f"{kind}_fault"] = fault
        calls[kind] = call

    start = time.perf_counter()
    schedules = {"default": task.default().schedule}
    row["default_s"] = time.perf_counter() - start
    beam = find_strategy("beam")
    assert beam is not None
    start = time.perf_counter()
    proposed = beam.start(task, History(), Random(0)).propose(options.candidates + 1)[1:]
    row["beam_s"] = time.perf_counter() - start
    schedules |= {f"beam {at}": each.schedule(task) for at, each in enumerate(proposed)}
    halide: Callable[[], Any] | None = None
    with alone(options.lock):
        for kind, schedule in schedules.items():
            try:
                add(kind, schedule)
            except UserError as error:
                row[f"{kind}_error"] = str(error)[:200]
        if options.halide and name in IN_HALIDE:
            try:
                calls["halide"], halide = HalideOnCuda(2).compiled_for(name, arrays, want.shape, target)
            except RuntimeError as error:
                row["halide_error"] = str(error).strip().splitlines()[-1][:200]
        found = interleaved(calls, options.turns, min)
    if halide is not None:
        row["halide_difference"] = float(np.abs(halide().astype(np.float64) - want).max())
    tried = {kind: ms for kind, ms in found.items() if kind.startswith("beam")}
    row |= {"default_ms": found["default"], "one_shot_ms": tried.get("beam 0")}
    row |= {"beam_ms": min(tried.values(), default=None), "candidates_ms": [*tried.values()]}
    if "halide" in found:
        row["halide_ms"] = found["halide"]
        row["ahead"] = found["halide"] / min((found["default"], *tried.values()))
    return row


def main() -> None:
    """One line a pipeline."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, nargs=2, default=(1536, 2560))
    parser.add_argument("--candidates", type=int, default=8, help="of the search, to be measured")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--halide", action="store_true", help="beside Halide's Anderson2021")
    parser.add_argument("--lock", default="", help="a file: one process measures at a time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.names:
        row = measure(name, options)
        print(json.dumps(row) if options.json else row, flush=True)


if __name__ == "__main__":
    main()
