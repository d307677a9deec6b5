"""``tilewright db``: what a database of tuning holds, as lists, as lines of JSON, and smaller."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tilewright.cli.files import check_output, write_text
from tilewright.cli.options import common_options
from tilewright.cli.state import DONE, FAILED, State
from tilewright.support import ArtefactError, InputError, SettingsError, counted, known_names, read_settings
from tilewright.tune import Database, exported, imported, pull, push


def _open(path: str | None, *, write: bool = False, make: bool = False) -> Database:
    """The database of a path, or of the settings, to read. Raises InputError where there is none yet."""
    if path is None:
        found = read_settings().records_path
        if found is None:
            raise SettingsError("TILEWRIGHT_RECORDS switches records off", hint="name the file: --records")
        path = str(found)
    if not make and not os.path.exists(path):
        raise InputError(f"there is no database {path!r}", hint="`tilewright tune MODEL` makes one")
    return Database(path, read_only=not write)


def _task(database: Database, given: str) -> str:
    """The one task whose key begins so."""
    keys = [key for key, _ in database.tasks()]
    found = [key for key in keys if key.startswith(given)]
    if len(found) == 1 or given in found:
        return given if given in found else found[0]
    if found:
        raise InputError(f"{counted(len(found), 'task')} begin with {given!r}", hint="give more of the key")
    raise InputError(f"there is no task {given!r}", hint=known_names(given, keys, "the tasks"))


_records = click.option("--records", metavar="FILE", help="The database. Default: that of the settings.")


@click.group()
def db() -> None:
    """Look into databases of tuning, and move what they hold."""


@db.command("list")
@_records
@common_options
def list_(state: State, records: str | None) -> None:
    """List the tasks: key, trials, the default's time, the best one's, and what it is."""
    with _open(records) as database:
        rows: list[dict[str, Any]] = []
        for row in database.task_rows():
            ranked = database.ranked(row.key)
            rows.append(
                {
                    "task": row.key,
                    "label": row.label,
                    "threads": row.threads,
                    "finished": bool(row.finished),
                    "trials": sum(database.counts(row.key).values()),
                    "untuned": ranked[0].untuned if ranked else None,
                    "best": ranked[0].seconds if ranked else None,
                }
            )
    if state.json:
        state.print_json({"command": "db list", "tasks": rows})
    for row_ in rows:
        times = "not decided"
        if row_["best"] is not None:
            times = f"{row_['untuned'] * 1e6:10.1f} us -> {row_['best'] * 1e6:10.1f}"
        state.say(f"{row_['task'][:12]}  {row_['trials']:5} trials  {times}  {row_['label'][:50]}")


@db.command()
@click.argument("task")
@_records
@common_options
def show(state: State, task: str, records: str | None) -> None:
    """Show a task, by the beginning of its key: its program, its trials, its records."""
    with _open(records) as database:
        key = _task(database, task)
        row = next(each for each in database.task_rows() if each.key == key)
        counts, ranked, trials = database.counts(key), database.ranked(key), list(database.trials(key))
    if state.json:
        state.print_json(
            {
                "command": "db show",
                "task": key,
                "label": row.label,
                "program": row.program,
                "trials": counts,
                "records": [
                    {"seconds": r.seconds, "untuned": r.untuned, "plan": str(r.plan)} for r in ranked
                ],
            }
        )
        return
    state.say(f"{key}: {row.label}\n\n{row.program.rstrip()}\n")
    state.say(", ".join(f"{n} {status}" for status, n in counts.items()))
    for status in counts:
        reason = next((t.reason for t in trials if t.status == status and t.reason), "")
        if reason:
            state.say(f"  {status}: {reason[:160]}")
    for record in ranked:
        state.say(
            f"\n{record.seconds * 1e6:.1f} us, untuned {record.untuned * 1e6:.1f}:\n{record.plan}".rstrip()
        )


@db.command()
@click.argument("task")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the plan there.")
@_records
@common_options
def best(state: State, task: str, output: str | None, records: str | None) -> None:
    """Print the plan of a task's best record as JSON, by the beginning of its key."""
    with _open(records) as database:
        check_output(output, str(database.path))
        found = database.best(_task(database, task))
    if found is None:
        raise InputError(f"nothing was decided about the task {task!r}", hint="`tilewright tune` goes on")
    text = found.plan.to_json(indent=1)
    if output is not None:
        write_text(output, text + "\n")
    elif state.json:
        state.print_json({"command": "db best", "seconds": found.seconds, "untuned": found.untuned})
    else:
        state.say(text)


@db.command("export")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write there. Default: print.")
@_records
@common_options
def export(state: State, output: str | None, records: str | None) -> None:
    """Write all tasks, trials and records as lines of JSON."""
    with _open(records) as database:
        check_output(output, str(database.path))
        text = "\n".join(exported(database)) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    write_text(output, text)
    state.note(f"{output}: {counted(text.count(chr(10)) - 1, 'row')}")


@db.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@_records
@common_options
def import_(state: State, file: str, records: str | None) -> None:
    """Add what `tilewright db export` wrote: what is known of a task already stays.

    Nothing in it is believed: records of other machines only give searches something to begin with.
    """
    with _open(records, write=True, make=True) as database:
        try:
            with Path(file).open(encoding="utf-8") as lines:
                counts = imported(database, lines)
        except UnicodeDecodeError:
            raise ArtefactError(f"{file} is no text") from None
    if state.json:
        state.print_json({"command": "db import", "rows": counts})
    state.say(", ".join(f"{n} {table}" for table, n in counts.items()))


@db.command("push")
@click.argument("path")
@_records
@common_options
def push_(state: State, path: str, records: str | None) -> None:
    """Put what the database holds at PATH: a folder, or an object store such as s3://BUCKET/FOLDER.

    What is there stays: objects are named by their content, and several may push at once.
    """
    with _open(records) as database:
        done = push(database, path)
    if state.json:
        state.print_json({"command": "db push", "written": done.written, "known": done.known})
    state.say(f"{counted(done.written, 'object')} written, {done.known} were there")


@db.command("pull")
@click.argument("path")
@_records
@common_options
def pull_(state: State, path: str, records: str | None) -> int:
    """Add what others put at PATH: what is known of a task already stays.

    Objects that are damaged, of another version, or of tasks that are not what they say, are refused by name,
    the others are taken; the exit status is 1 then.
    """
    with _open(records, write=True, make=True) as database:
        done = pull(database, path)
    if state.json:
        refused = [{"object": name, "reason": why} for name, why in done.refused]
        state.print_json(
            {"command": "db pull", "objects": done.objects, "rows": done.rows, "refused": refused}
        )
    rows = ", ".join(f"{n} {table}" for table, n in done.rows.items())
    state.say(f"{counted(done.objects, 'object')}: {rows}")
    for name, why in done.refused:
        state.note(f"{name} is refused: {why}")
    return FAILED if done.refused else DONE


@db.command()
@click.option("--keep", default=32, show_default=True, type=click.IntRange(min=0), help="Trials of a task.")
@_records
@common_options
def prune(state: State, keep: int, records: str | None) -> None:
    """Forget all trials but each task's fastest, and make the file smaller. Records stay."""
    with _open(records, write=True) as database:
        gone = database.prune(keep)
    if state.json:
        state.print_json({"command": "db prune", "gone": gone})
    state.say(f"{counted(gone, 'trial')} forgotten")
