"""Counting arithmetic and roundings."""

from tilewright import lang
from tilewright.build.work import (flops, moved_bytes, reduction_length)


def _matmul():
    a, b = lang.placeholder((4, 8), "f32", "a"), lang.placeholder((8, 3), "f32", "b")
    k = lang.reduce_axis(8, "k")
    c = lang.compute((4, 3), lambda i, j: lang.sum(a[i, k] * b[k, j], k), hint="c")
    return lang.program([a, b], [c], name="matmul")


def test_a_matrix_product_counts_two_operations_a_term():
    assert flops(_matmul()) == 2 * 4 * 8 * 3
    assert reduction_length(_matmul()) == 8


def test_movement_counts_nothing():
    a = lang.placeholder((4, 8), "f32", "a")
    c = lang.compute((8, 4), lambda i, j: a[j, i], hint="c")
    program = lang.program([a], [c], name="transpose")
    assert flops(program) == 0
    assert reduction_length(program) == 1


def test_of_a_table_as_much_counts_as_is_gathered():
    table = lang.placeholder((1000, 8), "f32", name="table")
    rows = lang.placeholder((3,), "i64", name="rows")
    out = lang.ops.gather(table, rows)
    assert moved_bytes(lang.program([table, rows], [out])) == 3 * 8 * 4 + 3 * 8 + 3 * 8 * 4


def test_terms_that_a_sum_leaves_out_do_not_count():
    a = lang.placeholder((4, 9), "f32", "a")
    k, t = lang.reduce_axis(9, "k"), lang.reduce_axis(3, "t")

    def of(i, r):
        return lang.sum(a[i, k], [k, t], where=(r + 2 * t >= 1) & (r + 2 * t < 5))

    program = lang.program([a], [lang.compute((4, 2), of, hint="c")])
    assert flops(program) == 4 * 9 * (2 + 2)


def test_conditions_on_many_places_count_as_holding():
    a = lang.placeholder((100, 100), "f32", "a")
    k = lang.reduce_axis(100, "k")
    c = lang.compute((100,), lambda i: lang.sum(a[i, k], [k], where=k <= i), hint="c")
    assert flops(lang.program([a], [c])) == 100 * 100
