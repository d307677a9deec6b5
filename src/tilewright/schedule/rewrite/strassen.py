"""strassen: a product with a constant matrix by one step of Strassen's method."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilewright.ir import Program
from tilewright.lang import ProductMatch, match_product, quarter_weights, strassen as rewrite, strassen_error
from tilewright.schedule.algorithm import Algorithm, DerivedConstant
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called, taken_names
from tilewright.schedule.trace import Step
from tilewright.support import ScheduleError


@primitive("strassen", phase="program")
def strassen(
    program: Program, stage: str, width: int, weights: str, height: int = 0, copies: bool = True
) -> Program:
    """Compute the product ``stage`` with a constant f32 matrix by seven products of quarters, not eight.

    The constant input that holds the matrix is replaced by ``weights``, of shape ``(4, k/2, n/2)``;
    :func:`~tilewright.schedule.derived_constants` says how to make it. The halves of the columns alternate by
    panels of ``width`` columns, the last ones filled up with zeros, those of the rows by panels of ``height``
    (0: one panel, the upper and the lower half). With ``copies`` those quarters of the left matrix that are
    operands of products are copied like the sums of them; without, products read them where they are.
    The stages are described at :func:`tilewright.lang.algorithms.strassen`.

    In short, before and after ``strassen(program, "C", 16, "Q")``::

        C[i, j] += A[i, k] * B[k, j]

        C_sums[x, i, k] = quarters of A, and sums of them
        C_product1[i, j] += C_sums[0, i, k] * Q[0, k, j]
        ...
        C_product7[i, j] += C_sums[6, i, k] * (Q[3, k, j] - Q[0, k, j])
        C[i, j] = by quarter: C_product1 + C_product2 | C_product1 + C_product6 + ... | ...

    >>> from dataclasses import replace
    >>> from tilewright import lang
    >>> from tilewright.ir import CONST
    >>> from tilewright.schedule import Schedule
    >>> A, B = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 32), name="B")
    >>> program = lang.program([A, B], [lang.ops.matmul(A, B, name="C")])
    >>> a, b = program.inputs
    >>> s = Schedule(replace(program, inputs=(a, b.with_(scope=CONST))))
    >>> print(*s.strassen("C", 16, "Q").blocks())
    C_sums C_product1 C_product2 C_product3 C_product4 C_product5 C_product6 C_product7 C

    Raises ScheduleError for a stage that is no such product or does not divide, or a name that is taken.
    """
    old = stage_called(program, stage)
    if width < 1:
        raise ScheduleError(f"panels of {width} columns", hint="give their width, at least 1")
    match = match_product(program, old)
    if match is None:
        raise ScheduleError(
            f"stage {stage!r} is no product with a constant f32 matrix that divides into quarters",
            hint="rows and reduction must be even",
        )
    half = match.extent(match.m) // 2
    if height < 0 or (height and half % height):
        raise ScheduleError(
            f"panels of {height} rows do not divide half of the rows, {half}", hint="give a divisor, or 0"
        )
    check_name(weights, {b.name for b in program.buffers})
    new = rewrite(program, match, width, weights, height or half, copies)
    made = [t.name for t in new.temps if t not in program.temps]
    clash = next((name for name in made if name in taken_names(program)), None)
    if clash is not None:
        raise ScheduleError(f"the name {clash!r}, which a new stage would have, is taken", hint="rename it")
    return new


def _constants(match: ProductMatch, step: Step) -> Mapping[str, DerivedConstant]:
    """The quarters of the right matrix."""
    width, name = int(str(step.args[1])), str(step.args[2])
    quarter, error = partial(quarter_weights, match, width), partial(strassen_error, match, width)
    return {name: DerivedConstant((match.weights.buffer,), quarter, error)}


def _parts(step: Step) -> Mapping[str, str]:
    return {f"{step.args[0]}_product{number}": "strassen" for number in range(1, 8)}


STRASSEN = Algorithm("strassen", match_product, _constants, _parts)
