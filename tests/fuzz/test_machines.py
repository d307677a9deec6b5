"""Random machines run random programs right, or refuse them cleanly, whatever an approach answers.

``pytest tests/fuzz`` takes seconds. `python -m fuzz.test_machines FIRST COUNT`, from `tests`, runs as many as
one wants, three approaches each, and prints the seeds that fail, and what was refused how often.
"""

import random
import sys
import traceback
from collections import Counter

import pytest

from fuzz.machines import Dice, plain_exists, random_machine, random_program
from machine_programs import check
from tilewright.mapping.system import Heuristics, schedule
from tilewright.support import TargetError, UserError


class Worst:
    """The last of all options: the dearest, where they come in order."""

    def choose(self, kind, options, state):
        return len(options) - 1


APPROACHES = {"heuristics": lambda seed: Heuristics(), "dice": Dice, "worst": lambda seed: Worst()}


def outcome(seed, approach):
    """What becomes of a machine and a program: ``right``, or the words of the refusal."""
    rng = random.Random(seed)
    try:
        machine, program = random_machine(rng), random_program(rng)
    except TargetError as error:
        return f"no machine: {error.what}"
    try:
        streams = schedule(program, machine, APPROACHES[approach](seed))
    except UserError as error:
        if program.name == "gemm":
            (c,), (a, _) = program.outputs, program.inputs
            shape = *(x.as_int() for x in c.shape), a.shape[1].as_int()
            assert not plain_exists(machine, *shape), error
        return f"{type(error).__name__}: {error.what}"
    check(program, streams, machine, seed)
    return "right"


@pytest.mark.few(24)
@pytest.mark.parametrize("approach", APPROACHES)
@pytest.mark.parametrize("seed", range(20))
def test_right_or_refused(seed, approach):
    outcome(seed, approach)


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        for approach in APPROACHES:
            try:
                what = outcome(seed, approach)
            except Exception as error:  # noqa: BLE001  # every kind of failure is shown
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{at.filename.rpartition('/')[2]}:{at.lineno}"
                what = f"FAILED {type(error).__name__} {str(error)[:60]!r} {place}"
                print(seed, approach, what, flush=True)
            kind = what.partition(":")[0] if what.startswith("FAILED") else " ".join(what.split()[:9])
            found[kind] += 1
    for kind, n in found.most_common(60):
        print(f"{n:6} {kind}")
