"""The tables of the database of tuning: their columns, and what those hold."""

from __future__ import annotations

from typing import Final

from tilewright.strategies import Status

VERSION: Final = 3
STATUSES: Final[tuple[Status, ...]] = (
    "ok",
    "refused",
    "uncompilable",
    "crashed",
    "hung",
    "memory",
    "wrong",
    "slow",
)
#: Made whole or not at all, also where two processes begin at once.
SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS tasks (
    key TEXT PRIMARY KEY, label TEXT NOT NULL, program TEXT NOT NULL, target TEXT NOT NULL,
    threads INTEGER NOT NULL, finished INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, begun TEXT NOT NULL, strategy TEXT NOT NULL, seed INTEGER NOT NULL,
    host TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL REFERENCES tasks(key), session INTEGER NOT NULL,
    origin TEXT NOT NULL, status TEXT NOT NULL, seconds REAL, reason TEXT NOT NULL, plan TEXT NOT NULL,
    func TEXT NOT NULL, build REAL NOT NULL, load REAL, host TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (
    task TEXT NOT NULL REFERENCES tasks(key), rank INTEGER NOT NULL, plan TEXT NOT NULL, func TEXT NOT NULL,
    seconds REAL NOT NULL, untuned REAL NOT NULL, PRIMARY KEY (task, rank));
CREATE TABLE IF NOT EXISTS graphs (
    key TEXT PRIMARY KEY, plan TEXT NOT NULL, seconds REAL NOT NULL, untuned REAL NOT NULL);
CREATE INDEX IF NOT EXISTS trials_of_task ON trials(task);
PRAGMA user_version={VERSION};
COMMIT;
"""
#: Networks came later: a file without them is as good as one that has none.
LATER: Final = {
    "networks": "CREATE TABLE IF NOT EXISTS networks (key TEXT PRIMARY KEY, network TEXT NOT NULL)",
}
#: The columns of each table, as they are exported.
COLUMNS: Final = {
    "tasks": ("key", "label", "program", "target", "threads", "finished"),
    "sessions": ("id", "begun", "strategy", "seed", "host"),
    "trials": (
        "task",
        "session",
        "origin",
        "status",
        "seconds",
        "reason",
        "plan",
        "func",
        "build",
        "load",
        "host",
    ),
    "records": ("task", "rank", "plan", "func", "seconds", "untuned"),
    "graphs": ("key", "plan", "seconds", "untuned"),
    "networks": ("key", "network"),
}
#: Columns that are numbers, and those that may be missing; others are text.
NUMBERS: Final = frozenset(
    {"id", "threads", "session", "seed", "rank", "seconds", "untuned", "build", "load", "finished"}
)
OPTIONAL: Final = frozenset({"trials.seconds", "trials.load"})
