"""Reports: the data of a page, and the page in a real browser: sorted, filtered, clicked, read back."""

import json
import re
import shutil

import numpy as np
import onnx
import pytest
from onnx import helper
from tests import onnx_models

import tilewright
from tilewright.cli import main
from tilewright.cost import Machine
from tilewright.driver import Limits
from tilewright.report import Content, Kernel, Link, Points, of_database, of_model, render
from tilewright.strategies import Candidate, Task, Trial
from tilewright.target import detect
from tilewright.tune import Database, Record
from unit.mapping.kernels import gemm

BAD = "<script>alert('x')</script>&\"</title>"


def page_data(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def kernels():
    points = Points((3e-3, None, 2e-3, 2.5e-3, 1e-3), (0, 3, 0, 0, 0), (0, 1, 1, 1, 1), ("default", "random"))
    return (
        Kernel(
            BAD, ("a", BAD), "Conv+Relu", 2, 1e9, 1e6, 3e-3, 1e-3, 5e-4, algorithm="direct",
            plan="rows=4\nsame",
            default_plan="rows=2\nsame", schedule="s = s.split('i', 4)", loops="for i", points=points,
            reasons=(("crashed", "signal 11"),),
        ),
        Kernel("pool", ("p",), "MaxPool", 1, 1e6, 1e6, 8e-3, None, 1e-3),
        Kernel("never measured"),
    )  # fmt: skip


def content():
    return Content(
        f"Model {BAD}", "tuning", "today", (("Machine", BAD),), kernels(), (Link(0, 1, BAD, "NCHW16c"),),
        peak=1e12, bandwidth=1e10, untuned=14e-3, best=1e-2,
    )  # fmt: skip


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
    assert "s = " in kernel.schedule and kernel.loops and kernel.layouts
    assert "Noise" not in dict(made.facts)  # its default was measured once
    with Database(database) as found:
        found._connection.execute("UPDATE records SET untuned = 1.1e-5")
        assert dict(of_database(found).facts)["Noise"].startswith("default plans measured again: 10.0% apart")


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
    assert [(link.source, link.reader) for link in made.links] == [(0, 1)]
    assert BAD in made.kernels[0].nodes


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


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, where there is one."""
    driver, binary = shutil.which("chromedriver"), shutil.which("chromium")
    webdriver = pytest.importorskip("selenium.webdriver")
    if driver is None or binary is None:
        pytest.skip("no chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1400"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()


@pytest.mark.slow
def test_in_a_browser(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(render(content()))
    browser.get(page.as_uri())
    css = "css selector"

    def names():
        return [cell.text for cell in browser.find_elements(css, "tbody tr td:first-child")]

    assert browser.title == f"Model {BAD}"
    assert names() == ["pool", BAD, "never measured"]
    heads = {each.text: each for each in browser.find_elements(css, "thead button")}
    heads["Best"].click()
    assert names()[0] == BAD
    heads = {each.text: each for each in browser.find_elements(css, "thead button")}
    heads["Name"].click()
    assert names() == sorted(names(), key=str.lower)
    sorted_by = browser.find_elements(css, "thead th[aria-sort]")
    assert [each.text for each in sorted_by] == ["Name"]
    # a name opens its details: trials, the plan beside the default's, differences marked
    next(each for each in browser.find_elements(css, "td button") if each.text == BAD).click()
    detail = browser.find_element(css, "#detail")
    assert detail.find_element(css, "h2").text == BAD and "crashed: 1, such as: signal 11" in detail.text
    assert [each.text for each in detail.find_elements(css, "mark.added")] == ["rows=4"]
    assert [each.text for each in detail.find_elements(css, "mark.removed")] == ["rows=2"]
    assert len(detail.find_elements(css, "svg")) == 2
    assert len(detail.find_elements(css, "svg .dot")) == 4
    search = browser.find_element(css, "input[type=search]")
    search.send_keys("pool")
    assert names() == ["pool"]
    search.clear()
    search.send_keys(" ")
    assert len(browser.find_elements(css, "#graph .node")) == 3
    assert "NCHW16c" in browser.find_element(css, "#graph").text
    assert not browser.get_log("browser")
    browser.set_window_size(420, 900)
    width = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 1
