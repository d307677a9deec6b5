"""KernelBench's modules of levels 1 and 2 through ``torch.compile``: compiled, right, and how fast.

    git clone https://github.com/ScalingIntelligence/KernelBench
    python benchmarks/kernelbench.py KernelBench/KernelBench --out right.jsonl --against ""
    python benchmarks/kernelbench.py KernelBench/KernelBench --out timed.jsonl
    python benchmarks/kernelbench.py KernelBench/KernelBench --out timed.jsonl --table

A module is made smaller until its inputs and outputs take no more than `--bytes`, and torch no longer than
`--seconds`: by its batch, and where that is one or there is none, by the largest size
that no weight has. It is run in a process
that can be killed, in turns by torch, inductor (weights frozen), OpenVINO (single precision) and ours, and
becomes a line of JSON; modules that the file has are not run again. Results are judged as those of
``opinfo.py`` are. Without others to compare with it is not timed.
"""

import argparse
import ast
import json
import math
import statistics
import sys
import time
import types
import warnings
from pathlib import Path

import torch
import torch._inductor.config
from opinfo import Worker, beyond, differences
from torch.utils import _pytree as pytree

import tilewright.torch as ours

#: Seconds for a module before the process is killed.
LIMIT = 400.0
#: Calls of a turn are repeated until they take so long, so that clocks do not count.
TURN = 0.02


class Source:
    """A file of the benchmark, whose sizes can be halved."""

    def __init__(self, path):
        self.name = f"{path.parent.name}/{path.stem}"
        self._tree = ast.parse(path.read_text())
        self._sizes = {}
        for line in self._tree.body:
            if isinstance(line, ast.Assign):
                for target in line.targets:
                    if isinstance(target, ast.Name):
                        self._sizes[target.id] = line
        known, weights = vars(self.module()), self._of_weights()
        self.sizes = {
            name: known[name] for name in self._sizes if type(known[name]) is int and name not in weights
        }
        self._original = dict(self.sizes)

    def _of_weights(self):
        """The names that decide how the model is made."""
        functions = {line.name: line for line in self._tree.body if isinstance(line, ast.FunctionDef)}
        found, left = set(), [functions["get_init_inputs"]]
        while left:
            for node in ast.walk(left.pop()):
                if isinstance(node, ast.Name) and node.id in self._sizes and node.id not in found:
                    found.add(node.id)
                    left.append(self._sizes[node.id].value)
        return found

    def module(self):
        """The file's contents, with the sizes as they are now."""
        made = types.ModuleType("kernelbench")
        exec(compile(self._tree, self.name, "exec"), vars(made))  # noqa: S102 - the user names the folder
        return made

    def halve(self):
        """Make the problem smaller; False where it cannot be."""
        batch = "batch_size"
        largest = max(self.sizes, key=self.sizes.__getitem__, default=None)
        name = batch if self.sizes.get(batch, 1) > 1 else largest
        if name is None or self.sizes[name] == 1:
            return False
        self.sizes[name] //= 2
        self._sizes[name].value = ast.copy_location(ast.Constant(self.sizes[name]), self._sizes[name])
        return True

    def changed(self):
        """The sizes that are not the file's own."""
        return {name: size for name, size in self.sizes.items() if size != self._original[name]}


def made_of(found):
    """A model in evaluation mode, and its arguments."""
    torch.manual_seed(0)
    model = found.Model(*found.get_init_inputs()).eval()
    return model, found.get_inputs()


def nbytes(values):
    return sum(
        x.numel() * x.element_size() for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)
    )


def seconds_of(run, arguments):
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def scaled(path, most, seconds):
    """The source made small enough."""
    source = Source(path)
    while True:
        with torch.device("meta"):
            model, arguments = made_of(source.module())
            size = nbytes((arguments, model(*arguments)))
        if size <= most:
            model, arguments = made_of(source.module())
            model(*arguments)
            # of processors, as others may use them, too
            start = time.process_time()
            model(*arguments)
            if time.process_time() - start <= seconds * torch.get_num_threads():
                return source
        if not source.halve():
            return source


def contenders(model, arguments, options, share):
    """What runs the model, by name."""
    made = {"eager": model}
    chosen = ours.Options.of({"freeze": True, "threads": options.threads})
    made["ours"] = torch.compile(model, backend=ours.backend_of(chosen, share), dynamic=False)
    for name in filter(None, options.against.split(",")):
        if name == "inductor":
            torch._inductor.config.freezing = True
            made[name] = torch.compile(model, dynamic=False)
        elif name == "openvino":
            import openvino  # noqa: PLC0415 (a peer that need not be there)

            core = openvino.Core()
            set_up = {
                "INFERENCE_NUM_THREADS": str(options.threads),
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32",
            }
            tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
            program = openvino.convert_model(model, example_input=tuple(arguments))
            request = core.compile_model(program, "CPU", set_up).create_infer_request()
            given = [openvino.Tensor(x.numpy(), shared_memory=True) for x in tensors]

            def run(*_, request=request, given=given):
                for at, tensor in enumerate(given):
                    request.set_input_tensor(at, tensor)
                request.infer()
                return [torch.from_numpy(x.data) for x in request.output_tensors]

            made[name] = run
    return made


def judged(path, options):
    """A record of one module."""
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        try:
            source = scaled(path, options.bytes, options.seconds)
        except RuntimeError as error:
            why = f"it cannot be made smaller: {error}"
            return {"key": f"{path.parent.name}/{path.stem}", "status": "not run", "detail": why[:300]}
        model, arguments = made_of(source.module())
        record = {"key": source.name, "sizes": source.changed()}
        share = ours.Share()
        runs = contenders(model, arguments, options, share)
        expected = [x.clone() for x in pytree.tree_leaves(model(*arguments))]
        start, failed = time.perf_counter(), {}
        for name in list(runs):
            try:
                found = pytree.tree_leaves(runs[name](*arguments))
            except Exception as error:  # noqa: BLE001 - whatever comes out of a compiler
                failed[name] = repr(error)[:300]
                del runs[name]
                continue
            if name == "ours":
                record["first"] = round(time.perf_counter() - start, 2)
                record["share"] = str(share)
                problem = differences(found, expected, "float32")
                if problem:
                    problem = beyond(found, expected, exact(source))
                record["status"] = "wrong" if problem else "fell back" if share.eager else "right"
                record["detail"] = problem or ""
            start = time.perf_counter()
        if "ours" in failed:
            record["status"], record["detail"] = "crashed", failed.pop("ours")
        record["failed"] = failed
        if options.against:
            record["ms"] = times(runs, arguments, options)
    return record


def exact(source):
    """The results in double precision."""
    model, arguments = made_of(source.module())
    wide = pytree.tree_map(
        lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x, arguments
    )
    return pytree.tree_leaves(model.double()(*wide))


def times(runs, arguments, options):
    """Median and least milliseconds of each, in turns."""
    found, repeats = {name: [] for name in runs}, {}
    for name, run in runs.items():
        repeats[name] = max(1, math.ceil(TURN / max(seconds_of(run, arguments), 1e-6)))
    end = time.perf_counter() + options.budget
    while time.perf_counter() < end or len(found["eager"]) < 3:
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run(*arguments)
            found[name].append((time.perf_counter() - start) / repeats[name])
    return {
        name: {"median": 1e3 * statistics.median(each), "min": 1e3 * min(each)}
        for name, each in found.items()
    }


def geomean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def table(records):
    """Counts, and times of the others by ours, as Markdown; the slowest modules below."""
    print("| level | modules | compiled | right | eager | inductor | OpenVINO | best of all | least |")
    print("|---|---|---|---|---|---|---|---|---|")
    slow = []
    for level in sorted({record["key"].split("/")[0] for record in records}):
        each = [record for record in records if record["key"].startswith(level + "/")]
        ratios = {}
        for record in each:
            ms = {name: at["median"] for name, at in record.get("ms", {}).items()}
            if "ours" in ms:
                peers = {name: at / ms["ours"] for name, at in ms.items() if name != "ours"}
                for name, ratio in {**peers, "best": min(peers.values())}.items():
                    ratios.setdefault(name, []).append(ratio)
                slow.append((min(peers.values()), record["key"], min(peers, key=peers.get), ms))
        counts = [sum(record["status"] in ok for record in each) for ok in (("right", "wrong"), ("right",))]
        names = ("eager", "inductor", "openvino", "best")
        least = f"{min(ratios['best']):.2f}" if ratios else ""
        cells = [f"{geomean(ratios[name]):.2f}" if name in ratios else "" for name in names]
        print(f"| {level} | {len(each)} | {counts[0]} | {counts[1]} | {' | '.join(cells)} | {least} |")
    print()
    for ratio, module, name, ms in sorted(slow, key=lambda each: each[0]):
        print(f"{ratio:6.2f} {name:9} {module:70} { ({key: round(at, 3) for key, at in ms.items()}) }")


def work(options):
    """The child: a module a line in, its record out."""
    for line in sys.stdin:
        task = json.loads(line)
        if not task["skip"]:
            print(json.dumps({"start": 0}), flush=True)
            torch._dynamo.reset()
            print(json.dumps(judged(Path(task["path"]), options)), flush=True)
        print(json.dumps({"done": True}), flush=True)


def number_of(path):
    return int(path.stem.split("_")[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="that has level1 and level2")
    parser.add_argument("--out", type=Path, default=Path("kernelbench.jsonl"))
    parser.add_argument("--levels", nargs="*", default=["1", "2"])
    parser.add_argument("--only", nargs="*", type=int, help="numbers of modules")
    parser.add_argument("--against", default="inductor,openvino", help="beside torch itself; none: no times")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=1 << 28, help="of inputs and outputs, at most")
    parser.add_argument("--seconds", type=float, default=0.5, help="of torch's call, at most")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of calls that are timed")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="say what the file holds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.worker:
        work(options)
        return
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    records = [json.loads(line) for line in lines]
    if options.table:
        table(records)
        return
    have = {record["key"] for record in records}
    worker = Worker([__file__, *sys.argv[1:]], lambda task, _: task["key"], LIMIT)
    try:
        for level in options.levels:
            for path in sorted((options.folder / f"level{level}").glob("*.py"), key=number_of):
                key = f"{path.parent.name}/{path.stem}"
                if key in have or (options.only and number_of(path) not in options.only):
                    continue
                for record in worker.run({"key": key, "path": str(path)}, []):
                    with options.out.open("a") as out:
                        out.write(json.dumps(record) + "\n")
                    if record["status"] != "right":
                        print(record["status"], key, record["detail"], record.get("share", ""), flush=True)
    finally:
        worker.close()


if __name__ == "__main__":
    main()
