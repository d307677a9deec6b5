"""The fuzzer of pipelines x schedules: random programs, scheduled in random ways, must give what they mean.

    python tests/property/pipelines.py --pairs 2000          # prints how many there were, of which kinds
    python tests/property/pipelines.py --replay 1234         # one seed again: its program, plans, schedules

A seed makes one program and, for it, a plan of random groups and random states of the beam search for a CPU
and for a GPU, and a plan with producers inside of others' loops, each one pair. A pair is right where no
step is refused, the verifier has nothing to say and the interpreter gives the program's results, bit for
bit (integers). Seeds that were wrong once are kept in ``FOUND``.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.random_pipelines import random_program, random_unit

from tilewright.cost import Machine
from tilewright.ir import run_function, run_program, verify
from tilewright.lower import insert_barriers
from tilewright.plan import build_unit, graph_of
from tilewright.strategies.beam.emit import to_plan
from tilewright.strategies.beam.options import places, room_of, tilings
from tilewright.strategies.beam.state import start
from tilewright.support import TilewrightError
from tilewright.target import A100, X86_AVX512

#: Seeds that were wrong once.
FOUND = (376, 596)
MACHINE, DEVICE = Machine(X86_AVX512, 2), Machine(A100, 1)
PAIRS = ("groups", "beam", "gpu", "loops")
STAGES = 6


class WrongError(Exception):
    """A pair that is not right; the text says why."""


def random_state(rng, graph, machine=MACHINE):
    """Any complete state that the beam search could come to."""
    room = room_of(machine)
    state = start(graph)
    for node in graph.order:
        options = list(places(graph, state, node, room=room))
        fused = [o for o in options if o.places[node] not in ("own", "inline")]
        state = rng.choice(fused if fused and rng.random() < 0.7 else options)
        if state.places[node] == "own":
            state = state.tiled(node, rng.choice(tilings(graph, node, machine)))
    return state


def schedules(seed):
    """The program of a seed, and its schedules by their kinds."""
    rng = Random(seed)
    program = random_program(rng, STAGES)
    unit = random_unit(rng, program, MACHINE)
    # numbers that are no options of a space are plans still
    with mock.patch("tilewright.plan.space.Space.check", lambda *given: None):
        made = {"groups": build_unit(program, unit, MACHINE)}
        graph = graph_of(program)
        made["beam"] = to_plan(graph, random_state(rng, graph), MACHINE).schedule
        made["gpu"] = to_plan(graph, random_state(rng, graph, DEVICE), DEVICE).schedule
        made["loops"] = build_unit(program, random_unit(rng, program, MACHINE, loops=True), MACHINE)
    return program, made


def judge(seed):
    """Judge the pairs of a seed; how many there were of each kind. Raises WrongError."""
    program, made = schedules(seed)
    shape = [n.as_int() for n in program.inputs[0].shape]
    x = np.random.default_rng(seed).integers(-9, 9, shape, dtype=np.int32)
    wanted = run_program(program, {"X": x})
    counts = Counter()
    for kind, s in made.items():
        if s.notes:
            raise WrongError(f"seed {seed}, {kind}: {s.notes}")
        func = insert_barriers(s.func)
        verify(func)
        results = run_function(func, {"X": x}, seed=seed)
        for name, value in wanted.items():
            if not np.array_equal(results[name], value):
                raise WrongError(f"seed {seed}, {kind}: {name} is another one\n{s.trace}{s}")
        counts[kind] += 1
        counts.update(primitive for primitive in {step.primitive for step in s.trace.steps})
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2000, help="pairs to judge, at least")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show and judge the pairs of one seed")
    given = parser.parse_args()
    if given.replay is not None:
        program, made = schedules(given.replay)
        sys.stdout.write(f"{program}\n" + "".join(f"# {kind}\n{s.trace}{s}\n" for kind, s in made.items()))
        judge(given.replay)
        return 0
    counts, wrong, seed = Counter(), [], given.seed
    while sum(counts[kind] for kind in PAIRS) + len(PAIRS) * len(wrong) < given.pairs:
        try:
            counts += judge(seed)
        except (WrongError, TilewrightError, AssertionError, ArithmeticError, LookupError) as error:
            wrong.append(seed)
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        seed += 1
    pairs = {kind: counts.pop(kind) for kind in PAIRS}
    told = {"pairs": sum(pairs.values()), **pairs, "seeds": [given.seed, seed], "wrong": wrong}
    sys.stdout.write(json.dumps({**told, "primitives": dict(sorted(counts.items()))}) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
