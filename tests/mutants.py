"""Faults made by operators, and which of them the tests find: a command of its own, with a time budget.

    python tests/mutants.py --seed 0 --to faults.jsonl [--seconds 600] [--only schedule/loop] [--each 2]

Every file of :data:`FILES` gets ``--each`` faults, drawn by the seed: a condition dropped, a comparison
moved by one, bounds or arguments swapped, a keyword dropped, a number off by one.

The tests (:data:`TESTS`) are collected once, and each is run once to see which lines it reaches (contexts of
coverage.py) and how long it takes. A fault is put into the functions as they are loaded, in a fork, which
runs the tests that reach its line, the quickest first, until one fails. A fault of code that runs when its
module is imported goes into a copy of the sources, and a new process runs the tests that reach its file. What
nothing found so far meets schedules that nobody filters.

One JSON line a fault is added to the file, which a later run goes on with: what was judged is not run again,
what lived only with ``--again``. What the tests reach is kept beside it, as long as the sources stay as they
are. The last line printed sums up, and lists those that lived.
"""

import argparse
import ast
import gc
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "tilewright"

#: Files that faults are made in: globs below the package.
FILES = (
    "schedule/*/[a-z]*.py",
    "schedule/carried.py",
    "schedule/owners.py",
    "schedule/footprint.py",
    "schedule/regions.py",
    "schedule/independent.py",
    "lower/[a-z]*.py",
    "codegen/[a-z]*.py",
)
#: Tests that must find them.
TESTS = (
    "tests/unit/schedule",
    "tests/unit/lower",
    "tests/unit/codegen",
    "tests/unit/plan/algorithms/test_winograd_parts.py",
    "tests/errors/test_schedule.py",
    "tests/errors/test_storage.py",
    "tests/errors/test_rewrites.py",
    "tests/errors/test_trees.py",
    "tests/errors/test_written_out.py",
    "tests/errors/test_devices.py",
    "tests/property/test_schedules.py",
    "tests/property/test_storage.py",
    "tests/property/test_legality.py",
    "tests/property/test_unfiltered.py",
    "tests/house/test_doctests.py",
)
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
SWAPPED = {"lo": "hi", "hi": "lo", "min": "max", "max": "min", "imin": "imax", "imax": "imin"}
#: What nothing found so far meets: schedules that nobody filters, judged.
WILD = "from property.unfiltered import fuzz; [fuzz(kind, range(10**6), 60) for kind in ('cpu', 'gpu')]"
#: Seconds that one test may take, or all in a new process: what does not end by then is a fault found.
LIMIT = 240
#: Seconds that the tests in a fork took without a fault, at most: those that would take longer do not run.
ENOUGH = 150


def faults(tree):
    """Every fault that an operator can make: what it is, and a function that changes the tree in place."""

    def dropped(node):
        node.test = ast.Constant(False)

    def moved(node):
        node.ops = [COMPARISONS[type(node.ops[0])]()]

    def shorter(node):
        # what has one operand alone cannot be compiled
        node.values = node.values[:-1] if len(node.values) > 2 else node.values[:1] * 2

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


@dataclass(frozen=True)
class Mutant:
    """A file with one fault: its tree, what the fault is, and the lines of the statement that it is in."""

    path: Path
    tree: ast.Module = field(repr=False)
    what: str
    lines: frozenset[int]

    @property
    def name(self):
        return str(self.path.relative_to(SOURCES))


def mutant(path, number):
    """The file with its fault of that number."""
    text = path.read_text()
    tree = ast.parse(text)
    kind, node, change = list(faults(tree))[number]
    line = text.splitlines()[node.lineno - 1].strip()
    what = f"{kind} at line {node.lineno}, column {node.col_offset}: {line}"
    around = [s for s in ast.walk(tree) if isinstance(s, ast.stmt) and node in ast.walk(s)]
    last = max(around, key=lambda s: (s.lineno, -(s.end_lineno or 0)))
    # of a statement with others in it, its own lines
    inner = [s.lineno for s in ast.walk(last) if isinstance(s, ast.stmt) and s is not last]
    lines = frozenset(range(last.lineno, min(inner, default=(last.end_lineno or last.lineno) + 1)))
    change(node)
    return Mutant(path, ast.fix_missing_locations(tree), what, lines or frozenset({last.lineno}))


def drawn(seed, each, only):
    """Files and numbers of faults, in an order that a budget may cut anywhere."""
    rng = random.Random(seed)
    out = []
    for pattern in FILES:
        for path in sorted(SOURCES.glob(pattern)):
            count = len(list(faults(ast.parse(path.read_text()))))
            if path.name != "__init__.py" and only in str(path.relative_to(SOURCES)):
                out += [(path, n) for n in rng.sample(range(count), min(each, count))]
    rng.shuffle(out)
    return out


def codes(code):
    """A code object and those of the functions inside it, in the order of the source."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes(const)


def put(fault, functions):
    """Give those of the loaded functions that are of a file its fault; whether that could be done.

    Not where code that ran with the import of the module holds it, nor where a function would have other
    variables of the functions around it.
    """
    before = list(codes(compile(fault.path.read_text(), str(fault.path), "exec")))
    after = list(codes(compile(fault.tree, str(fault.path), "exec")))
    if len(before) != len(after):
        return False
    changed = {b: a for b, a in zip(before, after, strict=True) if b != a}
    found = [f for f in functions if f.__code__ in changed]
    for function in found:
        try:
            function.__code__ = changed[function.__code__]
        except ValueError:
            return False
    return bool(found)


class Judge:
    """A plugin that runs the collected tests in forks: once to see what they reach, then for every fault."""

    def __init__(self, chosen, given):
        self.chosen, self.given = chosen, given
        self.file = Path(given.to)
        self.failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self):
        # a fault is found by the first example, small or not; nothing is kept for later runs
        phases = (Phase.explicit, Phase.generate)
        # a device's threads would not be there in a fork
        sys.modules["pyopencl"] = None
        settings.register_profile("mutants", settings(), max_examples=50, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        self.items = {item.nodeid: item for item in session.items}
        ours = str(SOURCES)
        self.functions = [
            f
            for f in gc.get_objects()
            if isinstance(f, FunctionType) and f.__code__.co_filename.startswith(ours)
        ]
        gc.freeze()
        reach = self.reach()
        old = [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []
        judged = {(r["file"], r["fault"]): r for r in old if r["killed"] or not self.given.again}
        end = time.monotonic() + self.given.seconds
        records = []
        for path, number in self.chosen:
            fault = mutant(path, number)
            record = judged.get((fault.name, fault.what))
            if record is None:
                if time.monotonic() > end:
                    continue
                start = time.monotonic()
                by = self.killed(fault, reach)
                record = {"file": fault.name, "fault": fault.what, "killed": by is not None, "by": by}
                record["seconds"] = round(time.monotonic() - start, 1)
                with self.file.open("a") as out:
                    out.write(json.dumps(record) + "\n")
            records.append(record)
        lived = [r for r in records if not r["killed"]]
        total = {"faults": len(self.chosen), "run": len(records), "killed": len(records) - len(lived)}
        sys.stdout.write(json.dumps(total | {"lived": lived}) + "\n")
        return True

    def run(self, item):
        """Run one test here; whether it failed."""
        self.failed = False
        runtestprotocol(item, nextitem=None)
        return self.failed

    def forked(self, work, limit):
        """The lines that ``work(write)`` writes in a fork; the last is "time" where no other came in time."""
        with tempfile.TemporaryDirectory() as cache:
            out = Path(cache) / "out"
            child = os.fork()
            if child == 0:
                os.setsid()
                # kernels are kept by what they are made of, not by who made them
                os.environ["TILEWRIGHT_CACHE_DIR"] = cache
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
                try:
                    with out.open("w") as file:
                        work(lambda line: (file.write(line + "\n"), file.flush()))
                    os._exit(0)
                finally:
                    os._exit(1)
            done, size, since = 0, 0, time.monotonic()
            while not done and time.monotonic() < since + limit:
                time.sleep(0.02)
                done, status = os.waitpid(child, os.WNOHANG)
                now = out.stat().st_size if out.exists() else 0
                if now > size:
                    size, since = now, time.monotonic()
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            lines = out.read_text().splitlines()
            if not done:
                os.waitpid(child, 0)
                return [*lines, "time"]
            # a fault that ends the process is one that was found
            return lines if status == 0 else [*lines, f"status {status}"]

    def reach(self):
        """Of every test its seconds, and lines by file; kept beside the results while the sources stay."""
        kept = self.file.with_suffix(".reach.json")
        digest = hashlib.sha256()
        for pattern in FILES:
            for path in sorted(SOURCES.glob(pattern)):
                digest.update(path.read_bytes())
        known = json.loads(kept.read_text()) if kept.exists() else {}
        if known.get("sources") != digest.hexdigest():
            known = {"sources": digest.hexdigest(), "tests": {}}
        missing = [item for n, item in self.items.items() if n not in known["tests"]]
        for n in range(0, len(missing), 100):
            part = missing[n : n + 100]
            (found,) = self.forked(lambda write, part=part: self.traced(part, write), 3600)
            known["tests"] |= json.loads(found)
            kept.write_text(json.dumps(known))
        return {n: t for n, t in known["tests"].items() if n in self.items and not t["failed"]}

    def traced(self, items, write):
        """Run tests and write what each reached."""
        folders = sorted({str(p.parent) for pattern in FILES for p in SOURCES.glob(pattern)})
        tracer = coverage.Coverage(data_file=None, source=folders, config_file=False)
        tracer.set_option("run:disable_warnings", ["no-data-collected"])
        times = {}
        tracer.start()
        for n, item in enumerate(items):
            tracer.switch_context(str(n))
            start = time.monotonic()
            times[n] = self.run(item), time.monotonic() - start
        tracer.stop()
        lines = {n: {} for n in times}
        data = tracer.get_data()
        for file in data.measured_files():
            name = str(Path(file).relative_to(SOURCES))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in filter(None, contexts):
                    lines[int(context)].setdefault(name, []).append(line)
        tests = {
            items[n].nodeid: {"failed": failed, "seconds": round(seconds, 3), "lines": lines[n]}
            for n, (failed, seconds) in times.items()
        }
        write(json.dumps(tests))

    def killed(self, fault, reach):
        """The test that finds a fault, or ``None``."""
        near = {n: t for n, t in reach.items() if fault.name in t["lines"]}
        near = dict(sorted(near.items(), key=lambda found: found[1]["seconds"]))
        hit = [n for n, t in near.items() if not fault.lines.isdisjoint(t["lines"][fault.name])]

        def judge(write):
            if not put(fault, self.functions):
                write("import")
                return
            left = ENOUGH
            for name in hit:
                left -= reach[name]["seconds"]
                if left < 0:
                    break
                write(name)
                if self.run(self.items[name]):
                    write("failed")
                    return
            write("passed")

        found = self.forked(judge, LIMIT)
        if found[-1] not in ("passed", "import"):
            return ": ".join(reversed(found[-2:]))
        return self.imported(fault, list(near) if found[-1] == "import" else [])

    def imported(self, fault, names):
        """What finds it in new processes, whose sources are a copy, linked but for one file."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(SOURCES, folder / "src" / "tilewright", copy_function=os.symlink)
            copy = folder / "src" / "tilewright" / fault.name
            copy.unlink()
            copy.write_text(ast.unparse(fault.tree))
            (folder / "names").write_text("\n".join(names))
            env = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(folder / "src"), str(ROOT / "tests"))),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TILEWRIGHT_CACHE_DIR": name,
            }
            module = ".".join(("tilewright", *Path(fault.name).with_suffix("").parts))
            commands = {
                "import": ["-c", f"import {module}"],
                "tests": ["-m", "pytest", "-qx", "-p", "no:cacheprovider", f"@{folder}/names"],
                "unfiltered": ["-c", WILD],
            }
            if not names:
                del commands["import"], commands["tests"]
            for what, command in commands.items():
                try:
                    done = subprocess.run(
                        [sys.executable, *command],
                        cwd=ROOT,
                        env=env,
                        capture_output=True,
                        timeout=LIMIT,
                        text=True,
                    )
                except subprocess.TimeoutExpired:
                    return "time"
                if done.returncode == int(pytest.ExitCode.USAGE_ERROR):
                    raise RuntimeError(done.stdout + done.stderr)
                if done.returncode:
                    text = (done.stdout + done.stderr).splitlines()
                    failed = [s for s in text if s.startswith(("FAILED", "ERROR"))] or text[-1:]
                    return f"{what} {failed[0] if failed else ''}".strip()
        return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", default="mutants.jsonl", help="where results are added, and read from")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=2, help="faults a file")
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--again", action="store_true", help="judge once more what lived")
    parser.add_argument("--list", action="store_true", help="say what faults there are, and run nothing")
    given = parser.parse_args()
    chosen = drawn(given.seed, given.each, given.only)
    if given.list:
        for path, number in chosen:
            fault = mutant(path, number)
            sys.stdout.write(json.dumps({"file": fault.name, "fault": fault.what}) + "\n")
        return
    os.chdir(ROOT)
    # these sources, whatever is installed
    sys.path.insert(0, str(SOURCES.parent))
    os.environ["PYTHONPATH"] = str(SOURCES.parent)
    # hypothesis is imported before its plugin
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-qsp", "no:cacheprovider"]
    sys.exit(pytest.main([*quiet, "--hypothesis-seed=1", *TESTS], plugins=[Judge(chosen, given)]))


if __name__ == "__main__":
    main()
