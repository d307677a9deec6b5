"""What a running tuning shows: a table in a terminal, lines elsewhere, events; Ctrl-C keeps all."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import onnx
import pytest
from rich.console import Console

import onnx_models as tiny
from tilewright.cli.commands.tune import _row
from tilewright.cli.state import State
from tilewright.cli.watching import LiveTable, MinuteLines, event_data, watched
from tilewright.tune import Database, Event, TaskResult

BAD = "Conv \x1b[31mred\x07"


def event(what, key="k0", label="Conv stem", **more):
    return Event(what, key, label, **{"weight": 2.0, "untuned": 4e-3, "best": 2e-3, "trials": 9, **more})


def picture(table, width=100, height=20):
    out = io.StringIO()
    Console(file=out, width=width, height=height, force_terminal=False).print(table)
    return out.getvalue()


def test_the_table_says_task_best_gain_budget_and_what_is_tried():
    now = [100.0]
    table = LiveTable(lambda: now[0])
    assert "compiling the default" in picture(table)
    table.tell(event("trying", counts={"descent": 5, "evolutionary": 3}, saved=4e-3, left=60.0))
    now[0] += 20
    text = picture(table)
    assert "40 s of the budget left" in text  # it goes on between events
    assert "a run 8.000 ms -> 4.000" in text
    assert "Conv stem" in text and "4000.0" in text and "2000.0" in text and "2.00x" in text
    assert "descent 5, evolutionary 3" in text
    table.tell(event("deciding"))
    assert "deciding" in picture(table)
    table.tell(event("measured", counts={"ok": 7, "hung": 1}))
    assert "hung 1" in picture(table) and "ok 7" not in picture(table)
    table.tell(Event("network"))
    assert "timing winners inside of the network" in picture(table)


def test_the_table_fits_the_terminal_and_shows_what_takes_most():
    table = LiveTable()
    for n in range(50):
        table.tell(event("measured", f"k{n}", f"task{n:02}", untuned=1e-3 * (n + 1)))
    table.tell(Event("task", "new", "not measured"))
    text = picture(table, height=15)
    assert len(text.splitlines()) <= 15
    assert "task49" in text and "task00" not in text and "and 43 tasks that take less" in text
    assert max(map(len, picture(table, width=60).splitlines())) <= 60


def test_labels_of_a_model_reach_no_terminal_as_control_characters():
    table, lines = LiveTable(), MinuteLines()
    for each in (table, lines):
        each.tell(event("trying", label=BAD))
    assert "\x1b" not in picture(table) + lines.line and "\x07" not in lines.line


def test_a_line_says_where_it_stands():
    lines = MinuteLines()
    assert lines.line == ""
    lines.tell(event("measured", "a", elapsed=60.0, left=30.0, saved=1e-3))
    lines.tell(event("trying", "b", counts={"descent": 8}, elapsed=61.0, left=29.0, saved=1e-3))
    assert lines.line == "61 s, 29 s left, 18 trials, 1.000 ms of a run saved; Conv stem: descent 8"


def test_lines_are_said_again_and_again_also_where_nothing_happens():
    lines, said, enough = MinuteLines(), [], threading.Event()

    def say(line):
        said.append(line)
        if len(said) == 3:
            enough.set()

    with lines.each(0.001, say):
        lines.tell(event("trying"))
        assert enough.wait(60)
    count = len(said)
    assert set(said) == {lines.line} and count >= 3
    assert threading.active_count() >= 1 and len(said) == count


def test_without_a_terminal_nothing_is_said_before_a_minute(capsys):
    with watched(State()) as watch:
        watch(event("trying"))
    assert capsys.readouterr() == ("", "")


def test_events_are_plain_data_and_unknown_times_none(capsys):
    with watched(State(json=True, lines=True)) as watch:
        watch(event("trying", counts={"descent": 8}, left=3.0))
        watch(Event("task", "k", "x"))
        watch(Event("network", elapsed=2.0))
    trying, task, network = map(json.loads, capsys.readouterr().out.splitlines())
    assert trying["schema"] == trying["events"] == 1
    assert trying["counts"] == {"descent": 8} and trying["gain"] == 2.0 and trying["left"] == 3.0
    assert task["untuned"] is None and task["best"] is None and task["gain"] == 1.0
    assert "task" not in network and network["elapsed"] == 2.0


def test_results_say_what_they_came_to():
    done = TaskResult(None, "x", 4e-3, 2e-3, None, 5, reason="crashed: no")
    assert event_data(replace(event("result"), result=done))["reason"] == "crashed: no"
    kept = event_data(replace(event("result"), result=replace(done, reason="", plan=object())))
    assert kept["tuned"] and kept["gain"] == 2.0 and not kept["known"] and "reason" not in kept
    unsure = replace(done, reason="", plan=object(), sure=False)
    assert kept["sure"] and not event_data(replace(event("result"), result=unsure))["sure"]
    assert "not surely" in _row(unsure) and "not surely" not in _row(replace(unsure, sure=True))


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "mlp.onnx"
    onnx.save(tiny.mlp(), file)
    return str(file)


def command(path, *more):
    return [sys.executable, "-m", "tilewright", "tune", path, "--threads", "1", *more]


def environment():
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}


def interrupted_at(master, child, words):
    """All that a child says in a terminal; it is interrupted where it has said these words."""
    seen, sent, until = b"", False, time.monotonic() + 200
    while time.monotonic() < until:
        ready, _, _ = select.select([master], [], [], 1.0)
        if ready:
            try:
                piece = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            seen += piece
        if not sent and words in seen:
            sent = True
            child.send_signal(signal.SIGINT)
        if child.poll() is not None and not ready:
            break
    assert sent, seen[-2000:]
    return seen.decode(errors="replace")


@pytest.mark.slow
def test_in_a_terminal_a_table_lives_and_an_interruption_keeps_what_was_found(path, tmp_path):
    records = tmp_path / "r.db"
    arguments = command(path, "--budget", "10m", "--trials", "5000", "--strategy", "random", "--records")
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*arguments, str(records)], stdout=slave, stderr=slave, stdin=slave, env=environment(), cwd=tmp_path
    ) as child:
        os.close(slave)
        seen = interrupted_at(master, child, b"random 8")
        assert child.wait(60) == 0
    os.close(master)
    assert "s of the budget left" in seen and "\x1b[" in seen  # pictures over pictures
    assert "trials" in seen.splitlines()[-1] or "x  " in seen
    with Database(records) as database:
        rows = list(database.task_rows())
        assert rows and any(database.ranked(row.key) for row in rows)
        assert sum(sum(database.counts(row.key).values()) for row in rows) >= len(rows)


@pytest.mark.slow
def test_programs_get_events_and_the_result_as_the_last_line(path, tmp_path):
    arguments = command(
        path, "--budget", "60s", "--trials", "3", "--strategy", "random", "--json", "--records"
    )
    done = subprocess.run(
        [*arguments, str(tmp_path / "r.db")], capture_output=True, env=environment(), cwd=tmp_path, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(line["schema"] == 1 and line["command"] == "tune" for line in lines)
    words = [line["event"] for line in lines]
    assert words[0] == "graph" and words[-1] == "tuned"
    assert {"task", "trying", "measured", "deciding", "result"} <= set(words)
    tasks = {line["task"] for line in lines if line["event"] == "task"}
    assert {line["task"] for line in lines if line["event"] == "result"} == tasks
    assert {row["task"] for row in lines[-1]["tasks"]} == tasks
    elapsed = [line["elapsed"] for line in lines[:-1]]
    assert elapsed == sorted(elapsed)
