"""Rewrites around groups leave the stages of these as they are."""

from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.plan import Cluster
from tilewright.plan.assembly import _check_groups
from tilewright.support import ScheduleError


def test_a_rewrite_that_changes_a_stage_of_a_group_is_noticed():
    X = lang.placeholder((4,), name="X")
    Y = lang.compute((4,), lambda i: X[i] * 2, name="Y")
    Z = lang.compute((4,), lambda i: Y[i] + 1, name="Z")
    program = lang.program([X], [Z])
    group = [Cluster("pipeline", "Z", ("Y",), None)]
    _check_groups(program, program, group)
    first, last = program.stages
    other = program.with_stages((replace(first, init=first.body), last))
    with pytest.raises(ScheduleError, match="would change Y"):
        _check_groups(program, other, group)
    with pytest.raises(ScheduleError, match="would change Z"):
        _check_groups(program, program.with_stages((first,)), group)
