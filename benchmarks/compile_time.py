"""The compiler's own processor time: primitives, a replay, lowering and emitting, a long chain, import.

    python benchmarks/compile_time.py [--repeats 7] [--json]
    python benchmarks/compile_time.py --models resnet50,bert_base [--json]
    python benchmarks/compile_time.py --keep results/compile_time.jsonl

The budgets are those of the design; each figure is the least of several runs, so that other work on the
machine hardly shows. What shows is in ``slowness``: how many times longer than on the machine of the budgets
plain Python takes here and now, by which a budget is multiplied before a figure is compared with it.
``primitive`` is the median over the primitives, on the function of a convolution with bias and ReLU; a line
for each follows. Times are in milliseconds.

The last lines count work instead, which is equal on every machine: primitives applied and refused while a
program gets its default plan, LLVM instructions of its kernel, plans that a search without measurements
priced and scheduled. ``tests/budgets`` holds it, and calls of Python functions in place of times. ``--keep
FILE`` writes all rows there with the version of the package, in place of those of the same version.

`--models` compiles whole models instead, each in a process of its own with an empty cache: seconds, and the
most memory at any time, sampled, of that process and of the workers that compile kernels for it.
"""

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Final
from unittest.mock import patch

import onnx

import tilewright
from tilewright import lang
from tilewright.codegen import emit_kernel
from tilewright.cost import Machine
from tilewright.frontend import zoo
from tilewright.ir import CONST, Buffer, IndexMap, Program, index, var
from tilewright.lower import lower
from tilewright.plan import EXACT, plan_unit
from tilewright.schedule import PRIMITIVES, Schedule, replay
from tilewright.strategies import Candidate, Prices, Task, best_by_model, default_schedule, find_strategy
from tilewright.target import Target, detect, find_target

BUDGETS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "primitive": 0.5,
        "replay of a convolution": 25.0,
        "lower and emit a convolution": 25.0,
        "100 stages, 1000 primitives": 2000.0,
        "import tilewright": 500.0,
    }
)
"""Milliseconds."""
#: What :func:`slowness` runs takes so long on the machine that the budgets are for.
REFERENCE_MS: Final = 8.0


def convolution() -> Program:
    """3x3, 64 to 64 channels at 56x56, padding 1, bias, ReLU."""
    x, w = lang.placeholder((1, 64, 56, 56), name="X"), lang.placeholder((64, 64, 3, 3), name="W")
    b = lang.placeholder((64,), name="b")
    y = lang.ops.conv(x, w, b, padding=1, name="Y")
    program = lang.program([x, w, b], [lang.ops.elementwise(lang.relu, y, name="Z")], name="conv")
    weights = {"W", "b"}
    return replace(
        program,
        inputs=tuple(i.with_(scope=CONST) if i.name in weights else i for i in program.inputs),
    )


def blocked_convolution() -> Program:
    """The same with activations in NCHW16c, as in models: border tiles on both sides, three tiles in all."""
    program = convolution()

    def blocked(b: Buffer) -> Buffer:
        n, c, h, w = b.shape
        dims = ("n", "c", "h", "w")
        exprs = (var("n"), var("c") // 16, var("h"), var("w"), var("c") % 16)
        return b.with_(layout=IndexMap(dims, exprs, (n, c // 16, h, w, index(16))))

    x, *rest = program.inputs
    return replace(program, inputs=(blocked(x), *rest), outputs=tuple(map(blocked, program.outputs)))


def dot_product() -> Program:
    """A vector times a matrix, bf16 with sums in f32."""
    a, b = lang.placeholder((64,), "bf16", name="A"), lang.placeholder((64, 16), "bf16", name="B")
    k = lang.reduce_axis(64, "k")
    c = lang.compute(
        (16,), lambda j: lang.sum(lang.cast(a[k], "f32") * lang.cast(b[k, j], "f32"), k), name="C"
    )
    return lang.program([a, b], [c], name="dot")


def product() -> Program:
    """A product with a constant matrix that divides into quarters."""
    a, b = lang.placeholder((128, 768), name="A"), lang.placeholder((768, 768), name="B")
    program = lang.program([a, b], [lang.ops.matmul(a, b, name="C")])
    left, right = program.inputs
    return replace(program, inputs=(left, right.with_(scope=CONST)))


def biased() -> Program:
    """A product with constant weights and a constant bias."""
    a, w, b = (lang.placeholder(s, name=n) for s, n in (((64, 96), "A"), ((96, 80), "W"), ((80,), "b")))
    c = lang.ops.matmul(a, w, name="C")
    y = lang.compute((64, 80), lambda i, j: c[i, j] + b[j], name="Y")
    program = lang.program([a, w, b], [y])
    constants = (x.with_(scope=CONST) for x in program.inputs[1:])
    return replace(program, inputs=(program.inputs[0], *constants))


def chain(stages: int = 100) -> Program:
    """Element-wise stages of 512x512, one after another."""
    t = x = lang.placeholder((512, 512), name="X")
    for n in range(stages):
        t = lang.compute((512, 512), lambda i, j, t=t: t[i, j] * 2 + 1, name=f"t{n}")
    return lang.program([x], [t], name="chain")


def schedule_chain(program: Program) -> Schedule:
    """Ten primitives for each stage: tiles in parallel, rows unrolled, vectors."""
    s = Schedule(program)
    for stage in program.stages:
        i, j = s.loops(stage.name)
        s = s.split(i, 32).split(f"{i}_i", 4).split(j, 64).split(f"{j}_i", 16)
        s = s.reorder(f"{i}_o", f"{j}_o", f"{i}_i_o", f"{j}_i_o", f"{i}_i_i", f"{j}_i_i")
        s = s.fuse(f"{i}_o", f"{j}_o", names=[f"{stage.name}_tile"]).parallel(f"{stage.name}_tile")
        s = s.vectorize(f"{j}_i_i").unroll(f"{i}_i_i").annotate(f"{i}_i_o", "outline")
    return s


def copies() -> Schedule:
    """Rows of a matrix, four at a time, from a shared tile."""
    x = lang.placeholder((64, 128), name="X")
    y = lang.compute((64, 128), lambda i, j: x[i, j] * 2, name="Y")
    return Schedule(lang.program([x], [y])).split("i", 4).cache("X", "i_o", scope="shared", name="T")


def readers() -> Program:
    """A stage that two others read."""
    x = lang.placeholder((8,), name="X")
    b = lang.compute((8,), lambda i: x[i] * 2, name="B")
    c = lang.compute((8,), lambda i: b[i] + 1, name="C")
    return lang.program([x], [c, lang.compute((8,), lambda i: b[i] + 2, name="D")])


def scan() -> Program:
    """Sums of the elements up to each."""
    x = lang.placeholder((64,), name="X")
    sums = lang.scan((64,), lambda s, t: lang.select(t == 0, x[0], s[t - 1] + x[t]), name="S")
    return lang.program([x], [sums])


def replacing() -> Program:
    """A scatter that replaces elements, in order."""
    x, u = lang.placeholder((64,), name="X"), lang.placeholder((16,), name="U")
    at = lang.placeholder((16,), "i32", name="I")
    return lang.program([x, at, u], [lang.scatter(x, at, u, name="S")])


def bytes_of_three() -> Program:
    """A sum of products of signed bytes, one factor of which the sum does not move."""
    a, b, v = (lang.placeholder(s, "i8", name=n) for s, n in (((4, 8), "A"), ((8, 6), "B"), ((6,), "v")))
    k, word = lang.reduce_axis(8, "k"), "i32"

    def term(i: lang.Axis, j: lang.Axis) -> object:
        return lang.cast(a[i, k], word) * lang.cast(b[k, j], word) * lang.cast(v[j], word)

    return lang.program([a, b, v], [lang.compute((4, 6), lambda i, j: lang.sum(term(i, j), k), name="C")])


def bytes_of_two() -> Program:
    """A product of matrices of signed bytes."""
    a, b = lang.placeholder((4, 8), "i8", name="A"), lang.placeholder((8, 6), "i8", name="B")
    k, word = lang.reduce_axis(8, "k"), "i32"
    c = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(a[i, k], word) * lang.cast(b[k, j], word), k), name="C"
    )
    return lang.program([a, b], [c])


def box() -> Program:
    """Sums of 15 neighbours."""
    row, k = lang.placeholder((1014,), "i32", name="X"), lang.reduce_axis(15, "k")
    return lang.program([row], [lang.compute((1000,), lambda x: lang.sum(row[x + k], k), name="S")])


def terms_of_two() -> Program:
    """A sum of two products."""
    a, b = lang.placeholder((4, 8), name="A"), lang.placeholder((8, 6), name="B")
    d, k = lang.placeholder((4, 8), name="D"), lang.reduce_axis(8, "k")
    c = lang.compute((4, 6), lambda i, j: lang.sum((a[i, k] + d[i, k]) * b[k, j], k), name="C")
    return lang.program([a, b, d], [c])


#: A schedule tree that runs two stages of :func:`readers` together.
TREE = """{ domain: "{ C[i] : 0 <= i < 8; D[D_i] : 0 <= D_i < 8 }", child: {
  schedule: "[{ C[i] -> [(i)]; D[D_i] -> [(D_i)] }]",
  child: { sequence: [ { filter: "{ C[i] }" }, { filter: "{ D[D_i] }" } ] } } }"""


#: A convolution's result in blocks of 16 channels.
BLOCKED: Final = ("d0", "d1//16", "d2", "d3", "d1%16")


def primitive_cases() -> dict[str, tuple[Schedule, tuple[object, ...], dict[str, object]]]:
    """For every primitive a schedule of the convolution, and arguments that it accepts there."""
    program = convolution()
    p = Schedule(program)
    (n, oc, oh, ow, ic, kh, kw) = p.loops("conv")
    inner = [f"{oh}_i", f"{ow}_i"]
    t = p.split(oc, 16).split(oh, 4).split(ow, 14)
    t = t.reorder(n, f"{oc}_o", f"{oh}_o", f"{ow}_o", ic, kh, kw, *inner, f"{oc}_i")
    d = t.decompose_init("conv", ic)
    dot = (
        Schedule(dot_product())
        .set_layout("B", ("d0//2", "d1", "d0%2"))
        .split("k", 2)
        .reorder("k_o", "j", "k_i")
    )
    dot = dot.decompose_init("C", "k_o").vectorize("j")
    z = p.loops("Y")
    at = p.compute_at("conv", z[2])
    pad = p.compute_at("X_pad", oh)
    tiles = copies()
    shared = Schedule(readers())
    cases: dict[str, tuple[Schedule, tuple[object, ...], dict[str, object]]] = {
        "split": (p, (oc, 16), {}),
        "reorder": (p, (ic, kh, oc), {}),
        "fuse": (p, (n, oc), {}),
        "tile": (p, ((oh, ow), (4, 14)), {}),
        "partition": (p, (oh, -1), {}),
        "peel": (p, (oh, "first"), {}),
        "parallel": (t, (f"{oc}_o",), {}),
        "vectorize": (d, (f"{oc}_i",), {}),
        "unroll": (d, (kw,), {}),
        "bind": (d, (f"{oc}_o", "block.x"), {}),
        "annotate": (d, (f"{ow}_o", "outline"), {}),
        "decompose_init": (t, ("conv", ic), {}),
        "blockize": (d, (f"{oh}_i",), {}),
        "tensorize": (dot, ("k_i", "vdpbf16ps"), {}),
        "set_scope": (at, ("conv", "local"), {}),
        "set_layout": (d, ("W", ("d0//16", "d1", "d2", "d3", "d0%16")), {}),
        "compute_at": (p, ("conv", z[2]), {}),
        "reverse_compute_at": (t, ("Y", f"{ow}_o"), {}),
        "inline": (p, ("X_pad",), {}),
        "cache": (d, ("W", f"{oc}_o"), {}),
        "hoist_alloc": (at, ("conv",), {}),
        "slide": (pad, ("X_pad", oh), {}),
        "roll": (pad.slide("X_pad", oh), ("X_pad", 2, 3), {}),
        "inline_stage": (p, ("X_pad",), {}),
        "skip_padding": (p.inline_stage("X_pad"), ("conv",), {}),
        "rfactor": (p, ("conv", "ic", 16), {}),
        "gather_operand": (p, ("conv", 1, ("oc", "ic", "kh", "kw"), "P"), {}),
        "pad_operand": (p.inline_stage("X_pad").skip_padding("conv"), ("conv", 0, "P"), {}),
        "split_phases": (p, ("conv", ("oh", "ow")), {}),
        "flatten_rows": (p, ("conv", "oh", "ow", 8, "R"), {}),
        "as_matrices": (p, ("conv", (1, 1, 1), "R"), {}),
        "winograd": (p.inline_stage("X_pad").skip_padding("conv"), ("conv", 4, "U"), {}),
        "strassen": (Schedule(product()), ("C", 48, "Q"), {}),
        "bf16x3": (Schedule(product()), ("C", "Q"), {}),
        "store_as": (p, ("W", "bf16"), {}),
        "layout_split": (p, ("conv", 1, (-1, 16)), {}),
        "layout_reorder": (p, ("conv", (0, 2, 3, 1)), {}),
        "layout_fuse": (p, ("conv", 2, 2), {}),
        "layout_pad": (p, ("conv", 2, 1, 1), {}),
        "layout_unfold": (p, ("X_pad", 2, 6, 4), {}),
        "layout_fold": (p.layout_unfold("X_pad", 2, 6, 4), ("X_pad", 2, 4), {}),
        "layout_unpad": (p.layout_pad("conv", 2, 1, 1), ("conv", 2, 1, 1), {}),
        "layout_place": (p, ("conv", BLOCKED), {}),
        "store_at": (Schedule(biased()), ("b", "W", 0, "Wb"), {}),
        "decouple_at": (Schedule(biased()).store_at("b", "W", 0, "Wb"), ("Wb", 0, "V", "v"), {}),
        "layout_adopt": (p.layout_place("conv", BLOCKED), ("conv",), {}),
        "virtual_threads": (d, ((f"{oc}_o",), "thread.x", 2), {}),
        "swizzle": (tiles, ("T", 2), {}),
        "pad_stride": (tiles, ("T", 1), {}),
        "pipeline": (tiles, ("i_o", 2), {}),
        "cooperative_copy": (tiles.bind("i_o", "block.x"), ("T", (32,)), {}),
        "clone_stage": (shared, ("B", "C"), {}),
        "import_tree": (shared, (("C", "D"), TREE), {}),
        "split_scan": (Schedule(scan()), ("S", 16, "P"), {}),
        "last_writes": (Schedule(replacing()), ("S_update", "L"), {}),
        "factor_out": (Schedule(bytes_of_three()), ("C", (2,), "F"), {}),
        "shift_factor": (Schedule(bytes_of_two()), ("C", 0, "V"), {}),
        "fuse_iterators": (p, ("conv", "kh", "kw"), {}),
        "split_terms": (Schedule(terms_of_two()), ("C", "T", True), {}),
        "split_window": (Schedule(box()), ("S", "x", "k"), {}),
    }
    return cases


def least(work: Callable[[], object], repeats: int) -> float:
    """Milliseconds of processor time of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


def slowness() -> float:
    """How many times slower than the budgets' machine plain Python runs here and now; at least 1.

    A shared core does the same work in up to three times the processor time, while the other half is used.
    """

    def work() -> None:
        counts: dict[tuple[int, int], int] = {}
        for n in range(60_000):
            key = (n & 255, (n >> 8) & 255)
            counts[key] = counts.get(key, 0) + len(str(n))

    return max(1.0, least(work, 3) / REFERENCE_MS)


def primitive_works() -> dict[str, Callable[[], object]]:
    """Every primitive, to be applied."""
    return {
        name: lambda s=s, name=name, a=a, k=k: s.apply(name, *a, **k)
        for name, (s, a, k) in primitive_cases().items()
    }


def works(target: Target, stages: int = 100) -> dict[str, Callable[[], object]]:
    """What has a budget besides primitives, by its name there."""
    program, long = blocked_convolution(), chain(stages)
    made = default_schedule(program, Machine(target, 2), ("W", "b"), accuracy=EXACT)
    assert len(schedule_chain(chain(2)).trace) == 20

    def lower_and_emit() -> None:
        emit_kernel(lower(made.func), triple=target.llvm_triple, vector_bits=target.preferred_vector_bits)

    return {
        "replay of a convolution": lambda: replay(program, made.trace),
        "lower and emit a convolution": lower_and_emit,
        f"{stages} stages, {10 * stages} primitives": lambda: schedule_chain(long),
    }


def calls(work: Callable[[], object]) -> int:
    """Calls of Python functions by work that was done before: what caches keep, they have.

    Comprehensions are no calls: from Python 3.12 on they are not (PEP 709).
    """
    found = 0

    def seen(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and frame.f_code.co_name not in COMPREHENSIONS

    work()
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def import_ms(repeats: int) -> float:
    """Milliseconds of an interpreter that imports the package, without those of one that does not."""

    def child(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    empty = min(child("pass") for _ in range(repeats))
    return max(0.0, min(child("import tilewright") for _ in range(repeats)) - empty)


def softmax() -> Program:
    """Softmax along rows."""
    x = lang.placeholder((64, 300), name="X")
    return lang.program([x], [lang.ops.softmax(x)], name="softmax")


#: Programs whose compilation is counted.
COUNTED: Final[Mapping[str, Callable[[], Program]]] = MappingProxyType(
    {"convolution": blocked_convolution, "product": product, "softmax": softmax, "chain": lambda: chain(8)}
)
COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>")
_INSTRUCTION: Final = re.compile(r"^  (%|store|call|br|ret)", re.MULTILINE)


def counted(program: Program) -> dict[str, int]:
    """How much work the compiler does for two threads of the table of AVX-512."""
    target = find_target("x86_avx512")
    task, found = (
        Task(program, Machine(target, 2)),
        dict.fromkeys(("applied", "refused", "priced", "scheduled"), 0),
    )

    def counting(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            found[name] += 1
            return function(*args)

        return call

    def step(s: Schedule, step: object) -> object:
        try:
            made = applied(s, step)
        except tilewright.UserError:
            found["refused"] += 1
            raise
        found["applied"] += 1
        return made

    applied = Schedule._with
    with patch.object(Schedule, "_with", step):
        planned = plan_unit(task.program, task.machine, task.constants)
    with (
        patch.object(Prices, "seconds", counting("priced", Prices.seconds)),
        patch.object(Candidate, "schedule", counting("scheduled", Candidate.schedule)),
    ):
        best_by_model(find_strategy("random"), task)
    lowered = lower(planned.schedule.func, native=target.functions)
    made = emit_kernel(
        lowered,
        triple=target.llvm_triple,
        vector_bits=target.preferred_vector_bits,
        operations=target.operations,
    )
    return {**found, "instructions": len(_INSTRUCTION.findall(made.text))}


COLD: Final = """
import json, sys, time
import tilewright
begin = time.perf_counter()
tilewright.compile(sys.argv[1])
print(json.dumps(time.perf_counter() - begin))
"""


def memory(process: int) -> int:
    """Bytes of a process and its children, shared pages in equal parts; 0 once it has ended."""
    try:
        tasks = Path(f"/proc/{process}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text(encoding="ascii").split()]
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return 1024 * own + sum(memory(int(child)) for child in children)


def cold(name: str) -> dict[str, object]:
    """Compile one of the zoo's models with nothing cached."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(zoo.FULL[name](), path)
        command = ["env", f"TILEWRIGHT_CACHE_DIR={folder}/cache", sys.executable, "-c", COLD, str(path)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE)
        peak = 0
        while running.poll() is None:
            peak = max(peak, memory(running.pid))
            time.sleep(0.05)
        made, _ = running.communicate()
        if running.returncode:
            raise SystemExit(f"{name} did not compile")
    seconds = json.loads(made)
    return {
        "what": f"compile {name}, cold",
        "s": round(seconds, 2),
        "budget_s": 10.0,
        "peak_mb": round(peak / 2**20),
        "budget_mb": 2048,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", default="", help="a file of rows by version")
    parser.add_argument("--models", default="", help="names of the zoo, separated by commas")
    args = parser.parse_args()
    if args.models:
        for name in args.models.split(","):
            row = cold(name)
            print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
        return
    each = {name: least(work, 5 * args.repeats) for name, work in primitive_works().items()}
    assert set(each) == set(PRIMITIVES), set(PRIMITIVES) ^ set(each)
    found = {
        "primitive": statistics.median(each.values()),
        **{name: least(work, args.repeats) for name, work in works(detect()).items()},
        "import tilewright": import_ms(3),
    }
    slower = round(slowness(), 2)
    rows: list[dict[str, object]] = [
        {"what": k, "ms": round(v, 3), "budget_ms": BUDGETS[k], "slowness": slower} for k, v in found.items()
    ]
    rows += [{"what": f"primitive {k}", "ms": round(v, 3)} for k, v in each.items()]
    rows += [{"what": f"work of a {k}", **counted(make())} for k, make in COUNTED.items()]
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(str(v) for v in row.values()))
    if args.keep:
        keep(Path(args.keep), rows)


def keep(path: Path, rows: list[dict[str, object]]) -> None:
    """Write rows with the version of the package, in place of those of the same one."""
    version = {"version": tilewright.__version__}
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    others = [line for line in before if json.loads(line)["version"] != tilewright.__version__]
    path.write_text("".join(f"{line}\n" for line in [*others, *(json.dumps(version | row) for row in rows)]))


if __name__ == "__main__":
    main()
