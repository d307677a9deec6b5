"""Transformations: rewrites of programs that the mapper's failures ask for.

Each is a program-phase primitive with the failures that it addresses, and what it could be applied to. (ISA
Mapper, Sec. 2.3.) Associativity and commutativity are in the form and the matcher already: chains of factors
have no brackets and every order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tilewright.ir import I8, Program, Stage
from tilewright.mapping.mapping import Failure
from tilewright.schedule import Step

Proposals = Callable[[Program, Stage], Iterator[Step]]


@dataclass(frozen=True, slots=True)
class Transformation:
    """A rewrite with its effect: the failures that it may mend, by patterns of place, expected and found."""

    name: str
    place: str
    expected: str
    found: str
    proposals: Proposals

    def addresses(self, failure: Failure) -> bool:
        """Whether the rewrite changes what failed."""
        patterns = (
            (self.place, failure.place),
            (self.expected, failure.expected),
            (self.found, failure.found),
        )
        return all(re.fullmatch(pattern, text) for pattern, text in patterns)


def fresh(program: Program, stem: str) -> str:
    """A name that no stage or buffer has, nor any that begins with it."""
    taken = {*(s.name for s in program.stages), *(b.name for b in program.buffers)}
    n = 0
    while any(name.startswith(f"{stem}{n}") for name in taken):
        n += 1
    return f"{stem}{n}"


def _factored(program: Program, stage: Stage) -> Iterator[Step]:
    """Each single factor that some of the sum does not move."""
    if not stage.is_reduction:
        return
    red = {it.name for it in stage.iters if it.kind == "red"}
    for n, ld in enumerate(stage.operands):
        if not red <= {v for i in ld.indices for v in i.vars}:
            yield Step("factor_out", (stage.name, (n,), fresh(program, f"{stage.name}_part")))
    yield Step("factor_out", (stage.name, (), fresh(program, f"{stage.name}_part")))


def _split(program: Program, stage: Stage) -> Iterator[Step]:
    """The sum's products as stages that add to one result, and as tensors that are added up."""
    if stage.is_reduction:
        for apart in (False, True):
            yield Step("split_terms", (stage.name, fresh(program, f"{stage.name}_term"), apart))


def _shifted(program: Program, stage: Stage) -> Iterator[Step]:
    """Each factor of signed bytes."""
    for n, ld in enumerate(stage.operands):
        if ld.dtype == I8:
            yield Step("shift_factor", (stage.name, n, fresh(program, f"{stage.name}_shifted")))


def _gathered(program: Program, stage: Stage) -> Iterator[Step]:
    """Each operand by all axes that it depends on: windows and steps become dimensions of their own."""
    for n, ld in enumerate(stage.operands):
        axes = tuple(it.name for it in stage.iters if any(it.name in i.vars for i in ld.indices))
        if (axes and len(axes) > len(ld.indices)) or any(_steps(i, axes) for i in ld.indices):
            yield Step("gather_operand", (stage.name, n, axes, fresh(program, f"{stage.name}_rows")))


def _steps(index: object, axes: tuple[str, ...]) -> bool:
    coefficient = getattr(index, "coefficient", lambda _: 0)
    return any(coefficient(a) not in (0, 1) for a in axes)


def _fused(program: Program, stage: Stage) -> Iterator[Step]:
    """Two axes that some operand has as ``n*outer + inner``, with the ``n`` iterations of ``inner``."""
    extents = {it.name: it.extent.const for it in stage.iters if it.extent.is_const}
    pairs: dict[tuple[str, str], None] = {}
    for ld in stage.operands:
        for i in ld.indices:
            for outer in sorted(i.vars & set(extents)):
                for inner in sorted(i.vars & set(extents) - {outer}):
                    if i.coefficient(inner) == 1 and i.coefficient(outer) == extents[inner]:
                        pairs[outer, inner] = None
    for outer, inner in pairs:
        yield Step("fuse_iterators", (stage.name, outer, inner))


def _joined(program: Program, stage: Stage) -> Iterator[Step]:
    """Two neighbouring dimensions of an intermediate tensor that the stage reads as one."""
    inner = {b.name: b for b in program.temps}
    for name in stage.reads:
        if name in inner and len(inner[name].shape) > 1 and len(program.producers(name)) == 1:
            for d in range(len(inner[name].shape) - 1):
                yield Step("layout_fuse", (name, d, 2))


TRANSFORMATIONS: Final = (
    Transformation("factor_out", "operation", re.escape("+="), re.escape("*="), _factored),
    Transformation("split_terms", "operation", ".*", re.escape("+="), _split),
    Transformation("shift_factor", "type", "u8", "i8", _shifted),
    Transformation("fuse_iterators", "axis .*", "steps of 1", r".*: steps of \d+", _fused),
    Transformation("layout_fuse", "axis .*", "steps of 1", r".*: steps of \d+", _joined),
    Transformation("gather_operand", "axis .*", "steps of .*", r".*: steps of \d+", _gathered),
    Transformation("gather_operand", "axis .*", ".*", ".*: one dimension together", _gathered),
)
"""All of them, in the order in which they are tried."""
