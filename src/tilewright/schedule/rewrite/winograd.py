"""winograd: a 3x3 convolution by Winograd's method."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilewright.ir import Program
from tilewright.lang import (
    WinogradMatch,
    match_winograd,
    transform_weights,
    winograd as rewrite,
    winograd_error,
)
from tilewright.schedule.algorithm import Algorithm, DerivedConstant
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called
from tilewright.schedule.trace import Step
from tilewright.support import ScheduleError


@primitive("winograd", phase="program")
def winograd(program: Program, stage: str, m: int, weights: str, tiles: int = 0) -> Program:
    """Compute the 3x3 convolution ``stage`` of stride 1 with constant weights by F(m x m, 3x3), ``m`` 2 or 4.

    The constant input that holds the weights is replaced by ``weights``, of shape ``(m+2, m+2, [kd,] ic,
    oc)``; :func:`~tilewright.schedule.derived_constants` says how to make it. ``tiles`` rounds the number
    of tiles up.
    The stages are described at :func:`tilewright.lang.algorithms.winograd`.

    In short, before and after ``winograd(program, "C", 2, "U")``::

        C[n, oc, oh, ow] += X[n, ic, oh + kh, ow + kw] * W[oc, ic, kh, kw]

        C_rows[n, t, x, b, c]   = input transform of X along rows
        C_cols[n, x, y, t, c]   = input transform along columns
        C_points[n, x, y, t, o] += C_cols[n, x, y, t, c] * U[x, y, c, o]
        C_lines[n, t, i, y, o]  = transform back along rows
        C_tiles[n, t, i, j, o]  = transform back along columns
        C[n, oc, oh, ow]        = C_tiles[n, tile of (oh, ow), oh % 2, ow % 2, oc]

    >>> from dataclasses import replace
    >>> from tilewright import lang
    >>> from tilewright.ir import CONST
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((1, 4, 6, 6), name="X"), lang.placeholder((8, 4, 3, 3), name="W")
    >>> program = lang.program([X, W], [lang.ops.conv(X, W, name="C")])
    >>> x, w = program.inputs
    >>> s = Schedule(replace(program, inputs=(x, w.with_(scope=CONST))))
    >>> print(*s.blocks())
    C
    >>> s = s.winograd("C", 2, "U")
    >>> print(*s.blocks())
    C_rows C_cols C_points C_lines C_tiles C
    >>> [str(it.hi) for it in s.program.stage("C_points").iters]  # n, x, y, t, o, c
    ['1', '4', '4', '4', '8', '4']

    Raises ScheduleError for a stage that is no such convolution, a name that is taken, or another ``m``.
    """
    old = stage_called(program, stage)
    match = match_winograd(program, old)
    if match is None:
        raise ScheduleError(
            f"stage {stage!r} is no 3x3 convolution of stride 1 with constant f32 weights",
            hint="skip_padding first where there is padding",
        )
    check_name(weights, {b.name for b in program.buffers})
    if m not in (2, 4):
        raise ScheduleError(f"there is no Winograd method for tiles of {m}x{m}", hint="use 2 or 4")
    return rewrite(program, match, m, weights, tiles)


def _constants(match: WinogradMatch, step: Step) -> Mapping[str, DerivedConstant]:
    """The transformed weights."""
    m, name = int(str(step.args[1])), str(step.args[2])
    transform, error = partial(transform_weights, match, m), partial(winograd_error, match, m)
    return {name: DerivedConstant((match.weights.buffer,), transform, error)}


def _parts(step: Step) -> Mapping[str, str]:
    return {f"{step.args[0]}_points": f"winograd {_variant(step)}"}


def _variant(step: Step) -> str:
    return f"f{step.args[1]}"


WINOGRAD = Algorithm("winograd", match_winograd, _constants, _parts, ("f2", "f4"), _variant)
