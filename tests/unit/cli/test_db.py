"""``tilewright db``: lists, shows, moves and prunes; what is not there is said."""

import json
from pathlib import Path

import pytest
from tests.unit.tune.test_database import filled

from tilewright.cli import main


@pytest.fixture
def path(tmp_path):
    return str(filled(tmp_path / "r.db"))


def said(capsys, *arguments):
    assert main(["db", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main(["db", *arguments]) == 2
    return capsys.readouterr().err


def test_tasks_are_listed(path, capsys):
    assert "2 trials   2000000.0 us ->  1000000.0  MatMul" in said(capsys, "list", "--records", path)
    data = json.loads(said(capsys, "list", "--records", path, "--json"))
    assert data["tasks"][0] | {"task": "a", "best": 1.0, "untuned": 2.0} == data["tasks"][0]


def test_what_is_written_does_not_replace_the_database(path, capsys):
    for command in (["export"], ["best", "a"]):
        assert "a file that the command reads" in refused(capsys, *command, "--records", path, "-o", path)
    assert "MatMul" in said(capsys, "list", "--records", path)


def test_a_task_is_shown(path, capsys):
    text = said(capsys, "show", "a", "--records", path)
    assert "program" in text and "1 hung, 1 ok" in text and "contraction" in text
    assert json.loads(said(capsys, "show", "a", "--records", path, "--json"))["trials"] == {
        "hung": 1,
        "ok": 1,
    }


def test_the_best_plan_is_printed_or_written(path, tmp_path, capsys):
    assert json.loads(said(capsys, "best", "a", "--records", path))["format"] == "tilewright-plan"
    assert json.loads(said(capsys, "best", "a", "--records", path, "--json"))["seconds"] == 1.0
    said(capsys, "best", "a", "--records", path, "-o", str(tmp_path / "p.json"))
    assert json.loads((tmp_path / "p.json").read_text())["format"] == "tilewright-plan"


def test_output_does_not_replace_the_database(path, capsys):
    before = Path(path).read_bytes()
    for arguments in (("best", "a"), ("export",)):
        said = refused(capsys, *arguments, "--records", path, "-o", path)
        assert "is a file that the command reads" in said
    assert Path(path).read_bytes() == before


def test_lines_go_out_and_in(path, tmp_path, capsys):
    lines, other = tmp_path / "r.jsonl", str(tmp_path / "o.db")
    said(capsys, "export", "--records", path, "-o", str(lines))
    assert lines.read_text() == said(capsys, "export", "--records", path)
    assert "1 tasks, 2 trials, 2 records" in said(capsys, "import", str(lines), "--records", other)
    assert (
        json.loads(said(capsys, "import", str(lines), "--records", other, "--json"))["rows"]["records"] == 0
    )
    assert said(capsys, "export", "--records", other).count("MatMul") == 1


def test_trials_are_pruned(path, capsys):
    assert "1 trial forgotten" in said(capsys, "prune", "--records", path)
    assert json.loads(said(capsys, "prune", "--records", path, "--json"))["gone"] == 0


def test_what_is_not_there_is_said(path, tmp_path, capsys, monkeypatch):
    assert "there is no database" in refused(capsys, "list", "--records", str(tmp_path / "none.db"))
    assert "there is no task 'zz'" in refused(capsys, "show", "zz", "--records", path)
    noise = tmp_path / "noise.jsonl"
    noise.write_bytes(b"\xff\xfe\x00")
    assert "is no text" in refused(capsys, "import", str(noise), "--records", path)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", "off")
    assert "switches records off" in refused(capsys, "list")
    monkeypatch.setenv("TILEWRIGHT_RECORDS", path)
    assert "MatMul" in said(capsys, "list")


def test_keys_must_say_one_task_and_decided_ones_have_a_best(path, capsys):
    lines = said(capsys, "export", "--records", path).splitlines()
    more = [json.dumps({**json.loads(lines[1]), "key": key}) for key in ("ba", "bb")]
    file = path + ".jsonl"
    with open(file, "w") as out:
        out.write("\n".join([lines[0], *more]) + "\n")
    said(capsys, "import", file, "--records", path)
    assert "2 tasks begin with 'b'" in refused(capsys, "show", "b", "--records", path)
    assert "nothing was decided about the task 'ba'" in refused(capsys, "best", "ba", "--records", path)
    assert "not decided" in said(capsys, "list", "--records", path)
