"""``tilewright schedule``: the printed function makes the schedule that was found, which is checked."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewright.cli import main
from tilewright.cli.programs import open_program
from tilewright.schedule import Schedule

FILE = """
from tilewright import lang

def program(h: int, w: int):
    x = lang.placeholder((h, w), name="X")
    rows = lang.stage(lambda i, j: x[i, j - 1] + x[i, j] + x[i, j + 1], name="rows")
    out = lang.stage(lambda i, j: rows[i - 1, j] + rows[i, j] + rows[i + 1, j], name="out")
    return lang.program([x], out, region=[(1, h - 1), (1, w - 1)])
"""
SCAN = """
from tilewright import lang
x = lang.placeholder((9,), name="X")
s = lang.scan((9,), lambda t, i: lang.select(i >= 1, t[i - 1], 0.0) + x[i], name="s")
program = lang.program([x], s)
"""
SIZES = ["--shape", "h=66", "--shape", "w=130", "--threads", "2"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "blur.py"
    path.write_text(FILE)
    return str(path)


@pytest.mark.parametrize("more", [[], ["--budget", "20s", "--trials", "1"]])
def test_what_is_written_makes_the_schedule(file, tmp_path, capsys, more):
    written = tmp_path / "found.py"
    assert main(["schedule", file, *SIZES, "--strategy", "beam", "-o", str(written), *more]) == 0
    assert "its evaluation by numpy" in capsys.readouterr().out
    scope: dict[str, object] = {}
    exec(compile(written.read_text(), str(written), "exec"), scope)
    program, _ = open_program(file, {"h": 66, "w": 130})
    made = scope["schedule"](program)
    assert isinstance(made, Schedule) and len(made.trace)
    assert ("# measured: " in written.read_text()) == bool(more)


def test_json_has_plan_trace_and_check(file, capsys):
    assert main(["schedule", file, *SIZES, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["strategy"] == "default" and found["verify"]["ok"]
    assert found["plan"]["nests"] and found["trace"]["steps"]


def test_stages_are_told_and_drawn(file, tmp_path, capsys):
    picture = tmp_path / "graph.svg"
    more = ["--strategy", "beam", "--fix", "rows=out.slide", "--budget", "1s", "--trials", "2"]
    assert main(["schedule", file, *SIZES, *more, "--svg", str(picture)]) == 0
    out = capsys.readouterr().out
    table = out[out.index("# stage") :].splitlines()
    assert table[0].split()[1:] == [
        "stage",
        "computed",
        "times",
        "holds",
        "KiB",
        "predicted",
        "ms",
        "nest's",
        "ms",
    ]
    (rows,) = (line.split() for line in table if line.startswith("# rows"))
    assert rows[2] == "out.slide" and float(rows[4]) > 0
    (last,) = (line.split() for line in table if line.startswith("# out"))
    assert last[2] == "root" and float(last[6]) > 0
    assert "# func" in out and 's.slide("rows"' in out
    root = ElementTree.fromstring(picture.read_text())
    assert {"rows", "out"} <= {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}


@pytest.mark.parametrize(
    ("fix", "why"),
    [
        ("rows", "names no place"),
        ("row=inline", "the program has no stage 'row'"),
        ("rows=out", "'out' is no place for the stage 'rows'"),
        ("out=rows.tile", "no schedule has all fixed parts: out at rows.tile"),
    ],
)
def test_parts_that_cannot_be_fixed(file, capsys, fix, why):
    assert main(["schedule", file, *SIZES, "--strategy", "beam", "--fix", fix]) == 2
    assert why in capsys.readouterr().err


def test_a_stage_is_fixed_at_one_place(file, capsys):
    more = ["--strategy", "beam", "--fix", "rows=own", "--fix", "rows=inline"]
    assert main(["schedule", file, *SIZES, *more]) == 2
    assert "--fix has two places for the stage 'rows'" in capsys.readouterr().err


def test_a_budget_that_measures_nothing_says_so(file, capsys):
    more = ["--strategy", "beam", "--budget", "0.001s"]
    assert main(["schedule", file, *SIZES, *more]) == 0
    said = capsys.readouterr()
    assert "not measured: no time was left" in said.err and "inf" not in said.out
    assert main(["schedule", file, *SIZES, *more, "--json"]) == 0
    text = capsys.readouterr().out
    assert "Infinity" not in text and json.loads(text)["best"] is None


@pytest.mark.parametrize("command", ["schedule", "tune", "compile", "explain"])
def test_output_does_not_replace_what_is_read(file, tmp_path, capsys, command):
    records = tmp_path / "r.db"
    assert main(["db", "import", "--records", str(records), "/dev/null"]) == 0
    read = ["--records", str(records), *(["--emit", "c"] if command == "compile" else [])]
    option = "--html" if command == "explain" else "-o"
    capsys.readouterr()
    for output in (file, records):
        before = Path(output).read_bytes()
        assert main([command, f"{file}:program", *SIZES, *read, option, str(output)]) == 2
        assert "is a file that the command reads" in capsys.readouterr().err
        assert Path(output).read_bytes() == before


@pytest.mark.parametrize("command", ["schedule", "tune"])
def test_a_search_asks_first_whether_its_output_has_a_folder(file, tmp_path, capsys, command):
    assert main([command, file, *SIZES, "--budget", "60s", "-o", str(tmp_path / "none" / "plan.json")]) == 2
    assert "its folder is not there" in capsys.readouterr().err


def test_the_default_has_nothing_to_measure(file, capsys):
    assert main(["schedule", file, *SIZES, "--budget", "5s"]) == 2
    assert "--budget is for strategies that search" in capsys.readouterr().err


def test_a_plan_that_is_no_text_is_refused(file, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"\xff\xfe{}")
    assert main(["schedule", file, *SIZES, "--plan", str(plan)]) == 2
    assert "is no text" in capsys.readouterr().err


def test_fixed_parts_that_nothing_was_measured_of(file, capsys):
    more = ["--strategy", "beam", "--fix", "rows=inline", "--budget", "1s", "--trials", "0"]
    assert main(["schedule", file, *SIZES, *more]) == 2
    assert "no schedule with the fixed parts was found in time" in capsys.readouterr().err


def test_what_is_no_decision_is_not_fixed(tmp_path, capsys):
    path = tmp_path / "scan.py"
    path.write_text(SCAN)
    assert main(["schedule", str(path), "--strategy", "beam", "--fix", "s=own"]) == 2
    assert "nothing is decided about the stage 's'" in capsys.readouterr().err
    assert main(["schedule", str(path), "--strategy", "random", "--fix", "s=own"]) == 2
    assert "--fix is for --strategy beam" in capsys.readouterr().err


def test_programs_are_tuned_like_models(file, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    arguments = ["--strategy", "beam", "--budget", "2s", "--trials", "3", "-o", str(plan)]
    arguments += ["--records", str(tmp_path / "r.db")]
    assert main(["tune", file, *SIZES, *arguments]) == 0
    assert json.loads(plan.read_text())["units"]
    assert main(["compile", file, *SIZES, "--plan", str(plan)]) == 0
    capsys.readouterr()


def test_what_the_command_cannot_take(file, capsys):
    assert main(["schedule", "model.onnx"]) == 2
    assert "is no Python file" in capsys.readouterr().err
    assert main(["verify", file, *SIZES]) == 2
    assert "by `tilewright schedule`" in capsys.readouterr().err


def test_explain_tells_and_draws_fusion(file, tmp_path, capsys):
    picture = tmp_path / "f.svg"
    size = SIZES[:4]
    assert main(["explain", file, *size, "--poly", "--tile", "8x32", "--svg", str(picture)]) == 0
    assert "rows: a tile runs 24..33, 32..63, each 1.25 times" in capsys.readouterr().out
    assert picture.read_text().startswith("<svg")
    assert main(["explain", file, *size, "--poly", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["live"] == ["out"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--poly", "--tile", "8xno"], "is no size"),
        (["--svg", "x.svg"], "give both"),
    ],
)
def test_explain_refuses_what_it_cannot_draw(file, capsys, more, why):
    assert main(["explain", file, *SIZES[:4], *more]) == 2
    assert why in capsys.readouterr().err


def test_explain_draws_programs_alone(capsys):
    assert main(["explain", "zoo:resnet18:small", "--poly"]) == 2
    assert "--poly is for programs in Python files" in capsys.readouterr().err
