"""Construction beside the default schedule, the tree, an evolutionary search of equal time, and torch.

    python benchmarks/construct.py [--only M6,C4,general] [--most 2e10] [--threads 2] [--rounds 5] [--json]
    python benchmarks/construct.py --sweep 1000 [--sample 60] [--json]
    python benchmarks/construct.py --device a100 [--only M6,C4] [--variants] [--json]
    python benchmarks/construct.py --networks resnet50,gpt2 [--threads 1] [--json]

Gensor's Table IV with twenty shapes of ours, and ten general stages (`construct_shapes.py`); those of
more than `--most` operations are left out and said so. For each: seconds of construction, the model's gain
over the default (`predicted`), and in turns in one process the milliseconds of the default, of what the model
chose (`construct`), of the best constructed plan whatever the model says of it (`first`), of the tree, of the
evolutionary search after as much time (at least two seconds), and of torch. `regret` is the roofline of walks
over the exact one, also without the fill and with other powers of footprints (the ablation).

`--sweep` constructs kernels for so many products drawn by a seed; of a sample all register tiles of the space
are measured, the fastest of all, the fastest of eight and the one that was chosen unmeasured once more, and
what these reach of the fastest in that second measurement is said.

`--device` is about a GPU (`construct_devices.py`): registers, spills, occupancy and waves of all 32, with
`--variants` also of the tree's kernels and of those without virtual threads (Table VI), and results by PoCL.
`--networks` compiles whole networks by construction and by default: seconds of compiling, milliseconds a run.
"""

import argparse
import json
import statistics
import time
from random import Random

import numpy as np
import torch
from construct_devices import device_row
from construct_shapes import Shape, drawn, general, table_four

import tilewright
from tilewright.cost import Machine, seconds, tree_of
from tilewright.frontend import zoo
from tilewright.plan import RULES, rewritten
from tilewright.strategies import STRATEGIES, History, Task, Trial, best_by_model
from tilewright.strategies.construct.benefit import PAPER, Forms
from tilewright.strategies.construct.emit import construction
from tilewright.strategies.construct.exact import exact_states
from tilewright.strategies.construct.tree import tree_states
from tilewright.strategies.construct.walk import best_states
from tilewright.support import UserError
from tilewright.target import detect, find_target


class Timed:
    """A runnable with its fastest run so far."""

    def __init__(self, run) -> None:
        self.run, self.times = run, []

    def once(self) -> None:
        """One run, timed, after one for caches, and until the threads of who ran before sleep."""
        self.run()
        start = time.perf_counter()
        self.run()
        self.times.append(time.perf_counter() - start)


def _runner(schedule, threads: int, arrays) -> object:
    model = tilewright.compile(schedule, threads=threads)
    feeds = dict(zip((info.name for info in model.inputs), arrays, strict=True))
    bound = model.bind(feeds)
    bound.run()
    return bound.run


def _arrays(program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [tuple(e.as_int() for e in b.shape) for b in program.inputs]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def in_turns(runs: dict[str, object], rounds: int, budget: float) -> dict[str, float]:
    """Milliseconds of each, the least of so many rounds in turns, within so many seconds."""
    timed = {name: Timed(run) for name, run in runs.items()}
    end = time.perf_counter() + budget
    for _ in range(rounds):
        for each in timed.values():
            each.once()
        if time.perf_counter() > end:
            break
    return {name: min(each.times) * 1e3 for name, each in timed.items()}


def constructions(task: Task) -> list:
    """The construction of each nest that has one."""
    plan = task.default().plan
    _, context = rewritten(task.program, plan, task.machine, task.constants)
    found = []
    for nest in plan.nests:
        rule = RULES[nest.rule]
        problem = rule.match(context, nest.root, nest.stages)
        made = construction(problem, rule.space(problem), task.machine)
        if made is not None:
            found.append(made)
    return found


def roofline_gain(task: Task) -> float | None:
    """Cycles of the default's register tile over the least, by the model of constructions."""
    plans = task.default().plan.nests
    for made in constructions(task)[:1]:
        states = exact_states(made.tilings, ranked=1000)
        tiles = {tile for nest in plans if (tile := made.tile_of(nest.choice)) is not None}
        own = [cost[0] for cost, state in states if state.tiles[-1] in tiles]
        return own[0] / states[0][0][0] if own else None
    return None


def regrets(task: Task) -> dict[str, float]:
    """Cycles of the best state of twenty walks over the least, by the forms of the formulas; the tree's."""
    out: dict[str, float] = {}
    forms = {
        "walks": Forms(), "beta 0": Forms(beta=0.0), "beta +1": Forms(beta=1.0),
        "no fill": Forms(fill=False), "no way back": Forms(uncache=0.0), "paper": PAPER,
    }  # fmt: skip
    for made in constructions(task)[:1]:
        best = exact_states(made.tilings)[0][0][0]
        for name, each in forms.items():
            # none where no walk came to the last level
            states = best_states(made.tilings, Random(0), forms=each)
            out[name] = states[0][0][0] / best if states else float("inf")
        out["tree"] = tree_states(made.tilings)[0][0][0] / best
    return out


def evolutionary(task: Task, threads: int, arrays, budget: float):
    """The fastest schedule that an evolutionary search finds within so many seconds, all measured."""
    search = STRATEGIES["evolutionary"].start(task, History(), Random(0))
    end, best = time.perf_counter() + budget, (float("inf"), None)
    while time.perf_counter() < end:
        candidates = search.propose(4)
        if not candidates:
            break
        trials = []
        for candidate in candidates:
            try:
                run = Timed(_runner(candidate.schedule(task), threads, arrays))
            except UserError as error:
                trials.append(Trial(candidate, "refused", reason=error.what))
                continue
            run.once()
            run.once()
            trials.append(Trial(candidate, "ok", tuple(run.times)))
            best = min(best, (min(run.times), run.run), key=lambda each: each[0])
            if time.perf_counter() > end:
                break
        search.observe(trials)
    return best[1]


def compare(shape: Shape, options) -> dict[str, object]:
    """One shape, everything in turns."""
    program, threads = shape.make(), options.threads
    machine = Machine(detect(), threads)
    task, arrays = Task(program, machine), _arrays(program)
    default = task.default()
    start = time.perf_counter()
    found = STRATEGIES["construct"].start(task, History(), Random(0)).propose(8)
    constructed = time.perf_counter() - start
    chosen = best_by_model(STRATEGIES["construct"], task)
    tree = best_by_model(STRATEGIES["construct-tree"], task)
    price = [
        seconds(tree_of(s.func, machine.target.operations), machine)
        for s in (default.schedule, chosen.schedule)
    ]
    row = {
        "shape": shape.name, "source": shape.source, "gflop": shape.flops / 1e9,
        "nests": [nest.rule for nest in default.plan.nests], "construct_s": constructed,
        "candidates": len(found), "predicted": price[0] / price[1],
        "roofline_gain": roofline_gain(task),
        "chosen": "default" if chosen.plan == default.plan else "constructed",
    }  # fmt: skip
    runs = {"default": _runner(default.schedule, threads, arrays)}
    runs["construct"] = _runner(chosen.schedule, threads, arrays)
    if len(found) > 1:
        runs["first"] = _runner(found[1].schedule(task), threads, arrays)
    runs["construct-tree"] = _runner(tree.schedule, threads, arrays)
    if options.evolutionary:
        run = evolutionary(task, threads, arrays, max(options.evolutionary, constructed))
        if run is not None:
            runs["evolutionary"] = run
    tensors = [torch.from_numpy(array) for array in arrays]
    runs["torch"] = lambda: shape.torch(*tensors)
    with torch.inference_mode():
        row["ms"] = in_turns(runs, options.rounds, options.seconds)
    if options.regret:
        row["regret"] = regrets(task)
    return row


def sweep(options, say) -> None:
    """Construction of many products; a sample of them searched exhaustively."""
    shapes, machine = drawn(options.sweep, options.seed), Machine(detect(), options.threads)
    times, made = [], 0
    for shape in shapes:
        task = Task(shape.make(), machine)
        start = time.perf_counter()
        found = STRATEGIES["construct"].start(task, History(), Random(0)).propose(2)
        times.append(time.perf_counter() - start)
        made += len(found) > 1
    median = statistics.median(times)
    say({"shapes": len(shapes), "constructed": made, "median_s": median, "most_s": max(times)})
    first, eight, plain = [], [], []
    end = time.perf_counter() + options.budget
    for shape in Random(options.seed).sample(shapes, min(len(shapes), 4 * options.sample)):
        if len(first) == options.sample or time.perf_counter() > end:
            break
        task = Task(shape.make(), machine)
        found = STRATEGIES["construct"].start(task, History(), Random(0)).propose(options.widest)
        if len(found) < 3:
            continue
        arrays = _arrays(task.program)
        runs = {}
        for at, candidate in enumerate(found):
            try:
                runs[at] = _runner(candidate.schedule(task), options.threads, arrays)
            except UserError:
                continue
        seen = in_turns(runs, options.rounds, options.seconds)
        chosen = best_by_model(STRATEGIES["construct"], task)
        at = next(n for n, candidate in enumerate(found) if candidate.plan == chosen.plan)
        # the fastest of many is partly luck: what is compared runs again
        leader, of_eight = min(seen, key=seen.get), min((n for n in seen if n < 8), key=seen.get)
        again = {n: runs[n] for n in dict.fromkeys((leader, of_eight, at, 0))}
        ms = in_turns(again, 2 * options.rounds, options.seconds)
        best = min(ms.values())
        first.append(best / ms[at])
        eight.append(best / ms[of_eight])
        plain.append(best / ms[0])
        say({
            "shape": shape.name, "gflop": shape.flops / 1e9, "candidates": len(seen), "unmeasured": first[-1],
            "best_of_8": eight[-1], "default": plain[-1],
        })  # fmt: skip
    if first:
        say({
            "sample": len(first), "unmeasured": statistics.geometric_mean(first),
            "best_of_8": statistics.geometric_mean(eight), "default": statistics.geometric_mean(plain),
        })  # fmt: skip


#: Networks by their names here; small texts, since whole ones take longer than a benchmark may.
NETWORKS = {
    "tinybert4": lambda batch: zoo.bert(zoo.TINYBERT_4, batch=batch, length=128),
    "resnet50": lambda batch: zoo.resnet50(batch),
    "mobilenet_v2": lambda batch: zoo.mobilenet_v2(batch),
    "gpt2": lambda batch: zoo.FULL["gpt2"](),
    "resnet34": lambda batch: zoo.resnet34(batch),
}


def network(name: str, options) -> dict[str, object]:
    """Compiling and running one network by construction and by the default, in turns."""
    source, seconds, runs = NETWORKS[name](options.batch), {}, {}
    for strategy in ("default", "construct"):
        start = time.perf_counter()
        model = tilewright.compile(source, threads=options.threads, strategy=strategy, records="off")
        seconds[strategy] = time.perf_counter() - start
        runs[strategy] = model.bind(model.sample_feeds()).run
    return {
        "network": name, "batch": options.batch, "compile_s": seconds,
        "ms": in_turns(runs, options.rounds, options.seconds),
    }  # fmt: skip


def main() -> None:
    """Read the arguments, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=float, default=2e10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="for the turns of one shape")
    parser.add_argument("--evolutionary", type=float, default=0.0, help="seconds of that search, 0: none")
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--sweep", type=int, default=0)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--widest", type=int, default=32, help="candidates of a sample that are measured")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="", help="a GPU's table, such as a100")
    parser.add_argument("--variants", action="store_true", help="kernels of all variants for --device")
    parser.add_argument("--networks", default="")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    def say(row) -> None:
        print(json.dumps(row) if options.json else row, flush=True)

    if options.sweep:
        sweep(options, say)
        return
    for name in filter(None, options.networks.split(",")):
        say(network(name, options))
    if options.networks:
        return
    wanted = set(filter(None, options.only.split(",")))
    if options.device:
        target = find_target(options.device)
        for shape in table_four():
            if not wanted or wanted & {shape.name, shape.source}:
                say(device_row(shape, target, time.perf_counter, options.variants))
        return
    rows = []
    for shape in (*table_four(), *general()):
        if wanted and not wanted & {shape.name, shape.source}:
            continue
        if shape.flops > options.most:
            say({"shape": shape.name, "left_out": f"{shape.flops / 1e9:.0f} Gflop"})
            continue
        rows.append(compare(shape, options))
        say(rows[-1])
    for source in ("general", None):
        some = [row["ms"] for row in rows if (row["source"] == "general") == (source == "general")]
        if some:
            say({
                "of": source or "table", "shapes": len(some),
                **{
                    f"{name}/construct": statistics.geometric_mean(ms[name] / ms["construct"] for ms in some)
                    for name in ("default", "construct-tree", "torch")
                },
            })  # fmt: skip


if __name__ == "__main__":
    main()
