"""Rules about imports that the linters cannot hold."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from extras import has_torch

ROOT = Path(tilewright.__file__).parent
HEAVY = ("numpy", "onnx", "llvmlite", "islpy", "torch", "rich", "click")
FILES = sorted(ROOT.rglob("*.py"))


def _imported(tree):
    """(line, module) of every absolute import, those under `if TYPE_CHECKING` included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module


def test_import_is_light():
    code = f"import sys, tilewright; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == []


def test_public_names_resolve_and_are_listed():
    for name in tilewright.__all__:
        if name != "from_torch" or has_torch():
            assert getattr(tilewright, name) is not None
        assert name in dir(tilewright)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tilewright.no_such_name


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_the_public_names_of_another_package_are_used(file):
    inside = file.relative_to(ROOT).parts
    home = inside[0] if len(inside) > 1 else None
    deep = []
    for line, module in _imported(ast.parse(file.read_text())):
        parts = module.split(".")
        if parts[0] == "tilewright" and len(parts) > 2 and parts[1] != home:
            deep.append(f"{file.name}:{line}: {module}")
    assert deep == []
