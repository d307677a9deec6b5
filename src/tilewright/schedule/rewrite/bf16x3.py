"""bf16x3: a sum of products of f32 numbers by three products of bf16 numbers each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tilewright.ir import Program
from tilewright.lang import SumMatch, bf16x3 as rewrite, bf16x3_error, match_sum, pieces_of
from tilewright.schedule.algorithm import Algorithm, DerivedConstant
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called, taken_names
from tilewright.schedule.trace import Step
from tilewright.support import ScheduleError


@primitive("bf16x3", phase="program")
def bf16x3(program: Program, stage: str, weights: str = "", panels: Sequence[int] = ()) -> Program:
    """Compute the sum of products ``stage`` of f32 tensors by three products of bf16 numbers for each.

    Both tensors' elements are stored as two bf16 numbers, by new stages ``<stage>_pieces`` and
    ``<stage>_factors``. A constant input that nothing else reads is replaced by the input ``weights``,
    of one dimension more; :func:`~tilewright.schedule.derived_constants` says how to make it. Products of
    pieces are an iterator of the sum, the last one. ``panels`` are the columns and the group of panels in
    which the pieces of a second operand ``B[k, j]`` lie, each as
    ``[j // columns][k // group][piece][j % columns][k % group]``. How exact that is:
    :mod:`tilewright.lang.algorithms.bf16x3`.

    In short, before and after ``bf16x3(program, "C")``::

        C[i, j] += A[i, k] * B[k, j]

        C_pieces[i, k, p] = bf16(A[i, k]) if p == 0 else bf16(A[i, k] - f32(bf16(A[i, k])))
        C_factors[k, j, p] = the same of B[k, j]
        C[i, j] += f32(C_pieces[i, k, piece // 2]) * f32(C_factors[k, j, piece % 2])

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, B = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 8), name="B")
    >>> s = Schedule(lang.program([A, B], [lang.ops.matmul(A, B, name="C")]))
    >>> print(*s.blocks())
    C
    >>> s = s.bf16x3("C")
    >>> print(*s.blocks())
    C_pieces C_factors C
    >>> [f"{it.name} {it.kind} {it.hi}" for it in s.program.stage("C").iters]
    ['i par 4', 'j par 8', 'k red 6', 'piece red 3']

    Raises ScheduleError for an unknown stage, one that is no sum of products of f32 elements of two tensors
    of constant shape, panels of an operand that is no such matrix or does not divide, or a taken name.
    """
    old = stage_called(program, stage)
    match = match_sum(program, old)
    if match is None:
        raise ScheduleError(
            f"stage {stage!r} is no sum of products of f32 elements of two tensors of constant shape",
            hint="inline what computes its operands, or store it first",
        )
    taken = taken_names(program)
    made = [match.pieces, *([] if match.constant else [match.other_pieces])]
    clash = next((name for name in made if name in taken), None)
    if clash is not None:
        raise ScheduleError(f"the name {clash!r}, which a new stage would have, is taken", hint="rename it")
    if match.constant:
        check_name(weights, taken)
    return rewrite(program, match, weights, _panels(program, match, tuple(panels)))


def _panels(program: Program, match: SumMatch, panels: tuple[int, ...]) -> tuple[int, int] | None:
    """Columns and group of panels; ScheduleError where the second operand has none such."""
    if not panels:
        return None
    shape = [e.as_int() for e in program.buffer(match.other.buffer).shape]
    if match.constant or len(shape) != 2 or len(panels) != 2 or min(panels) < 1:
        raise ScheduleError(
            f"{match.other.buffer!r} is no matrix whose pieces are computed, in panels of {list(panels)}",
            hint="panels are columns and a group, of a matrix that is no constant",
        )
    width, group = panels
    if shape[1] % width or shape[0] % group:
        raise ScheduleError(
            f"panels of {width} columns in groups of {group} do not divide a matrix of {shape}"
        )
    return width, group


def _constants(match: SumMatch, step: Step) -> Mapping[str, DerivedConstant]:
    """The pieces of the second operand, where that is known when compiling."""
    if not match.constant:
        return {}
    made = DerivedConstant((match.other.buffer,), pieces_of, partial(bf16x3_error, match))
    return {str(dict(step.kwargs)["weights"]): made}


def _parts(step: Step) -> Mapping[str, str]:
    return {str(step.args[0]): "bf16x3"}


BF16X3 = Algorithm("bf16x3", match_sum, _constants, _parts)
