"""Faults made by operators, and which of them the tests find: a command of its own, with a time budget.

    python tests/mutants.py --seconds 600 --seed 0 [--only schedule/loop] [--each 2]

Every file of :data:`FILES` gets ``--each`` faults, drawn by the seed: a condition dropped, a comparison
moved by one, bounds or arguments swapped, a keyword dropped, a number off by one. Each runs the tests that
mirror its file, its doctests, the refusals and a sample of unfiltered schedules, in a copy of the sources.
One JSON line a fault; the last line sums them up, and lists those that lived.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "tilewright"

#: Files that faults are made in (globs below the package), and the tests that must find them.
FILES = {
    "schedule/loop/[a-z]*.py": ("tests/unit/schedule/loop", "tests/errors/test_schedule.py"),
    "schedule/producer/[a-z]*.py": (
        "tests/unit/schedule",
        "tests/errors/test_schedule.py",
        "tests/errors/test_storage.py",
    ),
    "schedule/gpu/[a-z]*.py": ("tests/unit/schedule/gpu", "tests/errors/test_schedule.py"),
    "schedule/layout/[a-z]*.py": ("tests/unit/schedule/test_layout.py", "tests/errors/test_storage.py"),
    "schedule/rewrite/[a-z]*.py": (
        "tests/unit/schedule/test_program_rewrites.py",
        "tests/errors/test_rewrites.py",
    ),
    "schedule/carried.py": ("tests/unit/schedule/test_carried.py", "tests/unit/schedule/loop"),
    "schedule/owners.py": ("tests/unit/schedule/loop/test_bind.py", "tests/unit/lower/test_thread_shares.py"),
    "schedule/footprint.py": (
        "tests/unit/schedule/test_footprint.py",
        "tests/unit/schedule/test_compute_at.py",
    ),
    "schedule/regions.py": ("tests/unit/schedule/test_compute_at.py", "tests/unit/schedule/test_rolling.py"),
    "schedule/independent.py": ("tests/unit/schedule/loop", "tests/errors/test_schedule.py"),
    "lower/[a-z]*.py": ("tests/unit/lower",),
    "codegen/[a-z]*.py": ("tests/unit/codegen",),
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
SWAPPED = {"lo": "hi", "hi": "lo", "min": "max", "max": "min", "imin": "imax", "imax": "imin"}
#: Seconds that the tests of one fault may take.
LIMIT = 240


def faults(tree):
    """Every fault that an operator can make: what it is, and a function that changes the tree in place."""

    def dropped(node):
        node.test = ast.Constant(False)

    def moved(node):
        node.ops = [COMPARISONS[type(node.ops[0])]()]

    def shorter(node):
        node.values = node.values[:-1]

    def swapped(node, field):
        setattr(node, field, SWAPPED[getattr(node, field)])

    def exchanged(node):
        node.args[:2] = node.args[1::-1]

    def more(node):
        node.value += 1

    for node in ast.walk(tree):
        match node:
            case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue(), *_]):
                yield "drop condition", node, dropped
            case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
                yield "move comparison", node, moved
            case ast.BoolOp(values=[_, _, *_]):
                yield "drop operand", node, shorter
            case ast.Attribute(attr="lo" | "hi"):
                yield "swap bounds", node, lambda n: swapped(n, "attr")
            case ast.Name(id="imin" | "imax" | "min" | "max", ctx=ast.Load()):
                yield "swap bounds", node, lambda n: swapped(n, "id")
            case ast.Call(keywords=[*_, ast.keyword(arg="strict" | "slots")]):
                # equal lengths are stated, and fields: nothing else is computed without
                continue
            case ast.Call(keywords=[_, *_]):
                yield "drop keyword", node, lambda n: n.keywords.pop()
            case ast.Call(args=[ast.Name() | ast.Attribute(), ast.Name() | ast.Attribute(), *_]):
                yield "swap arguments", node, exchanged
            case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
                yield "off by one", node.right, more


def mutant(path, number):
    """The source of a file with its fault of that number, and what that is."""
    tree = ast.parse(path.read_text())
    kind, node, change = list(faults(tree))[number]
    line = path.read_text().splitlines()[node.lineno - 1].strip()
    change(node)
    return ast.unparse(ast.fix_missing_locations(tree)), f"{kind} at line {node.lineno}: {line}"


def drawn(seed, each, only):
    """Files, faults and tests, in an order that a budget may cut anywhere."""
    rng = Random(seed)
    out = []
    for pattern, tests in FILES.items():
        for path in sorted(SOURCES.glob(pattern)):
            name = str(path.relative_to(SOURCES))
            count = len(list(faults(ast.parse(path.read_text()))))
            if path.name != "__init__.py" and only in name:
                out += [(path, n, tests) for n in rng.sample(range(count), min(each, count))]
    rng.shuffle(out)
    return out


def killed(path, source, tests, folder):
    """Whether some test finds the fault; the sources are a copy in ``folder``, linked but for one file."""
    copy = folder / "src" / "tilewright" / path.relative_to(SOURCES)
    copy.unlink()
    copy.write_text(source)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder / "src"), str(ROOT / "tests"))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    module = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
    common = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    commands = [
        # the house's own runner of doctests: pytest's fails on texts that end with a line of their own
        [*common, str(ROOT / "tests/house/test_doctests.py"), "-k", module],
        *([*common, str(ROOT / t)] for t in tests),
        [sys.executable, str(ROOT / "tests/property/unfiltered.py"), "--cpu", "60", "--gpu", "60"],
    ]
    try:
        for command in commands:
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=env, capture_output=True, timeout=LIMIT, check=False
                )
            except subprocess.TimeoutExpired:
                return True  # a fault that never ends is found
            if done.returncode not in (0, 5):  # 5: a file without doctests
                return True
        return False
    finally:
        copy.unlink()
        copy.symlink_to(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=2, help="faults a file")
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--list", action="store_true", help="say what faults there are, and run nothing")
    given = parser.parse_args()
    chosen = drawn(given.seed, given.each, given.only)
    end = time.monotonic() + given.seconds
    lived, run = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "src").mkdir()
        shutil.copytree(SOURCES, folder / "src" / "tilewright", copy_function=os.symlink)
        for path, number, tests in chosen:
            source, what = mutant(path, number)
            if given.list:
                sys.stdout.write(json.dumps({"file": str(path.relative_to(SOURCES)), "fault": what}) + "\n")
                continue
            if time.monotonic() > end:
                break
            found = killed(path, source, tests, folder)
            run += 1
            record = {"file": str(path.relative_to(SOURCES)), "fault": what, "killed": found}
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()
            if not found:
                lived.append(record)
    total = {"faults": len(chosen), "run": run, "killed": run - len(lived), "lived": lived}
    sys.stdout.write(json.dumps(total) + "\n")


if __name__ == "__main__":
    main()
