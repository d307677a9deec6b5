"""Which stages are inlined by default: what conditions on places count for."""

import pytest

from tilewright import lang
from tilewright.plan.inlining import SHORT, inline_stages
from tilewright.schedule import Schedule


def weighted(channels, condition):
    """A product where a condition holds, which two stages read in windows."""
    image = lang.placeholder((channels, 64, 64), name="image")
    near = lang.boundary(image, mode="clamp")
    known = lang.stage(
        lambda c, y, x: lang.select(condition(c, y, x), near[c, y, x] * near[0, y, x], near[0, y, x]),
        name="known",
    )
    across = lang.stage(lambda c, y, x: known[c, y, x - 1] + known[c, y, x + 1], name="across")
    down = lang.stage(lambda c, y, x: known[c, y - 1, x] - known[c, y + 1, x], name="down")
    both = lang.stage(lambda c, y, x: across[c, y, x - 1] * down[c, y - 1, x + 1], name="both")
    return lang.program([image], both, region=[channels, 64, 64])


def inlined(program):
    steps = inline_stages(Schedule(program)).trace.steps
    return [s.args[0] for s in steps if s.primitive == "inline_stage"]


@pytest.mark.parametrize(
    ("channels", "condition", "expected"),
    [
        # each of the expanded channels knows what the condition says
        (SHORT, lambda c, y, x: c < 2, True),
        (SHORT + 1, lambda c, y, x: c < 2, False),
        (SHORT, lambda c, y, x: x < 2, False),
        (SHORT, lambda c, y, x: lang.logical_and(c < 2, y < 2), False),
    ],
)
def test_conditions_on_expanded_axes_are_no_operations(channels, condition, expected):
    assert ("known" in inlined(weighted(channels, condition))) == expected
