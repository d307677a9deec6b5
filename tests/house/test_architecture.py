"""docs/architecture.md names every file, and no file that is gone."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tilewright"


def _listed():
    """Paths below src/tilewright that the map's sections list."""
    package, found = None, set()
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if heading := re.match(r"## (\w+)/", line):
            package = heading[1]
        elif line.startswith("## "):
            package = None
        elif package and (row := re.match(r"\| `([^`]+)` \|", line)):
            found.add(f"{package}/{row[1]}")
    return found


def _present():
    files = (path for kind in ("*.py", "*.c", "*.h") for path in SOURCES.glob(f"*/**/{kind}"))
    return {str(path.relative_to(SOURCES)) for path in files if path.name != "__init__.py"}


def test_every_file_has_its_line():
    listed = {path for path in _listed() if not path.startswith(("tests/", "benchmarks/", "docs/"))}
    covered = {
        path for path in _present() if any(path.startswith(entry) for entry in listed if entry.endswith("/"))
    }
    assert sorted(_present() - covered - listed) == []
    gone = {entry for entry in listed if not (SOURCES / entry).exists()}
    assert sorted(gone) == []
