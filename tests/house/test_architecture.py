"""docs/architecture.md has one line a file: the first line of the file's own description.

After adding or describing a file: `pytest tests/house/test_architecture.py --update-golden`.
"""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tilewright"
MAP = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- files: written by the test of this file -->\n", "<!-- end of files -->\n"


def _subject(path):
    """The first line of a file's docstring or comment, without its full stop."""
    text = path.read_text()
    if path.suffix == ".py":
        described = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
        described = comment[1].strip() if comment else ""
    first = described.split("\n")[0].strip()
    assert first, f"{path} does not say what it is about"
    return first.removesuffix(".")


def _packages():
    """The packages, in the order in which they may import one another."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    return [layer.strip("()") for layer in reversed(layers)]


def _sections():
    for package in _packages():
        folder = SOURCES / package
        if (SOURCES / f"{package}.py").exists():
            yield f"## {package}.py\n\n{_subject(SOURCES / f'{package}.py')}.\n\n"
        if not (folder / "__init__.py").exists():
            continue
        files = sorted(path for kind in ("*.py", "*.c", "*.h") for path in folder.rglob(kind))
        rows = [
            f"| `{path.relative_to(folder)}` | {_subject(path)} |\n"
            for path in files
            if path != folder / "__init__.py"
        ]
        head = "| file | subject |\n|---|---|\n" if rows else ""
        yield f"## {package}/\n\n{_subject(folder / '__init__.py')}.\n\n{head}{''.join(rows)}\n"


def test_the_map_has_every_file(update_golden):
    text = MAP.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    expected = f"{before}{BEGIN}\n{''.join(_sections())}{END}{after}"
    if update_golden:
        MAP.write_text(expected)
    assert text == expected or update_golden, (
        f"run `pytest {Path(__file__).relative_to(ROOT)} --update-golden`"
    )
