"""The mapper's entry: an instruction and a program, all mappings and all failures."""

from __future__ import annotations

from tilewright.ir import Program
from tilewright.mapping.access import three_operand_form
from tilewright.mapping.chains import chained
from tilewright.mapping.mapping import Failure, Mapping
from tilewright.mapping.match import Match, match_form
from tilewright.mapping.needle import Needle
from tilewright.support import ProgramError
from tilewright.target import Instruction


def find_mappings(
    program: Program, instruction: Instruction | Needle, stage: str | None = None, *, bundle: bool = False
) -> Match:
    """Every mapping of an instruction onto the stages of a program, or onto one of them.

    With ``bundle`` each mapping is followed by those in which an axis of the instruction is several of the
    program's: where all operands lie so, and by copies (im2col). Raises ResourceError where a search
    takes more than :data:`MAX_NODES` steps.

    >>> from tilewright import lang
    >>> from tilewright.ir import F32
    >>> from tilewright.target import Instruction, contraction, element
    >>> A, B = lang.placeholder((4, 10, 8), name="A"), lang.placeholder((3, 8, 16), name="B")
    >>> d, ki = lang.reduce_axis(3, "d"), lang.reduce_axis(8, "ki")
    >>> C = lang.compute(
    ...     (4, 8, 16), lambda i, x, ko: lang.sum(A[i, x + d, ki] * B[d, ki, ko], (d, ki)), name="C"
    ... )
    >>> operands = (element(n, axes, F32) for n, axes in (("c", "mn"), ("a", "mk"), ("b", "kn")))
    >>> matmul = Instruction(name="matmul", stage=contraction([(a, 4) for a in "mnk"], *operands))
    >>> for mapping in find_mappings(lang.program([A, B], [C]), matmul).mappings:
    ...     print({axis: "".join(axes) for axis, axes in mapping.program_axes().items()}, mapping.exchanged)
    {'m': 'i', 'n': 'ko', 'k': 'd'} False
    {'m': 'i', 'n': 'ko', 'k': 'ki'} False
    {'m': 'x', 'n': 'ko', 'k': 'ki'} False
    {'m': 'ko', 'n': 'i', 'k': 'd'} True
    {'m': 'ko', 'n': 'i', 'k': 'ki'} True
    {'m': 'ko', 'n': 'x', 'k': 'ki'} True
    """
    needle = instruction if isinstance(instruction, Needle) else Needle.of(instruction)
    mappings: list[Mapping] = []
    failures: list[Failure] = []
    nodes = 0
    for each in program.stages:
        if stage is not None and each.name != stage:
            continue
        try:
            form = three_operand_form(each)
        except ProgramError as error:
            failures.append(
                Failure(needle.name, each.name, 0, "", "stage", "operations on elements", error.what)
            )
            continue
        found = match_form(needle, form, bundled=program if bundle else None)
        nodes += found.nodes
        if len(needle.forms) > 1:
            found = chained(program, needle, found)
        mappings.extend(found.mappings)
        failures.extend(found.failures)
    return Match(tuple(mappings), tuple(failures), nodes)
