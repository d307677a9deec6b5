"""Trains the cost model of the beam search on this machine: plans of pipelines, measured; a network, fitted.

    W=src/tilewright/strategies/beam/weights/x86_64.json
    python benchmarks/beam_training.py --samples samples.jsonl --random 60 --out $W

Each application of ``examples/pipelines`` and each of ``--random`` pipelines (``random_images.py``) gives
its default plan and states of its beam search: the best by the model as it is, and random ones of all that a
beam ended with. They are measured like candidates of tuning: what crashes or computes something else is
counted and left out. Printed is, for each application, how a network that was trained on all others ranks its
states (Spearman's coefficient), and how much slower its pick is than the fastest one measured; both also for
the model without a network. Of every pipeline held out, random ones too, what the pick was to gain over each
other state is held against what it gained: what 19 of 20 are off by at most is what a plan must promise to be
taken unmeasured.
With ``--minutes`` no pipeline is begun after that time; what was measured is kept in ``--samples``, plans
with their seconds, from which another run goes on: whatever the features are then.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer
from tilewright.ir import Program
from tilewright.plan import UnitPlan, graph_of, plan_from_json
from tilewright.strategies import Candidate, Task
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.emit import from_plan, to_plan
from tilewright.strategies.beam.network import (
    NAMES as NETWORK,
    Network,
    Sample,
    error,
    gains_off,
    pick,
    predicted,
    train,
)
from tilewright.strategies.beam.search import Pricer, Settings, batch
from tilewright.strategies.beam.weights import GainErrors, fresh, to_json
from tilewright.support import ScheduleError
from tilewright.target import detect

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "pipelines"))

from random_images import random_images

from run import NAMES, application

#: Seconds after which a search for states is given up.
SEARCH = 20.0
#: How the network that ships is trained: factors of terms alone, steps, their rate, the pull of what it was.
FACTORS = ("o0",)
STEPS, RATE, DECAY = 200, 2e-2, 1e-2
#: The part of gains over other states that a plan must be sure of, to be taken unmeasured.
CERTAIN = 0.95
#: Names of random pipelines begin so, their seed follows.
RANDOM = "random"


def program_of(name: str) -> Program:
    """An application at its size, or the random pipeline ``random<seed>``."""
    if name.startswith(RANDOM):
        return random_images(int(name.removeprefix(RANDOM)))
    app = application(name)
    return app.program(*app.large)


def measured(name: str, best: int, others: int, seed: int) -> list[tuple[UnitPlan, float]]:
    """The default plan of a pipeline and those of states, with the seconds that they took."""
    task = Task(program_of(name), Machine(detect(), len(os.sched_getaffinity(0))))
    g = graph_of(task.program)
    pricer = Pricer(CostModel(g, task.machine))
    start = time.perf_counter()
    found = batch(g, task.machine, pricer, seed, Settings(), 20, time.monotonic() + SEARCH)
    searched = time.perf_counter() - start
    rest = found[best:]
    chosen = [*found[:best], *Random(seed).sample(rest, min(others, len(rest)))]
    timed, counts = list[tuple[UnitPlan, float]](), dict[str, int]()
    # what others must be faster than is one of them
    plans = [task.default().plan]
    for each in chosen:
        try:
            plans.append(to_plan(g, each.state, task.machine).plan)
        except ScheduleError:
            counts["refused"] = counts.get("refused", 0) + 1
    with LocalMeasurer() as measurer:
        trials = measurer.measure(task, [Candidate("beam", plan) for plan in plans])
    for trial, plan in zip(trials, plans, strict=True):
        counts[trial.status] = counts.get(trial.status, 0) + 1
        if trial.status == "ok":
            timed.append((plan, trial.best))
        else:
            print(name, trial.status, trial.reason, file=sys.stderr)
    line = {"pipeline": name, "states": len(found), "search_s": round(searched, 2), **counts}
    print(json.dumps(line), flush=True)
    return timed


def samples_of(name: str, timed: Sequence[tuple[UnitPlan, float]]) -> list[Sample]:
    """What a network learns from plans of a pipeline that were measured."""
    g = graph_of(program_of(name))
    pricer = Pricer(CostModel(g, Machine(detect(), len(os.sched_getaffinity(0)))))
    states = ((from_plan(g, plan, like=True), seconds) for plan, seconds in timed)
    return [pricer.sample(state, seconds) for state, seconds in states if state is not None]


def save(path: Path, name: str, timed: Sequence[tuple[UnitPlan, float]]) -> None:
    with path.open("a") as file:
        for plan, seconds in timed:
            file.write(json.dumps({"pipeline": name, "seconds": seconds, "plan": plan.to_json()}) + "\n")


def load(path: Path) -> dict[str, list[Sample]]:
    """The samples of each pipeline in a file."""
    known: dict[str, list[tuple[UnitPlan, float]]] = {}
    for line in path.read_text().splitlines():
        each = json.loads(line)
        known.setdefault(each["pipeline"], []).append((plan_from_json(each["plan"]), each["seconds"]))
    return {name: samples_of(name, timed) for name, timed in known.items()}


def ranks(values: list[float]) -> list[int]:
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(n) for n in range(len(values))]


def judged(network: Network, samples: list[Sample]) -> tuple[float, float]:
    """Spearman's coefficient, and what the pick takes in times of the fastest."""
    by_model, seconds = [predicted(network, s) for s in samples], [s.seconds for s in samples]
    taken = seconds[pick(network, samples)] / min(seconds)
    if len(samples) < 3:
        return 1.0, taken
    return float(np.corrcoef(ranks(by_model), ranks(seconds))[0, 1]), taken


def fit(
    known: dict[str, list[Sample]], fitted: Callable[[list[Sample]], Network], where: Path
) -> tuple[Network, GainErrors, dict[str, Any]]:
    """The network of all samples, the errors of gains on each pipeline by one of all others, and a summary.

    Means of ranks and picks are of applications only: ``None`` where none was measured.
    """
    untrained, table = fresh(), []
    off: dict[str, list[float]] = {"untrained": [], "trained": []}
    for name, found in known.items():
        network = fitted([s for other, each in known.items() if other != name for s in each])
        off["untrained"] += gains_off(untrained, found)
        off["trained"] += gains_off(network, found)
        if name.startswith(RANDOM):
            continue
        before, after = judged(untrained, found), judged(network, found)
        spread = max(s.seconds for s in found) / min(s.seconds for s in found)
        table.append((*before, *after))
        line = {
            "held_out": name, "samples": len(found), "slowest_by_fastest": round(spread, 2),
            "rank_before": round(before[0], 3), "rank": round(after[0], 3),
            "pick_before": round(before[1], 3), "pick": round(after[1], 3),
        }  # fmt: skip
        print(json.dumps(line), flush=True)
    if not off["trained"]:
        raise SystemExit(
            f"two states of a pipeline were measured nowhere: more --minutes, or samples in {where}"
        )
    every = [s for found in known.values() for s in found]
    means = [round(float(v), 3) for v in np.mean(table, 0)] if table else [None] * 4
    network = fitted(every)
    # what a gain must promise so that so many of them were gains
    least = {kind: max(1.0, float(np.exp(np.quantile(each, CERTAIN)))) for kind, each in off.items()}
    return (
        network,
        GainErrors(**{kind: round(value, 3) for kind, value in least.items()}),
        {
            "samples": {name: len(found) for name, found in known.items()},
            "squared_log_error": {
                "untrained": round(error(untrained, every), 4),
                "trained": round(error(network, every), 4),
            },
            "held_out": dict(zip(("rank_before", "pick_before", "rank", "pick"), means, strict=True)),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--samples", type=Path, required=True, help="where measurements are, or are written")
    parser.add_argument("--out", type=Path, help="the file of weights")
    parser.add_argument("--random", type=int, default=0, help="random pipelines besides the applications")
    parser.add_argument("--minutes", type=float, default=inf, help="after which no pipeline is begun")
    parser.add_argument("--best", type=int, default=8)
    parser.add_argument("--others", type=int, default=16)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--decay", type=float, default=DECAY)
    parser.add_argument("--layers", action="store_true", help="train all layers, not factors of terms alone")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    known = load(options.samples) if options.samples.exists() else {}
    until = time.monotonic() + 60 * options.minutes
    for name in [*(f"{RANDOM}{n}" for n in range(options.random)), *(options.names or NAMES)]:
        if name not in known and time.monotonic() < until:
            timed = measured(name, options.best, options.others, options.seed)
            save(options.samples, name, timed)
            known[name] = samples_of(name, timed)
    # states that differ in nothing that can be timed teach nothing about ranks
    known = {name: found for name, found in known.items() if found}

    names = NETWORK if options.layers else FACTORS

    def fitted(samples: list[Sample]) -> Network:
        return train(fresh(options.seed), samples, options.steps, options.rate, options.decay, names)

    network, errors, found = fit(known, fitted, options.samples)
    summary = {
        "command": f"python benchmarks/beam_training.py --random {options.random} "
        f"--best {options.best} --others {options.others} "
        f"--steps {options.steps} --rate {options.rate} --decay {options.decay} --seed {options.seed}"
        + (" --layers" if options.layers else ""),
        "machine": detect().name,
        "threads": len(os.sched_getaffinity(0)),
        **found,
    }
    print(json.dumps(summary | {"gain_errors": asdict(errors)}))
    if options.out is not None:
        options.out.write_text(to_json(network, errors, summary))


if __name__ == "__main__":
    main()
