"""What a public function refuses, its description says."""

import ast
from pathlib import Path

import pytest

import tilewright

ROOT = Path(tilewright.__file__).parent
#: What users call; an internal error is for no description.
PACKAGES = ("lang", "schedule", "build", "driver", "runtime", "target")
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
#: Words by which descriptions say it; of primitives, "Legal for ..." and "Refused for ...".
WORDS = ("raise", "refus", "error", "legal")


def _public(node):
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public(child)
        elif isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
            yield child


def _refuses(function):
    """Whether a function itself raises what is not our mistake."""
    raised = (node.exc for node in ast.walk(function) if isinstance(node, ast.Raise))
    calls = (ast.unparse(exc.func) for exc in raised if isinstance(exc, ast.Call))
    return any(name not in ("InternalError", "KeyError", "ValueError", "TypeError") for name in calls)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_descriptions_say_what_is_refused(file):
    for function in _public(ast.parse(file.read_text(encoding="utf-8"))):
        text = (ast.get_docstring(function) or "").lower()
        said = any(word in text for word in WORDS)
        assert said or not _refuses(function), f"{function.name} raises errors that it does not mention"
