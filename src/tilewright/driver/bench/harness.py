"""Comparing engines: each in a process of its own, taking turns, only one at work at a time.

The engines run in rounds, A B C A B C ..., so that a machine that gets slower or faster meanwhile does so for
all of them. A pause before each turn lets the others' idle threads fall asleep.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from tilewright.driver.bench.engines import ENGINES
from tilewright.driver.engines import have_module
from tilewright.driver.load import OtherLoad
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.units import Precision
from tilewright.support import InputError, InstallationError, InternalError, known_names

Array = npt.NDArray[Any]

OURS: Final = "tilewright"
PAUSE: Final = 0.3
"""Seconds between two engines' turns: longer than any of them lets its threads spin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure: ``rounds`` turns an engine of ``seconds`` each, at least ``least`` runs a turn.

    ``warmup`` is the seconds that each engine runs before the first round, ``uncounted`` the runs at the
    start of each turn that wake threads and fill caches and do not count. Before each turn all are idle for
    ``pause`` seconds. With ``keep_memory`` the engines' processes keep what they free: single operators with
    large results would otherwise mostly wait for fresh pages. Engines that know no other ``precision`` than
    f32 run in that. ``target`` is what Tilewright compiles for, with ``accuracy``; the others run on the CPU.
    """

    engines: tuple[str, ...]
    threads: int
    rounds: int = 7
    seconds: float = 1.0
    least: int = 3
    warmup: float = 0.5
    uncounted: int = 0
    pause: float = PAUSE
    keep_memory: bool = False
    precision: Precision = "f32"
    target: str = "cpu"
    accuracy: str | float = "auto"

    def __post_init__(self) -> None:
        for name in self.engines:
            if name not in ENGINES:
                hint = known_names(name, ENGINES, "the engines")
                raise InputError(f"there is no engine {name!r}", hint=hint)
            module = ENGINES[name].module
            if module and not have_module(module):
                raise InstallationError(f"{module} is not installed", hint=f"pip install {module}")


@dataclass(slots=True)
class EngineResult:
    """One engine's times in seconds, round by round; ``error`` says why there are none."""

    engine: str
    version: str = ""
    load_seconds: float = 0.0
    rounds: list[list[float]] = field(default_factory=list)
    difference: float | None = None
    accuracy: dict[str, float] | None = None
    error: str | None = None

    @property
    def times(self) -> list[float]:
        """The seconds of all runs."""
        return [seconds for turn in self.rounds for seconds in turn]

    @property
    def median(self) -> float | None:
        """The median of all runs."""
        return statistics.median(self.times) if self.times else None

    @property
    def minimum(self) -> float | None:
        """The fastest run."""
        return min(self.times, default=None)

    def as_data(self, ours: EngineResult | None) -> dict[str, Any]:
        """The result as plain data, with our time as a multiple of this engine's."""
        data: dict[str, Any] = {"engine": self.engine, "version": self.version, "error": self.error}
        if self.median is not None and self.minimum is not None:
            data |= {
                "load_s": self.load_seconds,
                "runs": len(self.times),
                "median_ms": self.median * 1e3,
                "min_ms": self.minimum * 1e3,
                "round_medians_ms": [statistics.median(turn) * 1e3 for turn in self.rounds if turn],
                "max_difference": self.difference,
            }
            if self.accuracy is not None:
                data["accuracy"] = self.accuracy
            if ours is not None and ours.median is not None:
                data["ours_to_this"] = ours.median / self.median
        return data


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All engines' results for one model, in the order asked for."""

    model: str
    plan: BenchPlan
    engines: tuple[EngineResult, ...]
    others: OtherLoad = field(default_factory=OtherLoad)
    """What other processes used of the CPUs while all engines paused."""

    @property
    def ours(self) -> EngineResult | None:
        """Tilewright's own result, if it took part."""
        return next((each for each in self.engines if each.engine == OURS), None)

    def as_data(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "model": self.model,
            "threads": self.plan.threads,
            "precision": self.plan.precision,
            "target": self.plan.target,
            "accuracy": self.plan.accuracy,
            "rounds": self.plan.rounds,
            "seconds_a_turn": self.plan.seconds,
            "others_cpu": self.others.share,
            "engines": [each.as_data(self.ours) for each in self.engines],
        }


def run_benchmark(
    model: str,
    path: Path,
    feeds: Mapping[str, Array],
    plan: BenchPlan,
    progress: Progress = no_progress,
) -> BenchResult:
    """Measure all engines of the plan on one model file.

    ``model`` is what to call it. An engine that fails is reported as failed; the others go on.
    """
    with Bench(plan) as bench:
        return bench.measure(model, path, feeds, progress)


class Bench:
    """Measures one model after another with the same processes, which end with the ``with``."""

    def __init__(self, plan: BenchPlan) -> None:
        self.plan = plan
        self._workers = _Processes(plan.engines)

    def __enter__(self) -> Self:
        self._workers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)

    def measure(
        self,
        model: str,
        path: Path,
        feeds: Mapping[str, Array],
        progress: Progress = no_progress,
        each_round: Callable[[], object] | None = None,
    ) -> BenchResult:
        """As `run_benchmark`. ``each_round`` is called in every round after the first engine's turn."""
        plan, workers = self.plan, self._workers
        results = {name: EngineResult(name) for name in plan.engines}
        others = OtherLoad()
        run: dict[str, Any] = {"do": "run", "least": plan.least, "uncounted": plan.uncounted}
        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
            archive = Path(folder, "feeds.npz")
            np.savez(archive, *feeds.values())
            load: dict[str, Any] = {"do": "load", "model": str(path), "feeds": str(archive)}
            load |= {"names": list(feeds), "threads": plan.threads, "keep_memory": plan.keep_memory}
            load |= {"target": plan.target, "accuracy": plan.accuracy}
            exact = _exact_outputs(load, Path(folder, "exact.npz")) if plan.precision != "f32" else None
            outputs: dict[str, list[Array]] = {}
            for done, name in enumerate(plan.engines):
                progress("load", done, len(plan.engines), name)
                workers.revive(name)
                loaded = workers.ask(results[name], {**load, "precision": plan.precision})
                if loaded is not None:
                    results[name].version = loaded["version"]
                    results[name].load_seconds = loaded["seconds"]
                    outputs[name] = _outputs(workers, results[name], Path(folder, f"{done}.npz"))
                    workers.ask(results[name], {**run, "seconds": plan.warmup, "least": 1})
            progress("load", len(plan.engines), len(plan.engines))
            for turn in range(plan.rounds):
                progress("rounds", turn, plan.rounds)
                for at, name in enumerate(plan.engines):
                    with others:
                        time.sleep(plan.pause)
                    made = workers.ask(results[name], {**run, "seconds": plan.seconds})
                    if made is not None:
                        results[name].rounds.append(made["times"])
                    if at == 0 and each_round is not None:
                        time.sleep(plan.pause)
                        each_round()
            progress("rounds", plan.rounds, plan.rounds)
        for name in plan.engines:
            results[name].difference = _difference(outputs.get(OURS), outputs.get(name))
            if exact is not None:
                results[name].accuracy = _accuracy(outputs.get(name), exact)
        return BenchResult(model, plan, tuple(results.values()), others)


def _exact_outputs(load: Mapping[str, Any], path: Path) -> list[Array] | None:
    """What our own engine computes in f32: the measure of other precisions."""
    result = EngineResult(OURS)
    with _Processes([OURS]) as workers:
        loaded = workers.ask(result, {**load, "precision": "f32"})
        return None if loaded is None else _outputs(workers, result, path)


def _accuracy(made: Sequence[Array] | None, exact: Sequence[Array]) -> dict[str, float] | None:
    """Errors of outputs in comparison with f32: the worst of all outputs.

    ``relative_l2`` is the norm of the errors over that of the output, ``max`` the largest error over the
    largest element, ``top1`` the part of the rows whose largest element is the same.
    """
    if not made or len(made) != len(exact):
        return None
    worst = {"relative_l2": 0.0, "max": 0.0, "top1": 1.0}
    for a, b in zip(made, exact, strict=True):
        x, y = a.astype(np.float64), b.astype(np.float64)
        if x.shape != y.shape or not x.size:
            continue
        worst["relative_l2"] = max(
            worst["relative_l2"], float(np.linalg.norm(x - y) / (np.linalg.norm(y) or 1.0))
        )
        worst["max"] = max(worst["max"], float(np.abs(x - y).max() / (np.abs(y).max() or 1.0)))
        if x.ndim:
            worst["top1"] = min(worst["top1"], float((x.argmax(-1) == y.argmax(-1)).mean()))
    return worst


def _outputs(workers: _Processes, result: EngineResult, path: Path) -> list[Array]:
    made = workers.ask(result, {"do": "outputs", "path": str(path)})
    if made is None:
        return []
    with np.load(path, allow_pickle=False) as archive:
        return [archive[f"arr_{at}"] for at in range(made["count"])]


def _difference(ours: Sequence[Array] | None, theirs: Sequence[Array] | None) -> float | None:
    """The largest difference of outputs from ours, as a part of the output's largest element."""
    if not ours or not theirs or len(ours) != len(theirs):
        return None
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            return None
        if a.size:
            scale = float(np.abs(b.astype(np.float64)).max()) or 1.0
            worst = max(worst, float(np.abs(a.astype(np.float64) - b).max()) / scale)
    return worst


class _Processes:
    """The engines' processes; all have ended when the ``with`` does."""

    def __init__(self, names: Sequence[str]) -> None:
        self._running = {name: _start(name) for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            if kind is not None:
                process.kill()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def revive(self, name: str) -> None:
        """Start an engine's process again if it has ended."""
        if self._running[name].poll() is not None:
            self._running[name].communicate()
            self._running[name] = _start(name)

    def ask(self, result: EngineResult, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request; None, with the reason in the result, once the engine has failed."""
        if result.error is not None:
            return None
        process = self._running[result.engine]
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            result.error = f"its process ended with status {process.poll()}"
            return None
        answer = json.loads(line)
        if "error" in answer:
            result.error = str(answer["error"])
            return None
        found = answer["ok"]
        if not isinstance(found, dict):
            raise InternalError("a benchmark's worker answered with something else than an object")
        return found


def _start(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tilewright.driver.bench.worker", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
