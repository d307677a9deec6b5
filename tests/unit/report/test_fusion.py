"""Fusion after tiling, told and drawn: two stages of a blur, whose tiles need rows of each other."""

import xml.etree.ElementTree as ET

import pytest

from tilewright import lang
from tilewright.frontend.nests import scop
from tilewright.ir import function_at, to_function
from tilewright.report import BEGINNINGS, as_svg, as_text, of_fusion
from tilewright.support import ScheduleError
from unit.frontend.nests.polybench import KERNELS


def blur(h=66, w=130):
    x = lang.placeholder((h, w), name="X")
    rows = lang.stage(lambda i, j: x[i, j - 1] + x[i, j] + x[i, j + 1], name="rows")
    out = lang.stage(lambda i, j: rows[i - 1, j] + rows[i, j] + rows[i + 1, j], name="out")
    return lang.program([x], out, region=[(1, h - 1), (1, w - 1)])


def test_what_tiles_need():
    (group,) = of_fusion(to_function(blur()), [8, 32]).groups
    rows, out = group.statements
    assert (group.live, group.sizes, group.parallel) == (("out",), (8, 32), True)
    # ten rows for eight, of buffers that start at zero; the next tiles lie below and beside
    assert rows.tiles == (((24, 33), (32, 63)), ((32, 41), (32, 63)), ((24, 33), (64, 95)))
    assert rows.again == pytest.approx(10 / 8)
    assert (out.tiles[0], out.again) == (((24, 31), (32, 63)), 1.0)
    assert group.storage == (("rows", 10 * 32 * 4),)


def test_text():
    text = as_text(of_fusion(to_function(blur()), [8, 32]))
    assert "group 0: out in tiles of 8 x 32, tiles on threads" in text
    assert "producer  rows: a tile runs 24..33, 32..63, each 1.25 times" in text
    assert "mark scratch(rows)" in text


def test_the_picture_shows_overlaps():
    root = ET.fromstring(as_svg(of_fusion(to_function(blur()), [8, 32])))
    rects = [e for e in root if e.tag.endswith("rect")]
    assert len(rects) == 2 * (1 + 3)
    tile, below = ((float(e.get("y")), float(e.get("height"))) for e in rects[1:3])
    assert below[0] < tile[0] + tile[1]  # rows of both tiles
    assert [e.text for e in root if e.tag.endswith("text")] == ["0: rows", "0: out"]


def test_sums_do_not_join_where_they_would_lose_their_loops():
    a, k = lang.placeholder((16, 16), name="A"), lang.reduce_axis(16, "k")
    total = lang.compute((1,), lambda i: lang.sum(a[i, k], axis=k), name="total")
    out = lang.compute((16, 16), lambda i, j: a[i, j] * total[0], name="out")
    report = of_fusion(to_function(lang.program([a], [out])), [4, 4])
    assert (
        sum(len(g.live) for g in report.groups)
        + sum(s.name not in g.live for g in report.groups for s in g.statements)
        == 3
    )
    assert as_svg(report)


def test_open_sizes_are_refused():
    n = lang.param("n")
    x = lang.placeholder((n,), name="X")
    out = lang.compute((n,), lambda i: x[i] + 1.0, name="out")
    with pytest.raises(ScheduleError, match="the sizes n are open"):
        of_fusion(to_function(lang.program([x], [out])), [4])


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_ways_to_begin(begin):
    """A nest: its two products share no loop, however fusion begins; hybrid's parts are smart's."""
    sizes = {"NI": 8, "NJ": 9, "NK": 7, "NL": 6}
    report = of_fusion(function_at(scop(KERNELS["2mm"]).func, sizes), [4, 4], begin)
    assert sorted(s.name for g in report.groups for s in g.statements) == ["S0", "S1", "S2", "S3"]


@pytest.mark.parametrize("name", ["lu", "seidel_2d", "durbin", "gemver"])
def test_nests_of_every_kind_are_told(name):
    sizes = {p.name: 6 for p in scop(KERNELS[name]).func.params}
    report = of_fusion(function_at(scop(KERNELS[name]).func, sizes), [4, 4])
    assert as_text(report) and as_svg(report)
