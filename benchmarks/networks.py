"""Common architectures beside the seven, as torch exports them: right, and faster than other engines?

    python benchmarks/networks.py --against onnxruntime,openvino --threads 2 --json [--models unet,lstm]

Each network of ``torch_networks.py`` is exported by ``torch.onnx.export`` and measured as ``models.py`` does
it; our result is compared with torch's own. Exit status 1 where a difference exceeds ``TOLERANCE``. Needs
``pip install torch``.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx
import torch
from arguments import add_engines, add_models, add_turns, engine_names, names, parser_of
from torch_exports import TOLERANCE, difference, export
from torch_networks import NETWORKS

import tilewright
from tilewright.driver import OURS, BenchPlan, run_benchmark


def measure(name: str, plan: BenchPlan) -> dict[str, Any]:
    """One network's row."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    exported = export(network, 17)
    feeds = {key: tensor.numpy() for key, tensor in network.inputs.items()}
    with torch.inference_mode():
        made = network.module(*network.inputs.values())
    expected = [each.numpy() for each in (made if isinstance(made, tuple) else (made,))]
    compiled = tilewright.compile(exported, threads=plan.threads)
    wrong = difference(compiled.run(None, feeds), expected)
    kernels = len(compiled.groups())
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(exported, path)
        result = run_benchmark(name, path, feeds, plan)
    row = {"benchmark": "networks", **result.as_data(), "kernels": kernels, "difference_from_torch": wrong}
    ours = result.ours
    others = [e.median for e in result.engines if e.engine != OURS and e.median is not None]
    if ours is not None and ours.median is not None and others:
        row["best_peer_to_ours"] = min(others) / ours.median
    return row


def main() -> int:
    """Measure and print; 1 if a result is wrong."""
    parser = parser_of(__doc__)
    add_models(parser, NETWORKS)
    add_engines(parser, "onnxruntime")
    add_turns(parser, rounds=3, seconds=0.3)
    arguments = parser.parse_args()
    plan = BenchPlan(
        engines=engine_names(arguments),
        threads=arguments.threads,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        warmup=0.2,
    )
    failed = False
    for name in names(arguments.models):
        row = measure(name, plan)
        wrong = not row["difference_from_torch"] <= TOLERANCE
        failed |= wrong
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            times = ", ".join(f"{each['engine']} {each.get('median_ms', 0):.3f}" for each in row["engines"])
            ratio = row.get("best_peer_to_ours", float("nan"))
            print(f"{name}: {times} ms; best peer/ours {ratio:.2f}; {row['kernels']} kernels", flush=True)
        if wrong:
            print(f"{name}: differs from torch by {row['difference_from_torch']:.3g}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
