"""Random nests in C, run against gcc -O0: ``python tests/random_nests.py 5000 --seed 1`` (a seed a nest).

The grammar has what ``docs/c.md`` accepts: loops to a depth of four, of all ways to count; integers of all
types with quotients, remainders, shifts and masks; conditions on loops and on data with else; continue;
pointers to rows, also stepping; flat, local and file-scope arrays; variables; functions of the file.
Accesses may leave their arrays at some sizes: such runs are refused, and counted. Real numbers are small
multiples of a quarter: most sums are exact.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from c_nests import Original, differences, drawn, interpreted, original
from tilewright.driver import Nest
from tilewright.ir import OutOfBoundsError
from tilewright.support import InputError, UserError

SIZES = (0, 1, 2, 7, 33)
DROPPED_IN = 4
"""Of so many nests one is emitted as C, too, and run in the place of the original."""
ELEMENTS = {
    "double": "real", "float": "real", "int": "int", "unsigned": "int", "short": "int",
    "unsigned char": "int",
    "long": "int", "unsigned short": "int", "signed char": "int", "unsigned long": "int",
}  # fmt: skip
HEAD = """
static int clipped(int a, int b) { if (a < 0) return 0; if (a > b) a = b; return a; }
static int sized(int a) { int s = 0; if (a > 9) { s = 1; if (a > 99) s++; }
  else if (a < 0) return -1; return s; }
static const short weights[6] = {3, -1, 4, 1, -5, 9};
double held[48];
int counts[8];
static double mean(double a, double b) { return 0.5 * (a + b); }
static void added(int n, const double *from, double *into) { for (int q = 0; q < n; q++) into[q] += from[q]; }
"""


@dataclass
class Writer:
    """Writes one function; ``loops`` are names of the loops around, ``ints`` of integers with values."""

    rng: random.Random
    name: str
    arrays: dict[str, tuple[str, int]] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    ints: list[str] = field(default_factory=list)
    reals: list[str] = field(default_factory=list)
    statements: int = 0
    fresh: int = 0

    def pick(self, *ways):
        return self.rng.choice(ways)

    def function(self) -> str:
        size = self.pick("int", "int", "int", "unsigned", "size_t", "long")
        params = [f"{size} n", f"{size} m"]
        for k in range(self.rng.randint(2, 5)):
            kind = self.rng.choice(list(ELEMENTS))
            rank = self.pick(1, 1, 2)
            self.arrays[f"a{k}"] = (kind, rank)
            params.append(f"{kind} a{k}" + ("[2 * n + 12]" if rank == 1 else "[n + 9][m + 9]"))
        if self.rng.random() < 0.3:
            self.arrays["flat"] = ("double", 3)
            params.append("double *flat")
        if self.rng.random() < 0.3:
            self.arrays["held"] = ("double", 1)
            self.arrays["counts"] = ("int", 4)
        self.arrays["y"] = ("double", 2)
        params += ["double y[n + 9][m + 9]", "double s", "int shift"]
        self.reals, self.ints = ["s"], ["shift"]
        body = self.block(0, "  ")
        return f"void {self.name}({', '.join(params)}) {{\n{body}}}\n"

    # -- statements ----------------------------------------------------------------------------------------

    def block(self, depth: int, pad: str, *, turn: bool = False) -> str:
        ints, reals = list(self.ints), list(self.reals)
        count = self.rng.randint(1, 3 if depth else 2)
        out = "".join(self.statement(depth, pad, turn) for _ in range(count))
        self.ints, self.reals = ints, reals
        return out

    def statement(self, depth: int, pad: str, turn: bool) -> str:
        self.statements += 1
        roll = self.rng.random()
        if self.statements > 14:
            return self.assign(pad)
        if depth < 4 and roll < (0.9 if depth == 0 else 0.4 if depth < 2 else 0.2):
            return self.loop(depth, pad)
        if roll < 0.55:
            inner = pad + "  "
            out = f"{pad}if ({self.condition()}) {{\n{self.block(depth + 1, inner, turn=turn)}{pad}}}"
            if self.rng.random() < 0.5:
                out += f" else {{\n{self.block(depth + 1, inner, turn=turn)}{pad}}}"
            return out + "\n"
        if roll < 0.6 and turn and self.loops:
            return f"{pad}if ({self.condition()}) continue;\n"
        if roll < 0.66:
            return self.declare(pad)
        if roll < 0.69 and self.loops:
            row = f"p{self.count()}"
            if self.rng.random() < 0.5:
                return (
                    f"{pad}{{ double *{row} = y[{self.small()}]; {row}[{self.index()}] += {self.real()}; }}\n"
                )
            name, up = f"q{self.count()}", self.rng.random() < 0.7
            step = f"*{row}++" if up else f"*--{row}"
            first = self.pick("0", "1") if up else "(int)m + 3"
            return (
                f"{pad}{{ double *{row} = y[{self.small()}] + {first};\n"
                f"{pad}  for (int {name} = 0; {name} < (int)m; {name}++)"
                f" {step} {self.pick('=', '+=')} {self.real()}; }}\n"
            )
        if roll < 0.70 and self.loops:
            name, at = f"t{self.count()}", f"q{self.count()}"
            return (
                f"{pad}{{ double {name}[6];\n{pad}  for (int {at} = 0; {at} < 6; {at}++) {name}[{at}] ="
                f" {self.real()} * weights[{at}];\n"
                f"{pad}  y[{self.small()}][0] += {name}[5] - {name}[{self.variable()} % 6]; }}\n"
            )
        if roll < 0.71 and self.loops:
            return f"{pad}added(m, y[{self.small()}], y[{self.small()}]);\n"
        if roll < 0.73:
            return f"{pad}do {{ {self.assign('').strip()} }} while (0);\n"
        return self.assign(pad)

    def count(self) -> int:
        self.fresh += 1
        return self.fresh

    def declare(self, pad: str) -> str:
        name = f"v{self.count()}"
        if self.rng.random() < 0.5:
            text = f"{pad}int {name} = {self.pick(self.index(), self.integer())};\n"
            if self.rng.random() < 0.3:
                text += f"{pad}{name} = {name} {self.pick('+', '-', '*')} 2;\n"
            self.ints.append(name)
            return text
        text = f"{pad}double {name} = {self.real()};\n"
        self.reals.append(name)
        return text

    def loop(self, depth: int, pad: str) -> str:
        name = f"{'ijkl'[min(depth, 3)]}{self.count()}"
        last = self.pick(
            "n", "m", "n", "m", "(int)n - 1", "n / 2", "(n + 1) / 2", "5", *(f"{v} + 1" for v in self.loops)
        )
        first = self.pick("0", "0", "0", "1", "2", *self.loops)
        kind = self.pick("int", "int", "int", "int", "long", "unsigned", "size_t")
        way = self.rng.randrange(13)
        head = {
            0: f"for ({kind} {name} = {first}; {name} <= (int)({last}) - 1; ++{name})"
            if kind in ("int", "long")
            else "",
            1: f"for (int {name} = (int)({last}) - 1; {name} >= {first}; {name}--)",
            2: f"for ({kind} {name} = {first}; {name} < {last}; {name} += {self.pick(2, 3)})",
            3: f"for (int {name} = 0; {name} != (int)n; {name}++)",
            4: f"for ({kind} {name} = {first}; {last} > {name}; {name} = {name} + 1)",
            5: f"for (int {name} = {first}; {name} < (int)n && {name} < (int)m; {name}++)",
            6: f"for (int {name} = (int)n; {name} > 0; {name} -= 2)",
            9: f"for ({kind} {name} = {last}; {name}-- > {self.pick('0', '0', '1')};)",
            10: f"for (int {name} = {first}; {name} + {self.pick('1', '2', *self.loops)} < (int)m; {name}++)",
            11: f"for (int {name} = 0, {name}e = (int)n - 1; {name} < {name}e; {name}++, {name}e--)",
            12: f"for (int {name} = 0; 2 * {name} + 1 < (int)({last}); {name}++)",
        }.get(way, "") or f"for ({kind} {name} = {first}; {name} < {last}; {name}++)"
        self.loops.append(name)
        inner = pad + "  "
        if way == 7:
            body = self.block(depth + 1, inner)
            self.loops.pop()
            return (
                f"{pad}{{ int {name} = {first};\n{pad}while ({name} < (int)({last})) {{\n{body}"
                f"{inner}{name} += {self.pick(1, 2)};\n{pad}}} }}\n"
            )
        body = self.block(depth + 1, inner, turn=True)
        self.loops.pop()
        return f"{pad}{head} {{\n{body}{pad}}}\n"

    def assign(self, pad: str) -> str:
        name = self.rng.choice(list(self.arrays))
        kind, _ = self.arrays[name]
        real = ELEMENTS[kind] == "real"
        target = self.element(name)
        op = (
            self.pick("=", "=", "+=", "+=", "-=")
            if real
            else self.pick("=", "+=", "-=", "*=", "^=", "|=", "&=")
        )
        if not real and self.rng.random() < 0.1:
            return f"{pad}{target}{self.pick('++', '--')};\n"
        if op == "+=" and self.rng.random() < 0.1 and self.reals[1:]:
            return f"{pad}{self.reals[-1]} += {self.real()};\n"
        return f"{pad}{target} {op} {self.real() if real else self.integer()};\n"

    # -- expressions -----------------------------------------------------------------------------------------

    def variable(self) -> str:
        return self.rng.choice(self.loops) if self.loops else "2"

    def index(self) -> str:
        """An integer that loops and sizes decide, mostly in bounds."""
        v, w = self.variable(), self.variable()
        return self.pick(
            v, v, v, f"{v} + 1", f"{v} + 2", f"2 * {v}", f"{v} + {w}", f"{v} / 2", f"{v} % 3",
            f"({v} + {w}) % 4",
            f"({v} - {w} + 40) / 3 % 5", f"{v} > 0 ? {v} - 1 : 0", f"{v} & 3", f"(int){v} >> 1", "1", "n / 2",
            f"clipped((int){v} - 1, 3)", f"((int){v} - 5) / 2 + 3", f"((int){v} - (int){w}) % 3 + 3",
            f"({v} + 1) % (n + 1)", f"({v} == 0 ? 2 : {w})", *self.ints[1:2],
        )  # fmt: skip

    def small(self) -> str:
        v = self.variable()
        return self.pick(v, v, f"{v} + 1", "0", f"{v} / 2", f"{v} % 2", f"{v} & 1")

    def element(self, name: str) -> str:
        _, rank = self.arrays[name]
        if rank == 3:
            return f"flat[({self.small()}) * (m + 3) + ({self.small()})]"
        if rank == 4:
            return f"{name}[({self.index()}) & 7]"
        if rank == 1:
            if self.rng.random() < 0.06:
                return f"{name}[({self.integer()}) & 7]"
            return f"{name}[{self.index()}]"
        return f"{name}[{self.small()}][{self.small()}]"

    def of_kind(self, kind: str) -> str | None:
        names = [name for name, (element, _) in self.arrays.items() if ELEMENTS[element] == kind]
        return self.element(self.rng.choice(names)) if names else None

    def integer(self, depth: int = 0) -> str:
        """An integer of any value."""
        a = self.of_kind("int")
        if depth > 2 or a is None or self.rng.random() < 0.25:
            return self.pick(
                self.variable(), str(self.rng.randint(-9, 99)), self.rng.choice(self.ints), a or "3"
            )
        x, y = self.integer(depth + 1), self.integer(depth + 1)
        return self.pick(
            f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} / (({y} & 7) + 1))",
            f"({x} % (({y} & 7) + 2))",
            f"({x} << 2)", f"({x} >> {self.rng.randint(1, 4)})", f"(~{x})", f"(-({x}))", f"(!{x})",
            f"({x} & {y})", f"({x} ^ {y})", f"({x} > {y} ? {x} : {y})", f"({x} == {y})", f"({x} && {y})",
            f"(unsigned char)({x})", f"(short)({x})",
            f"sized({x})", f"weights[({x} & 3)]", f"(unsigned)({x})", f"(long)({x})", f"({x} / 3u)", a, a,
        )  # fmt: skip

    def real(self, depth: int = 0) -> str:
        """A real number; products are with powers of two, and sums stay exact for a while."""
        a = self.of_kind("real") or "s"
        if depth > 2 or self.rng.random() < 0.3:
            return self.pick(a, a, "1.5", "0.25f", "2", self.rng.choice(self.reals), self.variable())
        x, y = self.real(depth + 1), self.real(depth + 1)
        return self.pick(
            f"({x} + {y})", f"({x} - {y})", f"0.5 * {x}", f"({x} / 4)", f"-({x})", f"fabs({x})",
            f"fmax({x}, {y})",
            f"({x} < {y} ? {x} : {y})", f"({self.condition()} ? {x} : {y})", f"mean({x}, {y})", a, a,
        )  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        v, w = self.variable(), self.variable()
        if depth < 2 and self.rng.random() < 0.35:
            x, y = self.condition(depth + 1), self.condition(depth + 1)
            return self.pick(f"{x} && {y}", f"({x} || {y})", f"!({x})", f"({x}) == ({y})")
        a, b = self.of_kind("real") or "s", self.of_kind("int") or "shift"
        return self.pick(
            f"{v} > 0", f"{v} < {w}", f"{v} != {w}", f"{v} % 2 == 0", f"{v} + 1 < n", f"{v} - 1 < {w}",
            f"{v} == 0", f"{v} <= 2 * {w}", f"{a} > 0.3", f"{a} < {self.reals[0]}", f"{b} > 3", f"{b} & 1", b,
            f"{v} / 2 > 1", "shift > 0", f"n > {self.rng.randint(1, 8)}",
        )  # fmt: skip


def text_of(seed: int) -> str:
    """The C of a seed."""
    return f"#include <math.h>\n#include <stddef.h>\n{HEAD}{Writer(random.Random(seed), 'f').function()}"


def outcome(compiled: Original, n: int, m: int, seed: int, *, compare: bool = True) -> str:
    """What becomes of a nest at sizes: ``right``, ``wrong (arrays)`` or ``refused (why)``."""
    sizes = {"n": n, "m": m, "shift": seed % 7 - 3}
    if "flat_size" in compiled.nest.implied:
        sizes["flat_size"] = 40 * (m + 3) + 80
    nest = Nest(compiled.nest, threads=2, sizes=sizes)
    try:
        func = nest.at({})
    except InputError as error:
        return f"refused ({'bounds' if 'leaves the buffer' in error.what else error.what})"
    arrays = drawn(compiled.nest, func, np.random.default_rng(seed))
    want = {name: array.copy() for name, array in arrays.items()}
    if compare:
        try:
            got = interpreted(func, arrays)
        except OutOfBoundsError:
            return "refused (bounds, where data decide)"
        compiled(want, sizes)
        if wrong := differences(got, want):
            return f"wrong (interpreted {' '.join(wrong)})"
    given = {name: array.copy() for name, array in arrays.items()}
    nest(**{name: array for name, array in arrays.items() if name not in compiled.nest.contents})
    if not compare:
        compiled(want, sizes)
    wrong = [name for name in differences(arrays, want) if not _rounded(arrays[name], want[name])]
    if wrong or seed % DROPPED_IN:
        return f"wrong ({' '.join(wrong)})" if wrong else "right"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.c"
        made.write_text(nest.c_source({}))
        original(made, level="-O1", library_of=compiled.nest)(given, sizes)
    wrong = [name for name in differences(given, want) if not _rounded(given[name], want[name])]
    return f"wrong (in its place {' '.join(wrong)})" if wrong else "right"


def _rounded(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether arrays of real numbers differ by rounding alone: values have grown beyond exact sums."""
    if got.dtype.kind != "f":
        return False
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    exact = largest < 2.0 ** (20 if got.dtype == np.float32 else 48)
    return not exact and bool(np.allclose(got, want, rtol=1e-3, atol=1e-5 * largest, equal_nan=True))


def main() -> int:
    """Run many nests; says which seeds go wrong, and returns how many do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the text of the first nest")
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        text = text_of(seed)
        if options.show:
            print(text)
            options.show = False
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "k.c"
            path.write_text(text)
            try:
                compiled = original(path, "f")
                n, m = SIZES[seed % 5], SIZES[seed // 5 % 5]
                told = outcome(compiled, n, m, seed, compare=n * m < 60)
            except UserError as error:
                told = f"refused ({error.what})"
            except Exception as error:  # noqa: BLE001  # an internal error is what is looked for
                told = f"broken ({type(error).__name__}: {str(error)[:200]})"
        tally[told.split(" (")[0]] += 1
        if not told.startswith(("right", "refused (bounds", "refused (loop")):
            print(seed, told, flush=True)
    print(dict(tally))
    return tally["wrong"] + tally["broken"]


if __name__ == "__main__":
    sys.exit(main())
