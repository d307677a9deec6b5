"""A rule, a pass, a fusion, an operator and an edit: each a file of another package, found by entry points.

The files are in the folder ``outside``; nothing of the package is changed for them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OUTSIDE = Path(__file__).with_name("outside")
ENTRIES = """
[tilewright.rules]
row_by_row = rule:RowByRow
[tilewright.passes]
negated = graph_pass:NegatedTwice
[tilewright.fusions]
pooled = fusion:PooledProducts
[tilewright.operators]
swish = operator_of_its_own
[tilewright.edits]
whole = edit:Whole
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    paths = [str(folder), str(OUTSIDE), str(OUTSIDE.parents[1]), *filter(None, sys.path)]
    found = subprocess.run(
        [sys.executable, str(OUTSIDE / "report.py")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_rules_are_asked_before_the_package_s_own(report):
    assert report["rules"]["first"] == "row_by_row"
    assert report["rules"]["nests"] == [["row_by_row", "out", "total"]]
    assert report["rules"]["error"] < 1e-4


def test_passes_run(report):
    assert report["passes"]["kernels"] == ["Relu"]
    assert report["passes"]["error"] == 0


def test_groups_are_joined(report):
    assert report["fusions"]["kernels"] == ["ReduceMean+MatMul"]
    assert report["fusions"]["error"] < 1e-4


def test_an_operator_keeps_every_pass(report):
    assert report["operators"]["kernels"] == report["operators"]["as_known"]
    assert report["operators"]["error"] < 1e-3


def test_edits_are_tried(report):
    assert report["edits"]["edits"] == ["whole out i 4 16", "whole out i 1 4"]
