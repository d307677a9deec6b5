"""Five minutes with a card: what matrix units reach, the most valuable rows first, peers in turns.

    python benchmarks/gpu_card.py [--out FILE] [--minutes 5] [--arch sm_90a] [--json]

Rows, in order: kernels whose results are compared with numpy's (``check``); products of f16, bf16 and TF32,
4096 and 8192 a side; products of 1, 16 and 128 rows; convolutions of ResNet-18 in f16 and f32; attention.
Peers are torch's (cuBLASLt, cuDNN, its fused attention), run in turns with ours on the same random inputs;
``of_torch`` is their time over ours. Between rows the card rests for ``REST`` seconds, and each row has the
clock, the temperature and the power that nvidia-smi says after it. Rows go to ``--out`` as JSON lines as
they are made, and those that are there already are left out: a run that was cut short goes on where it
stopped. Kernels are machine code, as a driver may be older than NVRTC. Without a card rows have what the
compiler says of the kernels that one would run.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gpu import CONVOLUTIONS, interleaved, kernel, torch_seconds

from tilewright import lang
from tilewright.devices import open_device
from tilewright.ir import Program
from tilewright.lang import ops
from tilewright.support import InstallationError, TargetError, assert_close
from tilewright.target import GpuTarget, find_target

REST = 1.0
TYPES = ("f16", "bf16", "tf32")
#: Rows, columns and terms of products that are compared: of all tiles' widths and types.
CHECKS = (
    (128, 128, 128), (256, 128, 512), (128, 256, 256), (512, 512, 192), (1024, 256, 64),
)  # fmt: skip
#: Batch, heads, rows, size of a head.
ATTENTION = ((4, 16, 2048, 64), (1, 16, 8192, 128))
Row = tuple[str, Callable[[GpuTarget, bool], dict[str, Any]]]


def product(m: int, n: int, k: int, numbers: str, turned: bool) -> Program:
    """``A B``, or ``A B^T`` where ``turned``; of TF32 both lie along the sums, as models' weights do."""
    element = "f32" if numbers == "tf32" else numbers
    a = lang.placeholder((m, k), element, name="A")
    b = lang.placeholder((n, k) if turned else (k, n), element, name="B")
    r = lang.reduce_axis(k, "k")

    def factor(x: lang.Scalar) -> lang.Scalar:
        return lang.tf32(x) if numbers == "tf32" else lang.cast(x, "f32")

    def element_of(i: Any, j: Any) -> lang.Scalar:
        return lang.sum(factor(a[i, r]) * factor(b[j, r] if turned else b[r, j]), axis=r)

    return lang.program([a, b], [lang.compute((m, n), element_of, name="C")], name="product")


def products(m: int, n: int, k: int, numbers: str, turned: bool, *, checked: bool = False) -> Row:
    """A product, compared with numpy's or timed beside torch's."""
    name = f"{'check' if checked else 'product'} {m} {n} {k} {numbers}{' turned' if turned else ''}"

    def row(target: GpuTarget, here: bool) -> dict[str, Any]:
        program = product(m, n, k, numbers, turned)
        out, arrays, outputs, plan = kernel(program, 2.0 * m * n * k, target, here, numbers)
        if plan is None:
            return out
        wide = [arrays[x].astype(np.float32) for x in "AB"]
        if checked:
            b = wide[1].T if turned else wide[1]
            # TF32 has 11 digits of f32's 24
            scale = 2.0**13 if numbers == "tf32" else 1.0
            magnitude = np.abs(wide[0]) @ np.abs(b) * scale
            assert_close(outputs["C"], wide[0].astype(np.float64) @ b, magnitude=magnitude, terms=k)
            return out | {"right": True}

        def of_torch(torch: Any) -> Callable[[], Any]:
            torch.backends.cuda.matmul.allow_tf32 = numbers == "tf32"
            kind = {"f16": torch.float16, "bf16": torch.bfloat16}.get(numbers, torch.float32)
            a, b = (torch.tensor(x, device="cuda").to(kind) for x in wide)
            return (lambda: a @ b.T) if turned else (lambda: a @ b)

        return out | beside(plan, of_torch)

    return name, row


def convolutions(channels: int, size: int, results: int, window: int, numbers: str) -> Row:
    """A convolution of eight pictures, timed beside cuDNN's."""
    shapes = ((8, channels, size, size), (results, channels, window, window))

    def row(target: GpuTarget, here: bool) -> dict[str, Any]:
        x, w = (lang.placeholder(shape, numbers, name=name) for shape, name in zip(shapes, "XW", strict=True))
        program = lang.program([x, w], [ops.conv(x, w, padding=window // 2)], name="conv")
        operations = 16.0 * results * size * size * channels * window**2
        out, arrays, _, plan = kernel(program, operations, target, here, numbers)
        if plan is None:
            return out

        def of_torch(torch: Any) -> Callable[[], Any]:
            torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
            kind = torch.float16 if numbers == "f16" else torch.float32
            given = [torch.tensor(arrays[name].astype(np.float32), device="cuda").to(kind) for name in "XW"]
            return lambda: torch.nn.functional.conv2d(*given, padding=window // 2)

        return out | beside(plan, of_torch)

    return f"conv {channels} {size} {results} {window} {numbers}", row


def attention(batch: int, heads: int, rows: int, size: int) -> Row:
    """Attention of f16, timed beside torch's fused one."""

    def row(target: GpuTarget, here: bool) -> dict[str, Any]:
        q, k, v = (lang.placeholder((batch, heads, rows, size), "f16", name=name) for name in "QKV")
        program = lang.program([q, k, v], [ops.attention(q, k, v)], name="attention")
        out, arrays, _, plan = kernel(program, 4.0 * batch * heads * rows**2 * size, target, here, "f16")
        if plan is None:
            return out

        def of_torch(torch: Any) -> Callable[[], Any]:
            given = [torch.tensor(arrays[name], device="cuda") for name in "QKV"]
            return lambda: torch.nn.functional.scaled_dot_product_attention(*given)

        return out | beside(plan, of_torch)

    return f"attention {batch} {heads} {rows} {size} f16", row


def beside(plan: Any, of_torch: Callable[[Any], Callable[[], Any]]) -> dict[str, Any]:
    """Milliseconds of a plan, and of torch in turns with it where torch and its device are here."""
    runs: dict[str, Callable[[int], float]] = {"ms": plan.seconds}
    if find_spec("torch") is not None:
        torch: Any = import_module("torch")
        if torch.cuda.is_available():
            runs["torch_ms"] = torch_seconds(of_torch(torch))
    found = interleaved(runs)
    return found | ({"of_torch": found["torch_ms"] / found["ms"]} if "torch_ms" in found else {})


def rows() -> Iterator[Row]:
    """All rows, the most valuable first."""
    for (m, n, k), numbers in zip(CHECKS * 2, (*TYPES, *TYPES, *TYPES, "f16"), strict=False):
        yield products(m, n, k, numbers, numbers == "tf32", checked=True)
    for size in (4096, 8192):
        for numbers in TYPES:
            yield products(size, size, size, numbers, numbers == "tf32")
    for m in (1, 16, 128):
        yield products(m, 4096, 4096, "f16", True)
    for numbers in ("f16", "f32"):
        for shape in CONVOLUTIONS:
            yield convolutions(*shape, numbers)
    for shape in ATTENTION:
        yield attention(*shape)


def clocks() -> dict[str, str]:
    """What nvidia-smi says of the card's clock, temperature and power."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    asked = "clocks.sm,temperature.gpu,power.draw"
    made = subprocess.run(
        [tool, f"--query-gpu={asked}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    first = made.stdout.splitlines()[:1]
    return dict(zip(asked.split(","), (x.strip() for line in first for x in line.split(",")), strict=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--arch", default="sm_90a", help="Architecture of rows without a card.")
    parser.add_argument("--only", default="", help="Rows whose names begin so.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        card, here = open_device("cuda").name, True
        target = find_target("cuda")
    except (InstallationError, TargetError):
        card, here = "none", False
        target = find_target(f"cuda:{options.arch}")
    assert isinstance(target, GpuTarget)
    done = set()
    if options.out is not None and options.out.exists():
        done = {json.loads(line)["row"] for line in options.out.read_text().splitlines()}
    for name, make in rows():
        if name in done or not name.startswith(options.only):
            continue
        if time.monotonic() - begin > options.minutes * 60:
            break
        try:
            found = make(target, here)
        except Exception as error:  # noqa: BLE001  # one kernel that fails must not cost the others their time
            found = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
        row = {"row": name, "card": card, "arch": target.arch, **found, **(clocks() if here else {})}
        text = json.dumps(row)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(text + "\n")
        print(text if options.json else f"{name}: {found.get('failed') or found}")
        if here:
            time.sleep(REST)
    return 0


if __name__ == "__main__":
    sys.exit(main())
