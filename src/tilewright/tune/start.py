"""Records that come with the package: what was found for the reference models, for searches to begin with."""

from __future__ import annotations

from importlib.resources import files

from tilewright.tune.database import MEMORY, Database
from tilewright.tune.exchange import imported


def start_database() -> Database:
    """The shipped records, in memory. They are never replayed: searches measure their plans first.

    ``benchmarks/start_records.py`` makes them, a file for each class of machines that was at hand.
    """
    found = Database(MEMORY)
    folder = files("tilewright.tune").joinpath("start")
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".jsonl"):
            imported(found, file.read_text(encoding="utf-8").splitlines())
    return found
