"""What plans for CPUs begin with: sums over windows by sums of neighbours, channels of pictures in rows."""

from __future__ import annotations

from tilewright.plan.channels import has_rows, join_channels
from tilewright.schedule import Schedule, window_of
from tilewright.target import Target, TargetBase


def begin(s: Schedule, on: TargetBase) -> Schedule:
    """The program as all plans for a machine see it. On GPUs threads take what there is as it is."""
    if not isinstance(on, Target):
        return s
    return join_channels(_split_windows(s, on), on)


def _split_windows(s: Schedule, on: Target) -> Schedule:
    """No stage of pictures reduces a window any more where that takes fewer operations."""
    for stage in s.require_program().stages:
        found = window_of(stage) if has_rows(stage, on) else None
        if found is not None:
            # one window less: what is left of the others is in a stage of its own
            return _split_windows(s.split_window(stage.name, *found), on)
    return s
