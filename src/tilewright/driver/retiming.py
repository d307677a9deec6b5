"""Whether what was tuned is faster inside of its network: by kernels, and the whole in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

from tilewright.devices import load_fixed
from tilewright.driver.model import CompiledModel
from tilewright.support import InstallationError, get_logger

_log = get_logger(__name__)

#: Rounds in which both models take turns, and runs of each in a round that is profiled.
ROUNDS: Final = 9
REPEATS: Final = 5
#: Seconds of one model in a round of the whole.
SECONDS: Final = 0.1
#: Rounds that there are at least where single runs take longer than a round should, and how many times as
#: long all of them may take then: one run of seconds says as much as several of a millisecond.
LEAST_ROUNDS, LONGEST = 3, 4
#: Part of the rounds that the tuned model must win.
MOSTLY: Final = 2 / 3
#: Seconds after which a fresh process is given up.
TIMEOUT: Final = 120.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of the fastest run by default and tuned, and whether the tuned model is faster in most rounds.

    ``fresh`` says that both ran in a process of their own.
    """

    untuned: float
    best: float
    faster: bool
    fresh: bool


def timed_rounds(
    runs: Sequence[Callable[[], object]], rounds: int = 5, seconds: float = 0.1
) -> list[list[float]]:
    """Of each run its shortest time in each round; all take turns in each round, after one to warm up.

    Where runs take seconds there are fewer rounds, three at least.
    """
    best: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    last = time.perf_counter() + LONGEST * rounds * seconds * len(runs)
    for done in range(rounds):
        if done >= LEAST_ROUNDS and time.perf_counter() > last:
            break
        for n, run in enumerate(runs):
            least, end = inf, time.perf_counter() + seconds
            while time.perf_counter() < end:
                begin = time.perf_counter()
                run()
                least = min(least, time.perf_counter() - begin)
            best[n].append(least)
    return best


def timed_in_turns(
    runs: Sequence[Callable[[], object]], rounds: int = 5, seconds: float = 0.1
) -> list[float]:
    """The median over rounds of each run's shortest time, all taking turns in each round."""
    return [median(times) for times in timed_rounds(runs, rounds, seconds)]


def ratios_inside(default: CompiledModel, tuned: CompiledModel, rounds: int = ROUNDS) -> list[float]:
    """What each kernel of the tuned model takes of the default's time, in runs of the whole.

    Both are profiled in turns; a ratio is the median over the rounds. What other kernels leave in caches is
    as in the network: a kernel whose weights they evict reads them from memory again.
    """
    feeds = default.sample_feeds()
    ratios: list[list[float]] = [[] for _ in default.groups()]
    for _ in range(rounds):
        old, new = (model.profile(feeds, REPEATS).rows for model in (default, tuned))
        for found, a, b in zip(ratios, old, new, strict=True):
            found.append(b.fastest / a.fastest if a.fastest > 0 else 1.0)
    return [median(found) for found in ratios]


def compared(default: CompiledModel, tuned: CompiledModel, rounds: int = ROUNDS) -> Comparison:
    """Both models timed in turns in a fresh process; in this one where models cannot be saved here."""
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            paths = [str(Path(folder) / name) for name in ("default.tw", "tuned.tw")]
            default.save(paths[0])
            tuned.save(paths[1])
            command = (sys.executable, "-P", "-m", "tilewright.driver.retiming")
            request = {"models": paths, "threads": default.threads, "rounds": rounds}
            done = subprocess.run(
                [*command, json.dumps(request)], capture_output=True, timeout=TIMEOUT, check=True
            )
            return comparison(json.loads(done.stdout), fresh=True)
    except (InstallationError, subprocess.SubprocessError, ValueError) as error:
        _log.warning("models are compared in this process: %s", error)
    feeds = default.sample_feeds()
    return comparison(
        timed_rounds([m.bind(feeds).run for m in (default, tuned)], rounds, SECONDS), fresh=False
    )


def comparison(times: Sequence[Sequence[float]], *, fresh: bool) -> Comparison:
    """What the default's and another's times in the same rounds say."""
    old, new = times
    won = sum(b < a for a, b in zip(old, new, strict=True))
    ratio = median(b / a for a, b in zip(old, new, strict=True))
    # load comes in bursts of seconds: what is faster is so in the quietest rounds as well
    faster = ratio < 1 and won >= MOSTLY * len(old) and min(new) < min(old)
    return Comparison(min(old), min(new), faster, fresh)


def main() -> None:
    """Time saved models in turns: what to do is the only argument, the seconds of each round are printed."""
    request: Mapping[str, Any] = json.loads(sys.argv[1])
    models = [load_fixed(path, threads=request["threads"]) for path in request["models"]]
    feeds = models[0].sample_feeds()
    times = timed_rounds([m.bind(feeds).run for m in models], request["rounds"], SECONDS)
    sys.stdout.write(json.dumps(times))


if __name__ == "__main__":
    main()
