"""Programs on managed machines: what the streams compute, and how long they are."""

import pytest

from machine_programs import (
    MATMUL,
    RULES,
    arrays_of,
    check,
    conv1d,
    conv2d,
    gemm,
    layer,
    machine_of,
    product,
    small,
)
from tilewright import lang
from tilewright.ir import Program
from tilewright.mapping.system import Heuristics, cover, execute, load_machine, schedule, time_streams
from tilewright.mapping.system.stream import Repeat, walk
from unit.mapping.kernels import separable


@pytest.fixture(scope="module", params=sorted(RULES))
def shipped(request):
    return load_machine(request.param), *RULES[request.param]


def test_products(shipped):
    machine, narrow, wide, e = shipped
    shapes = (e, e, e), (e, e, 4 * e), (2 * e + 3, 3 * e + 5, 3 * e + 1), (3 * e, 1, e + 2), (1, e, 1)
    for shape in shapes:
        program = gemm(*shape, narrow, wide)
        check(program, schedule(program, machine), machine)


def test_a_product_with_bias_and_activation_is_one_nest(shipped):
    machine, narrow, wide, e = shipped
    program = layer(e + 3, 2 * e + 5, 2 * e + 1, narrow, wide)
    streams = schedule(program, machine)
    check(program, streams, machine)
    named = {ref.tensor for i in walk(streams.streams[machine.streams[0]]) for ref in _boxes(i)}
    assert named <= {"A", "B", "bias", "D"}, "intermediate results do not leave the chip"


def _boxes(item):
    ends = [getattr(item, "source", None), getattr(item, "target", None)]
    return [ref for ref in ends if hasattr(ref, "tensor")]


def test_convolutions(shipped):
    machine, narrow, wide, e = shipped
    for program in (
        conv1d(3, e + 5, e, e, 3, narrow, wide),
        conv2d(1, 4, e + 3, e, e + 5, 3, 1, narrow, wide),
        conv2d(2, 7, 9, e + 1, e, 3, 2, narrow, wide),
    ):
        check(program, schedule(program, machine), machine)


def test_programs_that_no_instruction_does_are_transformed():
    """Listing 3: what the mapper misses is told to the transformations; the fewest executions are taken."""

    class First(Heuristics):
        """The first program that instructions do."""

        def __init__(self):
            self.kinds = {}

        def choose(self, kind, options, state):
            self.kinds[kind] = max(len(options), self.kinds.get(kind, 0))
            return 0 if kind == "program" else super().choose(kind, options, state)

    machine, program, approach = machine_of(small(file=4096)), separable(1, 8, 3, 16, 2, 16, 1), First()
    best = check(program, schedule(program, machine), machine)
    first = check(program, schedule(program, machine, approach), machine)
    assert approach.kinds["transformation"] > 1 and approach.kinds["program"] > 1
    assert best.cycles < first.cycles


TERMS = {
    "two products": lambda a, b, d, e: a * b + d * e,
    "a factor in common": lambda a, b, d, e: (a + d) * b,
    "a factor that is a sum, twice": lambda a, b, d, e: (a + d) * (b + e),
    "a scaled product": lambda a, b, d, e: a * b * 2,
}


@pytest.mark.parametrize("name", TERMS)
def test_sums_of_products_are_distributed_and_factored(name):
    """By an instruction that adds to a result, or by one that adds up results, as the machine has them."""
    a, b, d, e = (lang.placeholder((9, 9), name=n) for n in "ABDE")
    k = lang.reduce_axis(9, "k")

    def value(i, j):
        return lang.sum(TERMS[name](a[i, k], b[k, j], d[i, k], e[k, j]), axis=k)

    program = lang.program([a, b, d, e], [lang.compute((9, 9), value, name="F")])
    data = small(file=4096)
    for i, text in (("add", "X[i, j] + Y[i, j]"), ("twice", "X[i, j] * f32(2.0)")):
        inputs = [f"{o} = input(f32[m, n])" for o in ("XY" if i == "add" else "X")]
        head = [f'program("{i}")', *MATMUL[1:3], *inputs, "Z = output(f32[m, n])", *MATMUL[7:10]]
        lines = [line.replace('stage("C")', 'stage("Z")') for line in (*head, f"    Z[i, j] = {text}")]
        data["instructions"].append({"name": i, "semantics": lines, "cycles": "m"})
        for u in data["units"]:
            u["places"][i] = {o: ["c"] for o in (*("XY" if i == "add" else "X"), "Z")}
    data["memories"][3]["uses"] = 3
    machine = machine_of(data)
    steps, selection = cover(program, machine, Heuristics())
    assert steps.trace.steps and not selection.uncovered
    check(program, schedule(program, machine), machine)


def test_normalisation_after_a_convolution_is_computed_with_it():
    """Scaled, shifted and cut off tile by tile, and stage by stage through the home memory."""
    machine, (h, w, n) = load_machine("davinci"), (4, 20, 16)
    x, f = lang.placeholder((h, w, n), "f16", name="X"), lang.placeholder((n, n), "f16", name="W")
    scale, shift = (lang.placeholder((n,), name=name) for name in ("scale", "shift"))
    k, zero = lang.reduce_axis(n, "k"), lang.const(0, "f32")

    def conv(i, j, o):
        return lang.sum(lang.cast(x[i, j, k], "f32") * lang.cast(f[k, o], "f32"), axis=k)

    c = lang.compute((h, w, n), conv, name="C")
    y = lang.compute((h, w, n), lambda i, j, o: c[i, j, o] * scale[o] + shift[o], name="Y")
    z = lang.compute((h, w, n), lambda i, j, o: lang.maximum(y[i, j, o], zero), name="Z")
    whole = lang.program([x, f, scale, shift], [z])
    together = check(whole, schedule(whole, machine), machine).cycles
    apart = 0
    for stage in whole.stages:
        inputs = tuple(b for b in whole.buffers if b.name in stage.reads)
        part = Program(stage.name, (), inputs, (whole.buffer(stage.writes[0]),), (), (stage,))
        apart += check(part, schedule(part, machine), machine).cycles
    assert together * 1.5 < apart


def test_moves_take_elements_that_lie_apart():
    """A strided convolution goes along an image's rows; where no move can, it does not."""
    program = conv2d(1, 9, 33, 8, 8, 1, 2, "f32", "f32")
    data = small(file=4096)
    slow = check(program, schedule(program, machine_of(data)), machine_of(data))
    for m in data["moves"]:
        m["strides"] = True
    machine = machine_of(data)
    streams = schedule(program, machine)
    assert check(program, streams, machine).cycles < slow.cycles / 2
    assert any(ref.steps for i in walk(streams.streams["s"]) for ref in _boxes(i))


@pytest.mark.parametrize("file", [192, 256, 512, 4096])
def test_register_files_of_any_size(file):
    """From one tile of each operand and one to be fetched upwards."""
    machine = machine_of(small(file=file))
    for shape in ((4, 4, 4), (13, 10, 9), (32, 4, 40), (5, 30, 3)):
        program = gemm(*shape)
        check(program, schedule(program, machine), machine)


def test_streams_that_divide_an_axis_have_equal_tiles():
    machine, program = load_machine("clusters"), gemm(35, 700, 64, "bf16", "f32")
    streams = schedule(program, machine)
    check(program, streams, machine)
    sizes = {dict(i.sizes)["n"] for s in streams.streams.values() for i in walk(s) if hasattr(i, "sizes")}
    assert sizes == {59, 700 - 11 * 59}


def test_streams_do_not_grow_with_the_program():
    machine = machine_of(small())
    sizes = {n: schedule(gemm(n, n, n), machine).size for n in (160, 1600)}
    assert sizes[160] == sizes[1600]


def test_both_units_work():
    machine = machine_of(small(file=65536))
    timing = time_streams(schedule(gemm(64, 64, 64), machine), machine)
    assert timing.busy["u0"] == timing.busy["u1"]


def test_every_choice_is_the_approachs():
    """Another approach gives other streams, and they are as right."""

    class Last(Heuristics):
        def __init__(self):
            self.kinds = set()

        def choose(self, kind, options, state):
            self.kinds.add(kind)
            return len(options) - 1 if kind in ("operands", "device", "path", "evict", "mapping") else 0

    machine, approach = load_machine("clusters"), Last()
    program = gemm(130, 200, 150, "bf16", "f32")
    streams = schedule(program, machine, approach)
    assert streams != schedule(program, machine)
    check(program, streams, machine)
    assert {"mapping", "blocks", "split", "device", "operands", "path", "resident"} <= approach.kinds


def test_stages_that_do_not_share_tiles_meet_in_the_home_memory():
    """A product of a product: all streams wait for each other in between."""
    a, b = lang.placeholder((130, 70), "bf16", name="A"), lang.placeholder((70, 90), "bf16", name="B")
    c = lang.placeholder((90, 40), "bf16", name="C")
    d = product(a, b, 130, 90, lang.reduce_axis(70, "k"), "f32", "D")
    e = lang.compute((130, 90), lambda i, j: lang.cast(d[i, j], "bf16"), name="E")
    f = product(e, c, 130, 40, lang.reduce_axis(90, "n"), "f32", "F")
    program, machine = lang.program([a, b, c], [f], name="two"), load_machine("clusters")
    streams = schedule(program, machine)
    arrays = arrays_of(program, low=0, high=2)  # sums that bf16 holds
    made = execute(streams, machine, arrays)
    assert (made["F"] == lang.evaluate(program, arrays)["F"]).all()
    assert len(streams.streams) == 4


def test_loops_are_primed_and_finished():
    machine = machine_of(small())
    (items,) = schedule(gemm(4, 4, 40), machine).streams.values()
    (loop,) = [i for i in items if isinstance(i, Repeat)]
    before, after = items[: items.index(loop)], items[items.index(loop) + 1 :]
    assert [i.instruction for i in before if hasattr(i, "instruction")] == ["matmul"]
    assert [i.instruction for i in after if hasattr(i, "instruction")] == ["matmul_add"]
    assert "(k + 1)%" in str(loop.body[0].target.offset), "fetched an iteration ahead"
