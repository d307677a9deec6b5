"""Networks as onnxruntime's tools quantise and convert them: right, and faster than onnxruntime?

    python benchmarks/variants.py --threads 2 --json [--models vision_transformer --variants int4,f16]

Each network of ``VARIED`` as exported (``f32``), and made into

* ``dynamic``: weights in bytes, activations quantised in each run (``quantize_dynamic``);
* ``qoperator``: activations and weights in bytes, by QLinear operators (``quantize_static``);
* ``f16``: weights and activations in half precision (``convert_float_to_float16``);
* ``qdq``: the same by pairs of QuantizeLinear and DequantizeLinear, a scale a channel;
* ``int4``: weights of products in 4 bits, blocks of 32 (``MatMulNBits``); ``int4_qdq``: by DequantizeLinear.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import torch
from arguments import add_models, add_turns, names, parser_of
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
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
PAUSE: Final = 0.3
"""Seconds between two turns: longer than any engine lets its idle threads spin."""
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
    return _static(model, feeds, folder, QuantFormat.QOperator)


def qdq(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """QuantizeLinear and DequantizeLinear around f32 operators, a scale for each channel of weights."""
    return _static(model, feeds, folder, QuantFormat.QDQ)


def _static(model: onnx.ModelProto, feeds: Arrays, folder: Path, form: QuantFormat) -> onnx.ModelProto:
    out = folder / "out.onnx"
    quantize_static(
        str(prepared(model, folder)),
        str(out),
        Once(feeds),
        quant_format=form,
        per_channel=form == QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return onnx.load(out)


def f16(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """Half precision, inputs and outputs as they were."""
    return convert_float_to_float16(onnx.shape_inference.infer_shapes(model), keep_io_types=True)


def int4(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """Weights of products in blocks of 4 bits, as ``MatMulNBits``."""
    return _four_bits(model, QuantFormat.QOperator)


def int4_qdq(model: onnx.ModelProto, feeds: Arrays, folder: Path) -> onnx.ModelProto:
    """Weights of products in blocks of 4 bits that DequantizeLinear widens."""
    return _four_bits(version_converter.convert_version(model, 21), QuantFormat.QDQ)


def _four_bits(model: onnx.ModelProto, form: QuantFormat) -> onnx.ModelProto:
    quantiser = MatMulNBitsQuantizer(model, block_size=BLOCK, is_symmetric=True, quant_format=form)
    quantiser.process()
    return quantiser.model.model


VARIANTS: Final[dict[str, Callable[[onnx.ModelProto, Arrays, Path], onnx.ModelProto]]] = {
    "f32": lambda model, feeds, folder: model,
    "dynamic": dynamic,
    "qoperator": qoperator,
    "qdq": qdq,
    "f16": f16,
    "int4": int4,
    "int4_qdq": int4_qdq,
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
            time.sleep(PAUSE)
            run()
            end = time.perf_counter() + seconds
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                run()
                times.append((time.perf_counter() - start) * 1e3)
    return taken


def apart(made: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The norm of the difference, in that of what is wanted: the largest of all outputs."""
    worst = 0.0
    for one, other in zip(made, wanted, strict=True):
        if one.shape != other.shape:
            return float("inf")
        a, b = one.astype(np.float64), other.astype(np.float64)
        same = np.isnan(a) & np.isnan(b)
        off = np.linalg.norm(np.where(same | (a == b), 0.0, a - b)) / (
            np.linalg.norm(np.where(same, 0, b)) or 1.0
        )
        worst = max(worst, float(off) if np.isfinite(off) else float("inf"))
    return worst


@dataclass(frozen=True, slots=True)
class Turns:
    """How engines take turns: their threads, turns of each, seconds of a turn."""

    threads: int
    rounds: int
    seconds: float


def compared(
    model: onnx.ModelProto,
    feeds: Arrays,
    turn: Turns,
    *,
    exact: list[np.ndarray] | None = None,
    f32: Callable[[], object] | None = None,
    dynamic: dict[str, tuple[int, int]] | None = None,
    other_sizes: Arrays | None = None,
) -> dict[str, Any]:
    """A model of any form beside onnxruntime: how fast, and how far from it without optimisations.

    ``exact`` are the results of the model that it was made of, ``f32`` a run of that; ``dynamic`` the ranges
    of sizes that are open, ``other_sizes`` inputs of such, which it is run on as well.
    """
    ours = tilewright.compile(model, threads=turn.threads, dynamic=dynamic)
    wanted = session_of(model, turn.threads, plain=True).run(None, feeds)
    made = ours.run(None, feeds)
    theirs = session_of(model, turn.threads)
    runs: list[Callable[[], object]] = [lambda: ours.run(None, feeds), lambda: theirs.run(None, feeds)]
    taken = turns([*runs, *([] if f32 is None else [f32])], turn.rounds, turn.seconds)
    own, other = taken[:2]
    off, moved = apart(made, wanted), apart(theirs.run(None, feeds), wanted)
    if other_sizes is not None:
        off = max(off, apart(ours.run(None, other_sizes), theirs.run(None, other_sizes)))
    costs = 0.0 if exact is None else apart(wanted, exact)
    row: dict[str, Any] = {
        "threads": turn.threads,
        "ours_ms": [min(own), statistics.median(own)],
        "onnxruntime_ms": [min(other), statistics.median(other)],
        "onnxruntime_to_ours": min(other) / min(own),
        "difference": off,
        "onnxruntime_difference": moved,
        "difference_from_f32": costs,
        "right": bool(off <= max(TOLERANCE, 2 * moved, costs)),
    }
    if f32 is not None:
        row["ours_to_our_f32"] = min(own) / min(taken[2])
    if isinstance(ours, tilewright.CompiledModel):
        row["kernels"] = len(ours.groups())
    return row


def made_variant(variant: str, model: onnx.ModelProto, feeds: Arrays) -> onnx.ModelProto:
    """A copy of a model in one of the forms."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        return VARIANTS[variant](onnx.ModelProto.FromString(model.SerializeToString()), feeds, Path(folder))


def measure(name: str, variants: list[str], turn: Turns) -> list[dict[str, Any]]:
    """The rows of one network."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    feeds = {key: tensor.numpy() for key, tensor in network.inputs.items()}
    exported = export(network, 17)
    exact = session_of(exported, turn.threads).run(None, feeds)
    f32 = tilewright.compile(exported, threads=turn.threads)
    rows = []
    for variant in variants:
        model = made_variant(variant, exported, feeds)
        row = compared(model, feeds, turn, exact=exact, f32=lambda: f32.run(None, feeds))
        rows.append({"benchmark": "variants", "network": name, "variant": variant, **row})
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
        turn = Turns(arguments.threads, arguments.rounds, arguments.seconds)
        for row in measure(name, chosen, turn):
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
