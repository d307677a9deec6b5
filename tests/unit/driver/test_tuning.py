"""Tuning models for real, and compilations that take what was found from the database."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models as tiny

import tilewright
from tilewright import lang
from tilewright.driver import tasks_of, tune_model, tuning
from tilewright.driver.tuning import seconds_of
from tilewright.ir import canonical_program, structural_hash
from tilewright.plan import EXACT, Accuracy, Variants, build_unit, plan_unit, renamed_plan
from tilewright.support import ArtefactError, InputError, Settings, TargetError
from tilewright.tune import Database, Record, TaskResult, TaskRow, exported, imported


def functions(compiled):
    return [structural_hash(group.kernel.loops()) for group in compiled.groups()]


def test_models_of_devices_are_not_tuned_yet(tmp_path):
    with pytest.raises(TargetError, match="kernels for 'c' cannot be tuned yet"):
        tune_model(tiny.mlp(), target="c", database=tmp_path / "r.db")


def test_a_model_is_tuned_and_compiles_from_what_was_found(tmp_path):
    model, records, seen = tiny.mlp(), tmp_path / "r.db", []
    tuned = tune_model(
        model, budget="60s", trials=3, strategy="random", database=records, watch=seen.append, threads=1
    )
    assert len(tuned.results) == sum(event.result is not None for event in seen) > 0
    assert all(not done.known and done.untuned < 1 for done in tuned.results)
    again = tune_model(model, budget=60, trials=3, strategy="random", database=records, threads=1)
    assert again.known
    more = tune_model(
        model, budget=60, trials=2, strategy="random", database=records, threads=1, again=True, seed=1
    )
    assert not more.known and all(done.trials == 2 for done in more.results)
    tuned = tune_model(model, budget=60, trials=3, strategy="random", database=records, threads=1)
    assert tuned.known
    other = tilewright.compile(model, threads=1, records=records)
    assert functions(other) == functions(tuned.model)
    assert other.plan() == tuned.plan
    with Database(records) as database:
        assert len(list(database.tasks())) == len(tuned.results)
        (network,) = database.networks()
    assert {step.task for step in network.steps} == {done.task.key for done in tuned.results}
    assert [step.nodes for step in network.steps] == [group.nodes for group in tuned.model.groups()]
    assert {(link.source, link.reader) for link in network.links} and network.untuned and network.best
    assert all(step.schedule and step.func and step.algorithm for step in network.steps)


def test_an_interruption_inside_of_the_network_leaves_winners_to_a_later_session(
    tmp_path, model, default, monkeypatch
):
    path = tmp_path / "r.db"
    task, plan, func = recorded(path, default)
    won = TaskResult(
        task,
        "x",
        2.0,
        1.0,
        renamed_plan(plan, canonical_program(task.program), task.program, task.machine),
        3,
    )

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "tune_tasks", lambda *_, **__: [won])
    monkeypatch.setattr(tuning, "ratios_inside", interrupted)
    done = tune_model(model, threads=1, database=path)
    assert done.unchecked == 1 and functions(done.model) == functions(default)
    with Database(path) as records:
        assert not records.finished(task.key) and records.best(task.key).func == func


@pytest.mark.parametrize("which", ["with_tuned_graph", "with_tuned_layouts"])
def test_an_interruption_while_wholes_are_compared_ends_the_search_alone(
    tmp_path, model, default, monkeypatch, which
):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, which, interrupted)
    if which == "with_tuned_layouts":
        monkeypatch.setattr(tuning, "with_tuned_graph", lambda made, *_: (made, None))
    path = tmp_path / "r.db"
    done = tune_model(model, threads=1, budget="60s", strategy="joint", database=path)
    assert functions(done.model) == functions(default) and all(r.reason for r in done.results)
    with Database(path) as records:
        assert not list(records.rows("graphs"))


@pytest.mark.parametrize("budget", ["soon", "5", "0s", 0, -1.0, "m"])
def test_other_budgets_are_refused(budget):
    with pytest.raises(InputError, match="is no budget"):
        seconds_of(budget)


def test_budgets_are_read():
    assert [seconds_of(b) for b in ("90s", "1.5m", "2h", 7)] == [90, 90, 7200, 7]


def test_the_default_strategy_searches_nothing():
    with pytest.raises(InputError, match="searches nothing"):
        tune_model(tiny.mlp(), threads=1, strategy="default")


def test_open_sizes_are_not_tuned():
    n = lang.param("n", hi=64)
    x = lang.placeholder((n, 8), name="X")
    program = lang.program([x], [lang.compute((n, 8), lambda i, j: x[i, j] + 1, name="Y")])
    with pytest.raises(InputError, match="sizes are open"):
        tune_model(program, threads=1, database="off")


# ---- records in compilations ----


def other_plan(task):
    """Another plan than the default one, of the direct method, under canonical names."""
    program = canonical_program(task.program)
    plan = plan_unit(program, task.machine, (), accuracy=EXACT).plan
    variants = Variants(program, plan, task.machine)
    for at, varied in enumerate(variants.nests):
        for made in varied.space:
            if made != varied.nest.choice:
                yield variants.chosen({at: made})


def put(path, task, plan, func=None, seconds=1.0, more=()):
    """A record of a plan that is said to be twice as fast as the default."""
    own = replace(task, program=canonical_program(task.program))
    made = func
    if made is None:
        made = structural_hash(build_unit(own.program, plan, own.machine).func)
    with Database(path) as database:
        database.declare(own, "x", own.key)
        database.keep(own.key, [Record(own.key, plan, made, seconds, 2.0), *more])
    return made


@pytest.fixture(scope="module")
def model():
    return tiny.mlp()


@pytest.fixture(scope="module")
def default(model):
    return tilewright.compile(model, threads=1, records="off")


def recorded(path, default):
    """A database with another plan for the first kernel that has one; its digest."""
    for use in tasks_of(default):
        for plan in other_plan(use.task):
            own = functions(default)
            made = put(path, use.task, plan)
            if made not in own:
                return use.task, plan, made
    raise AssertionError


def test_a_compilation_takes_the_record(tmp_path, model, default):
    path = tmp_path / "r.db"
    _, _, func = recorded(path, default)
    made = tilewright.compile(model, threads=1, records=path)
    assert func in functions(made)
    assert functions(tilewright.compile(model, threads=1, records="off")) == functions(default)
    assert functions(tilewright.compile(model, threads=1, records=path, plan=default.plan())) == functions(
        default
    )
    feeds = default.sample_feeds()
    for a, b in zip(default.run(None, feeds), made.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_records_come_from_the_settings_unless_they_are_off(tmp_path, model, default):
    path = tmp_path / "records.db"
    _, _, func = recorded(path, default)
    for settings, taken in (
        (Settings(cache_dir=tmp_path), True),
        (Settings(cache_dir=tmp_path, records="off"), False),
        (Settings(cache_dir=tmp_path / "other", records=str(path)), True),
        (Settings(cache_dir=tmp_path / "other"), False),
    ):
        made = tilewright.compile(model, threads=1, settings=settings)
        assert (func in functions(made)) == taken


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE records SET func = 'f'",
        "UPDATE records SET plan = '{}'",
        "UPDATE records SET plan = replace(plan, 's0', 's7')",
        "UPDATE records SET seconds = 1e-9",
        "UPDATE records SET task = 'other'",
    ],
)
def test_records_that_are_not_what_was_measured_are_left_out(tmp_path, model, default, edit):
    path = tmp_path / "r.db"
    recorded(path, default)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute(edit)
    assert functions(tilewright.compile(model, threads=1, records=path)) == functions(default)


def test_swapped_records_are_left_out(tmp_path, model, default):
    """Each task has the plan of the other one."""
    path = tmp_path / "r.db"
    one, two = [use.task for use in tasks_of(default)][:2]
    plans = [next(iter(other_plan(task))) for task in (one, two)]
    for task, plan, wrong in zip((one, two), plans, plans[::-1], strict=True):
        func = put(path, task, plan)
        put(path, task, wrong, func)
    assert functions(tilewright.compile(model, threads=1, records=path)) == functions(default)


def test_a_damaged_database_ends_only_the_compilation_that_named_it(tmp_path, model, default):
    path = tmp_path / "records.db"
    path.write_text("no database at all, but long enough to have a head")
    with pytest.raises(ArtefactError, match="is no database of tuning"):
        tilewright.compile(model, threads=1, records=path)
    made = tilewright.compile(model, threads=1, settings=Settings(cache_dir=tmp_path))
    assert functions(made) == functions(default)
    for name in ("none.db", "n" * 300):
        with pytest.raises(InputError, match="there is no database"):
            tilewright.compile(model, threads=1, records=tmp_path / name)
        silent = Settings(cache_dir=tmp_path, records=str(tmp_path / name))
        assert functions(tilewright.compile(model, threads=1, settings=silent)) == functions(default)


def test_records_of_another_number_of_threads_only_give_searches_a_start(tmp_path, model, default):
    path = tmp_path / "r.db"
    recorded(path, default)
    two = tilewright.compile(model, threads=2, records="off")
    assert functions(tilewright.compile(model, threads=2, records=path)) == functions(two)


def test_a_record_serves_a_model_with_other_names(tmp_path, model, default):
    path = tmp_path / "r.db"
    _, _, func = recorded(path, default)
    other = type(model)()
    other.CopyFrom(model)
    for node in other.graph.node:
        node.name = f"renamed_{node.name}"
        for names in (node.input, node.output):
            inner = {x.name for x in (*other.graph.input, *other.graph.output)}
            names[:] = [n if n in inner or not n else f"r_{n}" for n in names]
    for each in other.graph.initializer:
        each.name = f"r_{each.name}"
    assert func in functions(tilewright.compile(other, threads=1, records=path))


def convolution(scale):
    """A 3x3 convolution whose weights are of a scale."""
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((64, 64, 3, 3)) * scale).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], name="conv")
    shape = (1, 64, 28, 28)
    return tiny.model([node], [tiny.tensor("x", shape)], [tiny.tensor("y", shape)], {"w": weights})


@pytest.mark.parametrize("scale", [1e-3, 3e37])
def test_weights_decide_whether_a_record_is_exact_enough(tmp_path, scale):
    """The same problem, the same record: Winograd's method overflows where weights are near the largest.

    So near that its smallest tiles do, too: at a tenth of that they do not, are exact enough, and are used.
    """
    path = tmp_path / "r.db"
    plain = tilewright.compile(convolution(1.0), threads=1, accuracy="f4", records="off")
    (use,) = tasks_of(plain)
    own = replace(use.task, program=canonical_program(use.task.program), accuracy=Accuracy("f4"))
    planned = own.default()
    func = structural_hash(planned.schedule.func)
    assert any(step.primitive == "winograd" for step in planned.plan.rewrites.steps)
    put(path, use.task, planned.plan, func)
    model = convolution(scale)
    made = tilewright.compile(model, threads=1, records=path)
    (plan,) = made.plan().units.values()
    used = any(step.primitive == "winograd" for step in plan.rewrites.steps)
    assert used == (scale < 1)
    exact = tilewright.compile(model, threads=1, accuracy="exact", records=path)
    (plan,) = exact.plan().units.values()
    assert not any(step.primitive == "winograd" for step in plan.rewrites.steps)
    feeds = {"x": exact.sample_feeds()["x"] * np.float32(1e-3)}
    (a,), (b,) = made.run(None, feeds), exact.run(None, feeds)
    assert np.isfinite(b).all()
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


def test_databases_travel_as_lines(tmp_path, default):
    path, other = tmp_path / "r.db", tmp_path / "o.db"
    recorded(path, default)
    with Database(path) as one, Database(other) as two:
        lines = list(exported(one))
        assert imported(two, lines)["records"] == 1
        assert list(exported(two)) == lines
        assert imported(two, lines)["tasks"] == 1  # known rows stay as they are
        assert list(exported(two)) == lines
        assert [type(row) for row in two.task_rows()] == [TaskRow]


@pytest.mark.parametrize("trials", [0, -1, "many", 1.5])
def test_no_trials_are_refused_before_work_begins(trials):
    with pytest.raises(InputError, match="trials= is how many candidates"):
        tune_model(tiny.mlp(), trials=trials)


def test_auto_measures():
    with pytest.raises(InputError, match="measures, which compiling does not"):
        tilewright.compile(tiny.mlp(), strategy="auto")
