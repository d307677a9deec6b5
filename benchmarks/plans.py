"""Trees priced a second: their loops by a walk, the analytic model; nothing is scheduled.

    python benchmarks/plans.py --json
    python benchmarks/plans.py --only chain --plans 500

One line a problem: distinct plans of its space drawn by a fixed seed, microseconds of CPU that writing the
trees, walking them and pricing the loops take, trees priced a second on one core (``cold``: walked, priced,
nothing remembered), and plans around the default, each one edit from another, priced by what searches ask
(``edits``: written, walked, priced).
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from tilewright import lang
from tilewright.cost import Machine, seconds
from tilewright.lang import ops
from tilewright.plan import EXACT, Cluster, UnitPlan, Variants
from tilewright.schedule import Trace
from tilewright.strategies import Prices, Task
from tilewright.strategies.moves import Moves
from tilewright.support import ScheduleError
from tilewright.target import detect

#: Draws for each plan that is wanted, at most: spaces of few plans end before.
DRAWS = 20


def chain(count: int):
    x = last = lang.placeholder((512, 1024), name="X")
    for k in range(count):
        shape = (512 - 2 * (k + 1), 1024 - 2 * (k + 1))
        if k % 2:
            last = lang.compute(shape, lambda i, j, P=last: P[i + 1, j + 1] * P[i, j], name=f"S{k}")
        else:
            last = lang.compute(
                shape, lambda i, j, P=last: P[i, j] * 0.5 + P[i + 2, j + 1] + P[i + 1, j + 2], name=f"S{k}"
            )
    return lang.program([x], [last])


def convolution():
    x = lang.placeholder((1, 64, 58, 58), name="X")
    w = lang.placeholder((64, 64, 3, 3), name="W")
    return lang.program([x, w], [ops.conv(x, w)])


def product():
    a, b = lang.placeholder((512, 512), name="A"), lang.placeholder((512, 512), name="B")
    return lang.program([a, b], [ops.matmul(a, b)])


def softmax():
    x = lang.placeholder((4, 12, 128, 128), name="X")
    return lang.program([x], [ops.softmax(x)])


PROBLEMS = {"convolution": convolution, "product": product, "softmax": softmax, "chain 12": lambda: chain(12)}


def drawn(name: str, task: Task, count: int) -> tuple[Variants, list[UnitPlan]]:
    """Distinct plans of the space of a task's default nests, of a chain those of one nest of all stages."""
    base = task.default().plan
    if name.startswith("chain"):
        *members, root = (stage.name for stage in task.program.stages)
        base = UnitPlan(Trace(()), (), asked=(Cluster("pipeline", root, tuple(members)),))
    variants = Variants(task.program, base, task.machine)
    rng, found = random.Random(1), {}
    for _ in range(DRAWS * count):
        choices = {n: v.space.sample(rng) for n, v in enumerate(variants.nests) if v is not None}
        try:
            found[replace(variants.chosen(choices), streamed=())] = None
        except ScheduleError:
            continue
        if len(found) == count:
            break
    return variants, list(found)


def edits_of(task: Task, plan: UnitPlan, count: int) -> Iterator[UnitPlan]:
    """Plans that are a move away from one, then those around these."""
    todo, seen, moves = [plan], {plan}, Moves(task, random.Random(1))
    for now in todo:
        for other in moves.around(now):
            if other in seen:
                continue
            if len(seen) > count:
                return
            seen.add(other)
            todo.append(other)
            yield other


def batched(plans: list[UnitPlan]) -> Iterator[list[UnitPlan]]:
    """Few at a time: a search keeps no trees, and the collector of garbage looks at all that are kept."""
    for n in range(0, len(plans), 20):
        yield plans[n : n + 20]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=1000, help="distinct plans a problem, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="the fastest round counts")
    parser.add_argument("--only", default="", help="problems whose name has this in it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = Machine(detect(), options.threads)
    for name, make in PROBLEMS.items():
        if options.only not in name:
            continue
        task = Task(make(), machine, accuracy=EXACT)
        variants, plans = drawn(name, task, options.plans)
        context = variants.context
        best = float("inf"), float("inf"), float("inf")
        for _ in range(options.rounds):
            taken = [0.0, 0.0, 0.0]
            for some in batched(plans):
                begin = time.process_time()
                for plan in some:
                    variants.chosen({n: nest.choice for n, nest in enumerate(plan.nests)})
                start = time.process_time()
                trees = [context.loops(plan.nests) for plan in some]
                middle = time.process_time()
                for tree in trees:
                    seconds(tree, machine)
                end = time.process_time()
                write = start - begin
                spent = (write, middle - start, end - middle)
                taken = [total + each for total, each in zip(taken, spent, strict=True)]
            best = min(best, tuple(taken), key=lambda each: sum(each[1:]))
        count = max(1, len(plans))
        near = list(edits_of(task, plans[0], options.plans))
        start, fresh = time.process_time(), Prices(task)
        for plan in near:
            fresh.seconds(plan)
        edits = time.process_time() - start
        line = {
            "problem": name,
            "plans": len(plans),
            "write_us": round(best[0] / count * 1e6, 1),
            "walk_us": round(best[1] / count * 1e6, 1),
            "price_us": round(best[2] / count * 1e6, 1),
            "cold_per_second": round(count / sum(best[1:])),
            "edits": len(near),
            "edits_per_second": round(len(near) / edits) if near else None,
        }
        print(json.dumps(line) if options.json else line, flush=True)


if __name__ == "__main__":
    main()
