"""DeepBench's GEMMs for inference (75 shapes): C[M, N] = A[M, K] B[K, N], f32, engines side by side.

    python benchmarks/deepbench.py --against onnxruntime,openvino,torch --threads 2 --json > results.jsonl
    python benchmarks/deepbench.py --only skinny

As in DeepBench both matrices are inputs of the operator: whatever packing an engine does counts. With
`--constant A` or `B` that matrix is a weight instead, which engines may pack when loading. One line a shape:
times, and our fraction of the limit, the larger of FLOPs over the peak and bytes over the reading bandwidth,
both measured in the same run (`limits.py`); the last line has geometric means.
"""

import json
import sys
from typing import Any

from arguments import parser_of
from sidebyside import (
    Array,
    Case,
    SideBySide,
    add_options,
    draw,
    geomean,
    single,
    text,
)

_SMALL = (1, 2, 4)
_LARGE = (1500, 3000, 6000)
SHAPES: tuple[tuple[int, int, int], ...] = (
    *((m, n, k) for m in (5124, 35) for k in (2048, 2560) for n in (700, 1500)),
    *((m, n, k) for m, k in ((7680, 2560), (3072, 1024)) for n in (*_SMALL, 1500, 3000, 6000)),
    *((m, n, 500000) for m in (512, 1024) for n in _SMALL),
    (1024, 700, 512),
    *((m, n, k) for m, k in ((6144, 2048), (4608, 1536), (8448, 2816)) for n in (*_SMALL, *_LARGE)),
    *((m, n, k) for m in (512, 1024) for k in (2816, 2048, 2560, 1536) for n in _LARGE),
    *((m, n, 512) for m in (512, 1024) for n in _SMALL),
)
"""M, N, K."""


def chosen(only: str) -> tuple[tuple[int, int, int], ...]:
    """``all``, ``skinny`` (N up to 4), ``large``, every tenth (``/10``), or shapes such as ``512x1x512``."""
    if only == "all":
        return SHAPES
    if only in ("skinny", "large"):
        return tuple(s for s in SHAPES if (s[1] <= max(_SMALL)) == (only == "skinny"))
    if only.startswith("/"):
        return SHAPES[:: int(only[1:])]
    m_n_k = [tuple(map(int, text.split("x"))) for text in only.split(",")]
    return tuple((m, n, k) for m, n, k in m_n_k)


def case(m: int, n: int, k: int, constant: str) -> Case:
    """One product."""
    operands: dict[str, Array] = {"A": draw(m, k), "B": draw(k, n, seed=1)}
    fixed = {name: array for name, array in operands.items() if name == constant}
    inputs = {name: array for name, array in operands.items() if name != constant}
    model, feeds = single("MatMul", inputs, (m, n), fixed)
    model.graph.node[0].input[:] = ["A", "B"]
    return Case(f"{m}x{n}x{k}", model, feeds, 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n))


def summary(rows: list[dict[str, Any]], engines: SideBySide) -> dict[str, Any]:
    """Geometric means over the rows."""
    line: dict[str, Any] = {
        "benchmark": "deepbench",
        "summary": True,
        "shapes": len(rows),
        "threads": engines.threads,
        "gflops": engines.gflops,
    }
    for bound in ("compute", "memory"):
        line[f"{bound}_of_limit"] = geomean(
            [r["of_limit"] for r in rows if r["bound"] == bound and "of_limit" in r]
        )
    line["best_peer_to_ours"] = geomean([r["best_peer_to_ours"] for r in rows if "best_peer_to_ours" in r])
    return line


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_options(parser)
    parser.add_argument(
        "--only", default="all", help="all, skinny, large, /10 (every tenth) or 512x1x512,..."
    )
    parser.add_argument("--constant", choices=("A", "B"), default="", help="the matrix that is a weight")
    arguments = parser.parse_args()
    rows = []
    with SideBySide(arguments) as engines:
        for m, n, k in chosen(arguments.only):
            row = {"benchmark": "deepbench", **engines.measure(case(m, n, k, arguments.constant))}
            rows.append(row)
            print(json.dumps(row) if arguments.json else text(row), flush=True)
    print(json.dumps(summary(rows, engines)))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
