"""Register tiles: what fits into a target's registers."""

from dataclasses import replace

import pytest
from tests.native_kernel import LANES
from tests.unit.strategies.test_default import check, constant, t

from tilewright import lang
from tilewright.plan.contraction.register_tiling import is_tileable, register_tile, vector_width
from tilewright.support import ScheduleError
from tilewright.target import AARCH64_NEON, X86_AVX2, X86_AVX512


@pytest.mark.parametrize("target", [X86_AVX2, X86_AVX512, AARCH64_NEON], ids=lambda t: t.name)
@pytest.mark.parametrize("rows", [1, 7, 14, 56, 512])
def test_accumulators_and_vectors_fit_beside_a_broadcast(target, rows):
    tile = register_tile(target, rows, 64, (1, 2, 3, 4))
    assert tile.rows * tile.vectors + tile.vectors < target.vector_registers


def test_single_vectors_leave_room_for_accumulators_that_move():
    # the sum goes where the broadcast was, so that two registers an accumulator are in use
    tile = register_tile(X86_AVX2, 512, 64, (1,))
    assert 2 * tile.rows + 1 < X86_AVX2.vector_registers
    wide = register_tile(X86_AVX512, 512, 64, (1,))
    assert 2 * wide.rows + 1 > X86_AVX512.vector_registers


def test_several_vectors_are_preferred_where_registers_are_few():
    assert register_tile(X86_AVX2, 56, 8, (1, 2, 4)).vectors > 1


def test_rows_that_share_loaded_vectors_may_fill_the_registers():
    tile = register_tile(X86_AVX2, 56, 18, (1,), broadcast=False)
    assert tile.rows > register_tile(X86_AVX2, 56, 18, (1,)).rows


def test_more_registers_never_cost_cycles():
    more = replace(X86_AVX2, vector_registers=32)
    for rows in (5, 14, 56):
        assert (
            register_tile(more, rows, 8, (1, 2, 4)).cycles
            <= register_tile(X86_AVX2, rows, 8, (1, 2, 4)).cycles
        )


def test_panels_are_narrow_where_two_wide_ones_exceed_the_second_level_and_are_used_a_few_times():
    # 512 channels, 3x3: 295 KB a vector
    given = (X86_AVX512, 7, 32, (1, 2, 3, 4))
    assert register_tile(*given).vectors > 1
    assert register_tile(*given, panel=(9 * 512 * 64, 7)).vectors == 1
    # often enough, and memory is no matter
    assert register_tile(*given, panel=(9 * 512 * 64, 28 * 7)).vectors > 1
    # no panel fits, whatever it is
    assert register_tile(*given, panel=(27 * 512 * 64, 7)).vectors > 1


def test_tiles_that_wait_for_their_panel_are_few_and_about_equal():
    assert register_tile(X86_AVX512, 35, 94, (2,)).rows == 7
    assert register_tile(X86_AVX512, 35, 94, (2,), stall=0.2).rows == 12


@pytest.mark.parametrize(("results", "phases"), [(8, 4), (8, 3), (6, 8)])
def test_columns_of_half_a_vector_in_several_axes(results, phases):
    """Phases of a transposed convolution with few results: as many products as fill registers, in halves."""
    x, w = t(35, 24, name="X"), t(24, phases, results, name="W")
    k = lang.reduce_axis(24, "k")
    y = lang.compute((35, phases, results), lambda i, r, j: lang.sum(x[i, k] * w[k, r, j], axis=k), name="Y")
    s = check(constant(lang.program([x, w], [y]), "W"), interpret=False, target=LANES)
    (stage,) = s.source.stages
    found = is_tileable(s.source, stage, X86_AVX512)
    assert found is not None and vector_width(found, X86_AVX512) == 8
    # a matrix of so few columns is summed along its rows, where these have two vectors
    for depth in (31, 32):
        x, w, k = t(35, depth, name="X"), t(depth, results, name="W"), lang.reduce_axis(depth, "k")
        y = lang.compute((35, results), lambda i, j: lang.sum(x[i, k] * w[k, j], axis=k), name="Y")  # noqa: B023
        program = lang.program([x, w], [y])
        assert (is_tileable(program, program.stages[0], X86_AVX512) is None) == (depth == 32)


def test_without_a_number_of_vectors_there_is_no_tile():
    with pytest.raises(ScheduleError, match="no register tile of 4 vectors"):
        register_tile(X86_AVX512, 7, 4, ())


@pytest.mark.parametrize("summed", ["i", "j"])
def test_axes_of_one_name_do_not_clash_with_parts_of_loops(summed):
    """The second axis of a name is ``j_1``, as the second part of the first one's loop would be."""
    x, w, r = t(24, 40, name="X"), t(40, 48, name="W"), lang.reduce_axis(40, summed)
    y = lang.compute((24, 48), lambda i, j: lang.sum(x[i, r] * w[r, j], axis=r), name="Y")
    s = check(lang.program([x, w], [y]), target=LANES)
    assert f"{summed}_1" in [it.name for it in s.source.stages[0].iters]
    assert not s.notes
    assert "alloc Y_register: f32[" in str(s)
