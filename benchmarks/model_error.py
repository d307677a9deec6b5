"""The analytic model against measurements: problems of three tables, plans drawn from their spaces.

    python benchmarks/model_error.py --plans 8 --threads 1 --json > results.jsonl
    python benchmarks/model_error.py --only product --plans 4

One line a problem: the rank correlation of predicted and measured times, and how much slower than the best
measured plan the model's choice is; how many times faster than the default plan that choice was foreseen to
be, and was (what ``MARGIN`` of ``strategies/catalog.py`` is set by); the last line has how many choices are
within 5 and 20 %. The default plan is always among the plans, the others are drawn by a fixed seed. Every
third problem is held out: nothing may be fitted to those (``held_out``).
"""

import argparse
import json
import random
from contextlib import suppress

import numpy as np
from onnx import TensorProto, helper

from tilewright.cost import Machine, seconds, tree_of
from tilewright.driver import LocalMeasurer
from tilewright.driver.graph_plan import graph_units
from tilewright.frontend import import_onnx
from tilewright.ir import Program
from tilewright.plan import EXACT, Variants
from tilewright.strategies import Candidate, Task
from tilewright.support import ScheduleError, UserError
from tilewright.target import detect

#: Every so many problems one is held out.
HELD_OUT = 3


def _model(op: str, shapes: dict[str, tuple[int, ...]], weights: tuple[str, ...] = (), **attributes: object):
    nodes = [helper.make_node(op, list(shapes), ["Y"], **attributes)]
    given = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items() if n not in weights
    ]
    rng = np.random.default_rng(0)
    fixed = [
        helper.make_tensor(
            n, TensorProto.FLOAT, shapes[n], rng.standard_normal(shapes[n]).astype("f4").ravel()
        )
        for n in weights
    ]
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "problem", given, [y], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def problems() -> dict[str, object]:
    """Models of one operator: products, convolutions, rows, element-wise ones."""
    out: dict[str, object] = {}
    for m, n, k in (
        *((64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (384, 768, 256), (100, 100, 100)),
        *((37, 211, 97), (16, 1024, 512), (8, 512, 512), (1024, 64, 256), (33, 700, 300), (700, 33, 300)),
        *((1, 1024, 1024), (4, 1000, 1000), (256, 16, 1024), (48, 48, 4096)),
    ):
        out[f"product {m}x{n}x{k}"] = _model("MatMul", {"A": (m, k), "B": (k, n)})
        if m * n * k <= 1 << 26:
            out[f"product {m}x{n}x{k} weight"] = _model("MatMul", {"A": (m, k), "B": (k, n)}, ("B",))
    for ic, oc, size, window, stride, group in (
        *((32, 32, 28, 3, 1, 1), (64, 64, 14, 3, 1, 1), (64, 128, 28, 1, 1, 1), (128, 32, 14, 1, 1, 1)),
        *((16, 32, 56, 3, 2, 1), (64, 64, 28, 1, 2, 1), (32, 32, 56, 3, 1, 32), (64, 64, 14, 3, 1, 64)),
        *((48, 48, 28, 5, 1, 48), (64, 64, 28, 3, 1, 4), (3, 32, 64, 3, 2, 1), (96, 24, 28, 1, 1, 1)),
    ):
        pads = [window // 2] * 4
        shapes = {"X": (1, ic, size, size), "W": (oc, ic // group, window, window)}
        name = f"conv {window}x{window}/{stride} {ic}-{oc} {size} g{group}"
        out[name] = _model("Conv", shapes, ("W",), strides=[stride] * 2, pads=pads, group=group)
    for rows, columns in ((64, 64), (128, 768), (1024, 128), (16, 10000), (4096, 32), (300, 300)):
        out[f"softmax {rows}x{columns}"] = _model("Softmax", {"X": (rows, columns)}, axis=-1)
        out[f"sum {rows}x{columns}"] = _model("ReduceMax", {"X": (rows, columns)}, keepdims=0)
    for a, b in ((128, 512), (1000, 100), (512, 512)):
        out[f"transpose {a}x{b}"] = _model("Transpose", {"X": (a, b)}, perm=[1, 0])
        out[f"tanh {a}x{b}"] = _model("Tanh", {"X": (a, b)})
    out["pool 64 56"] = _model("MaxPool", {"X": (1, 64, 56, 56)}, kernel_shape=[2, 2], strides=[2, 2])
    out["pool 32 28 3x3"] = _model("AveragePool", {"X": (1, 32, 28, 28)}, kernel_shape=[3, 3])
    return out


def program_of(model: object, threads: int) -> Program:
    """The program of a model of one kernel."""
    units = graph_units(import_onnx(model), detect(), threads).units
    return max((unit.program for unit in units), key=lambda p: len(p.stages))


def drawn(task: Task, count: int, rng: random.Random) -> list[Candidate]:
    """The default plan and others of its space, none twice."""
    plan = task.default().plan
    variants = Variants(task.program, plan, task.machine)
    found = {plan: None}
    for _ in range(20 * count):
        choices = {n: v.space.sample(rng) for n, v in enumerate(variants.nests) if v is not None}
        with suppress(ScheduleError):
            found[variants.chosen(choices)] = None
        if len(found) > count:
            break
    return [Candidate("drawn", each) for each in found]


def ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values)).astype(float)


def correlation(predicted: list[float], measured: list[float]) -> float:
    return round(float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1]), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=8, help="plans a problem besides the default's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="problems whose name has this in it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = Machine(detect(), options.threads)
    lines = []
    with LocalMeasurer() as measurer:
        for at, (name, model) in enumerate(problems().items()):
            if options.only not in name:
                continue
            program = program_of(model, options.threads)
            task = Task(program, machine, accuracy=EXACT)
            predicted, candidates = [], []
            for candidate in drawn(task, options.plans, random.Random(1)):
                try:
                    s = candidate.schedule(task)
                except UserError:
                    continue
                predicted.append(seconds(tree_of(s.func, machine.target.operations), machine))
                candidates.append(candidate)
            trials = [measurer.measure(task, candidates) for _ in range(2)]
            status = [t.status for t in trials[0]]
            measured = [min(a.best, b.best) for a, b in zip(*trials, strict=True)]
            best, chosen = min(measured), measured[int(np.argmin(predicted))]
            default = measured[0]
            noise = max(
                a.best / b.best if a.best > b.best else b.best / a.best for a, b in zip(*trials, strict=True)
            )
            several = len(measured) > 2 and len(set(predicted)) > 1
            line = {
                "problem": name,
                "held_out": at % HELD_OUT == 0,
                "plans": len(measured),
                "failed": sum(s != "ok" for s in status),
                "rank": round(float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1]), 3)
                if several
                else None,
                "choice": round(chosen / best, 3),
                "default": round(default / best, 3),
                # what the model says that its choice gains over the default plan, and what it did gain
                "foreseen": round(predicted[0] / min(predicted), 3),
                "gained": round(default / chosen, 3),
                "noise": round(noise, 3),
                "best_us": round(best * 1e6, 2),
            }
            lines.append(line)
            print(json.dumps(line) if options.json else line, flush=True)
    choices = [line["choice"] for line in lines]
    summary = {
        "problems": len(lines),
        "within_5": round(sum(c <= 1.05 for c in choices) / len(choices), 3),
        "within_20": round(sum(c <= 1.2 for c in choices) / len(choices), 3),
        "default_within_5": round(sum(line["default"] <= 1.05 for line in lines) / len(lines), 3),
        "rank_median": round(
            float(np.median([line["rank"] for line in lines if line["rank"] is not None])), 3
        ),
        "failed": sum(line["failed"] for line in lines),
    }
    print(json.dumps(summary) if options.json else summary)


if __name__ == "__main__":
    main()
