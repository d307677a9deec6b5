"""What a database of tuning holds: its tasks, all their trials, what won, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from tilewright import __version__
from tilewright.build import flops, moved_bytes
from tilewright.driver import Limits
from tilewright.ir import Program, parse_program
from tilewright.report.content import STATUSES, Content, Kernel, Points
from tilewright.report.model import from_memory, now
from tilewright.support import TilewrightError
from tilewright.target import detect
from tilewright.tune import Database, Network, Step, TaskRow

#: Longest reason of a failed trial that is shown.
LONGEST_REASON: Final = 200
#: From this part of the CPUs' time on, what others used is worth a word.
LOADED: Final = 0.05


def of_database(
    database: Database,
    against: Database | None = None,
    *,
    before: str = "",
    limits: Callable[[int], Limits | None] | None = None,
) -> Content:
    """The report of a database, beside another one, or beside its own best of sessions ``before`` a date.

    Tasks are compared by their keys: the program but for names, the target and the threads. ``limits`` says
    what this machine can do with so many threads, for tasks that are its own, if that can be told now;
    ``before`` is as in ISO 8601.
    Raises ArtefactError where a plan of a database was edited.
    """
    rows = list(database.task_rows())
    here = detect().fingerprint
    asked = {row.threads for row in rows if row.target == here}
    told = {} if limits is None else {threads: limits(threads) for threads in sorted(asked)}
    known = {threads: found for threads, found in told.items() if found is not None}
    best_before = database.best_before(before) if before else None
    if against is not None:
        best_before = {row.key: found.seconds for row in rows for found in [against.best(row.key)] if found}
    networks = database.networks()
    steps: dict[str, list[Step]] = {}
    for step in (step for network in networks for step in network.steps):
        steps.setdefault(step.task, []).append(step)
    kernels = tuple(
        _kernel(database, row, steps.get(row.key, ()), best_before, known.get(row.threads)) for row in rows
    )
    timed = [kernel for kernel in kernels if kernel.untuned is not None]
    first = sum((kernel.untuned or 0.0) * kernel.uses for kernel in timed)
    after = sum((kernel.best or kernel.untuned or 0.0) * kernel.uses for kernel in timed)
    top = known[max(known)] if known else None
    return Content(
        title=f"Tuning: {database.path.name}",
        kind="tuning",
        made=now(),
        facts=_facts(database, networks, kernels),
        kernels=kernels,
        networks=networks,
        peak=None if top is None else top.gflops * 1e9,
        bandwidth=None if top is None else from_memory(top),
        untuned=first if timed else None,
        best=after if timed else None,
        against=f"before {before}" if before else "" if against is None else against.path.name,
    )


def _facts(
    database: Database, networks: Sequence[Network], kernels: Sequence[Kernel]
) -> tuple[tuple[str, str], ...]:
    """When, where and by what it was tuned, and how quiet it was there."""
    where = dict.fromkeys(network.machine for network in networks if network.machine)
    found = [("Tuned on", each) for each in where]
    found.append(("This page", f"Tilewright {__version__}, on {detect().llvm_cpu}"))
    sessions = [str(row[1])[:16].replace("T", " ") for row in database.rows("sessions")]
    if sessions:
        when = sessions[0] if len(sessions) == 1 else f"{len(sessions)}, {sessions[0]} to {sessions[-1]}"
        found.append(("Sessions", when))
    hosts, loads = database.conditions()
    if hosts:
        found.append(("Measured on", ", ".join(hosts)))
    if loads:
        loud = sum(load > LOADED for load in loads) / len(loads)
        found.append(
            ("Others' use of the CPUs", f"{median(loads):.0%} at the median, {loud:.0%} above {LOADED:.0%}")
        )
    apart = [
        abs(kernel.untuned / kernel.points.seconds[0] - 1)
        for kernel in kernels
        if kernel.untuned and kernel.points.seconds and kernel.points.seconds[0]
        # where no leader was beside it, it was measured once
        if kernel.untuned != kernel.points.seconds[0]
    ]
    if apart:
        found.append(("Noise", f"default plans measured again: {median(apart):.1%} apart at the median"))
    return tuple(found)


def _kernel(
    database: Database,
    row: TaskRow,
    steps: Sequence[Step],
    others: Mapping[str, float] | None,
    limits: Limits | None,
) -> Kernel:
    key = row.key
    trials = list(database.trials(key))
    names = tuple(dict.fromkeys(trial.origin for trial in trials))
    place = {name: at for at, name in enumerate(names)}
    reasons: dict[str, str] = {}
    for trial in trials:
        if trial.status != "ok":
            reasons.setdefault(trial.status, trial.reason[:LONGEST_REASON])
    found = database.best(key)
    default = database.untuned_plan(key)
    ran = [trial.seconds for trial in trials if trial.origin == "default" and trial.seconds is not None]
    won = found is not None and found.plan != default
    program = _program(row)
    operations = None if program is None else float(flops(program))
    nbytes = None if program is None else float(moved_bytes(program))
    shown = next((step for step in steps if step.schedule), None)
    best = found is not None and shown is not None and shown.func == found.func
    return Kernel(
        name=row.label,
        key=key,
        nodes=tuple(node for step in steps for node in step.nodes),
        uses=sum(step.calls for step in steps) or 1,
        operators=row.label.partition(" ")[0],
        flops=operations,
        nbytes=nbytes,
        untuned=found.untuned if found is not None else min(ran, default=None),
        best=None if found is None else found.seconds,
        limit=None
        if limits is None or operations is None or nbytes is None
        else limits.seconds(operations, nbytes),
        before=None if others is None else others.get(key),
        plan="" if found is None else str(found.plan),
        default_plan=str(default) if won and default is not None else "",
        algorithm="" if shown is None else shown.algorithm,
        layouts="" if shown is None else shown.layouts,
        schedule="" if shown is None or not best else shown.schedule,
        points=Points(
            tuple(trial.seconds for trial in trials),
            tuple(STATUSES.index(trial.status) for trial in trials if trial.status in STATUSES),
            tuple(place[trial.origin] for trial in trials),
            names,
        ),
        reasons=tuple(reasons.items()),
    )


def _program(row: TaskRow) -> Program | None:
    """A task's program; ``None`` for text that was edited."""
    try:
        return parse_program(row.program)
    except TilewrightError:
        return None
