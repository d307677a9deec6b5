"""The seven reference architectures, side by side with other engines.

    python benchmarks/models.py --against onnxruntime,openvino,torch --threads 2 --json > results.jsonl
    python benchmarks/models.py --table results.jsonl

Each engine runs in a process of its own; they take turns, and only one is at work at a time. `--json` prints
one line a model, as soon as it is measured; `--table` makes the Markdown table of such lines: our median as a
multiple of each engine's (below 1: we are faster).
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from arguments import add_engines, add_models, add_turns, engine_names, names, parser_of

from tilewright.driver import OURS, PRECISIONS, BenchPlan, model_samples, run_benchmark
from tilewright.frontend import zoo
from tilewright.support import available_cpus
from tilewright.target import detect


def measure(name: str, small: bool, batch: int, plan: BenchPlan) -> dict[str, Any]:
    """One model: its name, the machine, and each engine's result."""
    model = zoo.SMALL[name]() if small else zoo.FULL[name](batch=batch)
    _, feeds = model_samples(model)
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        del model
        result = run_benchmark(name, path, feeds, plan)
    machine = {"cpu": detect().llvm_cpu, "cpus": available_cpus(), "load": os.getloadavg()[0]}
    return {
        "benchmark": "models",
        **result.as_data(),
        "small": small,
        "batch": batch,
        "machine": machine,
        "python": platform.python_version(),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    engines = list(dict.fromkeys(each["engine"] for row in rows for each in row["engines"]))
    others = [name for name in engines if name != OURS]
    head = [
        "model",
        "ms",
        *(f"{name} ms" for name in others),
        *(f"ours / {name}" for name in others),
        "compile s",
    ]
    rounded = any("accuracy" in each for row in rows for each in row["engines"])
    if rounded:
        head += [f"{name}: relative l2, same top 1" for name in (OURS, *others)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        found = {each["engine"]: each for each in row["engines"]}
        ours = found.get(OURS, {})
        cells = [row["model"], _number(ours.get("median_ms"))]
        cells += [_number(found.get(name, {}).get("median_ms")) for name in others]
        cells += [_number(found.get(name, {}).get("ours_to_this")) for name in others]
        cells.append(_number(ours.get("load_s"), 1))
        if rounded:
            cells += [_accuracy(found.get(name, {})) for name in (OURS, *others)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _accuracy(engine: dict[str, Any]) -> str:
    found = engine.get("accuracy")
    return "-" if found is None else f"{found['relative_l2']:.1e}, {found['top1']:.0%}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_models(parser, zoo.FULL)
    add_engines(parser, "onnxruntime")
    add_turns(parser, rounds=7, seconds=1.0)
    parser.add_argument("--precision", choices=PRECISIONS, default="f32", help="of us and of OpenVINO")
    parser.add_argument("--small", action="store_true", help="the versions made small, at batch 1")
    parser.add_argument("--batch", type=int, default=1, help="images or sequences a run")
    parser.add_argument("--table", metavar="FILE", help="only print the table of the JSON lines in a file")
    arguments = parser.parse_args()
    if arguments.table is not None:
        lines = Path(arguments.table).read_text(encoding="utf-8").splitlines()
        print(table([json.loads(line) for line in lines if line.strip()]))
        return
    plan = BenchPlan(
        engines=engine_names(arguments),
        threads=arguments.threads,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        precision=arguments.precision,
    )
    rows = []
    for name in names(arguments.models):
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(measure(name, arguments.small, arguments.batch, plan))
        if arguments.json:
            print(json.dumps(rows[-1]), flush=True)
    if not arguments.json:
        print(table(rows))


if __name__ == "__main__":
    main()
