"""Memory of compiled models beside other engines: what stays, and the most at any time, beside the weights.

    python benchmarks/memory.py [--models resnet18,resnet50] [--threads 2] [--accuracy exact] [--json]
    python benchmarks/memory.py --file model.onnx

Each engine loads each model in a process of its own, which first imports all that it needs and compiles a
model of one node: what is counted is what comes on top of that. ``stays`` is what the process holds after a
run; ``peak`` the most at any time, with the processes that compile kernels for it. ``packed`` are the weights
as kernels read them: by Winograd's method up to four times the file's (not with ``--accuracy exact``). The
aims are 1.5 times the weights besides the memory of a run (``arena``), and 3 times the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from compile_time import memory
from onnx import TensorProto, helper

import tilewright
from tilewright.frontend import zoo

ENGINES: Final = ("tilewright", "onnxruntime")
MEGABYTE: Final = 1 << 20


class Watch(threading.Thread):
    """Samples the memory of this process and of those that it starts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.over = 0, False

    def run(self) -> None:
        """Until it is told that all is over."""
        while not self.over:
            self.most = max(self.most, memory(os.getpid()))
            time.sleep(0.005)


def feeds(file: Path) -> dict[str, np.ndarray]:
    """Inputs of a model with fixed sizes."""
    graph = onnx.load(file, load_external_data=False).graph
    known = {tensor.name for tensor in graph.initializer}
    made = {}
    for value in graph.input:
        if value.name not in known:
            kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            made[value.name] = np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], kind)
    return made


def load(engine: str, file: Path, threads: int, accuracy: str) -> object:
    """A model that can be called, kept for as long as it is wanted."""
    if engine == "onnxruntime":
        import onnxruntime  # noqa: PLC0415  # only in the process of this engine

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        return onnxruntime.InferenceSession(str(file), options)
    return tilewright.compile(file, threads=threads, accuracy=accuracy)


def of_one_node(folder: Path) -> Path:
    """A trivial model."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    path = folder / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def inside(engine: str, file: Path, threads: int, accuracy: str) -> dict[str, float]:
    """What one engine takes of this process, in megabytes."""
    given = feeds(file)
    with tempfile.TemporaryDirectory() as folder:
        one = load(engine, of_one_node(Path(folder)), threads, accuracy)
        one.run(None, {"x": np.ones(4, np.float32)})
    before = memory(os.getpid())
    watch = Watch()
    watch.start()
    begun = time.perf_counter()
    model = load(engine, file, threads, accuracy)
    seconds = time.perf_counter() - begun
    model.run(None, given)
    watch.over = True
    watch.join()
    time.sleep(0.3)
    row = {"stays": memory(os.getpid()) - before, "peak": watch.most - before}
    if engine == "tilewright":
        row |= {"arena": model.run_bytes, "packed": model.constant_bytes}
    return {name: value / MEGABYTE for name, value in row.items()} | {"seconds": seconds}


def measured(name: str, file: Path, threads: int, accuracy: str) -> list[dict[str, object]]:
    """A row for each engine."""
    weights = onnx.load(file)
    size = sum(len(t.raw_data) or 4 * len(t.float_data) for t in weights.graph.initializer) / MEGABYTE
    rows: list[dict[str, object]] = []
    for engine in ENGINES:
        command = [
            sys.executable,
            __file__,
            "--inside",
            engine,
            "--file",
            str(file),
            "--threads",
            str(threads),
        ]
        command += ["--accuracy", accuracy]
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache}
            out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        row = {"model": name, "engine": engine, "weights": size, **json.loads(out)}
        arena = row.get("arena", 0.0)
        row["stays_of_weights"] = (row["stays"] - arena) / size
        row["peak_of_weights"] = row["peak"] / size
        rows.append(row)
    return rows


def main() -> None:
    """Measure, and print a line an engine and model."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", default="mobilenet_v2,resnet18,resnet50,tinybert4")
    options.add_argument("--file", type=Path)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--accuracy", default="auto")
    options.add_argument("--json", action="store_true")
    options.add_argument("--inside", choices=ENGINES, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.inside:
        print(json.dumps(inside(given.inside, given.file, given.threads, given.accuracy)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in [given.file.stem] if given.file else given.models.split(","):
            file = given.file or Path(folder) / f"{name}.onnx"
            if given.file is None:
                onnx.save(zoo.FULL[name](), file)
            for row in measured(name, file, given.threads, given.accuracy):
                print(
                    json.dumps(row)
                    if given.json
                    else "  ".join(
                        f"{key} {value:.2f}" if isinstance(value, float) else f"{value:14}"
                        for key, value in row.items()
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
