"""Reports: the data of a page, of models and of databases, compared and escaped."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper
from tests import onnx_models

import tilewright
from tilewright.cli import main
from tilewright.cli.commands import report as command
from tilewright.cost import Machine
from tilewright.driver import Limits
from tilewright.report import Content, Kernel, Points, of_database, of_model, render
from tilewright.strategies import Candidate, Task, Trial
from tilewright.target import detect
from tilewright.tune import Database, Network, Record, Step
from unit.mapping.kernels import gemm
from unit.report.pages import BAD, content


def page_data(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_names_stay_text():
    page = render(content())
    assert "alert" in page and "<script>alert" not in page and "</title>&" not in page
    data = page_data(page)
    assert data["kernels"][0]["name"] == BAD and data["title"] == f"Model {BAD}"
    assert data["kernels"][0]["failed"] == {"crashed": 1}
    # nothing from elsewhere
    assert not re.search(r"(src|href)=|@import|url\(", page)


def test_many_trials_stay_small_and_quick():
    points = Points(tuple(1e-3 + n * 1e-9 for n in range(20_000)), (0,) * 20_000, (0,) * 20_000, ("random",))
    page = render(Content("many", "tuning", "today", kernels=(Kernel("k", untuned=1e-3, points=points),)))
    assert len(page) < 2_000_000


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "tuned.db"
    machine = Machine(detect(), 1)
    task = Task(gemm(8, 32, 16), machine)
    plan = task.default().plan
    trials = [
        Trial(Candidate("default", plan), "ok", (2e-5, 1e-5)),
        Trial(Candidate("random", plan), "crashed", (), "signal 11"),
        Trial(Candidate("random", plan), "ok", (5e-6,)),
    ]
    with Database(path) as made:
        made.declare(task, "MatMul layer/0", task.key)
        made.add(task.key, trials)
        made.keep(task.key, [Record(task.key, plan, "f", 5e-6, 1e-5)])
    return path


def test_a_database_becomes_tasks(database):
    with Database(database) as found:
        made = of_database(found, found)
    (kernel,) = made.kernels
    assert (kernel.name, kernel.untuned, kernel.best, kernel.before) == ("MatMul layer/0", 1e-5, 5e-6, 5e-6)
    assert kernel.points.seconds == (1e-5, None, 5e-6) and kernel.points.failed == {"crashed": 1}
    assert kernel.reasons == (("crashed", "signal 11"),) and kernel.plan
    assert made.untuned == 1e-5 and made.best == 5e-6
    assert kernel.flops == 2 * 8 * 32 * 16 and kernel.nbytes and kernel.limit is None and made.peak is None
    assert kernel.schedule == "" and kernel.uses == 1  # nobody said what it makes up
    assert "Noise" not in dict(made.facts)  # its default was measured once
    with Database(database) as found:
        found._connection.execute("UPDATE records SET untuned = 1.1e-5")
        assert dict(of_database(found).facts)["Noise"].startswith("default plans measured again: 10.0% apart")


def test_tasks_have_the_nodes_calls_and_schedules_of_their_network(database):
    with Database(database) as found:
        ((key, _),) = found.tasks()
        steps = (
            Step(
                key, "l", "MatMul", ("first", BAD), 2.0, "matmul", (), ("plain",), ("packed",), "f", "s = 1"
            ),
            Step(key, "l", "MatMul", ("again",), 1.0),
        )
        found.keep_network(Network("net", steps, (), "a machine", 3e-3, 2e-3), compared=True)
        made = of_database(found)
        (kernel,) = made.kernels
        assert kernel.nodes == ("first", BAD, "again") and kernel.uses == 3
        assert (kernel.algorithm, kernel.layouts, kernel.schedule) == ("matmul", "plain -> packed", "s = 1")
        assert made.untuned == pytest.approx(3e-5) and made.networks[0].best == 2e-3
        assert dict(made.facts)["Tuned on"] == "a machine"
        # a schedule of another function than the best one's is not the best one's
        found.keep_network(
            replace(made.networks[0], steps=(replace(steps[0], func="g"), steps[1])), compared=False
        )
        assert of_database(found).kernels[0].schedule == ""
    data = page_data(render(made))
    assert "schedule" not in data["networks"][0]["steps"][0] and data["kernels"][0]["schedule"] == "s = 1"


def test_tasks_of_this_machine_have_limits_those_of_others_none(database):
    asked = []

    def limits(threads):
        asked.append(threads)
        return Limits(threads, 100.0, {1 << 20: 50.0, 1 << 28: 10.0})

    with Database(database) as found:
        made = of_database(found, limits=limits)
        assert asked == [1] and made.kernels[0].limit > 0 and (made.peak, made.bandwidth) == (1e11, 1e10)
        found._connection.execute("UPDATE tasks SET target = 'another'")
        made = of_database(found, limits=limits)
    assert asked == [1] and made.kernels[0].limit is None and made.kernels[0].schedule == ""


def test_two_dates_of_one_database_are_compared(database, tmp_path):
    with Database(database) as found:
        ((key, _),) = found.tasks()
        task = Task(gemm(8, 32, 16), Machine(detect(), 1))
        trial = Trial(Candidate("later", task.default().plan), "ok", (4e-6,), load=0.5, host="far")
        found._connection.execute(
            "INSERT INTO sessions (id, begun, strategy, seed, host) VALUES "
            "(0, '2026-01-01T00:00:00', 'x', 0, 'h'), (1, '2026-02-01T00:00:00', 'x', 0, 'h')"
        )
        found.add(key, [trial], 1)
        made = of_database(found, before="2026-01-15")
        assert made.kernels[0].before == 5e-6 and made.against == "before 2026-01-15"
        assert of_database(found, before="2026-03-01").kernels[0].before == 4e-6
        assert of_database(found, before="2025-03-01").kernels[0].before is None
        facts = dict(made.facts)
    assert facts["Sessions"] == "2, 2026-01-01 00:00 to 2026-02-01 00:00" and facts["Measured on"] == "far"
    assert facts["Others' use of the CPUs"].startswith("50% at the median")
    out = tmp_path / "page.html"
    assert main(["report", str(database), "-o", str(out), "--before", "2026-01-15"]) == 0
    assert page_data(out.read_text())["kernels"][0]["before"] == 5e-6


def test_a_page_of_an_untuned_model(tmp_path, capsys):
    model, out = tmp_path / "tiny.onnx", tmp_path / "page.html"
    onnx.save(tiny(), model)
    assert main(["explain", str(model), "--html", str(out), "--threads", "1"]) == 0
    made = page_data(out.read_text())
    assert made["kind"] == "model" and len(made["kernels"]) == 2 and made["peak"]
    assert all(k["loops"] and k["limit"] and k["layouts"] and k["best"] is None for k in made["kernels"])
    capsys.readouterr()
    assert main(["explain", str(model), "--html", str(model)]) == 2
    assert "is a file that the command reads" in capsys.readouterr().err
    assert main(["explain", str(model), "--html", str(out), "--show", "asm"]) == 2
    assert "--html shows all of a model" in capsys.readouterr().err


def tiny():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name=BAD),
        helper.make_node("Softmax", ["h"], ["y"], name="soft", axis=-1),
    ]
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((16, 32), "float32")}
    tensors = onnx_models.tensor("x", (8, 16)), onnx_models.tensor("y", (8, 32))
    return onnx_models.model(nodes, tensors[:1], tensors[1:], weights)


def test_a_model_becomes_kernels():
    compiled = tilewright.compile(tiny(), threads=1)
    made = of_model(compiled, compiled.profile(compiled.sample_feeds(), 2))
    assert [kernel.operators for kernel in made.kernels] == [g.operators for g in compiled.groups()]
    assert all(kernel.untuned and kernel.schedule and kernel.loops and kernel.plan for kernel in made.kernels)
    (network,) = made.networks
    assert [(link.source, link.reader) for link in network.links] == [(0, 1)]
    assert [step.task for step in network.steps] == [kernel.key for kernel in made.kernels]
    assert BAD in made.kernels[0].nodes
    # the longest is priced, with other ways beside what was taken
    longest = max(made.kernels, key=lambda kernel: kernel.untuned)
    taken, *others = longest.prices
    assert not taken.change and others and all(each.change for each in others if each.nest == taken.nest)
    assert max(s for _, s in taken.terms) <= taken.seconds
    (read,) = [k for k in page_data(render(made))["kernels"] if k["key"] == longest.key]
    assert read["prices"][0]["seconds"] == taken.seconds


def test_the_command(database, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(database), "-o", str(out), "--against", str(database)]) == 0
    assert page_data(out.read_text())["kernels"][0]["best"] == 5e-6
    assert main(["report", str(database), "-o", str(database)]) == 2
    assert "is a file that the command reads" in capsys.readouterr().err
    assert (
        main(["report", "zoo:tinybert4:small", "-o", str(out), "--repeats", "1", "--against", str(database)])
        == 2
    )
    assert "--against and --before compare databases" in capsys.readouterr().err
    both = ["--against", str(database), "--before", "2026-01-01"]
    assert main(["report", str(database), "-o", str(out), *both]) == 2
    assert "two things to compare with" in capsys.readouterr().err


@pytest.mark.parametrize(("share", "shown"), [(0.1, True), (None, True), (0.97, False)])
def test_limits_that_were_measured_while_others_worked_are_not_shown(
    database, tmp_path, capsys, monkeypatch, share, shown
):
    monkeypatch.setattr(command, "OtherLoad", lambda: nullcontext(SimpleNamespace(share=share)))
    monkeypatch.setattr(command, "measure_limits", lambda *_: Limits(1, 100.0, {1 << 28: 10.0}))
    out = tmp_path / "page.html"
    assert main(["report", str(database), "-o", str(out)]) == 0
    assert (page_data(out.read_text())["kernels"][0]["limit"] is not None) == shown
    assert ("no limits are shown: others used 97%" in capsys.readouterr().err) != shown
