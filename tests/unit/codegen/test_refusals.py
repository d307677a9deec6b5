"""The checking half of code generation: it passes exactly where emission does not refuse."""

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from tests.plans import asked, drawn as drawn_plan

from tilewright import lang
from tilewright.codegen import check, emit_kernel
from tilewright.codegen.statements import Emitter
from tilewright.cost import Machine
from tilewright.ir import PARALLEL, SERIAL, UNROLL, VECTOR, Exec, For, map_stmt
from tilewright.lang import ops
from tilewright.lower import lower
from tilewright.plan import EXACT, build_unit
from tilewright.strategies import Task
from tilewright.support import InternalError, ScheduleError, TargetError, UserError
from tilewright.target import find_target, x86_amx
from unit.schedule.loop.test_tensorize import grouped, product as bytes_product


def product(dtype="f32"):
    a, b = lang.placeholder((60, 96), dtype, name="A"), lang.placeholder((96, 70), dtype, name="B")
    return lang.program([a, b], [ops.matmul(a, b)])


def convolution():
    x, w = lang.placeholder((1, 16, 14, 14), name="X"), lang.placeholder((32, 16, 3, 3), name="W")
    return lang.program([x, w], [ops.conv(x, w, padding=1)])


def depthwise():
    x, w = lang.placeholder((1, 32, 14, 14), name="X"), lang.placeholder((32, 1, 3, 3), name="W")
    return lang.program([x, w], [ops.conv(x, w, groups=32)])


def min_plus():
    a, b = lang.placeholder((60, 30), name="A"), lang.placeholder((30, 70), name="B")
    k = lang.reduce_axis(30, "k")
    return lang.program([a, b], [lang.compute((60, 70), lambda i, j: lang.min(a[i, k] + b[k, j], k))])


def softmax():
    return lang.program([x := lang.placeholder((64, 300), name="X")], [ops.softmax(x)])


def transposed():
    x = lang.placeholder((60, 70), name="X")
    return lang.program([x], [lang.compute((70, 60), lambda i, j: x[j, i] + 1, name="Y")])


def chain():
    x = last = lang.placeholder((40, 70), name="X")
    for n in range(3):
        shape = (38 - 2 * n, 68 - 2 * n)
        last = lang.compute(shape, lambda i, j, P=last: P[i, j] * 0.5 + P[i + 2, j + 1], name=f"S{n}")
    return lang.program([x], [last])


PROGRAMS = {
    "product": product,
    "bytes": lambda: product("i8"),
    "convolution": convolution,
    "depthwise": depthwise,
    "min-plus": min_plus,
    "softmax": softmax,
    "transposed": transposed,
    "chain": chain,
}
AVX512 = find_target("x86_avx512")
TARGETS = {
    "avx512": AVX512,
    "amx": replace(
        AVX512,
        features=AVX512.features | {f for i in x86_amx.INSTRUCTIONS for f in i.features},
        instructions=(*x86_amx.INSTRUCTIONS, *AVX512.instructions),
        moves=x86_amx.MOVES,
        tiles=x86_amx.TILES,
    ),
    "neon": find_target("aarch64_neon"),
}


def verdict(act):
    """What an action refuses, in words; ``None`` where it does not."""
    try:
        act()
    except (ScheduleError, TargetError) as error:
        return type(error), str(error)
    except InternalError as error:
        return InternalError, str(error)
    return None


def refused(func, target):
    """What the check refuses of a function, after it was compared with what emission does."""
    bits, known = target.preferred_vector_bits, target.operations
    did = verdict(lambda: emit_kernel(func, triple=target.llvm_triple, vector_bits=bits, operations=known))
    said = verdict(lambda: check(func, target))
    if did is not None and did[0] is InternalError:
        # no function that a schedule makes: what the check says of it is of no meaning
        return None
    assert said == did
    return said


def drawn(task, count, seed):
    """Plans of the space around the default one; of a chain also of one nest."""
    rng = Random(seed)
    bases = [task.default().plan]
    if len(task.program.stages) == 3 and task.program.stages[0].name == "S0":
        *members, root = (stage.name for stage in task.program.stages)
        bases.append(asked("pipeline", root, members))
    for base in bases:
        for _ in range(count):
            with suppress(ScheduleError):
                yield drawn_plan(task.program, base, task.machine, rng)


def functions(name, target):
    """Lowered functions of plans that are drawn."""
    task = Task(PROGRAMS[name](), Machine(target, 2), accuracy=EXACT)
    for plan in drawn(task, 3, len(name)):
        try:
            s = build_unit(task.program, plan, task.machine)
        except UserError:
            continue
        yield lower(s.func, native=target.functions)


@pytest.mark.few(11)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_plan_of_a_space_is_refused(name, target):
    made = [refused(func, TARGETS[target]) for func in functions(name, TARGETS[target])]
    assert made
    assert set(made) == {None}


def test_instructions_are_those_of_the_target():
    """A row that no table of this project has."""
    row = replace(AVX512.instruction("vpdpbusd"), name="bytes")
    target = replace(AVX512, instructions=(row,))
    func = lower(grouped(bytes_product(1, 16, 8, "vpdpbusd"), "vpdpbusd").tensorize("k_i", "vpdpbusd").func)

    def renamed(s):
        return replace(s, instr="bytes") if isinstance(s, Exec) else s

    func = replace(func, body=map_stmt(func.body, renamed))
    assert refused(func, target) is None
    assert "no instruction 'bytes'" in refused(func, AVX512)[1]


def with_other_loops(func, rng):
    """A function with the kind of some loops drawn anew: what a schedule would rightly be refused for."""

    def other(s):
        if isinstance(s, For) and rng.random() < 0.3:
            return replace(s, kind=rng.choice((SERIAL, VECTOR, UNROLL, PARALLEL)))
        return s

    return replace(func, body=map_stmt(func.body, other))


@pytest.mark.few(2)
@pytest.mark.parametrize("target", ["avx512", "amx", "neon"])
def test_what_is_refused_is_what_emission_refuses(target):
    rng, seen = Random(7), {}
    for name in PROGRAMS:
        for func in functions(name, TARGETS[target]):
            for _ in range(4):
                said = refused(with_other_loops(func, rng), TARGETS[target])
                seen[said and said[1].split()[0]] = said
    assert len(seen) >= 3, seen


def test_of_expanded_loops_two_copies_are_visited(monkeypatch):
    """Else the check would cost what emission costs."""
    target, visits = TARGETS["avx512"], []
    s = Task(PROGRAMS["product"](), Machine(target, 1)).default().schedule
    func = lower(s.func, native=target.functions)
    stored = Emitter.store
    monkeypatch.setattr(Emitter, "store", lambda self, s: (visits.append(s), stored(self, s))[1])
    assert refused(func, target) is None
    check(func, target)
    both = len(visits)
    visits.clear()
    check(func, target)
    assert len(visits) * 5 < both
