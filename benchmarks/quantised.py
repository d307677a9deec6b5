"""The reference architectures quantised to bytes (QDQ), side by side with other engines.

    python benchmarks/quantised.py --models resnet50 --against onnxruntime,openvino --threads 2 --json

onnxruntime's static quantisation makes the models: activations u8, weights i8 by output channel, ranges from
random inputs. Each line says how many products are done in integers, how far our outputs are from those of
the same quantised model in onnxruntime without optimisations, node by node, and from the f32 model's.
"""

import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from arguments import add_engines, add_models, add_turns, engine_names, names, parser_of
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from tilewright.driver import BenchPlan, compile_model, model_samples, run_benchmark
from tilewright.frontend import zoo
from tilewright.support import available_cpus
from tilewright.target import detect

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "bert_base")
SAMPLES = 4
"""Random inputs that the ranges of activations are taken from."""


class Samples(CalibrationDataReader):
    """Random inputs for a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._left = iter([model_samples(model, {}, seed)[1] for seed in range(SAMPLES)])

    def get_next(self) -> Mapping[str, Any] | None:
        """The next input; None after the last."""
        return next(self._left, None)


def quantised(model: onnx.ModelProto, folder: Path) -> Path:
    """The quantised model as a file in ``folder``."""
    plain, prepared, out = folder / "plain.onnx", folder / "prepared.onnx", folder / "quantised.onnx"
    onnx.save(model, plain)
    quant_pre_process(str(plain), str(prepared))
    quantize_static(
        str(prepared),
        str(out),
        Samples(model),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return out


def measure(name: str, small: bool, plan: BenchPlan) -> dict[str, Any]:
    """One model: errors, and each engine's result."""
    model = (zoo.SMALL if small else zoo.FULL)[name]()
    _, feeds = model_samples(model, {}, SAMPLES)
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as text:
        path = quantised(model, Path(text))
        compiled = compile_model(str(path), threads=plan.threads)
        made = compiled.run(None, feeds)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        same = onnxruntime.InferenceSession(str(path), options).run(None, feeds)
        exact = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        result = run_benchmark(name, path, feeds, plan)
    schedules = [str(group.kernel.schedule) for group in compiled.groups()]
    return {
        "benchmark": "quantised",
        **result.as_data(),
        "kernels": len(schedules),
        "kernels_in_integers": sum("vpdpbusd(" in text for text in schedules),
        "error_to_the_same_model": _relative(made, same),
        "error_to_f32": _relative(made, exact),
        "machine": {"cpu": detect().llvm_cpu, "cpus": available_cpus()},
    }


def _relative(made: list[Any], wanted: list[Any]) -> float:
    """The norm of the errors over that of the output, the worst of all outputs."""
    return max(
        float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0)) for a, b in zip(made, wanted, strict=True)
    )


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_models(parser, MODELS)
    add_engines(parser, "onnxruntime")
    add_turns(parser, rounds=5, seconds=0.7)
    parser.add_argument("--small", action="store_true", help="the versions made small")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    plan = BenchPlan(
        engines=engine_names(arguments),
        threads=arguments.threads,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
    for name in names(arguments.models):
        print(f"{name} ...", file=sys.stderr, flush=True)
        row = measure(name, arguments.small, plan)
        if arguments.json:
            print(json.dumps(row), flush=True)
            continue
        times = ", ".join(f"{each['engine']} {each.get('median_ms', 0):.2f}" for each in row["engines"])
        print(
            f"{row['model']}: {times} ms; {row['kernels_in_integers']} of {row['kernels']} kernels in "
            f"integers; error {row['error_to_the_same_model']:.1e} ({row['error_to_f32']:.1e} to f32)"
        )


if __name__ == "__main__":
    main()
