"""Tuning a model: a task a kernel, one budget, and a plan whose winners are faster inside of the network."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

from tilewright import __version__
from tilewright.driver.cluster import ClusterMeasurer
from tilewright.driver.compile import compile_model
from tilewright.driver.graph_tuning import GraphTuning, with_tuned_graph
from tilewright.driver.layout_tuning import LayoutTuning, with_tuned_layouts
from tilewright.driver.measuring import LocalMeasurer
from tilewright.driver.model import CompiledModel
from tilewright.driver.nests import Nest
from tilewright.driver.network import network_of, tasks_of
from tilewright.driver.plans import ModelPlan, graph_key, unit_key
from tilewright.driver.ray_pool import cluster_measurer
from tilewright.driver.retiming import Comparison, compared, ratios_inside, timed_in_turns
from tilewright.frontend import Source
from tilewright.ir import Program
from tilewright.plan import GraphPlan, UnitPlan, read_accuracy
from tilewright.strategies import JointStrategy, Strategy, find_strategy
from tilewright.support import InputError, Settings, available_cpus, quoted, read_settings, whole_number
from tilewright.target import detect
from tilewright.tune import (
    AUTO,
    MEMORY,
    OFF,
    Budget,
    Database,
    Event,
    GraphRecord,
    Measurer,
    TaskResult,
    start_database,
    tune_tasks,
)

#: Trials of one task, at most.
TRIALS: Final = 64
#: Part of the budget for what one kernel computes, and parts of the batch, before all else.
GRAPH_SHARE: Final = 0.15
#: Part of what is left for the layouts of values, before kernels are tuned under them.
LAYOUT_SHARE: Final = 0.3
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning a model came to: a result a task, and the plan that ``compile(…, plan=)`` takes.

    ``model`` is compiled by it. ``whole`` compares it with the default. ``graph`` says what became of
    decisions about what one kernel computes, ``layouts`` of the layouts of values, where that was searched.
    ``unchecked`` winners are faster alone, and the comparison inside of the network was interrupted: the
    database has them, the model does without.
    """

    results: tuple[TaskResult, ...]
    plan: ModelPlan
    model: CompiledModel | Nest
    whole: Comparison | None = None
    graph: GraphTuning | None = None
    layouts: LayoutTuning | None = None
    unchecked: int = 0

    @property
    def known(self) -> bool:
        """Whether there was nothing to tune: the database had all."""
        return all(each.known for each in self.results)


def seconds_of(budget: str | float) -> float:
    """A budget such as ``90s``, ``5m``, ``1h``, or a number of seconds. Raises InputError for others."""
    if isinstance(budget, int | float) and budget > 0:
        return float(budget)
    text = str(budget)
    if text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdigit() and float(text[:-1]) > 0:
        return float(text[:-1]) * _UNITS[text[-1]]
    raise InputError(f"{budget!r} is no budget", hint="give seconds, or a number with s, m or h: 90s, 5m")


def tune_model(
    model: Source | Program,
    *,
    budget: str | float = "5m",
    trials: int = TRIALS,
    strategy: str | Strategy = AUTO,
    database: Path | str | None = None,
    seed: int = 0,
    cluster: str | None = None,
    again: bool = False,
    watch: Callable[[Event], None] = lambda _: None,
    settings: Settings | None = None,
    **options: Any,
) -> Tuned:
    """Search for faster plans of a model's kernels by measuring, and compile the model by what was found.

    ``options`` are those of :func:`tilewright.compile`. The ``budget`` is of time (``90s``, ``5m``, seconds);
    each task gets at most so many ``trials``, and the next ones are always of the task that promises most.
    ``strategy`` is ``auto`` (several searches, of which those that find more propose more) or the name of
    one; ``joint`` first searches layouts of the model's values. The default plan is always measured first,
    and a winner is kept only where it is faster beyond doubt: alone, inside of the network, and the network
    in a fresh process. ``database`` keeps all trials (default: the settings' one, ``off`` for none); later
    compilations take the winners from it, and tasks that it has finished are not tuned, unless ``again`` says
    so: they go on beyond what was tried. ``watch`` is told what happens. ``cluster`` names who measures:
    ``local[2]``, or the address of a cluster of Ray (by default this process' own children). Ctrl-C ends the
    search at any moment: what was found by then is kept and compiled.

    A part of the budget goes to decisions around kernels, by kernels' measured times: which stages one
    computes, which contractions are joined, which kernels take a batch in parts; with ``joint`` another part
    to the layouts of values. Each is kept where the whole network is faster with it.

    Of a nest (``sizes`` is among the options) the parts are tasks, by themselves alone.

    Raises InputError for an unknown strategy or budget or no trials, and for a nest with no part to tune,
    ArtefactError for a file that is no database, TargetError for a device, and what compiling raises.
    """
    chosen = find_tuner(strategy)
    count = whole_number(trials)
    if count is None or count < 1:
        raise InputError(f"trials= is how many candidates of a kernel are tried, from 1, got {trials!r}")
    begin = time.monotonic()
    until = begin + seconds_of(budget)
    given = options.get("plan")

    def compiled(plan: ModelPlan | None) -> object:
        more = options if plan is None else {**options, "plan": plan}
        return compile_model(model, **{**more, "records": OFF, "settings": settings})

    def recompile(plan: ModelPlan | None) -> CompiledModel:
        made = compiled(plan)
        if not isinstance(made, CompiledModel):
            raise InputError(
                "a model whose sizes are open cannot be tuned",
                hint="shapes= settles them, for one tuning each",
            )
        return made

    def told(event: Event) -> None:
        now = time.monotonic()
        watch(replace(event, elapsed=now - begin, left=until - now))

    nest = compiled(None)
    if isinstance(nest, Nest):
        uses = nest.tasks()
        if not uses:
            raise InputError(
                f"the nest {quoted(nest.name)} has no part to tune: it is to stay as it is written, or data "
                "decide about loops or indices, and arrays are drawn for measuring"
            )
        with (
            Database(database_path(database, settings)) as records,
            measurer_of(cluster) as measurer,
            start_database() as start,
        ):
            limits = Budget(count, until)
            results = tune_tasks(
                uses, chosen, measurer, records, limits, seed, watch=told, again=again, start=start
            )
        plan = _plan(nest, results)
        return Tuned(tuple(results), plan, nest.planned(plan))
    default = recompile(None)
    uses = tasks_of(default)
    (untuned,) = timed_in_turns([default.bind(default.sample_feeds()).run], 1)
    with Database(database_path(database, settings)) as records, measurer_of(cluster) as measurer:
        around = _Around()
        base = default
        if given is None and not isinstance(model, Program):
            joint = isinstance(chosen, JointStrategy)
            base, around = _decided(
                default, model, recompile, measurer, records, until, joint, again, options, told
            )
            uses = tasks_of(base)
            if around.interrupted:
                until = time.monotonic()
        _keep_network(records, base, untuned, None)
        with start_database() as start:
            limits = Budget(count, until)
            results = tune_tasks(
                uses, chosen, measurer, records, limits, seed, watch=told, again=again, start=start
            )
        tuned = _checked(base, results, recompile, records, around, told)
        assert isinstance(tuned.model, CompiledModel)
        _keep_network(records, tuned.model, untuned, tuned.whole)
        return tuned


def measurer_of(cluster: str | None) -> LocalMeasurer | ClusterMeasurer:
    """Who measures: this machine's processes, or a cluster. Raises what :func:`cluster_measurer` does."""
    return LocalMeasurer() if cluster is None else cluster_measurer(cluster)


def _keep_network(records: Database, model: CompiledModel, untuned: float, whole: Comparison | None) -> None:
    """Keep what the tasks make up, for reports; times of an earlier tuning stay if nothing was compared."""
    times = (untuned, untuned)
    if whole is not None:
        times = (whole.untuned, whole.best if whole.faster else whole.untuned)
    where = f"{detect().llvm_cpu}, {available_cpus()} CPUs, {model.threads} threads"
    versions = f"Tilewright {__version__}, Python {platform.python_version()}"
    network = replace(network_of(model), machine=f"{where}; {versions}", untuned=times[0], best=times[1])
    records.keep_network(network, compared=whole is not None)


def find_tuner(strategy: str | Strategy) -> Strategy:
    """The strategy of a name that searches. Raises InputError for others."""
    if strategy == AUTO.name:
        return AUTO
    chosen = find_strategy(strategy)
    if chosen is None:
        raise InputError(f"the strategy {strategy!r} searches nothing", hint="choose one that does: auto")
    return chosen


def database_path(database: Path | str | None, settings: Settings | None) -> Path | str:
    """The file of a database, its folder made where it is the settings' one."""
    if database is not None:
        return MEMORY if database == OFF else database
    path = (read_settings() if settings is None else settings).records_path
    if path is None:
        return MEMORY
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _checked(
    base: CompiledModel,
    results: list[TaskResult],
    recompile: Callable[[ModelPlan | None], CompiledModel],
    records: Database,
    around: _Around,
    watch: Callable[[Event], None],
) -> Tuned:
    """The model by the winners that are faster inside of it, if the whole is faster then.

    Where this is interrupted, the default stays for now: the winners' tasks are not finished.
    """
    watch(Event("network"))
    try:
        return _lasting(base, results, recompile, records, around)
    except KeyboardInterrupt:
        won = [r.task.key for r in results if r.plan is not None and not r.known]
        for key in won:
            records.reopen(key)
        return Tuned(tuple(results), base.plan(), base, None, *around.both, unchecked=len(won))


def _lasting(
    base: CompiledModel,
    results: list[TaskResult],
    recompile: Callable[[ModelPlan | None], CompiledModel],
    records: Database,
    around: _Around,
) -> Tuned:
    found = {unit_key(r.task.program, r.task.machine.threads): r for r in results if r.plan is not None}
    whole = None
    while found:
        tuned = recompile(_plan(base, found.values()))
        if all(each.known for each in found.values()):
            # they were compared when they were found
            return Tuned(_as_kept(results, found), tuned.plan(), tuned, whole, *around.both)
        slower = _slower(base, tuned, found)
        if slower:
            for key in slower:
                records.demote(found.pop(key).task.key)
            continue
        whole = compared(base, tuned)
        if whole.faster:
            return Tuned(_as_kept(results, found), tuned.plan(), tuned, whole, *around.both)
        for key in [key for key, each in found.items() if not each.known]:
            records.demote(found.pop(key).task.key)
    return Tuned(_as_kept(results, found), base.plan(), base, whole, *around.both)


def _slower(base: CompiledModel, tuned: CompiledModel, found: Mapping[str, TaskResult]) -> list[str]:
    """The winners whose kernels take longer in the network than the default's."""
    ratios = ratios_inside(base, tuned)
    times: dict[str, list[float]] = {}
    for group, ratio in zip(base.groups(), ratios, strict=True):
        made = group.kernel.decided()
        if made is not None:
            times.setdefault(unit_key(group.kernel.program, made[0]), []).append(ratio)
    return [key for key in found if key in times and sum(times[key]) >= len(times[key])]


def _as_kept(results: list[TaskResult], found: Mapping[str, TaskResult]) -> tuple[TaskResult, ...]:
    """Results as they were kept: those that did not last inside of the network have no plan."""
    kept = {id(result) for result in found.values()}
    return tuple(
        r if r.plan is None or id(r) in kept else replace(r, plan=None, best=r.untuned) for r in results
    )


@dataclass(frozen=True, slots=True)
class _Around:
    """What became of the decisions around kernels."""

    graph: GraphTuning | None = None
    layouts: LayoutTuning | None = None

    @property
    def both(self) -> tuple[GraphTuning | None, LayoutTuning | None]:
        """In the order in which they are decided."""
        return self.graph, self.layouts

    @property
    def interrupted(self) -> bool:
        """Whether somebody wants an end."""
        return any(each is not None and each.interrupted for each in self.both)


def _decided(
    default: CompiledModel,
    source: Source,
    recompile: Callable[[ModelPlan | None], CompiledModel],
    measurer: Measurer,
    records: Database,
    until: float,
    joint: bool,
    again: bool,
    options: Mapping[str, Any],
    watch: Callable[[Event], None],
) -> tuple[CompiledModel, _Around]:
    """The model with the decisions around kernels that are fastest, by the database or parts of the budget.

    Layouts of values are among them where kernels are tuned ``joint`` with them. What the database has is
    searched once more, from there, where that is asked ``again``.
    """
    own = default.plan().graph
    assert own is not None  # it was compiled from a model's graph
    accuracy = read_accuracy(options.get("accuracy", "auto"), options.get("winograd"))
    units = [unit_key(group.kernel.program, default.threads) for group in default.groups()]
    key = graph_key(own, units, default.target.fingerprint, accuracy)
    # what says that layouts were searched, too
    laid_out = graph_key(own, units, default.target.fingerprint, accuracy, "layouts")
    known, shapes, made = records.graph(key), options.get("shapes"), default
    graph: GraphTuning | None = None
    layouts: LayoutTuning | None = None
    if known is not None and known.plan != own:
        made = recompile(ModelPlan(default.target.fingerprint, {}, known.plan))
    if known is None or again:
        watch(Event("graph"))
        share = _share(GRAPH_SHARE, until)
        try:
            made, graph = with_tuned_graph(made, source, recompile, measurer, share, shapes)
        except KeyboardInterrupt:  # while the whole was compared: nothing is decided
            graph = GraphTuning(own, inf, inf, 0, interrupted=True)
        else:
            _keep_graph(records, [key], own, made, graph)
    ended = graph is not None and graph.interrupted
    if joint and not ended and (again or records.graph(laid_out) is None):
        watch(Event("layouts"))
        share = _share(LAYOUT_SHARE, until)
        try:
            made, layouts = with_tuned_layouts(made, source, recompile, measurer, share, shapes)
        except KeyboardInterrupt:
            layouts = LayoutTuning(own, inf, inf, 0, (), interrupted=True)
        else:
            _keep_graph(records, [key, laid_out], own, made, layouts)
    return made, _Around(graph, layouts)


def _share(part: float, until: float) -> float:
    """When a part of what is left of a budget ends."""
    now = time.monotonic()
    return now + part * max(0.0, until - now)


def _keep_graph(
    records: Database,
    keys: Iterable[str],
    own: GraphPlan,
    made: CompiledModel,
    found: GraphTuning | LayoutTuning | None,
) -> None:
    """Keep what was decided, or that all was tried and the default stays."""
    plan = made.plan().graph
    if found is None or plan is None:
        return
    # where not even the kernels of the default were measured a later tuning begins anew
    ended = not found.interrupted and isfinite(found.untuned)
    if plan != own or ended:
        for key in keys:
            records.keep_graph(key, GraphRecord(plan, found.best, found.untuned))


def _plan(model: CompiledModel | Nest, results: Iterable[TaskResult]) -> ModelPlan:
    base = model.plan()
    units: dict[str, UnitPlan] = dict(base.units)
    for done in results:
        if done.plan is not None:
            units[unit_key(done.task.program, done.task.machine.threads)] = done.plan
    return replace(base, units=units)
