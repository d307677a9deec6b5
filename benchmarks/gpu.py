"""Kernels and models on a GPU; without one, what the device would be held to.

    python benchmarks/gpu.py [--parts gemm,models] [--arch sm_90] [--out FILE] [--minutes 9] [--json]
    python benchmarks/gpu.py --carry FOLDER [--arch sm_90]

Where a CUDA device is, each row has measured milliseconds (events on the device, the median of several
batches), and those of torch in the same run where torch is installed. Elsewhere the rows are modelled:
registers and spilled bytes of each kernel from NVRTC, occupancy and waves (cost/occupancy), the rules that
made it; ``bound_ms``, the larger of operations over the peak and of bytes, each once, over the bandwidth;
``modelled_ms`` by the rules' own models, and the part of it that the bound is (``roofline_fraction``).
Products are of f32 without matrix units, then of f16, bf16, tf32 and bytes with them, whose peak is theirs;
convolutions are the 3x3 ones of ResNet-18, of f32 (torch: cuDNN's fastest without TF32);
models of f32, then with products in tf32.
With ``--carry`` nothing is measured: compiled models are written for ``benchmarks/gpu_carried.py``, which
runs them where the card is, without the compiler.

Rows go to ``--out`` as JSON lines as they are made, and those that are there already are left out: a run that
was cut short goes on where it stopped. After ``--minutes`` no new row is begun.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gpu_carried import measured

import tilewright
from tilewright import lang
from tilewright.build import DeviceFunction, flops, kernel_source, moved_bytes
from tilewright.codegen import DeviceSource, KernelResources, compile_cuda
from tilewright.cost import Machine, occupancy
from tilewright.devices import open_device
from tilewright.driver import EmittedUnit, compile_model, emit_model
from tilewright.frontend import zoo
from tilewright.ir import Program
from tilewright.plan import plan_unit
from tilewright.schedule import Schedule
from tilewright.strategies import Prices, Task
from tilewright.support import InstallationError, TargetError, read_settings
from tilewright.target import GpuTarget, find_target

GEMM_SIZES = (512, 1024, 2048, 4096, 8192)
#: Channels, lines and columns, results, window: the stages of ResNet-18.
CONVOLUTIONS = ((64, 56, 64, 3), (128, 28, 128, 3), (256, 14, 256, 3), (512, 7, 512, 3))
BATCHES = 7
#: Multiply-adds of a matrix unit for one of f16 (NVIDIA's white papers of Ampere and Hopper).
UNIT_RATES = {"f16": 1.0, "bf16": 1.0, "tf32": 0.5, "i8": 2.0}
CARRIED_BATCHES = (1, 16)


def product(n: int, numbers: str = "f32") -> Program:
    """A product of square matrices. ``numbers`` are f32, f16, bf16, tf32 or i8, their sums f32 or i32."""
    element = "f32" if numbers == "tf32" else numbers
    a, b = (lang.placeholder((n, n), element, name=name) for name in "AB")
    k = lang.reduce_axis(n, "k")

    def factor(x: lang.Scalar) -> lang.Scalar:
        return lang.tf32(x) if numbers == "tf32" else lang.cast(x, "i32" if numbers == "i8" else "f32")

    c = lang.compute((n, n), lambda i, j: lang.sum(factor(a[i, k]) * factor(b[k, j]), axis=k), name="C")
    return lang.program([a, b], [c], name="product")


def tiled(program: Program, block: int = 128, depth: int = 8, tile: int = 8) -> Schedule:
    """The schedule of docs/tutorials/gpu.md."""
    s = Schedule(program).split("i", block).split("j", block).split("k", depth)
    s = s.reorder("i_o", "j_o", "k_o", "k_i", "i_i", "j_i").bind("i_o", "block.y").bind("j_o", "block.x")
    s = s.cache("C", "j_o", mode="accumulate", scope="register", name="acc")
    s = s.cache("A", "k_o", scope="shared", name="As").cache("B", "k_o", scope="shared", name="Bs")
    nests: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("acc_init_i", "acc_init_j", ()),
        ("i_i", "j_i", ("k_i",)),
        ("acc_out_i", "acc_out_j", ()),
    )
    for i, j, outer in nests:
        s = s.split(i, tile).split(j, tile).reorder(f"{i}_o", f"{j}_o", *outer, f"{i}_i", f"{j}_i")
        s = s.unroll(f"{i}_i").unroll(f"{j}_i")
    s = s.bind(("acc_init_i_o", "i_i_o", "acc_out_i_o"), "thread.y")
    s = s.bind(("acc_init_j_o", "j_i_o", "acc_out_j_o"), "thread.x")
    for name, rows, columns in (("As", "As_i", "As_k"), ("Bs", "Bs_k", "Bs_j")):
        s = s.fuse(rows, columns, names=[f"{name}_e"]).split(f"{name}_e", 4, names=[f"{name}_q", f"{name}_v"])
        s = s.split(f"{name}_q", block // tile, names=[f"{name}_y", f"{name}_x"])
        s = s.bind(f"{name}_y", "thread.y").bind(f"{name}_x", "thread.x").vectorize(f"{name}_v")
    return s


def bound_ms(target: GpuTarget, operations: float, nbytes: float, numbers: str = "f32") -> float:
    """Milliseconds that operations and bytes, each once, take at least: by matrix units where numbers are
    theirs.
    """
    clock = target.clock_hz or 1e9
    per_cycle = target.tensor_per_cycle * UNIT_RATES[numbers] if numbers in UNIT_RATES else 0.0
    peak = 2 * (per_cycle or target.fma_per_cycle) * target.units * clock
    return max(operations / peak, nbytes / (target.level("memory").bandwidth * target.units * clock)) * 1e3


def modelled(s: Schedule, target: GpuTarget) -> list[dict[str, Any]]:
    """Registers, spills, occupancy and waves of each kernel."""
    source = kernel_source(s.func, "cuda")
    return kernel_rows(source, compile_cuda(source.text, target.arch).resources, target)


def kernel_rows(
    source: DeviceSource, found: Mapping[str, KernelResources], target: GpuTarget
) -> list[dict[str, Any]]:
    """Registers, spills, occupancy and waves of each kernel of a text."""
    rows = []
    for entry in source.kernels:
        used = found[entry.symbol]
        threads, blocks = 1, 1
        for n in entry.grid.threads:
            threads *= n.as_int()
        for n in entry.grid.blocks:
            blocks *= n.as_int()
        held = occupancy(target, threads, used.registers, entry.shared_bytes)
        rows.append({
            "kernel": entry.symbol, "registers": used.registers, "spilled_bytes": used.spilled,
            "occupancy": held.fraction, "limit": held.limit, "waves": held.waves(blocks, target),
        })  # fmt: skip
    return rows


def interleaved(
    runs: Mapping[str, Callable[[int], float]],
    turns: int = BATCHES,
    of: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, float]:
    """Milliseconds of each, ``of`` all turns; a call is told a count, and returns seconds a run."""
    counts = {name: max(1, int(0.05 / max(run(1), 1e-6))) for name, run in runs.items()}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            found[name].append(run(counts[name]) * 1e3)
    return {name: of(each) for name, each in found.items()}


def torch_seconds(call: Callable[[], Any]) -> Callable[[int], float]:
    """Seconds a call of so many calls of torch, by events on the device."""
    torch: Any = import_module("torch")

    def run(count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / count

    run(3)
    return run


def torch_gemm(n: int, numbers: str) -> Callable[[int], float] | None:
    """Torch's product; ``None`` where it is not, has no device, or no product of such numbers."""
    if numbers == "i8" or find_spec("torch") is None:
        return None
    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = numbers == "tf32"
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(numbers, torch.float32)
    a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    return torch_seconds(lambda: a @ b)


def gemm_rows(target: GpuTarget, has_device: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Square products: of f32 by the default schedule and by tiles, of others by matrix units."""
    for n in GEMM_SIZES:
        for kind in ("default", "tiled", *UNIT_RATES):
            yield f"gemm {n} {kind}", lambda n=n, kind=kind: gemm(n, kind, target, has_device)  # type: ignore[misc]


def gemm(n: int, kind: str, target: GpuTarget, has_device: bool) -> dict[str, Any]:
    """One row of a product."""
    numbers = kind if kind in UNIT_RATES else "f32"
    program = product(n, numbers)
    tiles = tiled(program) if kind == "tiled" else None
    row, arrays, outputs, plan = kernel(program, 2.0 * n**3, target, has_device, numbers, tiles)
    if plan is None:
        return row
    wide = [arrays[name].astype(np.float32) for name in "AB"]
    error = float(np.abs(outputs["C"] - wide[0] @ wide[1]).max())
    return row | timed(plan, torch_gemm(n, numbers), row["flops"]) | {"max_error": error}


def convolution_rows(
    target: GpuTarget, has_device: bool
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Convolutions of f32, batch 1: channels, lines, results, window."""
    for shape in CONVOLUTIONS:
        label = "conv " + " ".join(map(str, shape))
        yield label, lambda shape=shape: convolution(*shape, target, has_device)  # type: ignore[misc]


def convolution(
    channels: int, size: int, results: int, window: int, target: GpuTarget, has_device: bool
) -> dict[str, Any]:
    """One row of a convolution."""
    x = lang.placeholder((1, channels, size, size), name="X")
    w = lang.placeholder((results, channels, window, window), name="W")
    program = lang.program([x, w], [lang.ops.conv(x, w, padding=window // 2)], name="conv")
    operations = 2.0 * results * size * size * channels * window**2
    row, arrays, outputs, plan = kernel(program, operations, target, has_device)
    if plan is None:
        return row
    if find_spec("torch") is None:
        return row | timed(plan, None, operations)
    torch: Any = import_module("torch")
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
    tx, tw = (torch.tensor(arrays[name], device="cuda") for name in "XW")

    def call() -> Any:
        return torch.nn.functional.conv2d(tx, tw, padding=window // 2)

    error = float(np.abs(call().cpu().numpy() - next(iter(outputs.values()))).max())
    return row | timed(plan, torch_seconds(call), operations) | {"max_error": error}


def kernel(
    program: Program,
    operations: float,
    target: GpuTarget,
    has_device: bool,
    numbers: str = "f32",
    schedule: Schedule | None = None,
) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, Any], Any]:
    """What models say of a kernel, by default or by a schedule; its arrays, results of a run, and its plan on
    the device (``None`` without one: the row then has what the compiler says).
    """
    machine = Machine(target, 1)
    bound = bound_ms(target, operations, moved_bytes(program), numbers)
    row: dict[str, Any] = {"bound_ms": bound, "flops": operations}
    if schedule is None:
        planned = plan_unit(program, machine)
        schedule = planned.schedule
        row["rules"] = [nest.rule for nest in planned.plan.nests]
        seconds = Prices(Task(program, machine)).seconds(planned.plan)
        if seconds:
            row |= {"modelled_ms": seconds * 1e3, "roofline_fraction": bound / seconds / 1e3}
    if not has_device:
        return row | {"kernels": modelled(schedule, target)}, {}, {}, None
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        drawn = rng.integers(-9, 10, shape) if b.dtype.is_integer else rng.standard_normal(shape)
        arrays[b.name] = drawn.astype(b.dtype.numpy)
    made = DeviceFunction(schedule.func, open_device("cuda"), read_settings()).plan(arrays, {})
    plan, inputs, outputs = made
    plan.run(inputs, list(outputs.values()))
    return row, arrays, outputs, plan


def timed(plan: Any, peer: Callable[[int], float] | None, operations: float) -> dict[str, Any]:
    """Milliseconds, ours and torch's."""
    found = interleaved({"ms": plan.seconds} | ({} if peer is None else {"torch_ms": peer}))
    return found | {"tflops": operations / found["ms"] / 1e9}


def model_rows(target: GpuTarget, has_device: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The reference models, batch 1: of f32, and with products in tf32."""
    for name in zoo.FULL:
        for numbers in ("f32", "tf32"):
            label = f"model {name}" if numbers == "f32" else f"model {name} {numbers}"
            yield label, lambda name=name, numbers=numbers: model(name, target, has_device, numbers)  # type: ignore[misc]


def model(name: str, target: GpuTarget, has_device: bool, numbers: str) -> dict[str, Any]:
    """One row of a model whose products are of such ``numbers``."""
    start = time.perf_counter()
    proto = zoo.FULL[name]()
    if not has_device:
        units = emit_model(proto, target, "cubin", precision=numbers)
        seconds = time.perf_counter() - start
        return modelled_model(units, target, numbers) | {"compile_s": seconds}
    compiled = compile_model(proto, target="cuda", precision=numbers)
    seconds = time.perf_counter() - start
    feeds = compiled.sample_feeds()
    want = compile_model(proto).run(None, feeds)
    worst = max(
        float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
        for a, b in zip(compiled.run(None, feeds), want, strict=True)
        if a.dtype.kind == "f"
    )
    programs = [group.kernel.program for group in compiled.groups()]
    bound = sum(bound_ms(target, flops(each), moved_bytes(each), numbers) for each in programs)
    with TemporaryDirectory() as folder:
        compiled.save(Path(folder) / "model.tw")
        rest = measured(tilewright.load(Path(folder) / "model.tw"), bound)
    return {"compile_s": seconds, "relative_error": worst, "bound_ms": bound, **rest}


def modelled_model(units: Sequence[EmittedUnit], target: GpuTarget, numbers: str) -> dict[str, Any]:
    """What the models say of a whole model, and of each of its kernels; by matrix units where these are."""
    rows = []
    for unit in units:
        by_units = numbers if "gpu_matrix" in unit.rules else "f32"
        bound = bound_ms(target, unit.flops, unit.moved_bytes, by_units)
        row: dict[str, Any] = {
            "nodes": unit.nodes,
            "rules": unit.rules,
            "calls": unit.calls,
            "bound_ms": bound,
        }
        if unit.seconds:
            row |= {"modelled_ms": unit.seconds * 1e3, "roofline_fraction": bound / unit.seconds / 1e3}
        rows.append(row | {"kernels": kernel_rows(unit.source, unit.resources, target)})
    used = [used for unit in units for used in unit.resources.values()]
    bound = sum(row["bound_ms"] * row["calls"] for row in rows)
    total = sum(row.get("modelled_ms", 0.0) * row["calls"] for row in rows)
    return {
        "kernels": len(used),
        "launches": sum(len(unit.source.launches) * unit.calls for unit in units),
        "rules": dict(Counter(rule for unit in units for rule in unit.rules)),
        "most_registers": max(u.registers for u in used),
        "spilled_bytes": sum(u.spilled for u in used),
        "bound_ms": bound,
        "modelled_ms": total,
        "roofline_fraction": bound / total if total else None,
        "units": rows,
    }


def carry(folder: Path, target: GpuTarget) -> None:
    """Write all models, and what the rows of their measurements need, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    made: list[tuple[str, Any]] = [
        (f"model {name} batch {batch}", lambda name=name, batch=batch: zoo.FULL[name](batch=batch))
        for batch in CARRIED_BATCHES
        for name in zoo.FULL
    ]
    for number, (name, proto) in enumerate(made):
        compiled = compile_model(proto(), target=target)
        file = f"model_{number:02}.tw"
        compiled.save(folder / file)
        kernels = [group.kernel for group in compiled.groups()]
        operations = sum(flops(kernel.program) for kernel in kernels)
        bound = sum(bound_ms(target, flops(k.program), moved_bytes(k.program)) for k in kernels)
        rows[name] = {"file": file, "flops": operations, "bound_ms": bound}
        # as they are made: a run that was cut short leaves what it has
        content = {"language": target.language, "arch": target.arch, "rows": rows}
        (folder / "rows.json").write_text(json.dumps(content))
        print(name, file, flush=True)


PARTS = {"gemm": gemm_rows, "convolutions": convolution_rows, "models": model_rows}


def main() -> int:
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--arch", default="sm_90", help="Architecture of the modelled rows.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--carry", type=Path, metavar="FOLDER", help="Write compiled models there.")
    options = parser.parse_args()
    begin = time.monotonic()
    if options.carry is not None:
        wanted = find_target(f"cuda:{options.arch}")
        assert isinstance(wanted, GpuTarget)
        carry(options.carry, wanted)
        return 0
    try:
        target, card = find_target("cuda"), open_device("cuda").name
        has_device = True
    except (InstallationError, TargetError) as error:
        target, card, has_device = find_target(f"cuda:{options.arch}"), f"none ({error.what})", False
    assert isinstance(target, GpuTarget)
    done: set[str] = set()
    if options.out is not None and options.out.exists():
        done = {json.loads(line)["row"] for line in options.out.read_text().splitlines()}
    for part in options.parts.split(","):
        for name, make in PARTS[part](target, has_device):
            if name in done:
                continue
            if time.monotonic() - begin > options.minutes * 60:
                print("out of time: run again to go on", file=sys.stderr)
                return 0
            row = {"row": name, "card": card, "arch": target.arch, "measured": has_device, **make()}
            text = json.dumps(row)
            print(text if options.json else _shown(row), flush=True)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(text + "\n")
    return 0


def _shown(row: dict[str, Any]) -> str:
    rest = {key: value for key, value in row.items() if key not in ("row", "card", "arch", "measured")}
    return f"{row['row']:<24} " + ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in rest.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
