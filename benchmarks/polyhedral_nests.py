"""Loop nests beside other compilers: what ``polyhedral.py`` runs of nests."""

import ast
import ctypes
import inspect
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.driver.nests import Nest
from tilewright.frontend.c import read_c_file
from tilewright.frontend.nests import scop
from tilewright.frontend.nests.python import read_python
from tilewright.ir import LoopFunction
from tilewright.runtime import aligned_copy
from tilewright.target import detect

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from unit.frontend.nests.polybench import KERNELS, arguments

Array = npt.NDArray[Any]
Call = Callable[[], object]
#: Seconds between two runs: spinning threads of the one before have gone to sleep by then.
PAUSE = 0.02
#: The names of sizes in PolyBench's LARGE data sets, by kernel.
LARGE: dict[str, dict[str, int]] = {
    "2mm": {"NI": 800, "NJ": 900, "NK": 1100, "NL": 1200},
    "3mm": {"NI": 800, "NJ": 900, "NK": 1000, "NL": 1100, "NM": 1200},
    "adi": {"N": 1000, "T": 500},
    "atax": {"M": 1900, "N": 2100},
    "bicg": {"M": 1900, "N": 2100},
    "cholesky": {"N": 2000},
    "correlation": {"M": 1200, "N": 1400},
    "covariance": {"M": 1200, "N": 1400},
    "deriche": {"W": 4096, "H": 2160},
    "doitgen": {"Q": 140, "R": 150, "P": 160},
    "durbin": {"N": 2000},
    "fdtd_2d": {"NX": 1000, "NY": 1200, "T": 500},
    "floyd_warshall": {"N": 2800},
    "gemm": {"NI": 1000, "NJ": 1100, "NK": 1200},
    "gemver": {"N": 2000},
    "gesummv": {"N": 1300},
    "gramschmidt": {"M": 1000, "N": 1200},
    "heat_3d": {"N": 120, "T": 500},
    "jacobi_1d": {"N": 2000, "T": 500},
    "jacobi_2d": {"N": 1300, "T": 500},
    "lu": {"N": 2000},
    "ludcmp": {"N": 2000},
    "mvt": {"N": 2000},
    "nussinov": {"N": 2500},
    "seidel_2d": {"N": 2000, "T": 500},
    "symm": {"M": 1000, "N": 1200},
    "syr2k": {"M": 1000, "N": 1200},
    "syrk": {"M": 1000, "N": 1200},
    "trisolv": {"N": 2000},
    "trmm": {"M": 1000, "N": 1200},
}
GCC = ("gcc", "-O3", "-march=native", "-fno-math-errno")
POLLY = (
    "clang",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-mllvm",
    "-polly",
    "-mllvm",
    "-polly-parallel",
    "-mllvm",
    "-polly-pattern-matching-based-opts=0",
)


_CALLS = {"max": "fmax", "min": "fmin", "sqrt": "sqrt", "exp": "exp"}


class InC(ast.NodeVisitor):
    """One of the functions of ``polybench.py`` as C99: arrays of arrays, scalars by value."""

    def __init__(self, function: Callable[..., Any], sizes: dict[str, int]) -> None:
        (self.tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        self.sizes = sizes
        self.lines: list[str] = []

    def text(self, name: str) -> str:
        assert isinstance(self.tree, ast.FunctionDef)
        arguments, known = [], set(self.sizes)
        for a in self.tree.args.args:
            known.add(a.arg)
            if isinstance(a.annotation, ast.Subscript):
                at = a.annotation.slice
                extents = at.elts if isinstance(at, ast.Tuple) else [at]
                inner = "".join(f"[{self.expr(e)}]" for e in extents[1:])
                arguments.append(
                    f"double (*restrict {a.arg}){inner}" if inner else f"double *restrict {a.arg}"
                )
            elif not isinstance(a.annotation, ast.Name) or a.annotation.id != "int":
                arguments.append(f"double {a.arg}")
        names = {
            n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        loops = {n.target.id for n in ast.walk(self.tree) if isinstance(n, ast.For)}  # type: ignore[attr-defined]
        scalars = sorted(names - loops - known)
        declared = f"    double {', '.join(scalars)};\n" if scalars else ""
        self.body(self.tree.body, 1)
        defined = "".join(f"#define {n} {v}\n" for n, v in self.sizes.items())
        return (
            f"#include <math.h>\n{defined}void {name}({', '.join(arguments)}) {{\n{declared}"
            + "\n".join(self.lines)
            + "\n}\n"
        )

    def body(self, statements: list[ast.stmt], depth: int) -> None:
        pad = "    " * depth
        for s in statements:
            match s:
                case ast.For(target=ast.Name(id=i), iter=ast.Call(args=args)):
                    lo = self.expr(args[0]) if len(args) > 1 else "0"
                    hi = self.expr(args[0] if len(args) == 1 else args[1])
                    down = len(args) == 3
                    step = f"{i} > {hi}; {i}--" if down else f"{i} < {hi}; {i}++"
                    self.lines.append(f"{pad}for (int {i} = {lo}; {step}) {{")
                    self.body(s.body, depth + 1)
                    self.lines.append(pad + "}")
                case ast.If():
                    self.lines.append(f"{pad}if ({self.expr(s.test)}) {{")
                    self.body(s.body, depth + 1)
                    self.lines.append(pad + "}")
                    if s.orelse:
                        self.lines.append(pad + "else {")
                        self.body(s.orelse, depth + 1)
                        self.lines.append(pad + "}")
                case ast.Assign(targets=[target]):
                    self.lines.append(f"{pad}{self.expr(target)} = {self.expr(s.value)};")
                case ast.AugAssign():
                    op = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}[type(s.op)]
                    self.lines.append(f"{pad}{self.expr(s.target)} {op}= {self.expr(s.value)};")

    def expr(self, e: ast.expr) -> str:
        match e:
            case ast.Subscript(value=ast.Name(id=name)):
                at = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
                return name + "".join(f"[{self.expr(x)}]" for x in at)
            case ast.IfExp():
                return f"({self.expr(e.test)} ? {self.expr(e.body)} : {self.expr(e.orelse)})"
            case ast.Call(func=ast.Name(id=name)):
                return f"{_CALLS[name]}({', '.join(map(self.expr, e.args))})"
            case ast.BinOp(op=ast.Pow()):
                return f"pow({self.expr(e.left)}, {self.expr(e.right)})"
            case ast.BinOp():
                op = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}[type(e.op)]
                return f"({self.expr(e.left)} {op} {self.expr(e.right)})"
            case ast.UnaryOp(op=ast.USub()):
                return f"(-{self.expr(e.operand)})"
            case ast.Compare(ops=[op]):
                sign = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.Eq: "=="}[type(op)]
                return f"({self.expr(e.left)} {sign} {self.expr(e.comparators[0])})"
            case ast.Name():
                return e.id
            case ast.Constant():
                return repr(e.value)
        raise ValueError(f"no C for {ast.unparse(e)}")


def peer(command: tuple[str, ...], source: Path) -> ctypes.CDLL | None:
    """A C file compiled to a library; ``None`` where there is no such compiler."""
    if shutil.which(command[0]) is None:
        return None
    library = source.with_suffix(f".{command[0]}.so")
    tail = ["-fopenmp" if command[0] == "gcc" else "-lgomp", "-lm"]
    made = subprocess.run(
        [*command, "-shared", "-fPIC", str(source), "-o", str(library), *tail], capture_output=True
    )
    if made.returncode:
        print(f"{command[0]}: {made.stderr.decode()[:300]}", file=sys.stderr)
        return None
    return ctypes.CDLL(str(library))


def interleaved(calls: dict[str, tuple[Call, Call]], turns: int, limit: float) -> dict[str, float]:
    """The least seconds of each, taking turns; each pair is what prepares a run, and the run."""
    best = dict.fromkeys(calls, float("inf"))
    start = time.perf_counter()
    for turn in range(turns):
        if turn and time.perf_counter() - start > limit:
            break
        for name, (prepare, run) in calls.items():
            prepare()
            time.sleep(PAUSE)
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def nests(names: list[str], threads: int, turns: int, limit: float) -> Iterator[dict[str, Any]]:
    """A row of times for each nest."""
    for name in names or list(KERNELS):
        func = scop(KERNELS[name]).func
        given, values = arguments(func, LARGE[name])
        _well_behaved(name, given)
        text = InC(KERNELS[name], values).text("nest")
        row = _compared(name, func, values, given, text, [], threads, turns, limit)
        yield {"part": "nests", **row}


def originals(
    folder: Path, dataset: str, names: list[str], threads: int, turns: int, limit: float
) -> Iterator[dict[str, Any]]:
    """A row of times for each nest of a PolyBench/C that somebody has, its files as they are."""
    headers = folder / "utilities"
    defines = {f"{dataset.upper()}_DATASET": "", "POLYBENCH_USE_SCALAR_LB": ""}
    for path in sorted(folder.rglob("*.c")):
        if "#pragma scop" not in path.read_text(errors="replace") or (names and path.stem not in names):
            continue
        func = read_c_file(path, defines, [headers])
        # bounds are the data set's: the sizes among the arguments are not used
        values = {p.name: 1 for p in func.params}
        given, _ = arguments(replace(func, params=()), {})
        given = {b.name: given[b.name].astype(b.dtype.numpy) for b in func.buffers}
        _well_behaved(path.stem.replace("-", "_"), given)
        kinds = {"f64": "double", "f32": "float"}
        listed = [f"int {n}" for n in values]
        listed += [f"void *{b.name}" if b.shape else f"{kinds[str(b.dtype)]} {b.name}" for b in func.buffers]
        passed = ", ".join((*values, *(b.name for b in func.buffers)))
        text = f'#include "{path.resolve()}"\nvoid nest({", ".join(listed)}) {{ {func.name}({passed}); }}\n'
        options = [f"-I{headers}", *(f"-D{n}" for n in defines)]
        row = _compared(path.stem, func, values, given, text, options, threads, turns, limit)
        yield {"part": "polybench", "dataset": dataset, **row}


def _well_behaved(name: str, given: dict[str, Array]) -> None:
    """Make what a nest computes of its arguments finite."""
    if name == "durbin":
        given["r"] *= 0.0005  # what it computes grows without bound otherwise
    if name in ("symm", "trmm", "cholesky", "lu", "ludcmp"):
        for n, a in given.items():
            given[n] = a / 1000 if a.ndim == 2 else a


def _compared(
    name: str,
    func: LoopFunction,
    values: dict[str, int],
    given: dict[str, Array],
    text: str,
    options: list[str],
    threads: int,
    turns: int,
    limit: float,
) -> dict[str, Any]:
    """Times of one nest, and of the function ``nest`` of a C text by other compilers."""
    table = {b.name: aligned_copy(given[b.name]) for b in func.buffers}
    begin = time.perf_counter()
    nest = Nest(func, detect(), threads)
    made = nest.scheduled(values)
    kernel = nest.kernel(values)
    seconds = time.perf_counter() - begin

    def restore() -> None:
        for n, a in table.items():
            a[...] = given[n]

    arrays = [table[b.name] for b in func.buffers]
    # a call of a nest keeps its plan, too
    plan = kernel.plan(arrays)
    calls: dict[str, tuple[Call, Call]] = {"ours": (restore, lambda: plan.run([], []))}
    results: dict[str, dict[str, Array]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nest.c"
        path.write_text(text)
        for who, command in (("gcc", GCC), ("polly", POLLY)):
            library = peer((*command, *options), path)
            if library is not None:
                at: list[Any] = [ctypes.c_int(values[p.name]) for p in func.params] if options else []
                for a in arrays:
                    number = ctypes.c_double if a.dtype == np.float64 else ctypes.c_float
                    at.append(ctypes.c_void_p(a.ctypes.data) if a.ndim else number(float(a)))
                calls[who] = (restore, lambda f=library.nest, at=at: f(*at))  # type: ignore[misc]
        # the first runs count, too: of some kernels each takes a minute
        first: dict[str, float] = {}
        for who, (prepare, run) in calls.items():
            prepare()
            begin = time.perf_counter()
            run()
            first[who] = time.perf_counter() - begin
            results[who] = {n: table[n].copy() for n in func.outputs}
        spent = sum(first.values())
        more = interleaved(calls, turns, limit - spent) if spent < limit else first
        times = {who: min(first[who], more[who]) for who in calls}
    columns = given["A"].shape[0] if name == "gramschmidt" else None
    if columns is not None:
        # more columns than rows: the last ones are orthogonal to all before them, and nothing but rounding
        for found in results.values():
            found["Q"], found["R"] = found["Q"][:, :columns], found["R"][:columns]
            found["A"] = found["A"][:, :columns]
    for who, found in results.items():
        for n, a in found.items():
            scale = np.abs(results["ours"][n]).max() or 1.0
            near = 1e-8 if a.dtype == np.float64 else 1e-3
            if not np.allclose(a / scale, results["ours"][n] / scale, rtol=near, atol=near, equal_nan=True):
                print(f"{name}: {n} of {who} differs", file=sys.stderr)
    row: dict[str, Any] = {"name": name, **{k: v * 1e3 for k, v in times.items()}}
    if columns is not None:
        q, r = np.linalg.qr(given["A"][:, :columns])
        q *= np.sign(np.diag(r))
        row["error of Q"] = {who: float(np.abs(found["Q"] - q).max()) for who, found in results.items()}
    peers = [v for k, v in times.items() if k != "ours"]
    if peers:
        row["ratio"] = min(peers) / times["ours"]
    return {**row, "compile": seconds, "notes": made.notes}


def variants(threads: int, turns: int, limit: float) -> Iterator[dict[str, Any]]:
    """A row for products whose loops are written in other orders: how many codes were made, their times."""
    made = {
        "gemm": (
            "def gemm(A: f64[700, 700], B: f64[700, 700], C: f64[700, 700]):\n",
            ("i", "j", "k"),
            "C[i, j] += A[i, k] * B[k, j]",
            700,
        ),
        "contraction": (
            "def contraction(A: f64[90, 90, 90], B: f64[90, 90], C: f64[90, 90, 90]):\n",
            ("i", "j", "k", "l"),
            "C[i, j, k] += A[i, j, l] * B[l, k]",
            90,
        ),
    }
    for name, (head, loops, body, extent) in made.items():
        calls: dict[str, tuple[Call, Call]] = {}
        codes: set[str] = set()
        table: list[Array] = []
        for order in permutations(loops):
            lines = [f"{'    ' * (n + 1)}for {v} in range({extent}):\n" for n, v in enumerate(order)]
            func = read_python(head + "".join(lines) + "    " * (len(loops) + 1) + body + "\n")
            given, _ = arguments(func, {})
            # the same memory for all, whose place decides more than a few percent
            table = table or [aligned_copy(given[b.name]) for b in func.buffers]
            kernel = Nest(func, detect(), threads).kernel({})
            codes.add(kernel.assembly())
            calls["".join(order)] = (lambda: None, lambda k=kernel, t=table: k.run(t))  # type: ignore[misc]
        for prepare, run in calls.values():
            prepare()
            run()
        times = interleaved(calls, turns, limit)
        spread = max(times.values()) / min(times.values()) - 1
        row = {"part": "variants", "name": name, "codes": len(codes), "spread": spread}
        yield row | {k: v * 1e3 for k, v in times.items()}
