"""ALT's networks, tuned whole: layouts of values, then kernels; the default and loops alone beside it.

    python benchmarks/alt_networks.py --batch 1,16 --budget 10m --json > results.jsonl
    python benchmarks/alt_networks.py --models resnet18 --small --budget 20s --trials 8

The architectures are R18, MV2, BB, BT and R3D of the zoo, a super-resolution and a speech network (ALT,
Fig. 10). Each is compiled by default, with loops tuned alone (ALT-OL, under the default's layouts), and by
the joint search, each of these within ``--budget``. In the end all are timed in turns, ``--rounds`` times;
one line a network: milliseconds, gains, how many values lie elsewhere, how many kernels only copy, and what
tuning had saved after so many seconds. ALT spends 20 000 measurements (12 to 16 hours) on a network.
"""

import json
import statistics
import time
from typing import Any

import numpy as np
import onnx
from arguments import add_models, add_turns, names, parser_of
from onnx import helper
from sidebyside import chain, draw

import tilewright
from tilewright.driver import CompiledModel, seconds_of, timed_in_turns, tune_model
from tilewright.frontend import zoo
from tilewright.tune import MEMORY, Event


def super_resolution(batch: int = 1) -> onnx.ModelProto:
    """ESPCN: four convolutions on 224x224 luminances, three times as large in the end by moving channels."""
    nodes, constants, source = [], {}, "X"
    for n, (into, out, window) in enumerate(((1, 64, 5), (64, 64, 3), (64, 32, 3), (32, 9, 3))):
        constants[f"w{n}"], constants[f"b{n}"] = (
            draw(out, into, window, window, seed=n) / into,
            draw(out, seed=n),
        )
        pads = [window // 2] * 4
        nodes.append(
            helper.make_node("Conv", [source, f"w{n}", f"b{n}"], [f"c{n}"], pads=pads, name=f"conv{n}")
        )
        source = f"c{n}"
        if n < 3:
            nodes.append(helper.make_node("Relu", [source], [f"r{n}"], name=f"relu{n}"))
            source = f"r{n}"
    nodes.append(helper.make_node("DepthToSpace", [source], ["Y"], blocksize=3, mode="CRD", name="shuffle"))
    return chain(nodes, {"X": draw(batch, 1, 224, 224)}, (batch, 1, 672, 672), constants)


def speech(batch: int = 1) -> onnx.ModelProto:
    """A stack of dilated convolutions over 64 features of 1000 frames, with residuals, to 32 classes."""
    nodes, constants, source, width = [], {}, "X", 128
    for n, dilation in enumerate((1, 1, 2, 4, 8, 16)):
        into = 64 if n == 0 else width
        constants[f"w{n}"], constants[f"b{n}"] = draw(width, into, 3, seed=n) / into, draw(width, seed=n)
        conv = helper.make_node(
            "Conv",
            [source, f"w{n}", f"b{n}"],
            [f"c{n}"],
            pads=[dilation] * 2,
            dilations=[dilation],
            name=f"conv{n}",
        )
        nodes += [conv, helper.make_node("Relu", [f"c{n}"], [f"r{n}"], name=f"relu{n}")]
        made = f"r{n}"
        if n:
            nodes.append(helper.make_node("Add", [source, made], [f"s{n}"], name=f"add{n}"))
            made = f"s{n}"
        source = made
    constants["w"] = draw(32, width, 1, seed=9) / width
    nodes.append(helper.make_node("Conv", [source, "w"], ["Y"], name="classes"))
    return chain(nodes, {"X": draw(batch, 64, 1000)}, (batch, 32, 1000), constants)


OTHERS = {"super_resolution": super_resolution, "speech": speech}
ALT = ("resnet18", "mobilenet_v2", "bert_base", "tinybert4", "resnet3d18", *OTHERS)


def model_of(name: str, batch: int, *, small: bool) -> bytes:
    """The bytes of a network."""
    if name in OTHERS:
        made = OTHERS[name](batch)
    else:
        made = zoo.SMALL[name]() if small else zoo.FULL[name](batch=batch)
    return made.SerializeToString()


def copies(model: CompiledModel) -> int:
    """Kernels that only move elements."""
    moves = {"Transpose", "Reshape", "DepthToSpace", "SpaceToDepth"}
    return sum(set(group.operators.split("+")) <= moves for group in model.groups())


def measure(name: str, batch: int, arguments: Any) -> dict[str, Any]:
    """One network: default, loops alone, joint; in turns."""
    source, threads = model_of(name, batch, small=arguments.small), arguments.threads
    budget = seconds_of(arguments.budget)
    default = tilewright.compile(source, threads=threads, records="off")
    variants: dict[str, CompiledModel] = {"default": default}
    row: dict[str, Any] = {"network": name, "batch": batch, "budget_s": budget}
    for strategy in names(arguments.strategies):
        curve: list[tuple[float, float]] = []

        def watch(event: Event, curve: list[tuple[float, float]] = curve) -> None:
            if event.result is None:
                curve.append((round(event.elapsed, 1), round(event.saved * 1e3, 4)))

        begin = time.monotonic()
        tuned = tune_model(
            source,
            budget=budget,
            trials=arguments.trials,
            strategy=strategy,
            database=MEMORY,
            watch=watch,
            threads=threads,
        )
        variants[strategy] = tuned.model
        row[strategy] = {
            "seconds": time.monotonic() - begin,
            "trials": sum(done.trials for done in tuned.results),
            "tasks": len(tuned.results),
            "won": sum(done.plan is not None for done in tuned.results),
            "saved_ms_after_s": curve[:: max(1, len(curve) // 50)],
        }
        if tuned.layouts is not None:
            row[strategy]["values that lie elsewhere"] = len(tuned.layouts.changed)
        if tuned.whole is not None:
            row[strategy]["fresh process"] = tuned.whole.untuned / tuned.whole.best
    feeds = default.sample_feeds()
    expected = default(*feeds.values())
    for model in variants.values():
        for mine, theirs in zip(model(*feeds.values()), expected, strict=True):
            scale = float(np.abs(theirs).max()) or 1.0
            assert float(np.abs(mine - theirs).max()) <= 1e-3 * scale
    bound = [model.bind(feeds).run for model in variants.values()]
    times = timed_in_turns(bound, arguments.rounds, arguments.seconds)
    row["ms"] = {which: t * 1e3 for which, t in zip(variants, times, strict=True)}
    row["gain"] = {which: times[0] / t for which, t in zip(variants, times, strict=True)}
    row["copies"] = {which: copies(model) for which, model in variants.items()}
    return row


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_models(parser, ALT)
    add_turns(parser, rounds=7, seconds=0.3)
    parser.add_argument("--batch", default="1", help="batch sizes, by commas")
    parser.add_argument("--small", action="store_true", help="the zoo's small variants")
    parser.add_argument("--budget", default="10m", help="of each strategy, a network")
    parser.add_argument("--trials", type=int, default=64, help="of a kernel, at most")
    parser.add_argument("--strategies", default="loop-only,joint", help="by commas; auto is one, too")
    arguments = parser.parse_args()
    gains: dict[str, list[float]] = {}
    for batch in map(int, names(arguments.batch)):
        for name in names(arguments.models):
            row = measure(name, batch, arguments)
            for which, gain in row["gain"].items():
                gains.setdefault(which, []).append(gain)
            shown = " ".join(f"{k} {v:.3f} ms ({row['gain'][k]:.2f}x)" for k, v in row["ms"].items())
            print(json.dumps(row) if arguments.json else f"{name} batch {batch}: {shown}", flush=True)
    means = {f"gain {which}": statistics.geometric_mean(values) for which, values in gains.items()}
    print(json.dumps(means) if arguments.json else means)


if __name__ == "__main__":
    main()
