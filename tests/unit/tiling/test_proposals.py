"""Every rule's trees, of the default and of drawn plans: shown, read back, accepted, carried out, priced."""

from random import Random

import pytest

from replay import corpus
from tilewright.cost import Loop, LoopTree, Machine, seconds, tree_of
from tilewright.ir import verify as verify_function
from tilewright.plan import RULES, plan_unit, rewritten
from tilewright.support import ScheduleError
from tilewright.tiling import Leaf, Place, Prices, apply, parse, show, verify
from tilewright.tiling.walk import bodies

CASES = (
    ("small:resnet18", "avx512"),
    ("small:mobilenet_v2", "avx2"),
    ("narrow:100x200x300 u8s8", "graniterapids"),
    ("narrow:37x16x64 bf16", "graniterapids"),
    ("image:40x9x24x1 u8s8", "znver5"),
    ("pipeline:unsharp", "avx512"),
)
DEVICES = (
    ("small:resnet18", "a100"),
    ("attention:2x64x64x32", "h200"),
    ("pipeline:harris", "pocl"),
    ("narrow:100x200x300 bf16", "a100"),
)


@pytest.mark.few(3)
@pytest.mark.parametrize(("source", "target"), CASES)
def test_trees_are_accepted_and_carried_out(source, target):
    tried = equal = 0
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
            for drawn in dict.fromkeys([nest.choice, *(rule.space(problem).sample(rng) for _ in range(2))]):
                try:
                    nests = rule.trees(problem, drawn)
                except ScheduleError:
                    # a point of the space for which there is no tree, such as parts of no good size
                    continue
                if "inline" in getattr(drawn, "placements", ()):
                    continue
                assert tuple(x for one in nests for x in parse(show(one))) == nests
                verify(nests, context.program, machine.target.operations)
                func = apply(s, nests).func
                verify_function(func)
                tried += 1
                loops = Prices(context.program, machine.target.operations).loops(nests)
                assert loops is not None
                wanted = LoopTree(of_nests(tree_of(func, machine.target.operations).nests, nests))
                assert seconds(loops, machine) == pytest.approx(seconds(wanted, machine), rel=0.3)
                equal += loops.canonical() == wanted.canonical()
    assert tried
    # borders that some parts decide, and rolling buffers, are counted as if they were whole
    assert equal >= 0.6 * tried, f"{equal} of {tried}"


@pytest.mark.few(2)
@pytest.mark.parametrize(("source", "target"), DEVICES)
def test_trees_of_devices_are_accepted_and_carried_out(source, target):
    rules = set()
    for program, threads, constants in corpus.programs(corpus.Case(source, target, 2)):
        machine = Machine(corpus.TARGETS[target], threads)
        plan = plan_unit(program, machine, constants).plan
        s, context = rewritten(program, plan, machine, constants)
        for nest in plan.nests:
            rule = RULES[nest.rule]
            problem = rule.match(context, nest.root, nest.stages)
            space, rng = rule.space(problem), Random(5)
            for drawn in dict.fromkeys([nest.choice, *(space.sample(rng) for _ in range(2))]):
                if "inline" in getattr(drawn, "placements", ()):
                    continue
                nests = rule.trees(problem, drawn)
                assert tuple(x for one in nests for x in parse(show(one))) == nests
                verify(nests, context.program, machine.on.operations)
                verify_function(apply(s, nests).func)
                rules.add(nest.rule)
    assert rules


def of_nests(nodes, nests):
    """The nodes of a function in which something of these nests is computed."""
    names = {
        b.stage if isinstance(b, Leaf) else b.value
        for n in nests
        for b in bodies(n.body)
        if isinstance(b, Leaf | Place)
    }

    def inside(node):
        if isinstance(node, Loop):
            return any(map(inside, node.body))
        return any(node.name == name or node.name.startswith(f"{name}_") for name in names)

    return tuple(filter(inside, nodes))
