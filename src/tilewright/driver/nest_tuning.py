"""Tuning a nest: sizes of tiles by measuring, from the rule's downhill, each batch in a process of its own.

The process that measures (this module, run) has the nest as text on standard input; it draws arrays, gives
each plan a fresh copy before each run, and compares results with those of the default plan.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.build import Array, Kernel, build
from tilewright.cost import Machine
from tilewright.driver.nests import AS_WRITTEN, Nest
from tilewright.driver.retiming import Comparison, comparison
from tilewright.driver.tuning import TRIALS, database_path, seconds_of
from tilewright.ir import (
    Buffer,
    LoopFunction,
    parse_function,
    print_function,
    structural_hash,
)
from tilewright.poly import data_decides
from tilewright.runtime import aligned_copy
from tilewright.strategies import (
    RULE,
    NestPlan,
    neighbours_in_registers,
    schedule_nest,
    streams_asked_ahead,
    work,
)
from tilewright.support import InputError, Settings, TargetError, TilewrightError, compare, quoted
from tilewright.target import detect
from tilewright.tune import Database, NestRecord, nest_key

#: Rounds in which plans take turns: while they are searched, and for the decision.
ROUNDS: Final = 3
LAST_ROUNDS: Final = 9
#: Seconds of one plan in a round, after one run.
ROUND_SECONDS: Final = 0.02
#: Parts of the time that is left in which a process may build what it is to measure, and in which it ends.
BUILD_SHARE: Final = 0.6
RUN_SHARE: Final = 0.9
#: Part of the budget that the decision between the best and the default may take.
LAST_SHARE: Final = 0.2
#: Seconds after which the decision is given up at the latest.
LAST_SECONDS: Final = 60.0
#: Roundings of results besides those of the updates of an element.
ROUNDINGS: Final = 64


@dataclass(frozen=True, slots=True)
class TunedNest:
    """What tuning a nest came to: its best plan, ``None`` where the default stays, and both plans' times.

    ``trials`` are seconds of the plans that were measured, infinite for those that failed.
    """

    plan: NestPlan | None
    times: Comparison
    trials: Mapping[NestPlan, float]


def tune_nest(
    nest: Nest,
    sizes: Mapping[str, int],
    *,
    budget: str | float = "30s",
    trials: int = TRIALS,
    seed: int = 0,
    database: Path | str | None = None,
    settings: Settings | None = None,
) -> TunedNest:
    """Search for faster tiles of a nest at given sizes, and keep them in a database where they are faster.

    Points of a tile in each loop are doubled and halved, from the rule's or from the order as written,
    whichever is faster, as long as that gains, in 8 to 512; at most so many ``trials`` within the ``budget``
    (``90s``, ``5m``, seconds). ``database`` is as in :func:`tilewright.tune`; nests that are compiled with it
    then take their tiles from it. Ctrl-C ends the search like the budget does.

    Raises InputError for a nest that has no tiles, or in which data decide about loops or indices,
    TargetError for the target of another machine, and what :meth:`Nest.scheduled` does.
    """
    until = time.monotonic() + seconds_of(budget)
    func = nest.at(sizes)
    name = quoted(func.name)
    if nest.strategy == AS_WRITTEN:
        raise InputError(
            f"the nest {name} is to stay as it is written", hint="choose the strategy polyhedral"
        )
    if nest.target.fingerprint != detect().fingerprint:
        raise TargetError(f"nests for {nest.target.name!r} cannot be timed on this machine")
    if data_decides(func):
        raise InputError(
            f"data decide about loops or indices of the nest {name}, and arrays are drawn for measuring",
            hint="tune the nests before and after it by themselves",
        )
    machine = Machine(nest.target, nest.threads)
    made = schedule_nest(func, machine)
    if not made.loops:
        raise InputError(f"the nest {name} has no tiles to tune: {made.notes[-1]}")
    last = until - LAST_SHARE * (until - time.monotonic())
    request = {"func": print_function(func), "threads": nest.threads, "seed": seed}
    found: dict[NestPlan, float] = {}
    best: NestPlan | None = None
    first = NestPlan(RULE.tiles * made.loops)
    batch = [first, NestPlan(())][:trials]
    try:
        while batch and time.monotonic() < last:
            plans = [None, *([best] if best else []), *batch]
            told = _told(request, plans, ROUNDS, last - time.monotonic())
            if not told:
                break
            took = {plan: min(times, default=inf) for plan, times in zip(plans, told, strict=True)}
            found |= {plan: took[plan] for plan in batch}
            fastest = min(took, key=lambda plan: took[plan])
            if fastest == best and best is not None:
                break
            if fastest is None and best is not None:
                best = None  # it was so by chance
                break
            best = fastest
            near = best if best is not None and best.tiles else first
            batch = [plan for plan in near.neighbours(made.loops) if plan not in found][: trials - len(found)]
    except KeyboardInterrupt:
        until = 0.0  # what was found is compared once more, and kept
    times = Comparison(inf, inf, faster=False, fresh=True)
    if best is not None:
        told = _told(request, [None, best], LAST_ROUNDS, max(LAST_SECONDS, until - time.monotonic()))
        if told and all(len(each) == LAST_ROUNDS for each in told):
            times = comparison(told, fresh=True)
    plan = best if times.faster else None
    with Database(database_path(database, settings)) as records:
        record = None if plan is None else NestRecord(plan, times.best, times.untuned)
        records.keep_nest(nest_key(func, machine), record)
    return TunedNest(plan, times, found)


def _told(
    request: Mapping[str, Any], plans: Sequence[NestPlan | None], rounds: int, seconds: float
) -> list[list[float]]:
    """Seconds of each plan in each round; none of a plan that failed, nothing where the process did."""
    command = (sys.executable, "-P", "-m", "tilewright.driver.nest_tuning")
    asked = {
        **request,
        "plans": [None if plan is None else plan.tiles for plan in plans],
        "rounds": rounds,
        "seconds": seconds,
    }
    try:
        done = subprocess.run(
            command, input=json.dumps(asked).encode(), capture_output=True, timeout=seconds, check=True
        )
    except subprocess.SubprocessError:
        return []
    told: list[list[float]] = json.loads(done.stdout)
    return told


def measured(request: Mapping[str, Any]) -> list[list[float]]:
    """Seconds of each plan of a request in each round, all taking turns; none of what fails or is wrong."""
    begin, seconds = time.monotonic(), float(request["seconds"])
    func, rng = parse_function(request["func"]), np.random.default_rng(request["seed"])
    machine = Machine(detect(), request["threads"])
    given = [_drawn(b, rng) for b in func.buffers]
    table = [aligned_copy(a) for a in given]
    expected: list[Array] | None = None
    ready: list[Kernel | None] = []
    known: dict[str, int] = {}
    same: list[int] = []
    for tiles in request["plans"]:
        same.append(len(ready))
        ready.append(None)
        if expected is not None and time.monotonic() - begin > BUILD_SHARE * seconds:
            continue
        plan = None if tiles is None else NestPlan(tuple(tiles))
        try:
            made = schedule_nest(func, machine, plan).func
            same[-1] = known.setdefault(structural_hash(made), same[-1])
            if same[-1] != len(ready) - 1:
                continue
            made = streams_asked_ahead(neighbours_in_registers(made, machine.target), machine.target)
            kernel = build(made, target=machine.target, threads=machine.threads, apart=True)
        except TilewrightError:
            continue
        _restore(func, table, given)
        kernel.run(table)
        if expected is None:
            expected = [a.copy() for a in table]
        elif not _equal(func, table, expected):
            continue
        ready[-1] = kernel
    times: list[list[float]] = [[] for _ in ready]
    longest = 0.0
    for _ in range(request["rounds"]):
        start = time.monotonic()
        if longest and start + longest - begin > RUN_SHARE * seconds:
            break
        for n, each in enumerate(ready):
            if each is not None:
                times[n].append(_round(func, each, table, given))
        longest = max(longest, time.monotonic() - start)
    return [times[n] for n in same]


def _round(func: LoopFunction, kernel: Kernel, table: Sequence[Array], given: Sequence[Array]) -> float:
    """The shortest run in some time, each on the arrays that were given."""
    best, begun = inf, time.perf_counter()
    while best == inf or time.perf_counter() - begun < ROUND_SECONDS:
        _restore(func, table, given)
        start = time.perf_counter()
        kernel.run(table)
        best = min(best, time.perf_counter() - start)
    return best


def _restore(func: LoopFunction, table: Sequence[Array], given: Sequence[Array]) -> None:
    """Let the arrays that a nest writes be as they were."""
    for b, array, first in zip(func.buffers, table, given, strict=True):
        if b.name in func.outputs:
            np.copyto(array, first)


def _drawn(b: Buffer, rng: np.random.Generator) -> Array:
    """Positive numbers; square matrices have large ones on the diagonal, so that they can be factorised."""
    shape = tuple(e.as_int() for e in b.physical_shape)
    array = np.asarray(rng.uniform(0.5, 1.5, shape).astype(b.dtype.numpy))
    if b.dtype.is_float and len(shape) == 2 and shape[0] == shape[1]:
        array[np.diag_indices(shape[0])] += shape[0]
    return array


def _equal(func: LoopFunction, table: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Whether results are those expected, up to rounding beside the largest of an array."""
    executions = work(func.body)
    elements = sum(a.size for b, a in zip(func.buffers, table, strict=True) if b.name in func.outputs)
    terms = ROUNDINGS + executions // max(1, elements)
    for b, got, want in zip(func.buffers, table, expected, strict=True):
        if b.name in func.outputs:
            largest = np.full(want.shape, np.abs(want).max(initial=0))
            if not compare(got, want, magnitude=largest, terms=terms):
                return False
    return True


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(json.loads(sys.stdin.read()))))
