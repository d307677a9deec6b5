"""Models that were compiled elsewhere, on the card here: needs numpy, ml_dtypes and cuda-bindings alone.

    python benchmarks/gpu.py --carry FOLDER --arch sm_90          where the compiler is
    python benchmarks/gpu_carried.py FOLDER [--out FILE] [--minutes 9] [--json]

Each file becomes a row: milliseconds of a run with its copies to and from the device (``run_ms``), those of
the kernels alone by events around each step (``kernel_ms``), both medians, and the roofline fraction of the
latter, from operations and bytes of ``FOLDER/rows.json``. Rows go to ``--out`` as JSON lines as they are
made, and those that are there already are left out; after ``--minutes`` no new row is begun.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import tilewright
from tilewright.devices import open_device

BATCHES = 7


def measured(model: Any, bound_ms: float) -> dict[str, Any]:
    """The figures of one model; ``bound_ms`` is the least time that its operations and bytes take."""
    feeds = model.sample_feeds()
    bound = model.bind(feeds)
    bound.run()
    runs = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        bound.run()
        runs.append((time.perf_counter() - begin) * 1e3)
    steps = model.measure(feeds, BATCHES)
    kernels = statistics.median(float(each) / 1e6 for each in steps.sum(axis=1))
    slowest = sorted(zip(map(float, steps.mean(axis=0) / 1e6), model.step_names, strict=True), reverse=True)
    return {
        "run_ms": statistics.median(runs),
        "kernel_ms": kernels,
        "roofline_fraction": bound_ms / kernels if kernels else None,
        "slowest": [{"step": name, "ms": ms} for ms, name in slowest[:10]],
    }


def main() -> int:
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    begin = time.monotonic()
    carried = json.loads((options.folder / "rows.json").read_text())
    card = open_device(carried["language"], carried["arch"]).name
    done: set[str] = set()
    if options.out is not None and options.out.exists():
        done = {json.loads(line)["row"] for line in options.out.read_text().splitlines()}
    for name, facts in carried["rows"].items():
        if name in done:
            continue
        if time.monotonic() - begin > options.minutes * 60:
            print("out of time: run again to go on", file=sys.stderr)
            return 0
        row = {
            "row": name,
            "card": card,
            **facts,
            **measured(tilewright.load(options.folder / facts.pop("file")), facts["bound_ms"]),
        }
        text = json.dumps(row)
        print(text if options.json else f"{name:<28} {row['kernel_ms']:.4g} ms", flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
