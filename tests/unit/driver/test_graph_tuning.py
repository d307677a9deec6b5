"""Decisions around kernels: what one computes, joins, parts of a batch, by made-up and measured seconds."""

from dataclasses import replace
from random import Random
from time import monotonic

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models as tiny
from tests.native_kernel import HOST

import tilewright
from tilewright.cost import Machine
from tilewright.driver import Comparison, LocalMeasurer, ModelPlan, graph_tuning, graph_units, tuning
from tilewright.driver.graph_tuning import Change, GraphTuning, _Model, tune_graph, with_tuned_graph
from tilewright.driver.plans import model_plan_from_json
from tilewright.frontend import import_onnx
from tilewright.plan import Layouts
from tilewright.plan.contraction import sharing as contraction
from tilewright.plan.fused import bands
from tilewright.strategies import Trial
from tilewright.support import ArtefactError, assert_close

MACHINE = Machine(HOST, 2)


@pytest.fixture(scope="module")
def model():
    """A batch of four: two convolutions by points with a depthwise one between, added to what they read."""
    rng, nodes = np.random.default_rng(0), []
    weights = {
        "w0": (rng.standard_normal((32, 16, 1, 1)) / 4).astype(np.float32),
        "w1": (rng.standard_normal((32, 1, 3, 3)) / 3).astype(np.float32),
        "w2": (rng.standard_normal((16, 32, 1, 1)) / 6).astype(np.float32),
    }
    value = "x"
    for n, more in enumerate(({}, {"group": 32, "pads": [1] * 4}, {})):
        nodes.append(helper.make_node("Conv", [value, f"w{n}"], [f"c{n}"], name=f"conv{n}", **more))
        value = f"c{n}"
        if n < 2:
            nodes.append(helper.make_node("Relu", [value], [f"r{n}"], name=f"relu{n}"))
            value = f"r{n}"
    nodes.append(helper.make_node("Add", [value, "x"], ["s"], name="add"))
    nodes.append(helper.make_node("Softmax", ["s"], ["y"], axis=-1, name="softmax"))
    shapes = [tiny.tensor("x", (4, 16, 8, 8))], [tiny.tensor("y", (4, 16, 8, 8))]
    return tiny.model(nodes, *shapes, weights)


@pytest.fixture(scope="module")
def graph(model):
    return import_onnx(model)


@pytest.fixture(scope="module")
def plan(graph):
    return graph_units(graph, HOST, 2).plan


class Made:
    """Seconds made up from programs and threads."""

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, 0

    def measure(self, task, candidates):
        self.asked += 1
        return [Trial(c, "ok", (self.seconds(task.program, task.machine.threads),)) for c in candidates]


def products(program):
    return sum(stage.is_reduction for stage in program.stages)


def assert_same(model, made, plan):
    """The model by a plan computes what it does by default, also where the plan comes from its text."""
    default = tilewright.compile(model, threads=2, records="off")
    text = ModelPlan(HOST.fingerprint, {}, made).to_json()
    other = tilewright.compile(model, threads=2, records="off", plan=model_plan_from_json(text))
    assert other.plan().graph == made
    feeds = default.sample_feeds()
    for mine, theirs in zip(other(*feeds.values()), default(*feeds.values()), strict=True):
        assert_close(mine, theirs, magnitude=np.full(mine.shape, 10 * np.abs(theirs).max()), terms=1000)
    return other


def test_kernels_are_cut_where_two_are_faster(model, graph, plan):
    """Where what is fused costs more than it saves, all is cut; alike kernels by one decision."""
    found = tune_graph(graph, plan, MACHINE, Made(lambda p, _: len(p.stages) ** 2 * 1e-3))
    assert found.best < found.untuned and found.changes
    assert {change.kind for change in found.changes} == {"cut"}
    assert found.plan.fusion.cuts >= {"c0", "c1"}
    other = assert_same(model, found.plan, plan)
    assert len(other.groups()) > len(graph_units(graph, HOST, 2).units)
    again = tune_graph(graph, found.plan, MACHINE, Made(lambda p, _: len(p.stages) * 1e-3 + 1e-2))
    assert "together" in {change.kind for change in again.changes}
    assert len(again.plan.fusion.cuts) < len(found.plan.fusion.cuts)


def test_contractions_are_joined_and_taken_apart(model, graph, plan, monkeypatch):
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    monkeypatch.setattr(bands, "LEAST_GAIN", -1e9)
    monkeypatch.setattr(bands, "MOST_AGAIN", 1e9)
    found = tune_graph(graph, plan, MACHINE, Made(lambda p, _: 1e-3 / products(p) if products(p) else 1e-3))
    assert "join" in {change.kind for change in found.changes}
    assert found.plan.joins
    assert_same(model, found.plan, plan)
    apart = tune_graph(graph, found.plan, MACHINE, Made(lambda p, _: 1e-3 * max(1, products(p)) ** 3))
    assert "apart" in {change.kind for change in apart.changes}
    assert len(apart.plan.joins) < len(found.plan.joins)


def test_a_batch_is_taken_in_parts_and_as_a_whole(model, graph, plan):
    whole = replace(plan, parts={})
    found = tune_graph(graph, whole, MACHINE, Made(lambda p, threads: 1e-4 if threads == 1 else 1e-3))
    assert {*found.plan.parts.values()} <= {2, 4} and found.plan.parts
    assert_same(model, found.plan, plan)
    back = tune_graph(graph, found.plan, MACHINE, Made(lambda p, threads: 1e-3 if threads == 1 else 1e-5))
    assert not back.plan.parts


def test_random_changes_one_after_another_are_right(model, graph, plan, monkeypatch):
    """Any sequence of changes is a plan that compiles, reads back from its text, and computes the same."""
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    monkeypatch.setattr(bands, "LEAST_GAIN", -1e9)
    monkeypatch.setattr(bands, "MOST_AGAIN", 1e9)
    rng, kinds = Random(19), set()
    for _ in range(3):
        made = _Model.of(graph, plan)
        for _ in range(4):
            options = list(made.changes(MACHINE))
            change = rng.choice(options)
            try:
                made = made.changed(change)
            except ArtefactError:
                continue
            kinds.add(change.kind)
        assert_same(model, made.plan, plan)
    assert len(kinds) > 1


def test_the_default_stays_where_nothing_is_faster(graph, plan):
    found = tune_graph(graph, plan, MACHINE, Made(lambda p, _: len(p.stages) * 1e-6 + 1e-3))
    assert found.plan.fusion == plan.fusion
    assert found.tried > 0


def test_without_time_nothing_changes(graph, plan):
    prices = Made(lambda p, _: 1e-3)
    found = tune_graph(graph, plan, MACHINE, prices, monotonic() - 1)
    assert (found.plan, found.changes, prices.asked) == (plan, (), 0)


def test_an_interruption_keeps_what_was_found(graph, plan):
    class Stops(Made):
        def measure(self, task, candidates):
            if self.asked == 8:
                raise KeyboardInterrupt
            return super().measure(task, candidates)

    found = tune_graph(graph, plan, MACHINE, Stops(lambda p, _: len(p.stages) ** 2 * 1e-3))
    assert found.interrupted
    _Model.of(graph, found.plan)


def test_changes_that_do_not_fit_are_not_made(graph, plan):
    made = _Model.of(graph, plan)
    with pytest.raises(ArtefactError, match="do not follow one another"):
        made.changed(Change("join", (("c0", "y"),)))
    with pytest.raises(ArtefactError, match="parts of the batch, which it does not have"):
        made.changed(Change("parts", (tuple(v for u in made.units for v in u.outputs.values()),), 3))


def test_changes_say_what_they_are():
    assert str(Change("cut", (("a",), ("b",), ("c",)))) == "cut a and 2 more"
    assert str(Change("join", (("a", "b"),))) == "join a, b"
    assert str(Change("parts", (("a",),), 4)) == "parts a in 4 parts"


@pytest.mark.parametrize("faster", [True, False])
def test_a_model_is_kept_or_replaced_as_a_whole(model, monkeypatch, faster):
    """What kernels promise counts only where the network is faster in a process of its own."""
    monkeypatch.setattr(graph_tuning, "compared", lambda a, b: Comparison(1.0, 0.5, faster, fresh=True))
    compiled = tilewright.compile(model, threads=2, records="off")

    def recompile(plan):
        return tilewright.compile(model, threads=2, records="off", plan=plan)

    prices = Made(lambda p, _: len(p.stages) ** 2 * 1e-3)
    made, found = with_tuned_graph(compiled, model, recompile, prices, monotonic() + 600)
    assert (made is not compiled) == faster == bool(found.changes)
    assert made.plan().graph == found.plan


def test_what_is_known_is_searched_once_more_where_that_is_asked(model, tmp_path, monkeypatch):
    """A second tuning takes the plan from the database; ``again`` goes on from it."""
    began = []

    def searched(compiled, source, recompile, prices, until, shapes=None):
        own = compiled.plan().graph
        began.append(own.fusion.cuts)
        other = replace(own, fusion=replace(own.fusion, cuts=frozenset({"c0"})))
        changes = (Change("cut", (("c0",),)),)
        made = recompile(ModelPlan(HOST.fingerprint, {}, replace(other, layouts=Layouts())))
        return made, GraphTuning(made.plan().graph, 2.0, 1.0, 1, changes)

    monkeypatch.setattr(tuning, "with_tuned_graph", searched)
    options = {"trials": 1, "budget": 60, "strategy": "random", "database": tmp_path / "r.db", "threads": 2}
    first = tilewright.tune(model, **options)
    assert [str(change) for change in first.graph.changes] == ["cut c0"]
    second = tilewright.tune(model, **options)
    assert second.graph is None and second.model.plan().graph.fusion.cuts == {"c0"}
    compiled = tilewright.compile(model, threads=2, records=tmp_path / "r.db")
    assert compiled.plan().graph.fusion.cuts == {"c0"}
    tilewright.tune(model, again=True, **options)
    assert began == [frozenset(), frozenset({"c0"})]


def test_what_there_was_no_time_for_is_not_kept(model, tmp_path, monkeypatch):
    """Nothing was priced: the default is no decision, and the next tuning searches."""
    began = []

    def no_time(compiled, *_):
        began.append(compiled)
        return compiled, GraphTuning(compiled.plan().graph, float("inf"), float("inf"), 0)

    monkeypatch.setattr(tuning, "with_tuned_graph", no_time)
    options = {"trials": 1, "budget": 60, "strategy": "random", "database": tmp_path / "r.db", "threads": 2}
    for _ in range(2):
        tilewright.tune(model, **options)
    assert len(began) == 2


def test_measured(graph, plan):
    with LocalMeasurer() as measurer:
        found = tune_graph(graph, plan, MACHINE, measurer, monotonic() + 20)
    assert 0 < found.best <= found.untuned
