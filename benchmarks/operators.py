"""Single operators, engines side by side, and how far each is from what the machine can do at most.

    python benchmarks/operators.py --against onnxruntime,openvino,torch --threads 2 --json > results.jsonl
    python benchmarks/operators.py --only softmax,gemv

One line an operator: times, our fraction of the limit and the best peer's time as a multiple of ours. The
limit is the larger of FLOPs over the peak and of bytes, each operand and result once, over the reading
bandwidth for so many bytes, and for results larger than the caches of the time to copy as many bytes; all
measured in the same run, see `limits.py`.

An operator is one entry of OPERATORS, convolutions of `convolutions.py`. FLOPs are counted for products and
sums of products; the arithmetic of exponentials and the like is not, so their limit is memory.
"""

import json
from math import prod
from typing import Any

import numpy as np
from arguments import parser_of
from convolutions import CONVOLUTIONS
from onnx import helper
from sidebyside import (
    Case,
    Operator,
    SideBySide,
    add_options,
    chain,
    draw,
    geomean,
    single,
    text,
)


def matmul(group: str, m: int, n: int, k: int, batch: int = 0, weight: bool = False) -> Operator:
    """``[batch,] m x n`` from ``m x k`` and ``k x n``; with ``weight`` the second matrix is a constant."""
    front = (batch,) if batch else ()

    def make(name: str) -> Case:
        a, b = draw(*front, m, k), draw(*front, k, n, seed=1)
        inputs, fixed = ({"A": a}, {"B": b}) if weight else ({"A": a, "B": b}, {})
        model, feeds = single("MatMul", inputs, (*front, m, n), fixed)
        times = batch or 1
        return Case(name, model, feeds, 2.0 * times * m * n * k, 4.0 * times * (m * k + k * n + m * n))

    shape = f"{batch}x{m}x{n}x{k}" if batch else f"{m}x{n}x{k}"
    return Operator(group, f"matmul {shape}{' weight' if weight else ''}", make)


def unary(
    group: str, op: str, shape: tuple[int, ...], output: tuple[int, ...] | None = None, **attributes: Any
) -> Operator:
    """An operator of one input; ``output`` is the result's shape if not the input's."""
    result = shape if output is None else output

    def make(name: str) -> Case:
        model, feeds = single(op, {"X": draw(*shape)}, result, {}, **attributes)
        return Case(name, model, feeds, 0.0, 4.0 * (prod(shape) + prod(result)))

    shown = "".join(f" {key}={value}" for key, value in attributes.items() if key != "keepdims")
    return Operator(group, f"{op} {'x'.join(map(str, shape))}{shown}", make)


def reduction(op: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Operator:
    """A reduction over ``axes``, which vanish."""

    def make(name: str) -> Case:
        result = tuple(size for at, size in enumerate(shape) if at not in axes)
        fixed = {"axes": np.asarray(axes, np.int64)}
        node = helper.make_node(op, ["X", "axes"], ["Y"], name="operator", keepdims=0)
        inputs = {"X": draw(*shape)}
        model = chain([node], inputs, result, fixed)
        return Case(name, model, inputs, 0.0, 4.0 * (prod(shape) + prod(result)))

    return Operator("reduce", f"{op} {'x'.join(map(str, shape))} over {','.join(map(str, axes))}", make)


def layer_norm(rows: int, columns: int) -> Operator:
    """Layer normalisation of rows, with scale and bias."""

    def make(name: str) -> Case:
        fixed = {"scale": draw(columns, seed=1), "bias": draw(columns, seed=2)}
        model, feeds = single(
            "LayerNormalization", {"X": draw(rows, columns)}, (rows, columns), fixed, axis=-1
        )
        return Case(name, model, feeds, 0.0, 8.0 * rows * columns)

    return Operator("layernorm", f"LayerNormalization {rows}x{columns}", make)


def gelu_chain(rows: int, columns: int) -> Operator:
    """GELU as older exporters write it: ``x * 0.5 * (1 + erf(x / sqrt 2))``, after adding a bias."""

    def make(name: str) -> Case:
        fixed = {
            "bias": draw(columns, seed=1),
            "root": np.float32([2**0.5]),
            "one": np.float32([1]),
            "half": np.float32([0.5]),
        }
        nodes = [
            helper.make_node("Add", ["X", "bias"], ["x"]),
            helper.make_node("Div", ["x", "root"], ["d"]),
            helper.make_node("Erf", ["d"], ["e"]),
            helper.make_node("Add", ["e", "one"], ["p"]),
            helper.make_node("Mul", ["x", "p"], ["q"]),
            helper.make_node("Mul", ["q", "half"], ["Y"]),
        ]
        inputs = {"X": draw(rows, columns)}
        return Case(name, chain(nodes, inputs, (rows, columns), fixed), inputs, 0.0, 8.0 * rows * columns)

    return Operator("elementwise", f"bias + GELU {rows}x{columns}", make)


def addition(*shape: int) -> Operator:
    """The sum of two tensors."""

    def make(name: str) -> Case:
        model, feeds = single("Add", {"A": draw(*shape), "B": draw(*shape, seed=1)}, shape, {})
        return Case(name, model, feeds, 0.0, 12.0 * prod(shape))

    return Operator("elementwise", f"Add {'x'.join(map(str, shape))}", make)


OPERATORS: tuple[Operator, ...] = (
    # both matrices given at run time
    matmul("matmul", 512, 512, 512),
    matmul("matmul", 1024, 1024, 1024),
    matmul("matmul", 1000, 1000, 1000),
    matmul("matmul", 128, 768, 768, weight=True),
    matmul("skinny", 65536, 4, 1024),
    matmul("skinny", 65536, 1024, 4),
    matmul("skinny", 4, 1024, 65536),
    matmul("skinny", 1024, 32, 1024),
    matmul("skinny", 32, 4096, 4096),
    matmul("gemv", 1, 4096, 4096),
    matmul("gemv", 2, 4096, 4096),
    matmul("gemv", 4, 4096, 4096),
    matmul("gemv", 4096, 1, 4096),
    matmul("gemv", 4096, 2, 4096),
    matmul("gemv", 4096, 4, 4096),
    matmul("gemv", 1, 4096, 4096, weight=True),
    matmul("batched", 64, 64, 64, batch=64),
    matmul("batched", 128, 128, 64, batch=12),
    matmul("batched", 16, 16, 16, batch=1024),
    matmul("batched", 1, 128, 64, batch=96),
    matmul("splitk", 512, 1, 500000),
    matmul("splitk", 64, 64, 262144),
    matmul("splitk", 4, 4, 1048576),
    reduction("ReduceSum", (4096, 4096), (1,)),
    reduction("ReduceSum", (4096, 4096), (0,)),
    reduction("ReduceSum", (16777216,), (0,)),
    reduction("ReduceMax", (4096, 4096), (1,)),
    reduction("ReduceMean", (1024, 1024), (0, 1)),
    reduction("ReduceSum", (64, 512, 512), (1,)),
    unary("softmax", "Softmax", (4096, 4096), axis=-1),
    unary("softmax", "Softmax", (1536, 128), axis=-1),
    unary("softmax", "Softmax", (8, 50000), axis=-1),
    unary("softmax", "Softmax", (256, 128, 64), axis=1),
    layer_norm(4096, 4096),
    layer_norm(128, 768),
    layer_norm(1024, 312),
    gelu_chain(4096, 3072),
    gelu_chain(128, 3072),
    unary("elementwise", "Tanh", (4096, 1024)),
    addition(4096, 4096),
    addition(512, 512),
    unary("transpose", "Transpose", (4096, 4096), perm=[1, 0]),
    unary("transpose", "Transpose", (1000, 1000), perm=[1, 0]),
    unary("transpose", "Transpose", (8, 128, 12, 64), (8, 12, 128, 64), perm=[0, 2, 1, 3]),
    unary("transpose", "Transpose", (16, 64, 56, 56), (16, 56, 56, 64), perm=[0, 2, 3, 1]),
    *CONVOLUTIONS,
)


def reached(row: dict[str, Any]) -> bool:
    """Whether an operator is at 85% of its limit, or ahead of the best peer by 1.2x."""
    return bool(row.get("of_limit", 0) >= 0.85 or row.get("best_peer_to_ours", 0) >= 1.2)


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_options(parser)
    parser.add_argument("--only", default="", help="groups or parts of names, by commas")
    arguments = parser.parse_args()
    wanted = [part for part in arguments.only.split(",") if part]
    rows = []
    with SideBySide(arguments) as engines:
        for operator in OPERATORS:
            if wanted and not any(part == operator.group or part in operator.name for part in wanted):
                continue
            measured = engines.measure(operator.make(operator.name))
            row = {"benchmark": "operators", "group": operator.group, **measured}
            rows.append(row)
            line = json.dumps(row) if arguments.json else f"{' ' if reached(row) else '!'} {text(row)}"
            print(line, flush=True)
    summary = {
        "benchmark": "operators",
        "summary": True,
        "operators": len(rows),
        "reached": sum(reached(r) for r in rows),
        "best_peer_to_ours": geomean([r["best_peer_to_ours"] for r in rows if "best_peer_to_ours" in r]),
        "of_limit": geomean([r["of_limit"] for r in rows if "of_limit" in r]),
        "threads": engines.threads,
        "gflops": engines.gflops,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
