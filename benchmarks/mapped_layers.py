"""ResNet-50's layers with 28 images in bf16 and in bytes: the mapper's path beside another version's default.

    git worktree add ../before d66a73a^        # the last version whose rules matched instructions themselves
    (cd ../before && python setup.py build_ext --inplace)
    python benchmarks/mapped_layers.py --before ../before --json > layers.jsonl

A part of `benchmarks/mapping.py` (`--only resnet50 --before CHECKOUT`). Each version runs in a process of its
own, which this file is, too (`--serve`); they take turns within each layer. One line a layer and pair of
types: the instructions that the function executes, whether both versions' functions are the same text,
milliseconds of both (the best run of all rounds), and how many times longer the other version takes. Last, a
line of totals, weighted by how often the network has each layer.
"""

import hashlib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from arguments import add_turns, parser_of
from gate0 import constant, stored
from resnet50_layers import LAYERS, Layer

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import Program, print_function
from tilewright.plan import EXACT
from tilewright.strategies import default_schedule
from tilewright.target import detect

BATCH, ROUNDS, SECONDS, THREADS = 28, 5, 0.2, 2
TYPES = {"bf16": ("bf16", "bf16", "f32"), "u8 x i8": ("u8", "i8", "i32")}
"""Of the input, the weights and the sums."""
ONE = 0x3F80
"""The bits of 1 in bf16."""
BLOCKED = ("d0", "d1//16", "d2", "d3", "d1%16")


def rows(before: str, rounds: int = ROUNDS, seconds: float = SECONDS) -> Iterator[dict[str, Any]]:
    """One row a layer and pair of types, then the totals; ``before``: a checkout of the other version."""
    found = []
    with Version(Path(__file__).parents[1]) as ours, Version(Path(before)) as theirs:
        for types in TYPES:
            for at in range(len(LAYERS)):
                found.append(_row(at, types, ours, theirs, rounds, seconds))
                yield found[-1]
    for types in TYPES:
        lines = [row for row in found if row["types"] == types]
        sums = [sum(row["times"] * row[name] for row in lines) for name in ("ms", "before_ms")]
        yield {
            "layer": "total",
            "types": types,
            "same": sum(row["same"] for row in lines),
            "of": len(lines),
            "ms": round(sums[0], 2),
            "before_ms": round(sums[1], 2),
            "against_before": round(sums[1] / sums[0], 3),
            "least": min(row["against_before"] for row in lines),
        }


def _row(
    at: int, types: str, ours: "Version", theirs: "Version", rounds: int, seconds: float
) -> dict[str, Any]:
    made = [version.ask({"layer": at, "types": types}) for version in (ours, theirs)]
    best = [float("inf")] * 2
    for _ in range(rounds):
        for n, version in enumerate((ours, theirs)):
            best[n] = min(best[n], version.ask({"seconds": seconds})["best"])
    return {
        "layer": LAYERS[at].name,
        "types": types,
        "times": LAYERS[at].times,
        "instructions": made[0]["instructions"],
        "same": made[0]["digest"] == made[1]["digest"],
        "ms": round(best[0] * 1e3, 3),
        "before_ms": round(best[1] * 1e3, 3),
        "against_before": round(best[1] / best[0], 3),
    }


class Version:
    """A process that compiles and runs layers with the sources of a checkout; it ends with the ``with``."""

    def __init__(self, checkout: Path) -> None:
        path = os.pathsep.join(str(checkout.resolve() / part) for part in ("src", "benchmarks"))
        self._process = subprocess.Popen(
            # -P: the helpers beside this file are those of the checkout.
            [sys.executable, "-P", __file__, "--serve"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question. Raises RuntimeError where the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the version's process has ended: its error stands above")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def program(layer: Layer, types: str) -> Program:
    """The convolution, its weights known when compiling, values in blocks of 16 channels."""
    given, weights, sums = TYPES[types]
    x = lang.placeholder((BATCH, layer.channels_in, layer.size, layer.size), given, "X")
    w = lang.placeholder((layer.channels_out, layer.channels_in, layer.window, layer.window), weights, "W")
    y = lang.ops.conv(x, w, strides=layer.stride, padding=layer.padding, accumulate=sums, name="Y")
    blocked = ("X", "Y") if layer.channels_in % 16 == 0 else ("Y",)
    return stored(constant(lang.program([x, w], [y], name="conv"), "W"), blocked, BLOCKED)


def serve() -> None:
    """Answer questions, a JSON document a line: a layer is compiled, or the last one is run for a while."""
    # Where the two functions stand has changed between versions; what they do has not.
    place = "build" if importlib.util.find_spec("tilewright.build") else "driver"
    built = importlib.import_module(f"tilewright.{place}")
    target, plan = detect(), None
    for line in sys.stdin:
        question = json.loads(line)
        if "layer" in question:
            schedule = default_schedule(
                program(LAYERS[question["layer"]], question["types"]),
                Machine(target, THREADS),
                accuracy=EXACT,
            )
            text = print_function(schedule.func)
            table = [built.pack(_values(b), b) for b in schedule.func.buffers]
            plan = built.build(schedule, target=target, threads=THREADS).plan(table)
            answer: dict[str, Any] = {
                "digest": hashlib.sha256(text.encode()).hexdigest(),
                "instructions": sorted(set(re.findall(r'execute\("(\w+)"', text))),
            }
        else:
            assert plan is not None
            spent = [plan.measure([], [], repeats=2).sum(axis=1).min() / 1e9]
            runs = max(1, round(question["seconds"] / spent[0]))
            spent.extend(plan.measure([], [], repeats=runs).sum(axis=1) / 1e9)
            answer = {"best": float(min(spent))}
        print(json.dumps(answer), flush=True)


def _values(buffer: Any) -> Any:
    """Small numbers of the buffer's type; those of bf16, as bits, between 1 and 1.03."""
    shape = tuple(e.as_int() for e in buffer.shape)
    least = ONE if str(buffer.dtype) == "bf16" else 0
    return np.random.default_rng(0).integers(least, least + 4, shape).astype(buffer.dtype.numpy)


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--before", help="a checkout of the other version, its native parts built")
    parser.add_argument("--serve", action="store_true", help="answer the questions of another process")
    add_turns(parser, ROUNDS, SECONDS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if not options.before:
        parser.error("--before names the checkout to compare with")
    for row in rows(options.before, options.rounds, options.seconds):
        print(json.dumps(row) if options.json else row, flush=True)


if __name__ == "__main__":
    main()
