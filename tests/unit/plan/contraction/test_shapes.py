"""Convolutions and products of odd shapes, by each algorithm and in each register tile, in guarded memory."""

import pytest
from hypothesis import given, settings, strategies as st

from tilewright import lang
from tilewright.lang import ops
from tilewright.plan import EXACT, Accuracy
from tilewright.plan.contraction import register_tiling as tiles
from tilewright.plan.contraction.register_tiling import RegisterTile
from unit.strategies.test_default import blocked, check, constant, conv_program, t

EXAMPLES = {"deep": 40, "dev": 8}
ODD = (1, 2, 3, 5, 7, 11, 13, 17)
CHANNELS = (1, 2, 3, 5, 7, 8, 16, 17, 24, 37)
#: Those that fit into 32 registers: rows * vectors accumulators, the vectors, and a broadcast.
TILES = [
    (rows, vectors)
    for vectors in (1, 2, 3, 4)
    for rows in (1, 2, 3, 5, 7, 9, 13, 28)
    if rows * vectors + vectors <= 31
]


@st.composite
def convolutions(draw):
    """Arguments of ``conv_program``, and the algorithm; every result has at least one element."""
    rank = draw(st.sampled_from((1, 2, 2, 2, 3)))
    # Winograd's method is for 3x3 windows with step 1; ask for it half of the time where it can be had
    eligible = rank > 1 and draw(st.booleans())
    window = (3,) * rank if eligible else tuple(draw(st.sampled_from((1, 2, 3, 5))) for _ in range(rank))
    stride = 1 if eligible else draw(st.sampled_from((1, 1, 2, 3)))
    dilation = 1 if eligible else draw(st.sampled_from((1, 1, 2)))
    pad = draw(st.integers(0, 2 if eligible else max(window) // 2 * dilation))
    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    depthwise = not eligible and draw(st.integers(0, 4)) == 0
    ic, oc = (groups * draw(st.sampled_from(CHANNELS)) for _ in range(2))
    if depthwise:
        groups = oc = ic
    least = [max(1, dilation * (w - 1) + 1 - 2 * pad) for w in window]
    spatial = tuple(draw(st.sampled_from([n for n in ODD if n >= low])) for low in least)
    options = {"stride": stride, "pad": pad, "groups": groups, "dilation": dilation}
    options["epilogue"] = draw(st.booleans())
    algorithm = draw(st.sampled_from(("f2", "f4"))) if eligible else "exact"
    return (draw(st.sampled_from((1, 1, 2, 3))), ic, oc, spatial, window), options, algorithm


def test_convolutions_of_any_shape():
    profile = settings.get_current_profile_name()

    @settings(max_examples=EXAMPLES.get(profile, 8))
    @given(convolutions(), st.booleans(), st.integers(1, 3))
    def run(case, in_blocks, threads):
        args, options, algorithm = case
        program = conv_program(*args, **options)
        check(
            blocked(program) if in_blocks else program,
            threads=threads,
            accuracy=Accuracy(algorithm),
            interpret=False,
            tolerance=1e-5 if algorithm == "exact" else 1e-4,
        )

    run()


@pytest.mark.few(12)
@pytest.mark.parametrize(("rows", "vectors"), TILES)
def test_every_register_tile(rows, vectors, monkeypatch):
    """On sizes that no tile divides: the rest of the rows, of the vectors, and both."""
    chosen = []

    def tile(target, row_extent, vector_extent, counts, **options):
        allowed = [v for v in counts if v <= vectors]
        chosen.append(RegisterTile(min(rows, row_extent), max(allowed, default=counts[0]), 0.0))
        return chosen[-1]

    monkeypatch.setattr(tiles, "register_tile", tile)
    a, b, bias = t(31, 11, name="A"), t(11, 149, name="B"), t(149, name="D")
    y = lang.compute((31, 149), lambda i, j: lang.maximum(ops.matmul(a, b)[i, j] + bias[j], 0), name="Y")
    check(constant(lang.program([a, b, bias], [y]), "B", "D"), threads=1 + rows % 3, interpret=False)
    check(blocked(conv_program(1, 5, 64, (2, 29), (3, 3), pad=1)), accuracy=EXACT, interpret=False)
    assert any(each.rows == min(rows, 31) for each in chosen)
    assert any(each.vectors == vectors for each in chosen)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("epilogue", [False, True])
def test_vectors_along_an_axis_of_both_operands_with_columns_of_one(threads, epilogue):
    """A product for each place along the vectors: the other columns of ``b`` are loops around tiles."""
    a, b = t(32, 24, name="A"), t(1, 24, 32, 9, name="B")
    k = lang.reduce_axis(32, "k")
    shape = (1, 9, 24)
    y = lang.compute(shape, lambda d, e, c: lang.sum(a[k, c] * b[d, c, k, e], axis=k), name="Y")
    if epilogue:
        product = y
        y = lang.compute(shape, lambda d, e, c: lang.absolute(product[d, e, c]), name="Z")
    check(constant(lang.program([a, b], [y]), "B"), threads=threads, accuracy=EXACT)
