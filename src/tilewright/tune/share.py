"""Sharing databases of tuning: immutable objects in a folder or an object store, named by what they hold.

An object is lines of JSON as ``exchange.py`` writes them: a task with the trials of one session, a task with
its records, the decisions about a graph, or a network without its schedules. Its name
is the digest of its bytes, so equal objects are one, nobody ever changes another's, and whoever pushes at the
same time loses nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from tilewright.ir import canonical, parse_source, structural_hash
from tilewright.support import (
    ArtefactError,
    InputError,
    InstallationError,
    ResourceError,
    quoted,
)
from tilewright.tune.database import Database
from tilewright.tune.exchange import exported_rows, header_line, imported, read_row, row_line
from tilewright.tune.schema import COLUMNS

#: The folder of objects below the path that is given: other files there are not looked at.
FOLDER: Final = "tilewright-records"
#: The largest object that is read.
MOST_BYTES: Final = 1 << 28
_NAME: Final = re.compile(r"[0-9a-f]{64}\.jsonl")


@dataclass(frozen=True, slots=True)
class Pushed:
    """How many objects were written, and how many were there already."""

    written: int
    known: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """What came in, by table; the objects that were refused, by name, with the reason of each."""

    objects: int
    rows: dict[str, int]
    refused: tuple[tuple[str, str], ...]


def push(database: Database, path: str) -> Pushed:
    """Write what a database holds to a path that fsspec knows (a folder, ``s3://…``, ``memory://…``).

    Raises InstallationError without fsspec or what the path's protocol needs, InputError for an unknown
    protocol, ResourceError where it cannot be written.
    """
    fs, folder = _opened(path)
    written = known = 0
    try:
        fs.makedirs(folder, exist_ok=True)
        there = set(_names(fs, folder))
        for lines in _objects(database):
            content = ("\n".join(lines) + "\n").encode()
            name = f"{hashlib.sha256(content).hexdigest()}.jsonl"
            if name in there:
                known += 1
                continue
            there.add(name)
            # a reader sees it whole or not at all
            with fs.transaction, fs.open(f"{folder}/{name}", "wb") as file:
                file.write(content)
            written += 1
    except OSError as error:
        raise ResourceError(f"cannot write to {quoted(path)}: {error}") from None
    return Pushed(written, known)


def pull(database: Database, path: str) -> Pulled:
    """Add what the objects of a path hold to a database; what it has of a task already stays.

    An object is refused, and the others are taken, where its name is not its digest, its version another one,
    or a task's key not that of its program, target and threads. Of several records of one task that
    the database has none of, those that say they save most are taken, whatever the order. Raises what
    :func:`push` does, and InputError where there is nothing of the kind.
    """
    fs, folder = _opened(path)
    refused: list[tuple[str, str]] = []
    good: dict[str, list[str]] = {}
    try:
        names = sorted(_names(fs, folder)) if fs.isdir(folder) else []
        if not names:
            raise InputError(
                f"there are no records at {quoted(path)}", hint="`tilewright db push` puts some there"
            )
        checked: set[str] = set()
        for name in names:
            try:
                good[name] = _checked(name, fs, folder, checked)
            except ArtefactError as error:
                refused.append((name, error.what))
    except OSError as error:
        raise ResourceError(f"cannot read {quoted(path)}: {error}") from None
    rows = imported(database, _merged(good)) if good else {}
    return Pulled(len(good), rows, tuple(refused))


def _opened(path: str) -> tuple[Any, str]:
    try:
        # an extra
        core: Any = importlib.import_module("fsspec.core")
    except ImportError:
        raise InstallationError("sharing needs fsspec", hint="pip install 'tilewright[cluster]'") from None
    try:
        fs, root = core.url_to_fs(path)
    except ImportError as error:
        raise InstallationError(f"{quoted(path)} needs more: {error}") from None
    except ValueError as error:
        raise InputError(f"{quoted(path)} is no path to share at: {error}") from None
    return fs, f"{root.rstrip('/')}/{FOLDER}"


def _names(fs: Any, folder: str) -> Iterator[str]:
    for path in fs.ls(folder, detail=False):
        name = str(path).rstrip("/").rpartition("/")[2]
        if _NAME.fullmatch(name):
            yield name


def _objects(database: Database) -> Iterator[list[str]]:
    """The lines of each object of a database, in an order that does not matter."""
    head = header_line()
    tasks = {row[0]: row_line("tasks", row) for row in database.rows("tasks")}
    session = COLUMNS["trials"].index("session")
    for table in ("trials", "records"):
        at = session if table == "trials" else 0

        def owner(row: tuple[Any, ...], at: int = at) -> tuple[Any, ...]:
            return row[0], row[at]

        for (task, _), rows in groupby(sorted(database.rows(table), key=owner), owner):
            yield [head, tasks[task], *(row_line(table, row) for row in rows)]
    for table in ("graphs", "networks"):
        for row in exported_rows(database, table):
            yield [head, row_line(table, row)]


def _checked(name: str, fs: Any, folder: str, tasks: set[str]) -> list[str]:
    """The lines of an object; ``tasks`` are lines that need no second look.

    Raises ArtefactError for an object that is not what it says.
    """
    if fs.size(f"{folder}/{name}") > MOST_BYTES:
        raise ArtefactError(f"it has more than {MOST_BYTES} bytes")
    content: bytes = fs.cat_file(f"{folder}/{name}")
    if f"{hashlib.sha256(content).hexdigest()}.jsonl" != name:
        raise ArtefactError("its content is not what its name says: it is damaged")
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise ArtefactError("it is no text") from None
    for number, line in enumerate(lines, 1):
        if line in tasks:
            continue
        table, row = read_row(number, line)
        if table == "tasks":
            _check_key(row)
            tasks.add(line)
    return lines


def _check_key(row: dict[str, Any]) -> None:
    """Raise ArtefactError where a task's key is not of its program, target and threads."""
    program = canonical(parse_source(row["program"]))
    key, _, _ = row["key"].partition("/free ")
    if key != f"{structural_hash(program)}/{row['target'][:16]}/{row['threads']}":
        raise ArtefactError("a task's key is not that of its program, target and threads")


def _merged(objects: dict[str, list[str]]) -> Iterator[str]:
    """All lines, equal ones once, and of each task only the records that say they save most."""
    rows = [_row_of(line) for lines in objects.values() for line in lines[1:]]
    best: dict[str, tuple[float, str]] = {}
    lists: dict[str, dict[str, list[str]]] = {}
    for name, lines in objects.items():
        for line in lines[1:]:
            table, row = _row_of(line)
            if table == "records":
                found = lists.setdefault(row["task"], {}).setdefault(name, [])
                found.append(line)
                if len(found) == 1:  # the fastest comes first
                    ratio = row["seconds"] / row["untuned"]
                    best[row["task"]] = min(best.get(row["task"], (ratio, name)), (ratio, name))
    yield header_line()
    for wanted in ("tasks", "trials", "graphs", "networks"):
        seen: set[str] = set()
        for table, row in rows:
            line = row_line(wanted, tuple(row[c] for c in COLUMNS[wanted])) if table == wanted else ""
            if line and line not in seen:
                seen.add(line)
                yield line
    for task in sorted(lists):
        yield from lists[task][best[task][1]]


def _row_of(line: str) -> tuple[str, dict[str, Any]]:
    """The table and the columns of a line that was checked."""
    data: dict[str, Any] = json.loads(line)
    return str(data.pop("table")), data
