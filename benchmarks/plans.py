"""Trees priced a second: their loops by a walk, the analytic model; nothing is scheduled.

    python benchmarks/plans.py --json
    python benchmarks/plans.py --only chain --plans 500

One line a problem: distinct plans of its space drawn by a fixed seed, how many of them have loops without
scheduling (``known``), microseconds of CPU that writing the trees, walking them and pricing the loops take,
trees priced a second on one core (``cold``: walked and priced, nothing remembered), and plans around the
default, each one edit from another, priced by what searches ask (``edits``: written, walked, priced).
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from tilewright import lang
from tilewright.cost import LoopTree, Machine, seconds
from tilewright.lang import ops
from tilewright.plan import EXACT, RULES, Nest, UnitPlan, rewritten
from tilewright.schedule import Trace
from tilewright.strategies import Prices, Task
from tilewright.strategies.edits import around, written
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


def edited(task: Task, plan: UnitPlan, count: int) -> Iterator[UnitPlan]:
    """Plans of trees that are an edit away from one, then those around these."""
    start = written(task, plan)
    todo, seen = [start], {start}
    for now in todo:
        for other in around(task, now):
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
        plans, prices = drawn(name, task, options.plans), Prices(task)
        known = [plan for plan in plans if prices.tree(plan) is not None]
        _, context = rewritten(task.program, replace(known[0], nests=()), machine)
        rules = [RULES[nest.rule] for nest in known[0].nests]
        problems = [
            rule.match(context, nest.root, nest.stages)
            for rule, nest in zip(rules, known[0].nests, strict=True)
        ]
        best = float("inf"), float("inf"), float("inf")
        for _ in range(options.rounds):
            taken = [0.0, 0.0, 0.0]
            for some in batched(known):
                begin = time.process_time()
                for plan in some:
                    for rule, problem, nest in zip(rules, problems, plan.nests, strict=True):
                        rule.trees(problem, nest.plan)
                start = time.process_time()
                # which write the trees again
                trees = [
                    LoopTree(
                        tuple(
                            node
                            for rule, problem, nest in zip(rules, problems, plan.nests, strict=True)
                            for node in rule.loops(context, problem, nest.plan).nests
                        )
                    )
                    for plan in some
                ]
                middle = time.process_time()
                for tree in trees:
                    seconds(tree, machine)
                end = time.process_time()
                write = start - begin
                spent = (write, max(0.0, middle - start - write), end - middle)
                taken = [total + each for total, each in zip(taken, spent, strict=True)]
            best = min(best, tuple(taken), key=lambda each: sum(each[1:]))
        count = max(1, len(known))
        near = list(edited(task, known[0], options.plans))
        start, fresh = time.process_time(), Prices(task)
        for plan in near:
            fresh.seconds(plan)
        edits = time.process_time() - start
        line = {
            "problem": name,
            "plans": len(plans),
            "known": len(known),
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
