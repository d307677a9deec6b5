"""Schedules made of steps that nobody filters: any primitive, any names, any arguments of the right type.

Proposers that repeat the conditions of primitives never ask for what must be refused, so a primitive that
permits too much goes unseen. Here every accepted step is judged: by the exact checker at once, by the
interpreter at the end. Functions with threads are judged with the barriers that lowering places, and with
private buffers shrunk.

    python tests/property/unfiltered.py --gpu 900 --seed 0
    python tests/property/unfiltered.py --cpu 900 --seed 0

judge that many accepted schedules and print what was accepted and refused, primitive by primitive; the first
fails where one of those for blocks of threads was never accepted, or never refused.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np

from tilewright import lang
from tilewright.ir import Barrier, ExecutionError, For, locate, run_function, run_program
from tilewright.lower import insert_barriers, shrink_private
from tilewright.poly import check_legal, list_function
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

SIZES = (1, 2, 3, 4, 5, 6, 7)
AXES = ("block.x", "block.y", "thread.x", "thread.y", "thread.warp", "thread.lane")
SCOPES = ("global", "local", "register", "shared")
TAILS = ("guard", "peel", "mask", "shift", "roundup")

#: How often a primitive is proposed, for CPUs and for GPUs.
CPU = {
    "split": 4, "reorder": 4, "fuse": 3, "partition": 2, "peel": 2, "parallel": 6, "vectorize": 4,
    "unroll": 1, "decompose_init": 2, "set_scope": 2, "compute_at": 4, "reverse_compute_at": 3, "cache": 4,
    "hoist_alloc": 2, "slide": 2, "roll": 2, "inline": 1,
}  # fmt: skip
STORAGE = {
    "compute_at": 8, "cache": 5, "hoist_alloc": 2, "parallel": 8, "vectorize": 3, "split": 3, "reorder": 2,
    "reverse_compute_at": 4, "partition": 1,
}  # fmt: skip
GPU = (
    CPU
    | dict.fromkeys(("cooperative_copy", "pipeline", "pad_stride", "swizzle", "virtual_threads"), 2)
    | {"bind": 24, "set_scope": 6, "cache": 10, "split": 8, "parallel": 1, "vectorize": 2}
)
ON_THREADS = {"cooperative_copy": 4, "pipeline": 6, "pad_stride": 2, "swizzle": 3, "virtual_threads": 3}
THREADS = ON_THREADS | {
    "cache": 9,
    "set_scope": 6,
    "bind": 14,
    "split": 6,
    "reorder": 3,
    "compute_at": 5,
    "partition": 1,
}
#: What blocks of threads are made by: a run of many schedules accepts and refuses each of these.
OF_BLOCKS = (*ON_THREADS, "bind", "cache", "compute_at", "reorder", "set_scope", "split")
#: Every random schedule draws from one of these.
MOODS = {"cpu": (CPU, STORAGE), "gpu": (GPU, THREADS)}


class Wrong(AssertionError):
    """An accepted schedule that does not do what its program does."""


# ---- programs ----


def _inputs(*shapes):
    return [lang.placeholder(shape, name="XYZ"[n]) for n, shape in enumerate(shapes)]


def pointwise(a, b, _):
    (x,) = _inputs((a, b))
    return lang.program([x], [lang.compute((a, b), lambda i, j: x[i, j] * 2, name="S")])


def chain(a, b, _):
    (x,) = _inputs((a, b))
    s = lang.compute((a, b), lambda i, j: x[i, j] + 1, name="S")
    return lang.program([x], [lang.compute((a, b), lambda i, j: s[i, j] * x[i, j], name="T")])


def transposed(a, b, _):
    (x,) = _inputs((a, b))
    s = lang.compute((b, a), lambda i, j: x[j, i] * 2, name="S")
    return lang.program([x], [lang.compute((a, b), lambda i, j: s[j, i] + 1, name="T")])


def reversed_(a, b, _):
    (x,) = _inputs((a, b))
    s = lang.compute((a, b), lambda i, j: x[i, j] + 1, name="S")
    return lang.program([x], [lang.compute((a, b), lambda i, j: s[i, j] + s[a - 1 - i, j], name="T")])


def window(a, b, c):
    (x,) = _inputs((a + c,))
    s = lang.compute((a + c,), lambda i: x[i] * 2, name="S")
    return lang.program([x], [lang.compute((a,), lambda i: s[i] + s[i + 1] * s[i + c], name="T")])


def rows(a, b, _):
    (x,) = _inputs((a, b))
    k = lang.reduce_axis(b, "k")
    s = lang.compute((a,), lambda i: lang.sum(x[i, k], axis=k), name="S")
    return lang.program([x], [lang.compute((a, b), lambda i, j: x[i, j] - s[i], name="T")])


def columns(a, b, _):
    (x,) = _inputs((a, b))
    k = lang.reduce_axis(a, "k")
    return lang.program([x], [lang.compute((b,), lambda j: lang.sum(x[k, j], axis=k), name="S")])


def matmul(a, b, c):
    x, y = _inputs((a, c), (c, b))
    k = lang.reduce_axis(c, "k")
    s = lang.compute((a, b), lambda i, j: lang.sum(x[i, k] * y[k, j], axis=k), name="S")
    return lang.program([x, y], [lang.compute((a, b), lambda i, j: s[i, j] + 1, name="T")])


def convolution(a, _, c):
    x, y = _inputs((a + c,), (c,))
    k = lang.reduce_axis(c, "k")
    return lang.program(
        [x, y], [lang.compute((a + 1,), lambda i: lang.sum(x[i + k] * y[k], axis=k), name="S")]
    )


def scan(a, b, _):
    (x,) = _inputs((a, b))
    s = lang.scan((a, b), lambda y, i, t: lang.select(t == 0, 0.0, y[i, t - 1]) + x[i, t], axis=1, name="S")
    return lang.program([x], [lang.compute((a, b), lambda i, j: s[i, j] * 2, name="T")])


PROGRAMS = (pointwise, chain, transposed, reversed_, window, rows, columns, matmul, convolution, scan)


def data_of(program):
    """Arguments that hold small integers, so that no order of sums changes a result."""
    rng = np.random.default_rng(0)
    return {
        b.name: rng.integers(-3, 4, [n.as_int() for n in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }


# ---- proposals ----


def axis(rng, s):
    """An axis; of threads, mostly, where there are blocks."""
    return rng.choice(AXES[2:] if is_gpu(s.func) and rng.random() < 0.8 else AXES)


def arguments(rng: Random, name, s):
    """Arguments for a primitive: names of what there is, numbers; nothing is asked of them."""
    loops, blocks, buffers = list(s.loops()), list(s.blocks()), list(s.buffers())
    if not loops:
        return None
    loop, block, buffer = rng.choice(loops), rng.choice(blocks), rng.choice(buffers)
    around = list(s.loops(block)) or loops
    match name:
        case "split":
            return (loop, rng.choice(SIZES)), {"tail": rng.choice(TAILS)}
        case "reorder":
            return tuple(rng.sample(around, min(len(around), rng.choice((2, 2, 3, 4))))), {}
        case "fuse":
            n = rng.randrange(len(around))
            return (around[n], around[(n + 1) % len(around)]), {}
        case "partition":
            return (loop, rng.choice((*SIZES, -1, -2))), {}
        case "peel":
            return (loop, rng.choice(("first", "last"))), {}
        case "parallel" | "vectorize" | "unroll":
            return (loop,), {}
        case "bind":
            if rng.random() < 0.4:
                # what stands as deep in every nest
                depth = rng.choice((0, 1, 1, 2))
                nests = [s.loops(b) for b in blocks]
                return (tuple(dict.fromkeys(n[depth] for n in nests if len(n) > depth)), axis(rng, s)), {}
            return (tuple(rng.sample(loops, min(len(loops), rng.choice((1, 1, 2, 3))))), axis(rng, s)), {}
        case "compute_at" | "reverse_compute_at":
            return (block, rng.choice(loops)), {"keep_storage": rng.choice((False, False, True))}
        case "decompose_init" | "slide":
            return (block, rng.choice(around)), {}
        case "set_scope":
            return (buffer, rng.choice(SCOPES)), {}
        case "cache":
            mode = rng.choice(("read", "read", "write", "accumulate"))
            at = rng.choice((None, *loops, *[s.loops(b)[0] for b in blocks if s.loops(b)]))
            return (buffer, at), {"scope": rng.choice((*SCOPES, "shared")), "mode": mode}
        case "hoist_alloc":
            return (buffer, rng.choice((None, *loops))), {}
        case "roll":
            return (buffer, rng.choice((0, 1)), rng.choice(SIZES)), {}
        case "inline":
            return (block,), {}
        case "cooperative_copy":
            count = rng.choice(((2,), (3,), (2, 2), (1, 4)))
            return (block, count), {"vector": rng.choice((1, 1, 2))}
        case "pipeline":
            return (loop, rng.choice((2, 3))), {}
        case "pad_stride":
            return (buffer, rng.choice((1, 2))), {}
        case "swizzle":
            return (buffer, rng.choice((2, 4))), {"vector": rng.choice((1, 2)), "rows": rng.choice((1, 2))}
        case "virtual_threads":
            chosen = tuple(rng.sample(loops, min(len(loops), rng.choice((1, 1, 2)))))
            return (chosen, rng.choice(AXES), rng.choice((1, 2, 3))), {}
    raise AssertionError(name)


# ---- judging ----


@dataclass
class Judged:
    """One random schedule, judged step by step."""

    seed: int
    kind: str
    counts: Counter

    def __post_init__(self):
        rng = self.rng = Random(f"{self.kind} {self.seed}")
        make = rng.choice(PROGRAMS)
        self.program = make(*(rng.choice(SIZES[1:]) for _ in range(3)))
        self.schedule = Schedule(self.program, verify=True)
        self.reference = list_function(self.schedule.func)
        self.arrays = data_of(self.program)
        self.expected = run_program(self.program, self.arrays)

    def run(self, steps=14):
        """Propose, judge; raises :class:`Wrong`."""
        table = self.rng.choice(MOODS[self.kind])
        if table is THREADS:
            # blocks first, so that what follows is about their threads
            for loops in dict.fromkeys(self.schedule.loops(b)[:1] for b in self.schedule.blocks()):
                self.propose("bind", (loops, "block.x"), {})
                for scope, mode in self.rng.sample((("shared", "read"), ("register", "accumulate")), 1):
                    buffer = self.rng.choice(list(self.schedule.buffers()))
                    self.propose("cache", (buffer, *loops), {"scope": scope, "mode": mode})
            deepest = max((self.schedule.loops(b) for b in self.schedule.blocks()), key=len)
            if len(deepest) > 1:
                # tiles that a loop inside of a block fills anew
                loop, buffer = self.rng.choice(deepest[1:]), self.rng.choice(list(self.schedule.buffers()))
                self.propose("cache", (buffer, loop), {"scope": "shared", "mode": "read"})
                self.propose("pipeline", (loop, self.rng.choice((2, 3))), {})
        for _ in range(steps):
            name = self.rng.choices(list(table), list(table.values()))[0]
            proposal = arguments(self.rng, name, self.schedule)
            if proposal is not None:
                self.propose(name, *proposal)
        self.interpret(range(3))
        return self.schedule

    def propose(self, name, args, kwargs):
        """One step: counted, and judged where it is accepted."""
        self.counts["proposed"] += 1
        try:
            new = self.schedule.apply(name, *args, **kwargs)
        except ScheduleError:
            self.counts["refused " + name] += 1
            return
        try:
            func = prepared(new.func)
        except ScheduleError:
            # no barrier can order what the threads do: seen when lowering, with an error of its own
            self.counts["unordered " + name] += 1
            return
        self.counts["accepted"] += 1
        self.counts["accepted " + name] += 1
        before, self.schedule = self.schedule, new
        if is_gpu(new.func):
            self.counts["gpu"] += 1
            self.counts["with_barriers"] += any(True for _ in locate(func.body, Barrier))
            self.counts["with_shares"] += func.body.allocated != new.func.body.allocated
        if name == "inline":
            self.interpret(range(1))
            self.reference = list_function(func)
            return
        found = check_legal(self.reference, func)
        if found:
            raise Wrong(f"seed {self.seed}: {new.trace}{before}\n{new}\n" + "\n".join(map(str, found)))

    def interpret(self, orders):
        """Run the function as it stands on data, in several orders."""
        func = prepared(self.schedule.func)
        for order in orders:
            try:
                actual = run_function(func, self.arrays, seed=order)
                for name, want in self.expected.items():
                    np.testing.assert_array_equal(actual[name], want)
            except (ExecutionError, AssertionError) as error:
                raise Wrong(f"seed {self.seed}: {self.schedule.trace}{self.schedule}\n{error}") from error


def prepared(func):
    """A function as the judges see it."""
    return shrink_private(insert_barriers(func))


def is_gpu(func):
    """Whether some loop is on a hardware axis."""
    return any(p.node.kind.name == "thread" for p in locate(func.body, For))


def fuzz(kind, seeds, wanted=None):
    """Judge the schedules of these seeds, until so many accepted ones were judged; the counts."""
    counts = Counter()
    for seed in seeds:
        Judged(seed, kind, counts).run()
        counts["cases"] += 1
        if wanted is not None and counts["gpu" if kind == "gpu" else "accepted"] >= wanted:
            break
    return counts


def missing(counts):
    """Those of the primitives for blocks that were never accepted, or never refused."""
    return [f"{what} {name}" for name in OF_BLOCKS for what in ("accepted", "refused")
            if not counts[f"{what} {name}"]]  # fmt: skip


def table(counts):
    """What was accepted and refused, primitive by primitive."""
    names = sorted({k.split(" ", 1)[1] for k in counts if " " in k})
    lines = [f"{'primitive':<20} {'accepted':>8} {'refused':>8} {'unordered':>9}"]
    for n in names:
        lines.append(
            f"{n:<20} " + " ".join(f"{counts[f'{w} {n}']:>8}" for w in ("accepted", "refused", "unordered"))
        )
    total = {k: n for k, n in counts.items() if " " not in k}
    return "\n".join([*lines, ", ".join(f"{n} {k}" for k, n in sorted(total.items()))])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", type=int, default=0, help="accepted schedules with hardware axes to judge")
    parser.add_argument("--cpu", type=int, default=0, help="accepted schedules without them to judge")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    lacking = []
    for kind in ("gpu", "cpu"):
        wanted = getattr(given, kind)
        if wanted:
            counts = fuzz(kind, range(given.seed, given.seed + 10**6), wanted)
            sys.stdout.write(f"{kind}\n{table(counts)}\n")
            lacking += missing(counts) if kind == "gpu" else []
    return f"never: {', '.join(lacking)}" if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
