"""Models with open sizes: what a new size costs, and how fast it runs, beside other engines.

    python benchmarks/dynamic.py [--lengths 40] [--most 128] [--threads 2] [--against onnxruntime] [--json]
    python benchmarks/dynamic.py --decode 512

BERT (4 layers of 312) at lengths drawn by a seed: seconds until the first result of a size whose range is
new, of one whose range is known, and of one that ran before; then its time against that of a compilation for
the size alone, in turns. ``--decode`` runs attention over a cache that grows by one place a step, and counts
what is compiled on the way. One JSON line a size, one of all.
"""

import argparse
import json
import statistics
import time
from random import Random

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

import tilewright
from tilewright.driver.dynamic import range_of
from tilewright.frontend import zoo


def _timed(call, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def lengths(count: int, most: int, threads: int, seed: int, against: bool, say) -> None:
    """BERT at many lengths."""
    source = zoo.bert(zoo.TINYBERT_4, batch=1, length="seq")
    model = tilewright.compile(source, threads=threads, dynamic={"seq": (1, most)})
    peer = _onnxruntime(source, threads) if against else None
    random, known, rows = Random(seed), set(), []
    for _ in range(count):
        n = random.randint(2, most)
        feeds = {
            "input_ids": np.random.default_rng(n).integers(0, 1000, (1, n)),
            "attention_mask": np.ones((1, n), np.int64),
        }
        again = n in {row["length"] for row in rows}
        kind = "seen" if again else "known range" if range_of(n, 1, most) in known else "new range"
        known.add(range_of(n, 1, most))
        start = time.perf_counter()
        model.run(None, feeds)
        first = time.perf_counter() - start
        alone = tilewright.compile(source, threads=threads, shapes={"seq": n})
        alone.run(None, feeds)
        row = {"length": n, "size": kind, "first_s": first}
        row["ms"] = _timed(lambda feeds=feeds: model.run(None, feeds)) * 1e3
        row["static_ms"] = _timed(lambda alone=alone, feeds=feeds: alone.run(None, feeds)) * 1e3
        if peer is not None:
            peer.run(None, feeds)
            row["onnxruntime_ms"] = _timed(lambda feeds=feeds: peer.run(None, feeds)) * 1e3
        rows.append(row)
        say(row)
    summary = {
        kind: statistics.median(found)
        for kind in ("new range", "known range", "seen")
        if (found := [row["first_s"] for row in rows if row["size"] == kind])
    }
    ratios = [row["static_ms"] / row["ms"] for row in rows]
    data = {"median_first_s": summary, "geomean_static_over_open": statistics.geometric_mean(ratios)}
    if against:
        peers = [row["onnxruntime_ms"] / row["ms"] for row in rows]
        data["geomean_onnxruntime_over_open"] = statistics.geometric_mean(peers)
    say(data)


def decode(steps: int, threads: int, say) -> None:
    """Attention of one place over a growing cache, and a projection: what each step costs."""
    width = 256
    weights = np.random.default_rng(0).standard_normal((width, width), dtype=np.float32) / 16
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("Transpose", ["present"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["new", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "present"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "w"], ["out"]),
    ]
    infos = {
        "past": (1, "past", width),
        "new": (1, 1, width),
        "out": (1, 1, width),
        "present": (1, "n", width),
    }
    made = {name: helper.make_tensor_value_info(name, 1, shape) for name, shape in infos.items()}
    graph = helper.make_graph(
        nodes, "step", [made["past"], made["new"]], [made["out"], made["present"]],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = tilewright.compile(source, threads=threads, dynamic={"past": (0, steps)})
    peer = _onnxruntime(source, threads)
    new = np.ones((1, 1, width), np.float32) / 100
    for name, run in (("tilewright", model.run), ("onnxruntime", peer.run)):
        past, start = np.zeros((1, 0, width), np.float32), time.perf_counter()
        for _ in range(steps):
            _, past = run(None, {"past": past, "new": new})
        say({"engine": name, "steps": steps, "total_s": time.perf_counter() - start})
    say({"ranges": len(model._ranges), "kernels of single sizes": len(model._static)})


def _onnxruntime(source, threads: int):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        source.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def main() -> None:
    """Read the arguments, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, default=40)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", default="")
    parser.add_argument("--decode", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    def say(row) -> None:
        print(json.dumps(row) if options.json else row, flush=True)

    if options.decode:
        decode(options.decode, options.threads, say)
    else:
        against = options.against == "onnxruntime"
        lengths(options.lengths, options.most, options.threads, options.seed, against, say)


if __name__ == "__main__":
    main()
