"""Models with open sizes: what a new size costs, and how fast it runs, beside other engines.

    python benchmarks/dynamic.py [--lengths 40] [--most 128] [--against ENGINES] [--json]
    python benchmarks/dynamic.py --decode 512 [--layers 4] [--width 256] [--against …] [--json]
    python benchmarks/dynamic.py --flat 1000
    python benchmarks/dynamic.py --stages 1,3,4 [--batch 128] [--inferences 2000] [--measured 5] [--against …]

BERT (4 layers of 312) at lengths drawn by a seed: seconds of compiling, and of the first result of a length
that did not run before; then its time in turns with a
compilation for the length alone and with other engines, the same session for all lengths. `--decode` runs a
decoder of as many layers over caches that grow by one place a step, in all engines; totals of all steps,
compiling apart. `--flat` runs that decoder at so many lengths and says how memory grew. Each engine runs once
untimed before it is timed, for threads of the others to sleep. One JSON line a length, one of all.
`--stages` is Gensor's Fig. 12: MobileNet-V2 whose images change their number of channels from
stage to stage, so that it is
another model each time; seconds of so many inferences a stage, compiling counted in. Of those as many are
run as `--measured` says, and their median stands for all.
"""

import argparse
import json
import resource
import statistics
import time
from functools import partial
from random import Random

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

import tilewright
from tilewright.frontend import zoo


def _onnxruntime(source, threads: int):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        source.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: session.run(None, feeds)


def _openvino(source, threads: int):
    import openvino  # noqa: PLC0415 (a peer that need not be there)

    core = openvino.Core()
    model = core.read_model(source.SerializeToString())
    made = core.compile_model(
        model, "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    )
    request = made.create_infer_request()

    def run(feeds):
        request.infer(feeds, share_inputs=True)
        return [request.get_output_tensor(n).data.copy() for n in range(len(made.outputs))]

    return run


def _torch(source, threads: int):
    import torch  # noqa: PLC0415 (as above)

    from tilewright.driver.bench.torch_model import torch_module  # noqa: PLC0415

    torch.set_num_threads(threads)
    module = torch_module(torch, source)

    def run(feeds):
        with torch.inference_mode():
            made = module({name: torch.from_numpy(array) for name, array in feeds.items()})
        return [tensor.numpy() for tensor in made]

    return run


def _torch_compile(source, threads: int):
    """A module made once for each model: of one size, so nothing in it is open."""
    import torch  # noqa: PLC0415 (as above)

    from tilewright.driver.bench.torch_model import torch_module  # noqa: PLC0415

    torch.set_num_threads(threads)
    module = torch.compile(torch_module(torch, source))

    def run(feeds):
        with torch.inference_mode():
            made = module({name: torch.from_numpy(array) for name, array in feeds.items()})
        return [tensor.numpy() for tensor in made]

    return run


def _torch_bert(size, threads: int):
    """The same network as a torch module with weights of its own, compiled once for all lengths."""
    import torch  # noqa: PLC0415 (as above)
    from torch_models import Bert  # noqa: PLC0415

    torch.set_num_threads(threads)
    module = torch.compile(Bert(size, fused=True).eval(), dynamic=True)

    def run(feeds):
        with torch.inference_mode():
            return module(*map(torch.from_numpy, feeds.values()))

    return run


PEERS = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
    "torch.compile": _torch_compile,
}


def _in_turns(runs, rounds: int) -> dict[str, float]:
    """The least milliseconds of each."""
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: min(found) * 1e3 for name, found in times.items()}


def lengths(options, say) -> None:
    """BERT at many lengths."""
    source = zoo.bert(zoo.TINYBERT_4, batch=1, length="seq")
    start = time.perf_counter()
    model = tilewright.compile(source, threads=options.threads, dynamic={"seq": (1, options.most)})
    compiled = time.perf_counter() - start
    whole = [n for n in options.against if not n.startswith("torch")]
    peers = {n: PEERS[n](source, options.threads) for n in whole}
    if "torch.compile" in options.against:
        peers["torch.compile"] = _torch_bert(zoo.TINYBERT_4, options.threads)
    random, rows = Random(options.seed), []
    drawn = random.sample(range(2, options.most + 1), options.lengths)
    for n in drawn:
        feeds = {
            "input_ids": np.random.default_rng(n).integers(0, 1000, (1, n)),
            "attention_mask": np.ones((1, n), np.int64),
        }
        start = time.perf_counter()
        model.run(None, feeds)
        first = time.perf_counter() - start
        start = time.perf_counter()
        model.run(None, feeds)
        again = time.perf_counter() - start
        runs = {"open": lambda feeds=feeds: model.run(None, feeds)}
        if options.static:
            alone = tilewright.compile(source, threads=options.threads, shapes={"seq": n})
            runs["static"] = lambda alone=alone, feeds=feeds: alone.run(None, feeds)
        runs |= {name: lambda run=run, feeds=feeds: run(feeds) for name, run in peers.items()}
        if "torch" in options.against:
            # eager torch has no shapes to settle: the model of this length, as functions
            alike = _torch(zoo.bert(zoo.TINYBERT_4, batch=1, length=n), options.threads)
            runs["torch"] = lambda alike=alike, feeds=feeds: alike(feeds)
        row = {"length": n, "first_ms": first * 1e3, "second_ms": again * 1e3, "ms": _in_turns(runs, 5)}
        rows.append(row)
        say(row)
    names = [name for name in rows[0]["ms"] if name != "open"]
    ratios = {
        f"{name}/open": statistics.geometric_mean(row["ms"][name] / row["ms"]["open"] for row in rows)
        for name in names
    }
    new = [row["first_ms"] - row["ms"]["open"] for row in rows]
    first = statistics.median(row["first_ms"] for row in rows)
    row = {"compile_s": compiled, "median_first_ms": first}
    say({**row, "median_new_length_ms": statistics.median(new), **ratios})


def decoder(layers: int, width: int, heads: int = 4):
    """A step of a decoder: one place attends to a cache of any length, which is returned one longer."""
    rng, depth = np.random.default_rng(0), width // heads
    nodes, weights, inputs, outputs = [], {}, [], []
    weights["apart"] = np.array([1, 1, heads, depth], np.int64)
    weights["together"] = np.array([1, 1, width], np.int64)
    weights["scale"] = np.array(depth**-0.5, np.float32)

    def node(op, reads, write, **attributes):
        nodes.append(helper.make_node(op, reads, [write], **attributes))
        return write

    def dense(x, n, m, name):
        weights[name] = rng.standard_normal((n, m), np.float32) / n**0.5
        return node("MatMul", [x, name], f"{name}_out")

    def norm(x, name):
        weights[f"{name}_g"], weights[f"{name}_b"] = np.ones(width, np.float32), np.zeros(width, np.float32)
        return node("LayerNormalization", [x, f"{name}_g", f"{name}_b"], name)

    x = "x"
    for at in range(layers):
        y = norm(x, f"norm{at}")
        made = {}
        for what in "qkv":
            flat = dense(y, width, width, f"w{what}{at}")
            split = node("Reshape", [flat, "apart"], f"{what}{at}_apart")
            made[what] = node("Transpose", [split], f"{what}{at}", perm=[0, 2, 1, 3])
        for what in "kv":
            past, present = f"past_{what}{at}", f"present_{what}{at}"
            made[what] = node("Concat", [past, made[what]], present, axis=2)
            inputs.append(helper.make_tensor_value_info(past, 1, (1, heads, "past", depth)))
            outputs.append(helper.make_tensor_value_info(present, 1, (1, heads, "n", depth)))
        keys = node("Transpose", [made["k"]], f"keys{at}", perm=[0, 1, 3, 2])
        scores = node("MatMul", [made["q"], keys], f"scores{at}")
        scaled = node("Mul", [scores, "scale"], f"scaled{at}")
        shares = node("Softmax", [scaled], f"shares{at}", axis=-1)
        mixed = node("MatMul", [shares, made["v"]], f"mixed{at}")
        back = node("Transpose", [mixed], f"back{at}", perm=[0, 2, 1, 3])
        flat = node("Reshape", [back, "together"], f"flat{at}")
        x = node("Add", [x, dense(flat, width, width, f"wo{at}")], f"attended{at}")
        wide = dense(norm(x, f"second{at}"), width, 4 * width, f"up{at}")
        x = node(
            "Add", [x, dense(node("Relu", [wide], f"relu{at}"), 4 * width, width, f"down{at}")], f"x{at}"
        )
    inputs.insert(0, helper.make_tensor_value_info("x", 1, (1, 1, width)))
    outputs.insert(0, helper.make_tensor_value_info(x, 1, (1, 1, width)))
    graph = helper.make_graph(
        nodes, "step", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _caches(layers: int, width: int, length: int, heads: int = 4) -> dict[str, np.ndarray]:
    shape = (1, heads, length, width // heads)
    return {f"past_{what}{at}": np.zeros(shape, np.float32) for at in range(layers) for what in "kv"}


def _steps(run, options) -> tuple[float, np.ndarray]:
    """Seconds of all steps, each reading the caches that the one before returned."""
    x = np.random.default_rng(0).standard_normal((1, 1, options.width), np.float32)
    caches = _caches(options.layers, options.width, 0)
    start = time.perf_counter()
    for _ in range(options.decode):
        out, *present = run({"x": x, **caches})
        caches = dict(zip(caches, present, strict=True))
    return time.perf_counter() - start, out


def decode(options, say) -> None:
    """A decoder over a growing cache: totals of all steps, twice in turns, the first one by itself."""
    source = decoder(options.layers, options.width)
    start = time.perf_counter()
    model = tilewright.compile(source, threads=options.threads, dynamic={"past": (0, options.decode)})
    row = {"steps": options.decode, "layers": options.layers, "width": options.width}
    row["compile_s"] = time.perf_counter() - start
    runs = {"tilewright": lambda feeds: model.run(None, feeds)}
    runs |= {name: PEERS[name](source, options.threads) for name in options.against}
    totals: dict[str, list[float]] = {name: [] for name in runs}
    results = {}
    for _ in range(options.rounds):
        for name, run in runs.items():
            seconds, results[name] = _steps(run, options)
            totals[name].append(seconds)
    row["compilations"] = model.compilations
    row["total_s"] = totals
    row["error"] = {name: float(np.abs(out - results["tilewright"]).max()) for name, out in results.items()}
    row["least"] = {name: min(found) for name, found in totals.items()}
    say(row)


def flat(options, say) -> None:
    """Peak memory after the first tenth of so many lengths, and after all of them."""
    source = decoder(options.layers, options.width)
    model = tilewright.compile(source, threads=options.threads, dynamic={"past": (0, options.flat)})
    x = np.ones((1, 1, options.width), np.float32) / 100
    order = list(range(1, options.flat + 1))
    Random(options.seed).shuffle(order)
    peaks = []
    # the largest first: its arrays are no growth
    for at, n in enumerate([options.flat, *order]):
        model.run(None, {"x": x, **_caches(options.layers, options.width, n)})
        if at in (options.flat // 10, options.flat):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    say({"lengths": options.flat, "peak_mib_after_a_tenth": peaks[0], "peak_mib": peaks[-1]})


def stages(options, say) -> None:
    """MobileNet-V2 at one number of channels after the other."""
    totals: dict[str, float] = {}
    for colours in map(int, options.stages.split(",")):
        source = zoo.mobilenet_v2(options.batch, colours=colours)
        shape = (options.batch, colours, 224, 224)
        feeds = {"input": np.random.default_rng(0).standard_normal(shape, np.float32)}
        makers = {"tilewright": lambda source, threads: _ours(source, threads, options.strategy)}
        makers |= {name: PEERS[name] for name in options.against}
        made, runs = {}, {}
        for name, make in makers.items():
            start = time.perf_counter()
            run = make(source, options.threads)
            made[name] = time.perf_counter() - start
            runs[name] = partial(run, feeds)
        times = {name: [] for name in runs}
        for _ in range(options.measured):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
        median = {name: statistics.median(found) for name, found in times.items()}
        stage = {name: made[name] + options.inferences * median[name] for name in runs}
        totals = {name: totals.get(name, 0.0) + seconds for name, seconds in stage.items()}
        ms = {name: seconds * 1e3 for name, seconds in median.items()}
        say({"channels": colours, "batch": options.batch, "compile_s": made, "ms": ms, "stage_s": stage})
    say({"inferences": options.inferences, "measured": options.measured, "total_s": totals})


def _ours(source, threads: int, strategy: str):
    model = tilewright.compile(source, threads=threads, strategy=strategy, records="off")
    return lambda feeds: model.run(None, feeds)


def main() -> None:
    """Read the arguments, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, default=40)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", type=lambda text: [n for n in text.split(",") if n], default=[])
    parser.add_argument("--static", action="store_true", help="compile for each length alone, too")
    parser.add_argument("--decode", type=int, default=0)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--flat", type=int, default=0)
    parser.add_argument("--stages", default="")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--inferences", type=int, default=2000)
    parser.add_argument("--measured", type=int, default=5)
    parser.add_argument("--strategy", default="construct", help="of --stages")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    def say(row) -> None:
        print(json.dumps(row) if options.json else row, flush=True)

    chosen = stages if options.stages else flat if options.flat else decode if options.decode else lengths
    chosen(options, say)


if __name__ == "__main__":
    main()
