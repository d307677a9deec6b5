"""ALT's single operators: nine kinds, ten random configurations each, tuned, side by side (Fig. 9).

    python benchmarks/alt_operators.py --trials 300 --json > results.jsonl
    python benchmarks/alt_operators.py --only C2D:0,GMM:3 --trials 16 --against ""

Batch sizes are 1 or 16 and channels of data are drawn from {3, 16, 32, 64, 512, 960, 1280} as in the paper;
what it does not say (images, windows, steps, results) is drawn from the lists below, by one seed, and a
configuration of more than MOST_FLOPS is drawn again. The searches are `joint`, `template` (its fixed
layouts, no actors) and `loop-only`, each for ``--trials``; what they found is compared in one process, in
turns, on the layouts that the operator has. ``--searches`` may name baselines as well (``random``,
``evolutionary``, ``descent``, ``anneal``); with ``--channels-last`` all but the joint search are tuned under
NHWO, too (NWO, NDHWO), for as many trials again, and the better is what they found. One line a
configuration: microseconds untuned and tuned, gains over the default, layouts, and with ``--against`` the
best other engine's time over ours, untuned and tuned. In the end geometric means. With ``--append FILE``
lines go to a file, and what it has is not measured again: ninety take an hour, in as many pieces as one
likes (``--most``). The paper's budget is 1000 trials.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from alt_common import as_data, freed, gains, single_task, strategies, tuned, tuned_in_both_orders
from arguments import names, parser_of
from convolutions import convolution, transposed
from operators import matmul
from sidebyside import Operator, SideBySide, add_options, geomean

from tilewright.driver import LocalMeasurer, find_tuner
from tilewright.ir import F32
from tilewright.strategies import JointStrategy
from tilewright.target import detect
from tilewright.tune import TaskResult

#: The paper's.
BATCHES = (1, 16)
CHANNELS = (3, 16, 32, 64, 512, 960, 1280)
#: Ours.
RESULTS = (16, 32, 64, 128, 256, 512)
IMAGES = {1: (128, 256, 1024), 2: (7, 14, 28, 56, 112), 3: (7, 14, 28)}
WINDOWS = (1, 3, 5)
STRIDES = (1, 2)
SIZES = (64, 128, 256, 512, 1024)
MOST_FLOPS = 2e9
SEED = 2022
COUNT = 10

KINDS = ("C2D", "GRP", "DEP", "DIL", "C3D", "C1D", "GMM", "T2D", "T3D")


def configurations() -> Iterator[tuple[str, Operator]]:
    """The ninety, by kind and number."""
    for kind in KINDS:
        rng, made = Random(f"{SEED} {kind}"), 0
        while made < COUNT:
            operator = _drawn(kind, rng)
            if operator is not None:
                yield f"{kind}:{made}", operator
                made += 1


def _drawn(kind: str, rng: Random) -> Operator | None:
    batch, into, out = rng.choice(BATCHES), rng.choice(CHANNELS), rng.choice(RESULTS)
    if kind == "GMM":
        m, n, k = (rng.choice(SIZES) for _ in range(3))
        return matmul(kind, m, n, k, weight=True) if 2.0 * m * n * k <= MOST_FLOPS else None
    rank = {"C1D": 1, "C3D": 3, "T3D": 3}.get(kind, 2)
    size = (rng.choice(IMAGES[rank]),) * rank
    window, stride = rng.choice(WINDOWS[1:] if kind in ("DEP", "DIL") else WINDOWS), rng.choice(STRIDES)
    groups = {"GRP": rng.choice((2, 4, 8)), "DEP": into}.get(kind, 1)
    out = into if kind == "DEP" else out
    if into % groups or out % groups or (kind in ("GRP", "DEP") and into < 16):
        return None
    flops = 2.0 * batch * out * (into // groups) * window**rank * (size[0] / stride) ** rank
    if kind in ("T2D", "T3D"):
        flops *= stride ** (2 * rank)
        if flops > MOST_FLOPS or window < stride:
            return None
        return transposed(batch, (into, out), size, (window,) * rank, stride, pad=(window - 1) // 2)
    if flops > MOST_FLOPS:
        return None
    dilation = 2 if kind == "DIL" else 1
    pad = dilation * (window // 2)
    return convolution(kind, batch, (into, out), size, (window,) * rank, stride, pad, dilation, groups)


def measure(
    name: str,
    operator: Operator,
    trials: int,
    threads: int,
    measurer: LocalMeasurer,
    beside: SideBySide | None,
    searches: list[str],
    last: bool = False,
) -> dict[str, Any]:
    """One line: each search's result, and the other engines."""
    case = operator.make(operator.name)
    task = single_task(case.model, threads)
    free = freed(task)
    found: dict[str, TaskResult] = {}
    orders: dict[str, str] = {}
    known = strategies(trials)
    for search in searches:
        strategy = known.get(search) or find_tuner(search)
        if not isinstance(strategy, JointStrategy) or not strategy.layouts:
            # baselines know no layouts: they may have the two usual orders
            found[search], other = (
                tuned_in_both_orders(task, strategy, trials, measurer)
                if last
                else (tuned(task, strategy, trials, measurer), False)
            )
            orders[search] = "channels last" if other else "channels first"
        else:
            found[search] = tuned(free, strategy, trials, measurer)
    row: dict[str, Any] = {"configuration": name, "operator": operator.name, "flops": case.flops}
    row |= {search: as_data(result) for search, result in found.items()}
    row["gain"] = gains(free, found, measurer)
    if last:
        row["orders"] = orders
    if beside is not None:
        peers = beside.measure(case)
        row["engines"] = peers["engines"]
        if "best_peer_to_ours" in peers:
            row["best_peer_to_untuned"] = peers["best_peer_to_ours"]
            row["best_peer_to_tuned"] = peers["best_peer_to_ours"] * row["gain"].get("joint", 1.0)
    return row


def text(row: dict[str, Any]) -> str:
    """A line for reading."""
    gains = " ".join(f"{search} {gain:5.2f}x" for search, gain in row["gain"].items())
    peers = f"  best peer/tuned {row['best_peer_to_tuned']:.2f}" if "best_peer_to_tuned" in row else ""
    untuned = next(row[search]["untuned_us"] for search in row["gain"])
    return f"{row['configuration']:6s} {row['operator']:44s} {untuned:10.1f} us  {gains}{peers}"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means over the configurations."""
    found = {
        search: [row["gain"][search] for row in rows if search in row["gain"]] for search in rows[0]["gain"]
    }
    out: dict[str, Any] = {f"gain {search}": geomean(values) for search, values in found.items()}
    both = [row["gain"] for row in rows if {"joint", "loop-only"} <= set(row["gain"])]
    out["joint over loop-only"] = geomean([gain["joint"] / gain["loop-only"] for gain in both])
    for key in ("best_peer_to_untuned", "best_peer_to_tuned"):
        found = [row[key] for row in rows if key in row]
        if found:
            out |= {key: geomean(found), f"{key}, ahead": sum(x > 1 for x in found)}
    slow = [row["gain"]["joint"] for row in rows if row["gain"].get("joint", 1.0) < 1]
    return out | {"slower than untuned": len(slow), "configurations": len(rows)}


def winners(rows: list[dict[str, Any]], lanes: int) -> dict[str, int]:
    """How many winners lay channels out in blocks of so many vectors, in other ways, or nothing at all."""
    found: Counter[str] = Counter()
    for row in rows:
        texts = " ".join(row.get("joint", {}).get("layouts", ()))
        sizes = {int(size) // lanes for size in re.findall(r"d1%(\d+)", texts)} & {1, 2, 4}
        found["none" if not texts else f"ot = {max(sizes)} x lanes" if sizes else "other layouts"] += 1
    return dict(found)


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="configurations or kinds, by commas: C2D:0,GMM")
    parser.add_argument("--trials", type=int, default=64, help="of each search, a configuration")
    parser.add_argument("--channels-last", action="store_true", help="baselines under NHWO, too")
    parser.add_argument("--searches", default="joint,template,loop-only", help="by commas")
    parser.add_argument("--append", type=Path, help="go on with this file of lines")
    parser.add_argument("--most", type=int, default=9 * COUNT, help="configurations of this run, at most")
    add_options(parser)
    arguments = parser.parse_args()
    wanted = set(names(arguments.only))
    rows: list[dict[str, Any]] = []
    if arguments.append is not None and arguments.append.exists():
        rows = [json.loads(line) for line in arguments.append.read_text().splitlines()]
    done = {row["configuration"] for row in rows}
    left = arguments.most
    beside = SideBySide(arguments) if names(arguments.against) else None
    try:
        with LocalMeasurer() as measurer:
            for name, operator in configurations():
                if name in done or (wanted and not wanted & {name, name.partition(":")[0]}):
                    continue
                if left == 0:
                    break
                left -= 1
                rows.append(
                    measure(
                        name,
                        operator,
                        arguments.trials,
                        arguments.threads,
                        measurer,
                        beside,
                        names(arguments.searches),
                        arguments.channels_last,
                    )
                )
                if arguments.append is not None:
                    with arguments.append.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
                print(json.dumps(rows[-1]) if arguments.json else text(rows[-1]), flush=True)
    finally:
        if beside is not None:
            beside.__exit__(None, None, None)
    if rows:
        made = summary(rows) | {"layouts of winners": winners(rows, detect().lanes(F32))}
        print(json.dumps(made) if arguments.json else made)


if __name__ == "__main__":
    main()
