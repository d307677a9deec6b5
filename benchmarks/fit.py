"""A machine fitted from a database, beside the one fitted by hand: what kernels planned for each take.

    python benchmarks/fit.py --records fit.db --plans 8 --threads 2 --json
    python benchmarks/fit.py --records fit.db --plans 0 --json     # fit to what is in it already

Plans of the problems of `model_error.py` are measured into the database (those that are not held out there);
the fit begins with what the machine's class has. Then each problem is compiled for this machine as the table
has it, for its class, and as fitted. One line a problem: whether the plans are equal, else what class and fit
take of the table's time, in turns. The last line has how many are within 3 % of the table.
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import replace

from model_error import HELD_OUT, drawn, problems, program_of

import tilewright
from tilewright.cost import Machine
from tilewright.driver import CompiledModel, LocalMeasurer, timed_in_turns
from tilewright.ir import canonical_program
from tilewright.plan import EXACT
from tilewright.strategies import Task
from tilewright.support import UserError
from tilewright.target import detect
from tilewright.tune import Database, fitted

#: What a row may be slower or faster than the table's.
NEAR = 0.03


def measure(records: Database, plans: int, threads: int, only: str) -> int:
    """Measure drawn plans of the problems; how many there are then."""
    done, session = 0, records.begin("drawn", 1)
    with LocalMeasurer() as measurer:
        for at, (name, model) in enumerate(problems().items()):
            if only not in name or at % HELD_OUT == 0:
                continue
            program = canonical_program(program_of(model, threads))
            task = Task(program, Machine(detect(), threads), accuracy=EXACT)
            candidates = []
            for candidate in drawn(task, plans, random.Random(1)):
                try:
                    candidate.schedule(task)
                except UserError:
                    continue
                candidates.append(candidate)
            candidates[0] = replace(candidates[0], origin="default")
            records.declare(task, name, task.key)
            records.add(task.key, measurer.measure(task, candidates), session)
            done += len(candidates)
    return done


def plans_of(model: CompiledModel) -> list[str]:
    """The schedules of a model's kernels."""
    return [group.kernel.schedule.trace.to_python() for group in model.groups()]


def rows(records: Database, threads: int, only: str) -> Iterator[dict[str, object]]:
    """The fit, a line a problem, and how many are near."""
    found = fitted(records, detect(), detect(measured=False))
    yield {
        "quantities": {name: list(each) for name, each in found.quantities.items()},
        "tasks": found.tasks,
        "plans": found.samples,
        "error": list(found.error),
        "held out": list(found.held_out),
    }
    targets = {"class": detect(measured=False), "fit": found.target}
    near = dict.fromkeys(targets, 0)
    count = 0
    for at, (name, model) in enumerate(problems().items()):
        if only not in name:
            continue
        table = tilewright.compile(model, threads=threads, records="off")
        feeds = table.sample_feeds()
        line: dict[str, object] = {"problem": name, "held_out": at % HELD_OUT == 0}
        for kind, target in targets.items():
            other = tilewright.compile(model, threads=threads, records="off", target=target)
            same = plans_of(table) == plans_of(other)
            if not same:
                a, b = timed_in_turns([table.bind(feeds).run, other.bind(feeds).run], 9, 0.05)
                line[kind] = round(b / a, 3)
            near[kind] += same or abs(line[kind] - 1) <= NEAR
        count += 1
        yield line
    yield {"problems": count, **{f"{kind} within 3 %": n for kind, n in near.items()}}


def main() -> None:
    """Measure, fit, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", required=True, help="the database, which is made where there is none")
    parser.add_argument("--plans", type=int, default=8, help="plans a problem besides the default's; 0: none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="problems whose name has this in it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with Database(arguments.records) as records:
        if arguments.plans:
            measure(records, arguments.plans, arguments.threads, arguments.only)
        for row in rows(records, arguments.threads, arguments.only):
            print(json.dumps(row) if arguments.json else row, flush=True)


if __name__ == "__main__":
    main()
