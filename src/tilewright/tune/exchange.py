"""Databases of tuning as lines of JSON: one row a line, the first says what it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tilewright.ir import parse_source
from tilewright.plan import PLAN_BYTES
from tilewright.support import ArtefactError, UserError
from tilewright.tune.database import Database
from tilewright.tune.network import network_from_json
from tilewright.tune.schema import COLUMNS, NUMBERS, OPTIONAL, STATUSES, VERSION

FORMAT: Final = "tilewright-records"
#: In the order in which they are written: what others refer to comes first.
TABLES: Final = ("tasks", "trials", "records", "graphs", "networks")
#: Those whose rows are of no task of their own.
_WHOLE: Final = frozenset({"graphs", "networks"})
#: Numbers are below this: SQLite's integers are.
MOST_NUMBER: Final = 1 << 63


def header_line() -> str:
    """The first line: what these are, and of which version."""
    return json.dumps({"format": FORMAT, "version": VERSION})


def row_line(table: str, row: Sequence[object]) -> str:
    """A row of a table as a line."""
    return json.dumps({"table": table, **dict(zip(COLUMNS[table], row, strict=True))})


def exported(database: Database) -> Iterator[str]:
    """The lines of a database; sessions stay at home, and the schedules of networks."""
    yield header_line()
    for table in TABLES:
        for row in exported_rows(database, table):
            yield row_line(table, row)


def exported_rows(database: Database, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as others may read them. Raises ArtefactError for a network that was edited."""
    if table != "networks":
        yield from database.rows(table)
        return
    for network in database.networks():
        yield network.key, network.without_schedules().to_json()


def imported(database: Database, lines: Iterable[str]) -> dict[str, int]:
    """Add what lines say to a database; what it has of a task or a graph already stays. Rows by table.

    Equal trials are one. Nothing is believed: programs are parsed, times and words checked, and plans are
    carried out under the checks of any other. Raises ArtefactError naming the line that is none; those before
    it were added.
    """
    counts = dict.fromkeys(TABLES, 0)
    known = {key for key, _ in database.tasks()}
    ranked = {row[0] for row in database.rows("records")}
    tried = {row_line("trials", row) for row in database.rows("trials")}
    ready: dict[str, list[list[object]]] = {table: [] for table in TABLES}
    try:
        for number, line in enumerate(lines, 1):
            table, data = read_row(number, line)
            if not table:
                continue
            if table == "tasks":
                known.add(data["key"])
            elif table not in _WHOLE and data["task"] not in known:
                raise ArtefactError(f"line {number} is of a task that no line before declares")
            if table == "records" and data["task"] in ranked:
                continue
            row = [data[column] for column in COLUMNS[table]]
            if table == "trials":
                trial = row_line(table, row)
                if trial in tried:
                    continue
                tried.add(trial)
            ready[table].append(row)
            counts[table] += 1
    finally:
        for table in TABLES:
            database.insert(table, ready[table])
    return counts


def read_row(number: int, line: str) -> tuple[str, dict[str, Any]]:
    """The table and the columns of a line, checked; of the first line none. Raises ArtefactError."""
    data = _read(number, line)
    if number == 1:
        if data != {"format": FORMAT, "version": VERSION}:
            raise ArtefactError(f"line 1 does not say that these are records of version {VERSION}")
        return "", {}
    table = data.pop("table", None)
    if table not in TABLES or set(data) != set(COLUMNS[table]):
        raise ArtefactError(f"line {number} is no row of {', '.join(TABLES)}")
    _check(number, table, data)
    return table, data


def _read(number: int, line: str) -> dict[str, Any]:
    if len(line) > PLAN_BYTES:
        raise ArtefactError(f"line {number} has {len(line)} characters; at most {PLAN_BYTES} are read")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"line {number} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ArtefactError(f"line {number} is no object of JSON")
    return data


def _check(number: int, table: str, data: dict[str, Any]) -> None:
    for column, value in data.items():
        if value is None and f"{table}.{column}" in OPTIONAL:
            continue
        wanted = (int, float) if column in NUMBERS else (str,)
        if type(value) not in wanted:
            raise ArtefactError(f"line {number}: {column!r} is {'a number' if len(wanted) > 1 else 'text'}")
        if len(wanted) > 1 and not 0 <= value < MOST_NUMBER:
            raise ArtefactError(f"line {number}: {column!r} is no number that can be")
    if table == "records" and not (data["seconds"] and data["untuned"]):
        raise ArtefactError(f"line {number}: seconds of a record are more than none")
    if table == "trials" and data["status"] not in STATUSES:
        raise ArtefactError(f"line {number}: a status is one of {', '.join(STATUSES)}")
    if table == "networks":
        found = network_from_json(data["network"])
        if found != found.without_schedules() or found.key != data["key"]:
            raise ArtefactError(
                f"line {number}: a network has its own key, and no schedules where it travels"
            )
    if table == "tasks":
        try:
            parse_source(data["program"])
        except UserError as error:
            raise ArtefactError(f"line {number}: its program cannot be read: {error.what}") from None
