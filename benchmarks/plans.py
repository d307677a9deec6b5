"""Plans priced a second: loop trees from plans, the analytic model; nothing is scheduled, nothing memoised.

    python benchmarks/plans.py --json
    python benchmarks/plans.py --only chain --plans 500

One line a problem: distinct plans of its space drawn by a fixed seed, how many of them have a tree without
scheduling (``known``), microseconds of CPU a tree and a price, and plans a second on one core.
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
from tilewright.plan import EXACT, RULES, Nest, UnitPlan, rewritten
from tilewright.schedule import Trace
from tilewright.strategies import Prices, Task
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


def drawn(name: str, task: Task, count: int) -> list[UnitPlan]:
    """Distinct plans of the space of a task's default nests, of a chain those of one nest of all stages."""
    if name.startswith("chain"):
        *members, root = (stage.name for stage in task.program.stages)
        nests = (Nest("pipeline", root, tuple(members), None),)
        base = UnitPlan(Trace(()), nests)
    else:
        base = task.default().plan
    _, context = rewritten(task.program, replace(base, nests=()), task.machine)
    spaces = [RULES[n.rule].space(RULES[n.rule].match(context, n.root, n.stages)) for n in base.nests]
    rng, found = random.Random(1), {}
    for _ in range(DRAWS * count):
        nests = tuple(replace(n, plan=s.sample(rng)) for n, s in zip(base.nests, spaces, strict=True))
        found[replace(base, nests=nests, streamed=())] = None
        if len(found) == count:
            break
    return list(found)


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
        plans, prices = drawn(name, task, options.plans), Prices(task)
        known = [plan for plan in plans if prices.tree(plan) is not None]
        best = float("inf"), float("inf")
        for _ in range(options.rounds):
            taken = [0.0, 0.0]
            for some in batched(known):
                start = time.process_time()
                trees = [prices.tree(plan) for plan in some]
                middle = time.process_time()
                for tree in trees:
                    seconds(tree, machine)
                end = time.process_time()
                taken = [taken[0] + middle - start, taken[1] + end - middle]
            best = min(best, tuple(taken), key=sum)
        count = max(1, len(known))
        line = {
            "problem": name,
            "plans": len(plans),
            "known": len(known),
            "tree_us": round(best[0] / count * 1e6, 1),
            "price_us": round(best[1] / count * 1e6, 1),
            "plans_per_second": round(count / sum(best)),
        }
        print(json.dumps(line) if options.json else line, flush=True)


if __name__ == "__main__":
    main()
