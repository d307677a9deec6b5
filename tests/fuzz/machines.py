"""Random managed machines and programs for them, from a seed.

One to four streams with memories of unequal sizes, down to less than two tiles; memories that several streams
share; moves that are missing, that keep the order of dimensions, that take no steps; operands that may be in
one memory or several; instructions of fixed and of open sizes, of one stage and of several.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from machine_programs import conv1d, conv2d, gemm, layer, product
from tilewright import lang
from tilewright.ir import Program
from tilewright.mapping.system import SystemGraph, parse_machine
from tilewright.mapping.system.graph import placements

#: What instructions compute: operands with their dimensions, and the stages' lines over i, j (and x).
MEANINGS = {
    "matmul": (("A mk", "B kn"), "C", ["C[i, j] = C[i, j] + A[i, x] * B[x, j]"], True),
    "matmul_add": (("A mk", "B kn"), "C", ["C[i, j] = C[i, j] + A[i, x] * B[x, j]"], False),
    "matmul_t": (("A mk", "B nk"), "C", ["C[i, j] = C[i, j] + A[i, x] * B[j, x]"], True),
    "matmul_t_add": (("A mk", "B nk"), "C", ["C[i, j] = C[i, j] + A[i, x] * B[j, x]"], False),
    "add_row": (("X mn", "Y n"), "Z", ["Z[i, j] = X[i, j] + Y[j]"], False),
    "add": (("X mn", "Y mn"), "Z", ["Z[i, j] = X[i, j] + Y[i, j]"], False),
    "relu": (("X mn",), "Z", ["Z[i, j] = max(X[i, j], f32(0.0))"], False),
    "biased": (("X mn", "Y n"), "Z", ["Z[i, j] = max(X[i, j] + Y[j], f32(0.0))"], False),
    "product_relu": (
        ("A mk", "B kn"),
        "Z",
        ["C[i, j] = C[i, j] + A[i, x] * B[x, j]", "Z[i, j] = max(C[i, j], f32(0.0))"],
        True,
    ),
    "layer": (
        ("A mk", "B kn", "Y n"),
        "Z",
        ["C[i, j] = C[i, j] + A[i, x] * B[x, j]", "Z[i, j] = max(C[i, j] + Y[j], f32(0.0))"],
        True,
    ),
}
AXES = {"m": "i", "n": "j", "k": "x"}


class Dice:
    """An approach with any answer to any question, by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, kind: str, options: Sequence[object], state: object) -> int:
        """Any of the options."""
        return self.rng.randrange(len(options))


def semantics(name: str, sizes: dict[str, int], fixed: bool) -> list[str]:
    """The text of an instruction whose sizes are at most these, or always."""
    operands, result, lines, starts = MEANINGS[name]
    used = [a for a in AXES if any(a in o.split()[1] for o in operands)]
    of = {a: str(sizes[a]) if fixed else a for a in AXES}
    out = [f'program("{name}")', *(f"{a} = param(1, {sizes[a]})" for a in used if not fixed)]
    for o in operands:
        buffer, dims = o.split()
        out.append(f"{buffer} = input(f32[{', '.join(of[a] for a in dims)}])")
    out.append(f"{result} = output(f32[{of['m']}, {of['n']}])")
    if len(lines) > 1:
        out.append(f"C = temp(f32[{of['m']}, {of['n']}])")
    for n, line in enumerate(lines):
        out.append(f'with stage("{line[0]}"):')
        out += [f"    i = par(0, {of['m']})", f"    j = par(0, {of['n']})"]
        out += [f"    x = red(0, {of['k']})"] if "x]" in line else []
        out += ["    with init:", "        C[i, j] = f32(0.0)"] if starts and n == 0 else []
        out.append(f"    {line}")
    return out


def random_machine(rng: random.Random) -> SystemGraph:
    """A machine; TargetError where its nodes contradict one another, which some do."""
    e = rng.choice([2, 4, 4])
    sizes = {a: rng.choice([1, e, e, e + 1]) for a in AXES}
    fixed = rng.random() < 0.1
    tile = 4 * max(x * y for x in sizes.values() for y in sizes.values())
    kinds = ["matmul", "matmul_add"] if rng.random() < 0.9 else ["matmul"]
    if rng.random() < 0.2:
        kinds = ["matmul_t", "matmul_t_add"]
    kinds += [k for k in ("add_row", "relu", "add", "biased") if rng.random() < 0.8]
    kinds += [k for k in ("product_relu", "layer") if rng.random() < 0.2]
    streams = [f"s{n}" for n in range(rng.choice([1, 1, 2, 3, 4]))]
    memories: list[dict[str, object]] = [{"name": "dram", "bytes": 1 << 24}]
    moves: list[dict[str, object]] = []
    units = []

    def memory(name: str, tiles: float) -> str:
        align = rng.choice([1, 4, 4, 16])
        size = max(int(tile * tiles) // align, 1) * align
        memories.append({"name": name, "bytes": size, "align": align})
        return name

    def move(source: str, target: str, issuers: list[str], *, turns: float = 0.6) -> None:
        moves.append(
            {
                "name": f"{source}_{target}",
                "from": source,
                "to": target,
                "bytes_per_cycle": rng.choice([4, 16, 64]),
                "latency": rng.choice([0, 3, 40]),
                "streams": issuers,
                "transposes": "dram" in (source, target) and rng.random() < turns,
                "strides": "dram" in (source, target) and rng.random() < 0.5,
            }
        )

    far = None
    if rng.random() < 0.3:
        far = memory("far", rng.choice([2, 4, 9, 40]))
        move("dram", far, streams)
        if rng.random() < 0.7:
            move(far, "dram", streams)
    for s in streams:
        room = rng.choice([1, 2, 2, 3, 5, 8, 30])
        files = [
            memory(f"{s}{f}", room * rng.choice([0.5, 1, 1, 1.3, 2])) for f in "abc"[: rng.choice([1, 3, 3])]
        ]
        for f in files:
            last = f == files[-1]
            loads = rng.random() < (0.7 if last and len(files) > 1 else 0.95)
            if loads:
                move(far if far and rng.random() < 0.5 else "dram", f, [s])
            if last or rng.random() < 0.4:
                if rng.random() < 0.95:
                    move(f, far if far and rng.random() < 0.4 else "dram", [s])
            for other in files:
                if other != f and rng.random() < 0.2:
                    move(f, other, [s])
        places = {}
        for k in kinds:
            operands = [o.split()[0] for o in MEANINGS[k][0]]
            first = {o: [files[n % len(files)]] for n, o in enumerate(operands)}
            if k in ("add_row", "relu", "add", "biased"):
                first = {o: [files[-1]] for o in operands}
            first[MEANINGS[k][1]] = [files[-1]]
            for where in first.values():
                where += [f for f in files if f not in where and rng.random() < 0.15]
            places[k] = first
        for base, more in (("matmul", "matmul_add"), ("matmul_t", "matmul_t_add")):
            if more in places and rng.random() < 0.9:
                places[more] = places[base]
        for n in range(rng.choice([1, 1, 2])):
            mine = {k: p for k, p in places.items() if rng.random() < 0.9}
            units.append({"name": f"{s}u{n}", "stream": s, "places": mine})
    for m in memories[1:]:
        only = [sum(w == [m["name"]] for w in p.values()) for u in units for p in u["places"].values()]  # type: ignore[attr-defined]
        if rng.random() < 0.5:
            m["uses"] = max([*only, rng.choice([1, 2, 3])])
    offered = {k for u in units for k in u["places"]}  # type: ignore[attr-defined]
    rows = [
        {"name": k, "semantics": semantics(k, sizes, fixed), "cycles": "5", "latency": "9"}
        for k in kinds
        if k in offered
    ]
    data = {"schema": "tilewright.machine", "version": 1, "name": "random", "home": "dram"}
    return parse_machine(
        json.dumps({**data, "memories": memories, "moves": moves, "instructions": rows, "units": units})
    )


def random_program(rng: random.Random) -> Program:
    """A program: a product, a layer, a convolution, element-wise work, products of products, sums of them."""

    def n(hi: int) -> int:
        return rng.randint(1, hi)

    kind = rng.randrange(8)
    if kind == 0:
        return gemm(n(20), n(20), n(20))
    if kind == 1:
        return layer(n(14), n(14), n(14), "f32", "f32")
    if kind == 2:
        return conv1d(n(4), 3 + n(12), n(9), n(9), n(3), "f32", "f32")
    if kind == 3:
        return conv2d(n(3), 3 + n(5), 3 + n(8), n(6), n(6), n(4), n(3), "f32", "f32")
    M, N, K, L = n(12), n(12), n(12), n(12)
    a, b = lang.placeholder((M, K), name="A"), lang.placeholder((K, N), name="B")
    k, inner = lang.reduce_axis(K, "k"), lang.reduce_axis(N, "n")
    zero = lang.const(0, "f32")
    if kind == 4:
        x, y = lang.placeholder((M, N), name="X"), lang.placeholder((M, N), name="Y")
        z = lang.compute((M, N), lambda i, j: lang.maximum(x[i, j] + y[i, j], zero), name="Z")
        return lang.program([x, y], [z])
    c = product(a, b, M, N, k, "f32", "C")
    if kind == 5:
        d = lang.compute((M, N), lambda i, j: lang.maximum(c[i, j], zero), name="D")
        return lang.program([a, b], [d] if rng.random() < 0.5 else [c, d])
    if kind == 6:
        w = lang.placeholder((N, L), name="W")
        return lang.program([a, b, w], [product(c, w, M, L, inner, "f32", "D")])
    d, e = lang.placeholder((M, K), name="D"), lang.placeholder((K, N), name="E")
    f = lang.compute((M, N), lambda i, j: lang.sum(a[i, k] * b[k, j] + d[i, k] * e[k, j], axis=k), name="F")
    return lang.program([a, b, d, e], [f])


def plain_exists(machine: SystemGraph, M: int, N: int, K: int) -> bool:
    """Whether some unit can be given one tile of each operand of a product, and give its result back."""
    return any(
        _alone(machine, unit, base, more, p, (M, N, K))
        for unit in machine.units.values()
        for base, more in (("matmul", "matmul_add"), ("matmul_t", "matmul_t_add"))
        if base in unit.places
        for p in placements(machine, unit, base)
    )


def _alone(machine, unit, base, more, p, shape) -> bool:
    bound = {x.name: x.hi for x in machine.instructions[base].semantics.params}
    if not bound:
        return False  # of fixed sizes: the rest of an axis would have to be padded
    size = {a: min(bound[a], n) for a, n in zip("mnk", shape, strict=True)}
    if size["k"] < shape[2] and any(p[o] not in unit.places.get(more, {}).get(o, ()) for o in "ABC"):
        return False
    turned = base == "matmul_t" and size["n"] > 1 and size["k"] > 1
    bytes_of = {
        "A": 4 * size["m"] * size["k"],
        "B": 4 * size["k"] * size["n"],
        "C": 4 * size["m"] * size["n"],
    }
    left = {m.name: m.bytes for m in machine.memories.values()}

    def padded(memory: str, n: int) -> int:
        align = machine.memories[memory].align
        return -(-n // align) * align

    for o, m in p.items():
        left[m] -= padded(m, bytes_of[o])
    if any(n < 0 for n in left.values()):
        return False

    def passes(source: str, target: str, o: str) -> bool:
        found = machine.paths(source, target, unit.stream)
        ends = [(path[0] if source == machine.home else path[-1]) for path in found]
        return any(
            (end.transposes or not (turned and o == "B"))
            and all(
                v.target != machine.home and padded(v.target, bytes_of[o]) <= left[v.target]
                for v in path[:-1]
            )
            for path, end in zip(found, ends, strict=True)
        )

    home = machine.home
    return passes(home, p["A"], "A") and passes(home, p["B"], "B") and passes(p["C"], home, "C")
