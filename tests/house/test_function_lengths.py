"""Functions of the packages of decisions are short: what one does is read at a glance."""

import ast
from pathlib import Path

import tilewright

MOST = 80
PACKAGES = ("analysis", "cost", "plan", "strategies", "build")


def test_no_function_is_long():
    long = {}
    for package in PACKAGES:
        for path in sorted((Path(tilewright.__file__).parent / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= MOST:
                    long[f"{path.name}: {node.name}"] = node.end_lineno - node.lineno + 1
    assert not long
