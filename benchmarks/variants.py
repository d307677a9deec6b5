"""Networks as onnxruntime's tools quantise and convert them: right, and faster than onnxruntime?

    python benchmarks/variants.py --threads 2 --json [--models vision_transformer --variants int4,f16]

Each network of ``VARIED`` as exported (``f32``), and made into

* ``dynamic``: weights in bytes, activations quantised in each run (``quantize_dynamic``);
* ``qoperator``: activations and weights in bytes, by QLinear operators (``quantize_static``);
* ``f16``: weights and activations in half precision (``convert_float_to_float16``);
* ``int4``: weights of products in 4 bits, blocks of 32 (``MatMulNBits``).

A row a variant: the shortest and median milliseconds of both engines, which take turns, the ratio of the
shortest, ours to that of our f32, and how far our result is from onnxruntime's of the same file without
optimisations, beside how far onnxruntime's is with them, and how far the variant is from f32: a number that
is rounded the other way moves many after it. Exit status 1 where we are further off than ``TOLERANCE``, twice
what onnxruntime's optimisations change and what the variant costs.
"""

import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import torch
from arguments import add_models, add_turns, names, parser_of
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch_exports import export
from torch_networks import NETWORKS

import tilewright

VARIED: Final = (
    "vision_transformer",
    "efficientnet_b0",
    "shifted_windows",
    "decoder_256x16x32000",
    "conformer",
    "unet",
)
BLOCK: Final = 32
TOLERANCE: Final = 2e-3
"""The norm of the difference, in that of the result."""
Arrays = dict[str, np.ndarray]


class Once(CalibrationDataReader):
    """One input."""

    def __init__(self, feeds: Arrays) -> None:
        self._left: list[Arrays] = [feeds]

    def get_next(self) -> Arrays | None:
        """The input; then None."""
        return self._left.pop() if self._left else None


def prepared(model: onnx.ModelProto, folder: Path) -> Path:
    """The model as the quantisers want it, in a file."""
    plain, out = folder / "plain.onnx", folder / "prepared.onnx"
    onnx.save(model, plain)
    quant_pre_process(str(plain), str(out), skip_symbolic_shape=True)
    return out


def dynamic(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """Activations quantised in each run."""
    out = folder / "out.onnx"
    quantize_dynamic(str(prepared(model, folder)), str(out), weight_type=QuantType.QInt8)
    return onnx.load(out)


def qoperator(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """QLinear operators."""
    out = folder / "out.onnx"
    quantize_static(
        str(prepared(model, folder)),
        str(out),
        Once(feeds),
        quant_format=QuantFormat.QOperator,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return onnx.load(out)


def f16(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """Half precision, inputs and outputs as they were."""
    return convert_float_to_float16(onnx.shape_inference.infer_shapes(model), keep_io_types=True)


def int4(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """Blocks of weights in 4 bits: w is scale * (q - 8), a scale for each block of a column."""
    graph, domain = model.graph, "com.microsoft"
    weights = {each.name: each for each in graph.initializer}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        matrix = numpy_helper.to_array(weights[node.input[1]])
        if matrix.ndim != 2 or matrix.shape[0] % BLOCK:
            continue
        depth, columns = matrix.shape
        blocks = matrix.T.reshape(columns, depth // BLOCK, BLOCK).astype(np.float32)
        scales = np.abs(blocks).max(-1, keepdims=True) / 7.0 + 1e-12
        numbers = (np.clip(np.rint(blocks / scales), -8, 7) + 8).astype(np.uint8)
        packed = numbers[..., 0::2] | (numbers[..., 1::2] << 4)
        name = node.input[1]
        graph.initializer.append(numpy_helper.from_array(packed, f"{name}_{node.output[0]}_int4"))
        graph.initializer.append(
            numpy_helper.from_array(scales[..., 0].reshape(-1), f"{name}_{node.output[0]}_scales")
        )
        inputs = [node.input[0], f"{name}_{node.output[0]}_int4", f"{name}_{node.output[0]}_scales"]
        made = helper.make_node(
            "MatMulNBits", inputs, list(node.output), node.name, domain=domain,
            K=depth, N=columns, bits=4, block_size=BLOCK,
        )  # fmt: skip
        node.CopyFrom(made)
    used = {name for node in graph.node for name in node.input}
    kept = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


VARIANTS: Final[dict[str, Callable[[onnx.ModelProto, Arrays, Path], onnx.ModelProto]]] = {
    "f32": lambda model, feeds, folder: model,
    "dynamic": dynamic,
    "qoperator": qoperator,
    "f16": f16,
    "int4": int4,
}


def session_of(model: onnx.ModelProto, threads: int, *, plain: bool = False) -> onnxruntime.InferenceSession:
    """A session of onnxruntime on a model, ``plain`` without optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def turns(runs: list[Callable[[], object]], rounds: int, seconds: float) -> list[list[float]]:
    """Milliseconds of calls, the engines in turns."""
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, taken, strict=True):
            run()
            end = time.perf_counter() + seconds
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                run()
                times.append((time.perf_counter() - start) * 1e3)
    return taken


def apart(made: np.ndarray, wanted: np.ndarray) -> float:
    """The norm of the difference, in that of what is wanted."""
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))


def measure(
    name: str, variants: list[str], threads: int, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """The rows of one network."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    feeds = {key: tensor.numpy() for key, tensor in network.inputs.items()}
    exported = export(network, 17)
    exact = session_of(exported, threads).run(None, feeds)[0]
    f32 = tilewright.compile(exported, threads=threads)
    rows = []
    for variant in variants:
        row: dict[str, Any] = {
            "benchmark": "variants",
            "network": name,
            "variant": variant,
            "threads": threads,
        }
        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
            model = VARIANTS[variant](
                onnx.ModelProto.FromString(exported.SerializeToString()), feeds, Path(folder)
            )
        theirs = session_of(model, threads)
        wanted = session_of(model, threads, plain=True).run(None, feeds)[0]
        ours = tilewright.compile(model, threads=threads)
        made = ours.run(None, feeds)[0]
        own, other, full = turns(
            [
                lambda o=ours: o.run(None, feeds),
                lambda t=theirs: t.run(None, feeds),
                lambda: f32.run(None, feeds),
            ],
            rounds,
            seconds,
        )
        costs, off = apart(wanted, exact), apart(made, wanted)
        moved = apart(theirs.run(None, feeds)[0], wanted)
        rows.append(
            {
                **row,
                "ours_ms": [min(own), statistics.median(own)],
                "onnxruntime_ms": [min(other), statistics.median(other)],
                "onnxruntime_to_ours": min(other) / min(own),
                "ours_to_our_f32": min(own) / min(full),
                "kernels": len(ours.groups()),
                "difference": off,
                "onnxruntime_difference": moved,
                "difference_from_f32": costs,
                "right": bool(off <= max(TOLERANCE, 2 * moved, costs)),
            }
        )
    return rows


def main() -> int:
    """Measure and print; 1 if a result is wrong."""
    parser = parser_of(__doc__)
    add_models(parser, VARIED)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which, by commas")
    add_turns(parser, rounds=3, seconds=0.1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    wrong = False
    for name in names(arguments.models):
        chosen = names(arguments.variants)
        for row in measure(name, chosen, arguments.threads, arguments.rounds, arguments.seconds):
            wrong |= not row["right"]
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"{name} {row['variant']}: {row['ours_ms'][0]:.3f} ms, onnxruntime "
                    f"{row['onnxruntime_ms'][0]:.3f} ({row['onnxruntime_to_ours']:.2f}), "
                    f"{row['ours_to_our_f32']:.2f} of f32, difference {row['difference']:.1e} "
                    f"({row['difference_from_f32']:.1e} from f32){'' if row['right'] else '  WRONG'}",
                    flush=True,
                )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
