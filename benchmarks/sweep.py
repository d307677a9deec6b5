"""Single operators over shapes, element types and operator sets, each compared with onnxruntime.

    python benchmarks/sweep.py --json > sweep.jsonl            # correctness of every case
    python benchmarks/sweep.py --only Resize --part 0/4        # a part of them
    python benchmarks/sweep.py --time --json                   # and the time of each
    python benchmarks/sweep.py --random 7 --seconds 90 --time  # drawn cases in place of the fixed ones
    python benchmarks/sweep.py --random 7:convolution:12       # one of them again

One line a case: ``ok``; ``wrong`` with the difference; ``refused`` by us with the reason; ``skipped`` where
onnxruntime does not have it; ``broken`` for an error that is none of the user's. With ``--time`` those that
take more than 1.5 times as long as onnxruntime and 5 us are shown. The process fails where a case is wrong
or broken. The cases are in `sweep_cases.py`, drawn from seeds of their own: the same in every run;
with ``--random`` in `sweep_random.py`, drawn from that seed for so many seconds, named ``SEED:KIND:NUMBER``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from arguments import names, parser_of
from sweep_cases import Case, all_cases
from sweep_random import drawn_case, drawn_cases

import tilewright
from tilewright.support import UserError

SLOWER = 1.5
"""Times onnxruntime's time from which a case is reported, beyond ``OVERHEAD`` seconds."""
OVERHEAD = 5e-6


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case; seconds are those of a call."""

    status: str
    message: str = ""
    ours: float = 0.0
    theirs: float = 0.0
    fallbacks: tuple[str, ...] = ()
    """Where a simpler rule had to do than the one that fits."""

    @property
    def slow(self) -> bool:
        """Whether a line has to say why."""
        return self.ours > SLOWER * self.theirs + OVERHEAD


def expected(case: Case, threads: int) -> tuple[list[np.ndarray], Callable[[], object]]:
    """What onnxruntime makes of a case, and a call that does it again."""
    import onnxruntime as ort  # noqa: PLC0415 - not needed to list cases

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        case.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, case.feeds), lambda: session.run(None, case.feeds)


def difference(case: Case, found: np.ndarray, wanted: np.ndarray) -> str:
    """How two results differ; nothing where they agree within the case's tolerance."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if found.dtype.kind not in "fc":
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return f"differs by {apart.max()}" if found.size and apart.max() > case.steps else ""
    tolerance = max(case.tolerance, 4e-3 if found.dtype == np.float16 else 0.0)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    if np.array_equal(np.isnan(a), np.isnan(b)):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(a - b))
        finite = np.abs(b[np.isfinite(b)])
        scale = np.maximum(np.abs(b), finite.mean() if finite.size else 0.0)
        if (same | (apart <= tolerance * scale + 1e-30)).all():
            return ""
        worst = int(np.nanargmax(apart))
        return f"{a.flat[worst]:.8g} instead of {b.flat[worst]:.8g} at {worst}"
    return "NaN in other places"


def seconds(call: Callable[[], object]) -> float:
    """The fastest of some seconds of a call."""
    best = float("inf")
    for _ in range(7):
        begin, count = time.perf_counter(), 0
        while count < 3 or time.perf_counter() - begin < 0.004:
            call()
            count += 1
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def judge(case: Case, *, timed: bool = False, threads: int = 1) -> Outcome:
    """Run a case in both engines; ours is timed while no thread of the other spins."""
    problem, found, ours, fallbacks = None, [], 0.0, ()
    try:
        model = tilewright.compile(case.model(), threads=threads)
        found = model.run(None, case.feeds)
        feeds = {name: np.asarray(array, order="C") for name, array in case.feeds.items()}
        run = model.bind(feeds).run
        ours = seconds(run) if timed else 0.0
        fallbacks = tuple(note for kernel in model.explain() for note in kernel["fallbacks"])
    except UserError as error:
        problem = Outcome("refused", " ".join(str(error).split())[:200])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        problem = Outcome("broken", f"{type(error).__name__}: {error}".replace("\n", " ")[:200])
    try:
        wanted, call = expected(case, threads)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class of its own for each kind of failure
        return Outcome("skipped", str(error).replace("\n", " ")[:160])
    if problem is not None:
        return problem
    for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if case.excuse:
            break
        if apart := difference(case, one, np.asarray(other)):
            return Outcome("wrong", f"output {at} {apart}")
    outcome = Outcome("ok", case.excuse, ours, seconds(call) if timed else 0.0, fallbacks)
    if outcome.slow:
        # once more, without the other's threads: something else may have run meanwhile
        del call
        outcome = replace(outcome, ours=min(ours, seconds(run)))
    return outcome


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    """The cases to judge, each with its name: fixed ones, or drawn ones for a while."""
    only = set(names(arguments.only))
    if not arguments.random:
        part, parts = map(int, arguments.part.split("/"))
        fixed = [case for case in all_cases() if not only or case.op in only]
        yield from ((case.name, case) for case in fixed[part::parts])
        return
    seed, *place = arguments.random.split(":")
    if place:
        if (case := drawn_case(int(seed), place[0], int(place[1]))) is not None:
            yield f"{arguments.random} {case.name}", case
        return
    end = time.monotonic() + arguments.seconds
    for name, case in drawn_cases(int(seed)):
        if time.monotonic() > end:
            return
        if not only or case.op in only:
            yield f"{name} {case.name}", case


def main() -> int:
    """Judge the chosen cases; 1 where one is wrong or broken."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="operators, by commas")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth case from the Kth on")
    parser.add_argument("--random", default="", help="SEED: drawn cases; SEED:KIND:NUMBER: one of them")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long cases are drawn")
    parser.add_argument("--time", action="store_true", help="also time each case beside onnxruntime")
    parser.add_argument("--threads", type=int, default=1, help="threads of both")
    parser.add_argument("--json", action="store_true", help="one JSON line a case")
    parser.add_argument("--list", action="store_true", help="only say how many cases there are")
    arguments = parser.parse_args()
    if arguments.list:
        listed = Counter(case.op for _, case in chosen(arguments))
        for op, count in sorted(listed.items()):
            print(f"{count:5} {op}")
        print(f"{listed.total():5} in all")
        return 0
    counts: Counter[str] = Counter()
    for name, case in chosen(arguments):
        outcome = judge(case, timed=arguments.time, threads=arguments.threads)
        counts[outcome.status] += 1
        counts["slow"] += outcome.slow
        line: dict[str, Any] = {"case": name, "op": case.op, "status": outcome.status}
        line |= {"message": outcome.message} if outcome.message else {}
        line |= {"fallbacks": outcome.fallbacks} if outcome.fallbacks else {}
        line |= {"us": outcome.ours * 1e6, "onnxruntime_us": outcome.theirs * 1e6} if arguments.time else {}
        if arguments.json:
            print(json.dumps(line), flush=True)
        elif outcome.status not in ("ok", "skipped") or outcome.slow:
            times = f" {outcome.ours * 1e6:.1f} us / {outcome.theirs * 1e6:.1f} us" if arguments.time else ""
            print(f"{outcome.status:8} {name}{times}: {outcome.message}", flush=True)
    print(f"{sum(counts.values()) - counts['slow']} cases: {dict(counts)}", file=sys.stderr)
    return int(counts["wrong"] + counts["broken"] > 0)


if __name__ == "__main__":
    sys.exit(main())
