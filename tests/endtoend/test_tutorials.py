"""The tutorials run: their Python blocks in order, each against the text block right after it."""

import io
import linecache
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def blocks(path):
    """(line of the first code line, code, expected output or None) of every Python block."""
    text = path.read_text()
    for found in BLOCK.finditer(text):
        language, code, output = found.groups()
        if language == "python":
            yield text.count("\n", 0, found.start()) + 2, code, output


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(path):
    namespace = {"__name__": f"tutorial_{path.stem}"}
    ran = 0
    for line, code, output in blocks(path):
        # compiled at its own lines of the file, so that tracebacks and messages point into the tutorial
        source = "\n" * (line - 1) + code
        name = f"{path.name}:{line}"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(source, name, "exec"), namespace)
        if output is not None:
            assert printed.getvalue().strip() == output.strip(), f"the output of the block at line {line}"
        ran += 1
    assert ran > 0
