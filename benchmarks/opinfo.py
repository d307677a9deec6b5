"""How many of torch's own operator samples the back end of torch.compile computes right.

    python benchmarks/opinfo.py --out opinfo.jsonl                     three samples an operator and type
    python benchmarks/opinfo.py --out all.jsonl --dtypes float32 --samples 0 --shard 1/4
    python benchmarks/opinfo.py --out opinfo.jsonl --table             the table of what a file holds
    python benchmarks/opinfo.py --out i.jsonl --backend inductor --subset 500

Each sample is run by torch itself and through ``torch.compile`` in a process that can be killed, and becomes
a line of JSON; samples that the file has are not run again. A sample counts as *right*, *wrong* or *crashed*
where all of its nodes were compiled, else as *fell back*: so does one whose graph has no nodes (views of
arguments, and what dynamo itself leaves to Python), which the table counts once more, as *no graph*.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import tilewright.torch as ours

FLOATS = ("float32", "float64", "bfloat16", "float16")
DTYPES = (*FLOATS, "int64", "int32", "uint8", "bool")
#: Relative error allowed, and absolute error as a share of the largest result.
TOLERANCES = {
    "float32": (2e-4, 1e-5),
    "float64": (1e-8, 1e-11),
    "bfloat16": (3e-2, 1e-2),
    "float16": (4e-3, 1e-3),
}
#: Seconds for one sample before its process is killed.
LIMIT = 120.0


def key_of(task, sample):
    return f"{task['op']}/{task['dtype']}/{'backward' if task['backward'] else 'forward'}/{sample}"


class Worker:
    """A process that runs tasks, and is replaced when it dies or hangs: a line a task in, records out.

    ``key`` names a task's sample. A sample is announced by its number, and skipped where the task says so.
    """

    def __init__(self, command, key, limit=LIMIT):
        self.command, self.key, self.limit = command, key, limit
        self.process, self.lines = None, None

    def run(self, task, skip):
        """Yield a record a sample."""
        at, skip = None, set(skip)
        while True:
            if self.process is None:
                self.process = subprocess.Popen(
                    [sys.executable, *self.command, "--worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                self.lines = queue.Queue()
                threading.Thread(target=_pump, args=(self.process.stdout, self.lines), daemon=True).start()
            self.process.stdin.write(json.dumps({**task, "skip": sorted(skip)}) + "\n")
            self.process.stdin.flush()
            while True:
                try:
                    line = self.lines.get(timeout=self.limit)
                except queue.Empty:
                    line = None
                if not line:
                    self.process.kill()
                    code = self.process.wait()
                    self.process = None
                    if at is None:
                        yield {"key": self.key(task, "all"), "status": "no sample", "detail": f"exit {code}"}
                        return
                    what = f"exit {code}" if line is not None else f"no answer in {self.limit:.0f} s"
                    yield {"key": self.key(task, at), "status": "crashed", "detail": what}
                    skip.add(at)
                    break
                said = json.loads(line)
                if "start" in said:
                    at = said["start"]
                elif "done" in said:
                    return
                else:
                    skip.add(at)
                    yield said

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _pump(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put("")


def work(backend):
    """The child: a task a line in, records out."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # seeds are set by `run`: dynamo does not capture that, and would leave out what is behind it
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    found = {(op.name + ("." + op.variant_test_name if op.variant_test_name else "")): op for op in op_db}
    for line in sys.stdin:
        task = json.loads(line)
        op, dtype = found[task["op"]], getattr(torch, task["dtype"])

        def say(record):
            print(json.dumps(record), flush=True)

        torch.manual_seed(task["seed"])
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=task["backward"]))
        except Exception as error:  # noqa: BLE001 - whatever torch's own generators raise
            say({"key": key_of(task, "all"), "status": "no sample", "detail": repr(error)[:200]})
            say({"done": True})
            continue
        order = list(range(len(samples)))
        if task["samples"]:
            random.Random(f"{task['seed']}/{task['op']}/{task['dtype']}").shuffle(order)
            order = sorted(order[: task["samples"]])
        for at in order:
            if at in task["skip"]:
                continue
            say({"start": at})
            started = time.perf_counter()
            status, detail = judged(op, samples[at], task, backend)
            seconds = round(time.perf_counter() - started, 3)
            say({"key": key_of(task, at), "status": status, "detail": detail[:300], "seconds": seconds})
        say({"done": True})


def judged(op, sample, task, backend):
    """Whether a sample is computed right: a status and what there is to say."""
    torch._dynamo.reset()
    args = (sample.input, sample.args, sample.kwargs)

    def run(function):
        flat, spec = pytree.tree_flatten(args)
        flat = [
            x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
            for x in flat
        ]
        first, rest, kwargs = pytree.tree_unflatten(flat, spec)
        torch.manual_seed(1)
        out = function(first, *rest, **kwargs)
        results = [x for x in pytree.tree_leaves(out) if isinstance(x, torch.Tensor)]
        if task["backward"]:
            wanted = [x for x in flat if isinstance(x, torch.Tensor) and x.requires_grad]
            made = [x for x in results if x.requires_grad and not x.is_complex()]
            if not wanted or not made:
                return None
            total = sum(
                (x * torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape)).sum() for x in made
            )
            return [x for x in torch.autograd.grad(total, wanted, allow_unused=True) if x is not None]
        return results

    try:
        expected = run(op.op)
    except Exception as error:  # noqa: BLE001 - what torch itself refuses is no sample
        return "no sample", repr(error)
    if op.name.startswith(("empty", "new_empty")):
        return "no sample", "its results are whatever memory holds"
    if expected is None:
        return "no sample", "nothing to differentiate"
    share = ours.Share()
    if backend == "tilewright":
        used = ours.backend_of(ours.Options(), share)
    else:
        used = backend
    try:
        compiled = torch.compile(lambda *a, **k: op.op(*a, **k), backend=used, dynamic=False)
        found = run(compiled)
    except Exception as error:  # noqa: BLE001 - whatever comes out of a compiler
        return "crashed", repr(error)
    fell = backend == "tilewright" and (not share.nodes or share.eager)
    detail = str(share) if fell else ""
    problem = differences(found, expected, task["dtype"])
    if problem and task["dtype"] in FLOATS and all(x.is_floating_point() for x in expected):
        # sums that cancel: what torch itself errs, against double precision, counts as well
        problem = problem and beyond(found, expected, exact(run, op))
    if problem:
        return "wrong", problem + (f" ({detail})" if detail else "")
    return ("fell back", detail) if fell else ("right", "")


def exact(run, op):
    """The results in double precision; None where there are none."""

    def double(x):
        floating = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.double() if floating else x

    def function(*args, **kwargs):
        return op.op(*pytree.tree_map(double, args), **pytree.tree_map(double, kwargs))

    try:
        return run(function)
    except Exception:  # noqa: BLE001 - operators that do not have the type
        return None


def beyond(found, expected, reference):
    """What is wrong with results that differ from torch's, given better ones."""
    if reference is None or len(reference) != len(expected):
        return differences(found, expected, "")
    for at, (a, b, c) in enumerate(zip(found, expected, reference, strict=True)):
        wrong, own = (torch.nan_to_num((x.double() - c.double()).abs(), 1e300) for x in (a, b))
        if a.numel() and float(wrong.max()) > 8 * float(own.max()):
            return f"result {at} errs by {float(wrong.max())}, torch by {float(own.max())}"
    return ""


def differences(found, expected, name):
    """What is wrong with results; nothing where they are right."""
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for at, (a, b) in enumerate(zip(found, expected, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"result {at} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if b.layout != torch.strided or not b.numel():
            continue
        a, b = a.detach(), b.detach()
        if not (b.is_floating_point() or b.is_complex()):
            if not torch.equal(a, b):
                return f"result {at} differs in {int((a != b).sum())} of {b.numel()} elements"
            continue
        rtol, share = TOLERANCES.get(str(b.dtype).removeprefix("torch."), TOLERANCES["float32"])
        finite = b[torch.isfinite(b)].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        wide = (lambda x: x) if b.is_complex() else (lambda x: x.double())
        if not torch.allclose(wide(a), wide(b), rtol=rtol, atol=share * scale + 1e-30, equal_nan=True):
            wrong = ~torch.isclose(wide(a), wide(b), rtol=rtol, atol=share * scale + 1e-30, equal_nan=True)
            place = tuple(int(i) for i in wrong.nonzero()[0])
            return f"result {at} is {a[place].item()} at {list(place)}, not {b[place].item()}"
    return ""


def tasks_of(options):
    """The operators, types and directions that are asked for, in an order that a seed gives."""
    tasks = []
    for op in op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if options.only and not any(part == name or part == op.name for part in options.only):
            continue
        for dtype in options.dtypes:
            for backward in (False, True):
                known = op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
                if backward and (options.forward or dtype not in FLOATS or not op.supports_autograd):
                    continue
                if getattr(torch, dtype) in known:
                    task = {"op": name, "dtype": dtype, "backward": backward}
                    tasks.append({**task, "samples": options.samples, "seed": options.seed})
    random.Random(options.seed).shuffle(tasks)
    if options.subset:
        tasks = tasks[: options.subset]
    shard, shards = map(int, options.shard.split("/"))
    return tasks[shard - 1 :: shards]


def table(records):
    """The counts by direction and type, as Markdown."""
    counts = defaultdict(Counter)
    for record in records:
        _, dtype, direction, _ = record["key"].rsplit("/", 3)
        found = counts[direction, dtype]
        found[record["status"]] += 1
        found["no graph"] += record["status"] == "fell back" and record["detail"].startswith("0 of 0 ")
    print(
        "| | type | samples | compiled | right of these | wrong | crashed | fell back | of these no graph |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (direction, dtype), found in sorted(counts.items(), reverse=True):
        judged_ = sum(found[s] for s in ("right", "wrong", "crashed", "fell back"))
        compiled = judged_ - found["fell back"]
        if judged_:
            share, right = compiled / judged_, found["right"] / max(compiled, 1)
            print(
                f"| {direction} | {dtype} | {judged_} | {share:.1%} | {right:.2%} | {found['wrong']} "
                f"| {found['crashed']} | {found['fell back']} | {found['no graph']} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("opinfo.jsonl"))
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES))
    parser.add_argument("--samples", type=int, default=3, help="of an operator and type; 0 is all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="1/1", help="which part of how many: 1/4")
    parser.add_argument(
        "--subset", type=int, default=0, help="so many operators and types, drawn by the seed"
    )
    parser.add_argument("--only", nargs="*", help="operators")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--backend", default="tilewright")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="say what the file holds")
    options = parser.parse_args()
    if options.worker:
        work(options.backend)
        return
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    records = [json.loads(line) for line in lines]
    if options.table:
        table(records)
        return
    have = defaultdict(set)
    for record in records:
        task, sample = record["key"].rsplit("/", 1)
        have[task].add(sample)
    worker = Worker([__file__, "--backend", options.backend], key_of)
    end = time.monotonic() + options.seconds
    counts = Counter()
    try:
        with options.out.open("a") as out:
            for task in tasks_of(options):
                known = have[key_of(task, "").rstrip("/")]
                if "all" in known or time.monotonic() > end:
                    continue
                for record in worker.run(task, [int(at) for at in known]):
                    out.write(json.dumps(record) + "\n")
                    out.flush()
                    counts[record["status"]] += 1
                    if record["status"] in ("wrong", "crashed"):
                        print(record["status"], record["key"], record["detail"], flush=True)
    finally:
        worker.close()
    print(dict(counts))


if __name__ == "__main__":
    main()
