"""Contractions in bands of rows: right at all sizes and places of borders, and chosen where it pays."""

import re
from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import blocked, check, constant, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import F32
from tilewright.lang import ops
from tilewright.plan.fused import bands, nests as chain_nests
from tilewright.plan.fused.bands import Band, choose_band
from tilewright.plan.fused.chain import find_chain
from tilewright.plan.fused.nests import prepare_bands
from tilewright.plan.graph.layouts import Block, Flow, assign_layouts
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule, with_layout
from tilewright.strategies import default_schedule
from tilewright.support import ScheduleError

LANES = STATED.lanes(F32)


def is_fused(s):
    """Whether several contractions share their outermost loop."""
    around = {}
    for name in s.blocks():
        if any(it.kind == "red" for it in s.block(name).iters):
            around.setdefault(s.loops(name)[0], set()).add(s.block(name).stage)
    return any(len(stages) > 1 for stages in around.values())


def stage(x, i, *shape, low=True, residual=None, stride=1, dilation=1, pad=0):
    """A convolution as models have it (by channel where the weights have one), its bias, cut at 0 and 6.

    Instead of the cut a value may be added. Returns what it reads besides ``x`` as well.
    """
    w, b = t(*shape, name=f"W{i}"), t(shape[0], name=f"B{i}")
    sizes = [e.index.as_int() for e in x.shape]
    c = [lang.reduce_axis(shape[1], "ic")] if shape[1] > 1 else []
    taps = [lang.reduce_axis(n, f"k{d}") for d, n in enumerate(shape[2:])]
    out = [
        (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(sizes[2:], shape[2:], strict=True)
    ]
    source = lang.boundary(x, value=0) if pad else x

    def sums(n, oc, *at):
        places = [stride * o + dilation * k - pad for o, k in zip(at, taps, strict=True)]
        channel = c[0] if c else oc
        return lang.sum(source[n, channel, *places] * w[oc, c[0] if c else 0, *taps], axis=(*c, *taps))

    y = lang.compute((sizes[0], shape[0], *out), sums, name=f"C{i}")

    def end(*at):
        value = y[at] + b[at[1]]
        value = lang.clamp(value, 0.0, 6.0) if low else value
        return value if residual is None else value + residual[at]

    return lang.compute(y.shape, end, name=f"Y{i}"), [w, b]


def block(n, size, ci, e, co, *, taps=3, stride=1, dilation=1, residual=False, expand=True, project=True):
    """An image expanded by a 1x1 convolution, filtered by channel, projected; in blocks of channels."""
    x = t(n, ci, *size, name="X")
    y, inputs = x, [x]
    rank = len(size)
    if expand:
        y, more = stage(y, 0, e, ci, *[1] * rank)
        inputs += more
    pad = dilation * (taps // 2)
    options = {"stride": stride, "pad": pad, "dilation": dilation}
    y, more = stage(y, 1, e, 1, *[taps] * rank, **options)
    inputs += more
    if project:
        y, more = stage(y, 2, co, e, *[1] * rank, low=False, residual=x if residual else None)
        inputs += more
    names = [b.name for b in inputs if b is not x]
    program = blocked(constant(lang.program(inputs, [y]), *names))
    size = next((lanes for lanes in (LANES, LANES // 2) if ci % lanes == 0), 0)
    if not size:
        return program
    given = tuple(
        with_layout(b, Block(1, size).indices(len(b.shape))) if b.name == "X" else b for b in program.inputs
    )
    return replace(program, inputs=given)


def chain_in(program):
    return find_chain(inline_stages(Schedule(program)).program, STATED)


@pytest.fixture
def in_bands(monkeypatch):
    """Chains are computed in bands of so many rows, whatever that costs."""

    def of(rows):
        monkeypatch.setattr(bands, "choose_band", lambda chain, machine: Band(rows, 1.0))

    return of


CASES = {
    "residual": ((1, (9, 14), 16, 32, 16), {"residual": True}, 3),
    "borders in one tile": ((1, (5, 3), 16, 32, 48), {}, 2),
    "columns in tiles": ((1, (6, 31), 16, 32, 16), {"residual": True}, 4),
    "strided": ((1, (15, 29), 16, 32, 24), {"stride": 2}, 3),
    "strided, even": ((1, (14, 16), 16, 48, 16), {"stride": 2}, 7),
    "batch": ((3, (7, 7), 32, 64, 32), {"residual": True}, 2),
    "batch, strided": ((2, (8, 9), 16, 32, 16), {"stride": 2}, 3),
    "5x5": ((1, (11, 13), 16, 32, 16), {"taps": 5}, 4),
    "dilated": ((1, (11, 17), 16, 32, 16), {"dilation": 2}, 5),
    "three tiles of columns": ((1, (4, 43), 16, 32, 16), {}, 4),
    "one row at a time": ((1, (5, 8), 16, 32, 16), {}, 1),
    "all rows": ((1, (5, 8), 16, 32, 16), {}, 5),
    "more rows than there are": ((1, (3, 7), 16, 32, 16), {}, 4),
    "24 channels": ((1, (6, 10), 24, 72, 24), {"residual": True}, 3),
    "three channels": ((1, (7, 9), 3, 96, 16), {}, 3),
    "without expansion": ((1, (7, 15), 32, 32, 16), {"expand": False}, 3),
    "without projection": ((1, (7, 15), 16, 64, 16), {"project": False}, 3),
    "3-D": ((1, (4, 5, 6), 16, 32, 16), {}, 2),
}


@pytest.mark.few(14)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_results(case, threads, in_bands):
    args, options, rows = CASES[case]
    in_bands(rows)
    s = check(block(*args, **options), threads=threads, interpret=False)
    assert is_fused(s)


@pytest.mark.parametrize("case", ["borders in one tile", "batch, strided"])
def test_on_the_interpreter(case, in_bands):
    args, options, rows = CASES[case]
    in_bands(rows)
    check(block(*args, **options))


def test_channels_are_expanded_as_they_are_read(in_bands):
    in_bands(7)
    text = str(default_schedule(block(1, (14, 14), 64, 384, 64, residual=True), Machine(STATED, 2)))
    stored = dict(re.findall(r"alloc (\w+): f32\[([^]]*)\] global", text))
    tile = 2 * LANES
    # the band and its border of one block of channels; all channels of the band, which the projection sums up
    assert stored == {
        "Y0": f"1, {tile // LANES}, 9, 14, {LANES}",
        "Y1": f"1, {384 // LANES}, 7, 14, {LANES}",
    }
    assert text.count("parallel") == 1


@pytest.mark.parametrize(("threads", "expected"), [(1, None), (2, (14, 1)), (3, (28, 3))])
def test_a_block_that_pays_is_one_nest(threads, expected):
    program = block(1, (28, 28), 32, 192, 32, residual=True)
    band = choose_band(chain_in(program), Machine(STATED, threads))
    # nothing is gained on one thread; three share channels more evenly than rows
    assert (band and (band.rows, band.parts)) == expected
    assert is_fused(default_schedule(program, Machine(STATED, threads))) == (band is not None)


def test_bands_fit_the_cache():
    chain = chain_in(block(1, (56, 56), 24, 144, 24, residual=True))
    band = choose_band(chain, Machine(STATED, 2))
    assert band is not None and 56 % band.rows == 0
    blocks = [bands.channel_block(link, STATED) for link in chain.links]
    assert bands._stored(chain.links, blocks, band.rows, 1) <= STATED.level("l2").size * bands.HELD_SHARE


PARTS = {
    "residual": ((1, (7, 7), 32, 128, 32), {"residual": True}, 2),
    "strided": ((1, (9, 14), 16, 192, 48), {"stride": 2}, 3),
    "two rows": ((1, (2, 5), 16, 64, 16), {}, 2),
    "without expansion": ((1, (7, 15), 64, 64, 16), {"expand": False}, 2),
    "24 channels": ((1, (6, 10), 24, 96, 24), {"residual": True}, 2),
    "batch": ((3, (5, 6), 32, 128, 16), {}, 2),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("case", PARTS)
def test_channels_in_parts(case, monkeypatch):
    args, options, parts = PARTS[case]
    program = block(*args, **options)
    tail = chain_in(program).links[-1]
    rows = tail.c.extent(tail.axis)
    monkeypatch.setattr(bands, "choose_band", lambda chain, machine: Band(rows, 1.0, parts))
    s = check(program, threads=parts, interpret=case == "two rows")
    assert "C2_part" in s.blocks()
    assert s.func.body is not None and str(s).count("parallel") <= 2


def test_rows_that_threads_share_unequally_are_divided_by_channels():
    # four of seven rows for one thread, and a fifth of the expansion
    band = choose_band(chain_in(block(1, (7, 7), 160, 960, 160)), Machine(STATED, 2))
    assert band is not None and (band.rows, band.parts) == (7, 2)
    assert choose_band(chain_in(block(1, (7, 7), 160, 960, 160)), Machine(STATED, 4)).parts == 4
    # 960 channels are no seven parts of whole blocks
    assert choose_band(chain_in(block(1, (7, 7), 160, 960, 160)), Machine(STATED, 7)) is None


def in_parts(program, parts):
    """Right before the nests of a chain whose sums are made in parts."""
    s = inline_stages(Schedule(program))
    return prepare_bands(s, find_chain(s.program, STATED), Band(7, 1.0, parts), STATED)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("find_links", "the parts of .* are no chain"),
        ("_tileable", "the sum of the parts .* has no register tile"),
    ],
)
def test_parts_that_are_scheduled_in_no_way_are_refused(monkeypatch, part, message):
    monkeypatch.setattr(chain_nests, part, lambda *_: [])
    # of the sum of the parts alone: their own tiles are found otherwise
    monkeypatch.setattr(chain_nests, "is_tileable", lambda *_: None)
    with pytest.raises(ScheduleError, match=message):
        in_parts(block(1, (7, 7), 16, 32, 16), 2)


def test_parts_of_what_is_not_summed_are_refused():
    with pytest.raises(ScheduleError, match="no reduction that threads could share"):
        in_parts(block(1, (7, 7), 16, 32, 16, project=False), 2)


def test_the_price_of_a_line_decides(monkeypatch):
    chain = chain_in(block(1, (28, 28), 32, 192, 32))
    for price in ("JOIN_CYCLES", "ROW_LINE_CYCLES", "LINE_CYCLES"):
        monkeypatch.setattr(bands, price, 0.0)
    assert choose_band(chain, Machine(STATED, 2)) is None


@pytest.mark.parametrize(("nanoseconds", "pays"), [(15, True), (0.1, False)])
def test_lines_cost_what_they_cost_on_this_machine(nanoseconds, pays):
    chain = chain_in(block(1, (28, 28), 32, 192, 32))
    machine = Machine(replace(STATED, line_seconds=nanoseconds * 1e-9), 2)
    assert (choose_band(chain, machine) is not None) == pays


@pytest.mark.parametrize(("second_level", "pays"), [(1 << 20, True), (1 << 26, False)])
def test_values_beyond_the_second_level_are_worth_a_join(second_level, pays):
    """4.8 MB lie between two kernels, of which the second does little but read them; lines cost nothing."""
    chain = chain_in(block(1, (112, 112), 16, 96, 24))
    first, second, *further = STATED.memory
    further = [replace(level, size=level.size and 1 << 27, bandwidth=8.0) for level in further]
    memory = (first, replace(second, size=second_level, bandwidth=64.0), *further)
    machine = Machine(replace(STATED, line_seconds=0.0, memory=memory), 2)
    assert (choose_band(chain, machine) is not None) == pays


@pytest.mark.parametrize("images", [2, 3, 4])
def test_several_images_stay_apart(images):
    # a thread has images of its own: no lines change cores that one nest would save
    chain = chain_in(block(images, (28, 28), 32, 192, 32, residual=True))
    assert len(chain.outer) == 1 and chain.links[-1].c.extent(chain.outer[0]) == images
    # where computing takes long beside starting a kernel
    assert choose_band(chain, Machine(replace(STATED, fma_per_cycle=1.0), 2)) is None


def test_a_convolution_for_winograd_is_no_part_of_a_chain():
    x = t(1, 64, 28, 28, name="X")
    a, more = stage(x, 0, 64, 64, 3, 3, pad=1)
    b, last = stage(a, 1, 64, 64, 1, 1)
    program = blocked(constant(lang.program([x, *more, *last], [b]), "W0", "B0", "W1", "B1"))
    chain = chain_in(program)
    assert chain is not None and choose_band(chain, Machine(STATED, 2)) is None


def test_a_value_that_others_read_ends_a_chain():
    x = t(1, 16, 8, 8, name="X")
    a, more = stage(x, 0, 16, 16, 1, 1)
    b, last = stage(a, 1, 16, 16, 1, 1, low=False, residual=a)
    program = blocked(constant(lang.program([x, *more, *last], [b]), "W0", "B0", "W1", "B1"))
    assert chain_in(program) is None
    check(program, interpret=False)


@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("columns", [2, 7, 8, 14, 33])
def test_a_result_that_is_put_in_order_is_no_chain(columns, low):
    x = t(1, 64, 7, columns, name="X")
    a, more = stage(x, 0, 256, 64, 1, 1)
    b, last = stage(a, 1, 32, 256, 1, 1, low=low)
    program = constant(lang.program([x, *more, *last], [b]), "W0", "B0", "W1", "B1")
    assert chain_in(blocked(program)) is not None
    inputs = {b.name: b.name for b in program.inputs}
    (plain,) = assign_layouts([Flow(program, inputs, {"Y1": "Y1"})], {"Y1"}, STATED)
    assert chain_in(plain) is None


@pytest.mark.parametrize(("columns", "found"), [(26, False), (27, True), (28, False)])
def test_columns_that_nothing_reads_end_a_chain(columns, found):
    x = t(1, 32, 7, columns, name="X")
    a, more = stage(x, 0, 64, 32, 1, 1)
    b, last = stage(a, 1, 32, 64, 1, 1, stride=2)
    program = blocked(constant(lang.program([x, *more, *last], [b]), "W0", "B0", "W1", "B1"))
    # the last tile of columns would read what is not computed
    assert (chain_in(program) is not None) == found


def test_weights_too_few_to_pack_are_no_chain():
    program = block(1, (6, 7), 3, 32, 16)
    assert chain_in(program) is None
    check(program, interpret=False)


def test_products_of_matrices_are_no_chain():
    # tiles of rows would read both weights again; see decision 0062
    x, a, b = t(128, 64, name="X"), t(64, 256, name="A"), t(256, 64, name="B")
    product = ops.matmul(x, a)
    hidden = lang.compute(product.shape, lambda i, j: lang.maximum(product[i, j], 0), name="H")
    program = constant(lang.program([x, a, b], [ops.matmul(hidden, b)]), "A", "B")
    assert chain_in(program) is None


def test_a_refused_step_leaves_the_stages_apart(in_bands, monkeypatch, caplog):
    in_bands(3)
    found = chain_nests.is_tileable

    def unpacked(*args, packed=True):
        return None if packed else found(*args, packed=False)

    monkeypatch.setattr(chain_nests, "is_tileable", unpacked)
    with caplog.at_level("INFO", "tilewright"):
        check(block(1, (6, 7), 16, 32, 16), interpret=False)
    assert "has no register tile" in caplog.text
