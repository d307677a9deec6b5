"""What each part of the beam search is worth: tables and figures of Anderson et al. (OOPSLA 2021), on CPUs.

    python benchmarks/beam_ablation.py --json                              # all of it, small
    python benchmarks/beam_ablation.py --json --parts search --seeds 20 harris unsharp
    python benchmarks/beam_ablation.py --json --parts modes --seeds 20 --budget 5m
    python benchmarks/beam_ablation.py --json --parts model --samples samples.jsonl

``search``: states, kernels whose features were computed, seconds and memory of one beam search with sampling,
freezing and memoisation on and off, medians over seeds (Tables 1 to 3 and 5); a search that does not end
within ``--limit`` is told as such. ``modes``: seconds of scheduling and milliseconds by default, one-shot,
top-5 and tuned for a budget (Table 4, Figs. 6 and 7). ``model``: how prices rank measured states, how much
slower the pick is than the fastest, with the network that ships, with one trained on the other applications
(``--samples`` of ``beam_training.py``), and after training on what was measured (Fig. 8). ``chains``: seconds
by stages, and the exponent of their growth. ``hard``: pipelines on which other searches do not end.

Each line is one process, whose memory is its own. With ``--to`` lines are added to a file, and those that it
has already are not made again; ``--minutes`` ends a run between two lines, and another one goes on with it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from math import inf, log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from tilewright import ir, lang
from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, seconds_of
from tilewright.plan import UnitPlan, graph_of
from tilewright.strategies import Candidate, History, Task, best_by_model
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.emit import to_plan
from tilewright.strategies.beam.network import Network, Sample, train
from tilewright.strategies.beam.search import BeamSearch, Pricer, Settings, batch
from tilewright.strategies.beam.strategy import BeamStrategy
from tilewright.strategies.beam.weights import fresh, shipped
from tilewright.target import detect
from tilewright.tune import Budget, Database, TrialLimits, tune_task

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "pipelines"))

import beam_training

from run import NAMES, application
from stencil_chain import program as stencil_chain

PARTS = ("search", "modes", "model", "chains", "hard")
CHAINS = (2, 4, 8, 16, 32, 64)
#: Rounds in which schedules that were chosen take turns.
ROUNDS = 9
#: Steps of a training.
STEPS = 200
TOP = 5


def machine() -> Machine:
    return Machine(detect(), len(os.sched_getaffinity(0)))


def program_of(name: str) -> ir.Program:
    """A pipeline by name: an application at its size, ``chain64``, or one of the hard ones."""
    if name in HARD:
        return HARD[name]()
    if name.startswith("chain"):
        return stencil_chain(1536, 2560, int(name[5:]))
    app = application(name)
    return app.program(*app.large)


def resizes() -> ir.Program:
    """An image made smaller by halves and larger again, ten times over."""
    x = lang.placeholder((512, 512), name="image")
    f: Any = lang.boundary(x, mode="clamp")
    for n in range(10):
        f = lang.stage(lambda i, j, f=f: (f[2 * i, j] + f[2 * i + 1, j]) * 0.5, name=f"down_y{n}")
        f = lang.stage(lambda i, j, f=f: (f[i, 2 * j] + f[i, 2 * j + 1]) * 0.5, name=f"down_x{n}")
        f = lang.stage(lambda i, j, f=f: f[i // 2, j] * 0.75 + f[(i + 1) // 2, j] * 0.25, name=f"up_y{n}")
        f = lang.stage(lambda i, j, f=f: f[i, j // 2] * 0.75 + f[i, (j + 1) // 2] * 0.25, name=f"up_x{n}")
    return lang.program([x], f, name="resizes", region=[512, 512])


def outputs() -> ir.Program:
    """Sixteen results of one chain of blurs."""
    x = lang.placeholder((600, 800), name="image")
    made: list[Any] = [x]
    for n in range(16):
        made.append(
            lang.compute(
                (600 - 2 * n - 2, 800 - 2 * n - 2),
                lambda y, x, f=made[-1]: sum(f[y + a, x + b] for a in range(3) for b in range(3)) / 9.0,
                name=f"blur{n}",
            )
        )
    return lang.program([x], made[1:], name="outputs")


def residual() -> ir.Program:
    """Sixteen convolutions with rectifiers and residual connections."""
    x = lang.placeholder((1, 32, 56, 56), name="image")
    weights, f = [], x
    for n in range(8):
        w = [lang.placeholder((32, 32, 3, 3), name=f"w{n}_{k}") for k in range(2)]
        weights += w
        inner = lang.ops.elementwise(lang.relu, lang.ops.conv(f, w[0], padding=1))
        f = lang.ops.elementwise(
            lambda a, b: lang.relu(a + b), lang.ops.conv(inner, w[1], padding=1), f, name=f"block{n}"
        )
    return lang.program([x, *weights], [f], name="residual")


HARD: dict[str, Callable[[], ir.Program]] = {"resizes": resizes, "outputs": outputs, "residual": residual}


def searched(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Tables 1 to 3 and 5: one configuration in this process."""
    on = {k: k in options.on.split(",") for k in ("sampling", "freezing", "memoising")}
    g, m = graph_of(program_of(name)), machine()
    settings = Settings(options.beam, options.passes, **on)
    states, made, taken, best = [], [], [], []
    ended, work = True, time.process_time()
    for seed in range(options.seeds):
        pricer = Pricer(CostModel(g, m, shipped(m.target)), settings.memoising)
        begin = time.monotonic()
        search = BeamSearch(g, m, pricer, Random(f"{seed}"), settings, until=begin + options.limit)
        found = search.run()
        taken.append(time.monotonic() - begin)
        states.append(pricer.counts.states)
        made.append(pricer.counts.features)
        best += [found[0].seconds] if found else []
        if taken[-1] >= options.limit:
            ended = False
            break
    yield {
        "stages": len(g.nodes),
        **on,
        "ended": ended,
        "states": median(states),
        "features": median(made),
        "search_s": median(taken),
        "states_per_cpu_s": sum(states) / (time.process_time() - work),
        "predicted_ms": 1e3 * median(best) if best else None,
    }


def in_turns(task: Task, plans: dict[str, UnitPlan], measurer: LocalMeasurer) -> dict[str, float]:
    """Milliseconds of plans that take turns: the least of the rounds."""
    distinct = dict.fromkeys(plans.values())
    limits = TrialLimits(rounds=ROUNDS)
    trials = measurer.measure(task, [Candidate("beam", plan) for plan in distinct], limits)
    times = {trial.candidate.plan: trial.best for trial in trials}
    return {f"{kind}_ms": 1e3 * times[plan] for kind, plan in plans.items()}


def modes(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Table 4, Figs. 6 and 7: what each mode finds, and how long it takes."""
    task = Task(program_of(name), machine())
    line: dict[str, Any] = {}
    plans = {"default": task.default().plan}
    taken = []
    for seed in range(options.seeds):
        begin = time.monotonic()
        plans[f"one_shot{seed}"] = best_by_model(BeamStrategy(), task, seed, count=2).plan
        taken.append(time.monotonic() - begin)
    line["one_shot_s"] = median(taken)
    with LocalMeasurer() as measurer:
        begin = time.monotonic()
        search = BeamStrategy().start(task, History(), Random(0))
        trials = measurer.measure(task, search.propose(1 + TOP))
        fastest = min(trials, key=lambda trial: trial.best).candidate.plan
        assert isinstance(fastest, UnitPlan)
        plans["top5"], line["top5_s"] = fastest, time.monotonic() - begin
        begin = time.monotonic()
        until = begin + seconds_of(options.budget)
        with Database(":memory:") as records:
            done = tune_task(task, name, BeamStrategy(), measurer, records, Budget(1600, until))
        plans["tuned"] = done.plan or plans["default"]
        line |= {"tuned_s": time.monotonic() - begin, "trials": done.trials}
        times = in_turns(task, plans, measurer)
    shots = [times.pop(f"one_shot{seed}_ms") for seed in range(options.seeds)]
    line |= times | {"one_shot_ms": median(shots), "one_shot_worst_ms": max(shots)}
    for kind in ("one_shot", "top5", "tuned"):
        line[f"{kind}_gain"] = line["default_ms"] / line[f"{kind}_ms"]
    yield line


def ranked(network: Network, samples: list[Sample]) -> dict[str, float]:
    """Spearman's coefficient of prices, and the time of the pick and of the mean by that of the fastest."""
    rank, pick = beam_training.judged(network, samples)
    times = [s.seconds for s in samples]
    return {"rank": rank, "pick": pick, "mean": sum(times) / len(times) / min(times)}


def model(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Fig. 8: prices beside times, before and after training on them."""
    half = options.states // 2
    timed = beam_training.measured(name, half, options.states - half, 0)
    samples = beam_training.samples_of(name, timed)
    if len(samples) < 3:
        yield {"measured": len(samples)}
        return
    ships = shipped(machine().target)
    networks = {"machine": fresh(), **({"ships": ships} if ships is not None else {})}
    if options.samples is not None:
        others = beam_training.load(options.samples)
        held = [s for other, found in others.items() if other != name for s in found]
        recipe = beam_training.STEPS, beam_training.RATE, beam_training.DECAY, beam_training.FACTORS
        networks["held_out"] = train(fresh(), held, *recipe)
    networks["retrained"] = train(networks.get("held_out", networks.get("ships", fresh())), samples, STEPS)
    yield {"measured": len(samples), **{kind: ranked(n, samples) for kind, n in networks.items()}}


def one_shot(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of scheduling without measuring: a batch of the beam search, and the plan that it gives."""
    task = Task(program_of(name), machine())
    begin, work = time.monotonic(), time.process_time()
    g = graph_of(task.program)
    pricer = Pricer(CostModel(g, task.machine, shipped(task.machine.target)))
    found = batch(g, task.machine, pricer, 0, Settings(), 80)
    taken = time.monotonic() - begin
    to_plan(g, found[0].state, task.machine)
    yield {
        "stages": len(g.nodes),
        "one_shot_s": taken,
        "cpu_s": time.process_time() - work,
        "states": pricer.counts.states,
        "found": len(found),
    }


RUNS = {"search": searched, "modes": modes, "model": model, "chains": one_shot, "hard": one_shot}


def own_process(part: str, name: str, options: argparse.Namespace, on: str = "") -> dict[str, Any] | None:
    """One line of a part, made in a process of its own; what it failed with where it did.

    ``None`` after the time of all lines; a line that was made before is taken from the file.
    """
    key = [part, name, on]
    for known in options.known:
        if known.get("line") == key:
            return known
    if time.monotonic() >= options.until:
        return None
    command = [sys.executable, __file__, "--own", part, name, "--on", on, "--json"]
    for option in ("seeds", "budget", "limit", "beam", "passes", "states"):
        command += [f"--{option}", str(getattr(options, option))]
    command += ["--samples", str(options.samples)] if options.samples is not None else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"part": part, "pipeline": name, "failed": done.stderr.strip()[-300:]}
    if not done.returncode:
        found = json.loads(done.stdout.strip().splitlines()[-1])
        if options.to is not None:
            with options.to.open("a") as file:
                file.write(json.dumps({"line": key, **found}) + "\n")
    return found


def lines(options: argparse.Namespace) -> Iterator[dict[str, Any] | None]:
    """All lines that are asked for, ``None`` for those that there was no time for."""
    names = options.names or NAMES
    for part in options.parts:
        if part == "search":
            switches = ("sampling", "freezing", "memoising")
            for name, chosen in product(names, product((True, False), repeat=len(switches))):
                on = ",".join(k for k, own in zip(switches, chosen, strict=True) if own)
                yield own_process(part, name, options, on)
        elif part == "chains":
            found = [own_process(part, f"chain{n}", options) for n in CHAINS]
            yield from found
            ends = [each["one_shot_s"] for each in found[-2:] if each is not None]
            if len(ends) == 2:
                yield {"part": part, "exponent": log(ends[1] / ends[0]) / log(CHAINS[-1] / CHAINS[-2])}
        else:
            for name in HARD if part == "hard" else names:
                yield own_process(part, name, options)


def show(line: dict[str, Any], as_json: bool) -> None:
    shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in line.items()}
    print(json.dumps(shown) if as_json else "  ".join(f"{k} {v}" for k, v in shown.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds of which medians are taken; the paper's: 20"
    )
    parser.add_argument("--budget", default="30s", help="of tuning, for each pipeline")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds after which a search is given up")
    parser.add_argument("--beam", type=int, default=8, help="states of the beam; the paper's: 32")
    parser.add_argument("--passes", type=int, default=3, help="passes of a search; the paper's: 5")
    parser.add_argument("--states", type=int, default=16, help="states that are measured to judge the model")
    parser.add_argument("--samples", type=Path, help="times of all applications, by beam_training.py")
    parser.add_argument("--to", type=Path, metavar="FILE", help="lines that were made, and where new ones go")
    parser.add_argument("--minutes", type=float, default=inf, help="after which no line is begun")
    parser.add_argument("--json", action="store_true", help="one JSON line each")
    parser.add_argument("--own", nargs=2, metavar=("PART", "NAME"), help=argparse.SUPPRESS)
    parser.add_argument("--on", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own is None:
        kept = options.to is not None and options.to.exists()
        options.known = [json.loads(x) for x in options.to.read_text().splitlines()] if kept else []
        options.until = time.monotonic() + 60 * options.minutes
        for line in lines(options):
            if line is not None:
                show(line, options.json)
        return
    part, name = options.own
    for line in RUNS[part](name, options):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"part": part, "pipeline": name, **line, "peak_mb": peak}))


if __name__ == "__main__":
    main()
