"""Each kernel that computes several contractions, against kernels of its parts: was joining them right?

    python benchmarks/joins.py --threads 2 --json [--models decoder,zoo:bert_base] [--rounds 5] [--runs 20]
    python benchmarks/joins.py --threads 2 --json --models attention_8x4x200x64,attention_12x1x33x24

``attention_HxQxKxD`` is attention alone: H heads, Q queries, K keys, D numbers a head. For each network three
versions are made: as the default has it, one with all chains joined that can be, for those that the default
does not join, and one with none. (A head that is wrongly joined evicts what the kernels after it would find
in the caches, so what the default joins is timed in its own version.) They run in turns, kernel by kernel; a
row is one joined kernel: the shortest times of it and of its parts, summed over the layers that it computes,
which of both the default takes, and for chains with whole rows the cycles of the parts in those of the joined
kernel, as the model of costs has them (``foreseen``).
Exit status 1 where the default takes one that is slower than the other by more than ``WORST`` allows, also
after both were compiled anew. ``line_ns`` says what a line of the other thread's cost before and after: of a
virtual machine that may change within seconds, and with it what joining is worth (decision 0397).
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
import torch
from arguments import names, parser_of
from onnx import TensorProto, helper, numpy_helper
from torch_exports import export
from torch_networks import NETWORKS

import tilewright
from tilewright.cost import Machine
from tilewright.driver import CompiledModel, line_seconds
from tilewright.driver.graph_plan import choose_graph_plan, choose_passes, graph_units
from tilewright.driver.plans import ModelPlan
from tilewright.driver.units import UnitMaker, flow_of
from tilewright.frontend import import_onnx, zoo
from tilewright.graph import FusionOptions, fuse, simplify
from tilewright.plan import AUTO, GraphPlan, choose_layouts, row_chain_cost
from tilewright.support import available_cpus
from tilewright.target import CpuTarget, Target, detect

WORST: Final = 0.97
"""The least time of the parts, in that of the joined kernel, for which joining was no mistake."""
ATTENTIONS: Final = tuple(
    f"attention_{shape}"
    for shape in (
        *("8x1x64x64", "8x1x1000x64", "12x2x33x24", "8x4x200x64", "8x8x8x96", "12x8x8x64", "8x16x16x32"),
        *("4x24x24x64", "4x33x77x40", "16x64x64x20", "6x197x197x24", "2x300x100x128", "1x1024x1024x64"),
    )
)
"""Attention alone: from a step of a decoder to images, depths that fill vectors and that do not."""
SHORTEST: Final = 2e-3
"""Kernels of fewer milliseconds are reported and not judged."""
LINES_SECONDS: Final = 0.1
"""How long to measure what lines of the other thread cost."""
ATTEMPTS: Final = 3
"""How often both versions are compiled anew where a choice looks wrong: by where its memory happens to lie,
all that one of them computes may take half as long again."""


def network(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray] | None]:
    """A network, and its inputs where they are not any."""
    if name.startswith("zoo:"):
        return zoo.FULL[name.removeprefix("zoo:")](), None
    if name.startswith("attention_"):
        return attention(*map(int, name.removeprefix("attention_").split("x"))), None
    torch.manual_seed(0)
    made = NETWORKS[name]()
    return export(made, 17), {key: tensor.numpy() for key, tensor in made.inputs.items()}


def attention(heads: int, queries: int, keys: int, depth: int) -> onnx.ModelProto:
    """Attention as models write it: keys in rows, scaled, with a mask."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        helper.make_node("Mul", ["s", "f"], ["m"]),
        helper.make_node("Add", ["m", "mask"], ["a"]),
        helper.make_node("Softmax", ["a"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"q": (queries, depth), "k": (keys, depth), "v": (keys, depth), "y": (queries, depth)}
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (heads, *shape))
        for name, shape in shapes.items()
    }
    mask = np.triu(np.full((queries, keys), -1e9, np.float32), keys - queries + 1)
    constants = {"f": np.array([depth**-0.5], np.float32), "mask": mask}
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    given = [tensors[name] for name in "qkv"]
    graph = helper.make_graph(nodes, "attention", given, [tensors["y"]], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def versions(model: onnx.ModelProto, target: Target, threads: int) -> tuple[GraphPlan, GraphPlan]:
    """The decisions with all chains joined, and with nothing joined."""
    passes = choose_passes(target, "f32", AUTO)
    graph = simplify(import_onnx(model), passes.passes())
    joined = UnitMaker(fuse(graph))
    cuts = frozenset(value for group in joined.partition.groups for value in group.joints)
    apart = UnitMaker(fuse(graph, FusionOptions(cuts=cuts)))
    layouts = choose_layouts([flow_of(unit) for unit in apart.units()], apart.fixed(), target)
    return (
        choose_graph_plan(joined, target, threads, passes=passes, fusion=FusionOptions()),
        GraphPlan("f32", passes, FusionOptions(cuts=cuts), layouts=layouts),
    )


def foreseen(model: onnx.ModelProto, target: Target, threads: int) -> dict[frozenset[str], float]:
    """Cycles of kernels apart in those of one nest, as the model has them, of chains with whole rows."""
    graph = simplify(import_onnx(model), choose_passes(target, "f32", AUTO).passes())
    out = {}
    for unit in UnitMaker(fuse(graph)).units():
        cost = row_chain_cost(unit.program, Machine(target, threads))
        if cost is not None:
            out[frozenset(node.location.name for node in unit.nodes)] = cost.apart / cost.joined
    return out


def times(compiled: CompiledModel, feeds: dict[str, np.ndarray], runs: int) -> dict[frozenset[str], float]:
    """The shortest milliseconds of each kernel, by the nodes that it computes."""
    return {frozenset(row.nodes): row.fastest for row in compiled.profile(feeds, runs).rows}


def measure(name: str, target: CpuTarget, threads: int, rounds: int, runs: int) -> list[dict[str, Any]]:
    """The rows of one network."""
    model, given = network(name)
    made = graph_units(import_onnx(model), target, threads)
    chosen = {frozenset(node.location.name for node in unit.nodes) for unit in made.units}
    expected = foreseen(model, target, threads)
    graphs = (*versions(model, target, threads), made.plan)
    plans = [ModelPlan(target.fingerprint, {}, plan) for plan in graphs]
    best: list[dict[frozenset[str], float]] = [{} for _ in plans]
    rows: list[dict[str, Any]] = []
    lines = [1e9 * line_seconds(target, threads, LINES_SECONDS)]
    for _ in range(ATTEMPTS):
        engines = [tilewright.compile(model, target=target, threads=threads, plan=plan) for plan in plans]
        feeds = engines[0].sample_feeds() if given is None else given
        for _ in range(rounds):
            for engine, known in zip(engines, best, strict=True):
                for nodes, time in times(engine, feeds, runs).items():
                    known[nodes] = min(time, known.get(nodes, time))
        groups = engines[0].groups()
        labels = {group.kernel.name: group.operators[:80] for group in groups}
        alike: dict[str, list[frozenset[str]]] = {}
        for group in groups:
            alike.setdefault(group.kernel.name, []).append(frozenset(group.nodes))
        rows = [
            {"benchmark": "joins", "network": name, "threads": threads, "kernel": labels[kernel], **row}
            for kernel, places in alike.items()
            for row in judged(places, best[0] | best[2], best[1], chosen, expected)
        ]
        if all(row["right"] for row in rows):
            break
    lines.append(1e9 * line_seconds(target, threads, LINES_SECONDS))
    return [{**row, "line_ns": lines} for row in rows]


def judged(
    places: Sequence[frozenset[str]],
    whole: dict[frozenset[str], float],
    apart: dict[frozenset[str], float],
    chosen: set[frozenset[str]],
    expected: dict[frozenset[str], float],
) -> Iterator[dict[str, Any]]:
    """A joined kernel beside its parts, over all places of the network that it computes, if it is one."""
    joined, parts = 0.0, list[list[float]]()
    for nodes in places:
        own = {other: time for other, time in apart.items() if other < nodes}
        if len(own) < 2 or frozenset().union(*own) != nodes:
            # nodes that other kernels compute as well are no part
            return
        joined += whole[nodes]
        parts.append(list(own.values()))
    takes, together = places[0] in chosen, sum(map(sum, parts))
    ratio = together / joined if joined else float("nan")
    kept = ratio if takes else 1 / ratio
    yield {
        "nodes": len(places[0]),
        "places": len(places),
        "joined_ms": joined,
        "parts_ms": [sum(times) for times in zip(*parts, strict=True)],
        "parts_to_joined": ratio,
        "foreseen": expected.get(places[0]),
        "default": "joined" if takes else "apart",
        "right": bool(kept >= WORST or max(joined, together) < SHORTEST),
    }


def main() -> int:
    """Measure and print; 1 if the default takes what is slower."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--models",
        default=",".join([*NETWORKS, *(f"zoo:{name}" for name in zoo.FULL), *ATTENTIONS]),
        help="which, by commas",
    )
    parser.add_argument("--threads", type=int, default=available_cpus(), help="threads of a run")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each version")
    parser.add_argument("--runs", type=int, default=20, help="runs a turn")
    parser.add_argument("--json", action="store_true", help="one JSON line for each joined kernel")
    arguments = parser.parse_args()
    target = detect()
    wrong = 0
    for name in names(arguments.models):
        for row in measure(name, target, arguments.threads, arguments.rounds, arguments.runs):
            wrong += not row["right"]
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                both = f"joined {row['joined_ms']:.4f} ms, parts {sum(row['parts_ms']):.4f} ms"
                wrong_one = "" if row["right"] else "  WRONG"
                print(f"{name}: {row['kernel']}: {both}; {row['default']}{wrong_one}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
