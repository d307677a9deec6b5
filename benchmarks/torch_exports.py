"""PyTorch's own exports of the seven architectures: right, and as fast as the hand-written ONNX?

    python benchmarks/torch_exports.py --models resnet18,bert_base --threads 2 --json [--small]

Each model of ``torch_models.py`` is exported by ``torch.onnx.export`` (the exporter that traces TorchScript,
which needs nothing beside torch), compiled, and compared with torch's own result. Then three take turns in
one process: our code for the export, our code for the model of the same sizes from
``tilewright.frontend.zoo``, and torch in eager mode. One row a model: operators and kernels of the export
and of the zoo's model, medians in milliseconds, and the largest difference from torch as a part of the
output's largest element. Exit status 1 where a difference exceeds ``TOLERANCE``. Needs ``pip install torch``.
"""

import argparse
import contextlib
import io
import json
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
import torch_models
from arguments import add_models, add_turns, names, parser_of

import tilewright
from tilewright.frontend import zoo

#: The largest difference from torch that passes, as a part of the output's largest element.
TOLERANCE = 1e-4
#: Seconds between two turns: longer than any engine lets its idle threads spin.
PAUSE = 0.3


def export(
    model: torch_models.TorchModel,
    opset: int,
    *,
    dynamo: bool = False,
    open_axes: dict[str, dict[int, str]] | None = None,
) -> onnx.ModelProto:
    """The model as one of torch's exporters writes it: that which traces TorchScript, or ``dynamo``.

    ``open_axes`` are names for axes of inputs that are left open, by the tracing exporter.
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        # The tracing exporter announces that it will be replaced, and remarks on every constant it records.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.module,
            tuple(model.inputs.values()),
            buffer,
            input_names=list(model.inputs),
            output_names=list(model.outputs),
            opset_version=opset,
            dynamic_axes=open_axes,
            dynamo=dynamo,
        )
    return onnx.load_from_string(buffer.getvalue())


def difference(made: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference of the arrays, as a part of each expected array's largest element."""
    worst = 0.0
    for a, b in zip(made, expected, strict=True):
        if a.shape != b.shape or not np.isfinite(a).all():
            return float("inf")
        worst = max(worst, float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max()))
    return worst


def timed(run: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of each run, for so long and at least thrice, after one to warm up."""
    run()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One model's row."""
    torch.manual_seed(0)
    model = (torch_models.SMALL if arguments.small else torch_models.FULL)[name]()
    ours_zoo = (zoo.SMALL if arguments.small else zoo.FULL)[name]()
    exported = export(model, arguments.opset)
    feeds = {key: tensor.numpy() for key, tensor in model.inputs.items()}

    def eager() -> Any:
        with torch.inference_mode():
            return model.module(*model.inputs.values())

    expected = eager()
    expected = [tensor.numpy() for tensor in (expected if isinstance(expected, tuple) else (expected,))]
    compiled = tilewright.compile(exported, threads=arguments.threads)
    hand_written = tilewright.compile(ours_zoo, threads=arguments.threads)
    runs: dict[str, Callable[[], object]] = {
        "export_ms": lambda: compiled.run(None, feeds),
        "zoo_ms": lambda: hand_written.run(None, feeds),
        "torch_ms": eager,
    }
    seconds: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(arguments.rounds):
        for key, run in runs.items():
            time.sleep(PAUSE)
            seconds[key] += timed(run, arguments.seconds)
    medians = {key: round(1e3 * statistics.median(values), 4) for key, values in seconds.items()}
    return {
        "benchmark": "torch_exports",
        "model": name,
        "small": arguments.small,
        "torch": torch.__version__,
        "opset": arguments.opset,
        "threads": arguments.threads,
        "max_difference": difference(compiled.run(None, feeds), expected),
        "export_nodes": len(exported.graph.node),
        "zoo_nodes": len(ours_zoo.graph.node),
        "export_kernels": len(compiled.groups()),
        "zoo_kernels": len(hand_written.groups()),
        **medians,
        "export_to_zoo": round(medians["export_ms"] / medians["zoo_ms"], 3),
        "export_to_torch": round(medians["export_ms"] / medians["torch_ms"], 3),
        "export_operators": dict(Counter(node.op_type for node in exported.graph.node).most_common()),
    }


def main() -> int:
    """Measure and print; 1 if a result is wrong."""
    parser = parser_of(__doc__)
    add_models(parser, torch_models.FULL)
    parser.add_argument("--opset", type=int, default=17, help="operator set; 16 writes layer norms out")
    add_turns(parser, rounds=3, seconds=0.5)
    parser.add_argument("--small", action="store_true", help="the versions made small")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    failed = False
    for name in names(arguments.models):
        row = measure(name, arguments)
        wrong = not row["max_difference"] <= TOLERANCE
        failed |= wrong
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            shown = {key: value for key, value in row.items() if key not in {"benchmark", "export_operators"}}
            print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
        if wrong:
            print(f"{name}: differs from torch by {row['max_difference']:.3g}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
