"""A fleet to tune on: what a tuner can take from many workers, two workers beside one, and its page.

    python benchmarks/fleet.py --json                       # all parts
    python benchmarks/fleet.py --parts simulation --workers 1000 --trials 40000
    python benchmarks/fleet.py --parts local --trials 48     # needs Ray
    python benchmarks/fleet.py --parts page

`simulation`: a pool of so many workers, which answer from a file at once, so that what is timed is the
tuner: requests made, answers read and checked, trials written into one database. `local`: candidates a second
of small products by two workers of this machine and by one, in turns. `page`: the report of 20,000 trials.
"""

import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from arguments import names, parser_of

from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver import ClusterMeasurer, cluster_measurer, measure_limits
from tilewright.ir import canonical_program, structural_hash
from tilewright.plan import EXACT
from tilewright.report import of_database, render
from tilewright.strategies import STRATEGIES, Candidate, History, Task
from tilewright.target import detect
from tilewright.tune import Database, Link, Network, Record, Step

#: Tasks of the simulated model, and answers that a step of the simulated network brings at most.
TASKS = 20
A_STEP = 64
#: Trials and tasks of the page, and seconds for each limit of the machine, as the command has it.
PAGE = 20_000
PAGE_TASKS = 100
LIMIT_SECONDS = 0.05
PARTS = ("simulation", "page", "local")


def product(size: int) -> Task:
    """A small product of matrices: building it takes far longer than running it."""
    x, y = (lang.placeholder((size, size), name=name) for name in "XY")
    program = lang.program([x, y], [lang.ops.matmul(x, y, name="Z")])
    return Task(canonical_program(program), Machine(detect(), 1), accuracy=EXACT)


def candidates_of(task: Task, count: int, seed: int) -> list[Candidate]:
    """Different candidates of a task, as far as there are so many."""
    return list(STRATEGIES["random"].start(task, History(), Random(seed)).propose(count))


class Answering:
    """Workers that answer from a file, without working; messages are bytes, as between machines."""

    def __init__(self, workers: int, file: Path) -> None:
        self.size = workers
        self._lines = file.read_text().splitlines()
        self._answers: dict[Hashable, bytes] = {}
        self._waiting: deque[Hashable] = deque()
        self.messages = self.sent = self.received = 0

    def send(self, worker: int, request: Mapping[str, Any]) -> Hashable:
        """Take a request, and have its answer ready."""
        self.messages += 1
        self.sent += len(json.dumps(request))
        if request["do"] == "describe":
            told: dict[str, Any] = {"fingerprint": detect().fingerprint}
        elif request["do"] == "build":
            told = {"trials": [None] * len(request["candidates"])}
        else:
            count = len(request["candidates"])
            lines = [self._lines[(self.messages + n) % len(self._lines)] for n in range(count)]
            told = {"trials": [json.loads(line) for line in lines]}
        self._answers[self.messages] = json.dumps(told).encode()
        self._waiting.append(self.messages)
        return self.messages

    def ready(self, tickets: Sequence[Hashable], seconds: float) -> Sequence[Hashable]:
        """The oldest answers, a step of the network."""
        return [self._waiting.popleft() for _ in range(min(A_STEP, len(self._waiting)))]

    def answer(self, ticket: Hashable) -> object:
        """An answer."""
        text = self._answers.pop(ticket)
        self.received += len(text)
        return json.loads(text)

    def drop(self, worker: int) -> None:
        """Nobody is lost here."""

    def close(self) -> None:
        """Nothing to end."""


def simulation(workers: int, trials: int) -> dict[str, object]:
    """The tuner's part of measuring so many candidates on so many workers."""
    rng = Random(0)
    tasks = [product(16 + n) for n in range(TASKS)]
    found = [candidates_of(task, 64, 0) for task in tasks]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "answers.jsonl")
        answers = [
            {"status": "ok", "seconds": [rng.uniform(1e-6, 1e-4)], "reason": "", "func": f"{n:040x}"}
            | {"build_seconds": 0.1, "load": 0.0}
            for n in range(1000)
        ]
        file.write_text("\n".join(map(json.dumps, answers)))
        pool = Answering(workers, file)
        path = Path(folder, "r.db")
        with (
            Database(path) as records,
            ClusterMeasurer(pool, [f"host{n // 4}" for n in range(workers)]) as on,
        ):
            for task in tasks:
                records.declare(task, "product", task.key)
            session, done, commits, writing = records.begin("random", 0), 0, 0, 0.0
            begin, cpu = time.perf_counter(), time.process_time()
            while done < trials:
                size = -(-on.width // TASKS)
                jobs = [
                    (task, [each[n % len(each)] for n in range(size)])
                    for task, each in zip(tasks, found, strict=True)
                ]
                made = on.measure_all(jobs)
                before = time.perf_counter()
                for (task, _), results in zip(jobs, made, strict=True):
                    records.add(task.key, results, session)
                    commits += 1
                writing += time.perf_counter() - before
                done += sum(map(len, made))
            seconds, used = time.perf_counter() - begin, time.process_time() - cpu
            counted = sum(sum(records.counts(task.key).values()) for task in tasks)
        assert counted == done
        bytes_each = sum(each.stat().st_size for each in path.parent.glob("r.db*")) / done
    return {
        "part": "simulation",
        "workers": workers,
        "trials": done,
        "results a second": done / seconds,
        "results a CPU second": done / used,
        "messages a result": 2 * pool.messages / done,
        "bytes sent a result": pool.sent / done,
        "bytes received a result": pool.received / done,
        "transactions a second": commits / seconds,
        "share of writing": writing / seconds,
        "database bytes a result": bytes_each,
    }


def page() -> dict[str, object]:
    """The page of a database with many trials: seconds from the file to the text with all that it shows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.db")
        with Database(path) as records:
            rng = Random(0)
            steps: list[Step] = []
            for n in range(PAGE_TASKS):
                task = product(16 + n)
                records.declare(task, f"MatMul {n}", task.key)
                found = candidates_of(task, 64, n)
                fitting = [found[k % len(found)] for k in range(PAGE // PAGE_TASKS)]
                insert: list[list[object]] = []
                for c in fitting:
                    times = [rng.uniform(1e-6, 1e-4), "", c.plan.to_json(), "", 0.1, None]
                    insert.append([task.key, 1, c.origin, "ok", *times, "host"])
                insert[0][2] = "default"
                records.insert("trials", insert)
                planned = task.default()
                func = structural_hash(planned.schedule.func)
                records.keep(task.key, [Record(task.key, planned.plan, func, 1e-6, 2e-6)])
                text = planned.schedule.trace.to_python()
                steps.append(
                    Step(task.key, f"product {n}", "MatMul", (f"node {n}",), func=func, schedule=text)
                )
            links = tuple(Link(n, n + 1, f"value {n}") for n in range(PAGE_TASKS - 1))
            records.keep_network(Network("products", tuple(steps), links), compared=True)
        begin = time.perf_counter()
        with Database(path) as records:
            text = render(
                of_database(records, limits=lambda threads: measure_limits(detect(), threads, LIMIT_SECONDS))
            )
        seconds = time.perf_counter() - begin
    return {"part": "page", "trials": PAGE, "tasks": PAGE_TASKS, "seconds": seconds, "bytes": len(text)}


def local(trials: int, rounds: int) -> dict[str, object]:
    """Candidates a second by one worker and by two, in turns; starting the workers is left out."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(rounds):
        for workers in (1, 2):
            tasks = [product(24 + 8 * n) for n in range(4)]
            found = [candidates_of(task, trials // len(tasks), turn) for task in tasks]
            with cluster_measurer(f"local[{workers}]") as on:
                on.measure(tasks[0], candidates_of(tasks[0], 2 * workers, 99))  # starts its processes
                begin = time.perf_counter()
                done = sum(len(on.measure(task, each)) for task, each in zip(tasks, found, strict=True))
                rates[workers].append(done / (time.perf_counter() - begin))
    best = {workers: max(found) for workers, found in rates.items()}
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    return {
        "part": "local",
        "trials": trials,
        "rounds": rounds,
        "one": best[1],
        "two": best[2],
        "ratio": median(ratios),
        "ratios": ratios,
        "cpus": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="which, by commas")
    parser.add_argument("--workers", type=int, default=1000, help="of the simulation")
    parser.add_argument("--trials", type=int, help="40000 of the simulation, 48 of each turn of local")
    parser.add_argument("--rounds", type=int, default=3, help="turns of local")
    parser.add_argument("--json", action="store_true", help="one JSON line for each part")
    arguments = parser.parse_args()
    for part in names(arguments.parts):
        if part == "simulation":
            row = simulation(arguments.workers, arguments.trials or 40_000)
        elif part == "page":
            row = page()
        elif part == "local":
            row = local(arguments.trials or 48, arguments.rounds)
        else:
            parser.error(f"there is no part {part!r}")
        print(json.dumps(row) if arguments.json else row, flush=True)


if __name__ == "__main__":
    main()
