"""Every rule's trees, of its default and of drawn plans: shown and read back, accepted, carried out."""

from random import Random

import pytest

from replay import corpus
from tilewright.cost import Machine
from tilewright.ir import verify as verify_function
from tilewright.plan import RULES, plan_unit, rewritten
from tilewright.support import ScheduleError
from tilewright.tiling import apply, parse, show, verify

CASES = (
    ("small:resnet18", "avx512"),
    ("small:mobilenet_v2", "avx2"),
    ("narrow:100x200x300 u8s8", "graniterapids"),
    ("narrow:37x16x64 bf16", "graniterapids"),
    ("image:40x9x24x1 u8s8", "znver5"),
    ("pipeline:unsharp", "avx512"),
)


@pytest.mark.parametrize(("source", "target"), CASES)
def test_trees_are_accepted_and_carried_out(source, target):
    tried = 0
    for program, threads, constants in corpus.programs(corpus.Case(source, target, 2)):
        machine = Machine(corpus.TARGETS[target], threads)
        plan = plan_unit(program, machine, constants).plan
        s, context = rewritten(program, plan, machine, constants)
        for nest in plan.nests:
            rule = RULES[nest.rule]
            if nest.rule == "fused":
                # it rewrites the program first
                continue
            problem = rule.match(context, nest.root, nest.stages)
            rng = Random(5)
            for drawn in dict.fromkeys([nest.plan, *(rule.space(problem).sample(rng) for _ in range(2))]):
                try:
                    nests = rule.trees(problem, drawn)
                except ScheduleError:
                    # a point of the space for which there is no tree, such as parts of no good size
                    continue
                if "inline" in getattr(drawn, "placements", ()):
                    continue
                assert tuple(x for one in nests for x in parse(show(one))) == nests
                verify(nests, context.program, machine.target.operations)
                verify_function(apply(s, nests).func)
                tried += 1
    assert tried
