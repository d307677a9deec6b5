"""Mappings: ways to run a part of a program by an instruction, as data, and why there are none."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tilewright.ir import Index
from tilewright.mapping.needle import Needle


@dataclass(frozen=True, slots=True)
class Statement:
    """An operation of a program: by its number in the three-operand form of a stage."""

    stage: str
    number: int


@dataclass(frozen=True, slots=True)
class Bound:
    """An operand of the instruction and the program's access that it is: several may be of one buffer."""

    operand: str
    buffer: str
    indices: tuple[Index, ...]
    """The access, over the axes of the stage's three-operand form."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Axes of the program that one axis of the instruction is, slowest first.

    None at all: the axis has one iteration. ``extents`` are theirs, and ``part`` is how much of them, taken
    together, one execution does at most.
    """

    axis: str
    program: tuple[str, ...]
    extents: tuple[Index, ...]
    part: int


@dataclass(frozen=True, slots=True)
class LayoutNeed:
    """Dimensions of a buffer to be innermost, in this order, ``group`` neighbours of the first fastest.

    The program's dimensions by number; where the last is no unit step apart, or groups must lie together.
    """

    operand: str
    buffer: str
    dims: tuple[int, ...]
    group: int = 1


@dataclass(frozen=True, slots=True)
class CopyNeed:
    """A copy of an operand that an execution reads instead.

    ``windows``: elements that several points share, made rows of their own (im2col); ``padding``: with what
    stands outside of the tensor stored; ``broadcast``: one element for all lanes; ``rows``: several axes that
    do not lie behind one another, made one.
    """

    operand: str
    buffer: str
    why: Literal["windows", "padding", "broadcast", "rows"]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PadNeed:
    """Extents filled up: the instruction does whole multiples of ``multiple`` along an axis."""

    axis: str
    multiple: int


@dataclass(frozen=True, slots=True)
class ConditionNeed:
    """A condition of the program around the instruction, over axes that it does not do."""

    axes: tuple[str, ...]
    condition: str


Need: TypeAlias = LayoutNeed | CopyNeed | PadNeed | ConditionNeed


@dataclass(frozen=True, slots=True)
class Mapping:
    """A way to do some operations of a program by an instruction.

    ``statements`` are the program's operations, one for each of the instruction's; ``operands`` what its
    operands are; ``axes`` which axes of the program its axes are; ``dims``, for each operand, the dimensions
    of the program's buffer that each of its dimensions is (none: a dimension of one element). ``needs`` are
    what the program must become first: layouts, copies, padding. Axes that no axis of the instruction is are
    loops around it.
    """

    instruction: Needle
    statements: tuple[Statement, ...]
    operands: tuple[Bound, ...]
    axes: tuple[Bundle, ...]
    dims: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    needs: tuple[Need, ...] = ()
    exchanged: bool = False
    """Whether operands that commute have changed places."""

    @property
    def stage(self) -> str:
        """The stage whose operations these are; of a chain, the last one."""
        return self.statements[-1].stage

    def bound(self, operand: str) -> Bound:
        """What an operand of the instruction is; ``KeyError`` for another name."""
        for b in self.operands:
            if b.operand == operand:
                return b
        raise KeyError(operand)

    def program_axes(self) -> Dict[str, tuple[str, ...]]:
        """The program's axes by those of the instruction."""
        return {b.axis: b.program for b in self.axes}

    def __str__(self) -> str:
        axes = ", ".join(f"{b.axis} = {'*'.join(b.program) or '1'}" for b in self.axes)
        operands = ", ".join(
            f"{b.operand} = {b.buffer}[{', '.join(map(str, b.indices))}]" for b in self.operands
        )
        return f"{self.instruction.name}: {axes}; {operands}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why operations of a stage are not an instruction's.

    ``statement`` is the number of the instruction's operation, ``operand`` one of its operands or empty,
    ``place`` an axis, a dimension, or what was compared; then what the instruction has there and the program.
    """

    instruction: str
    stage: str
    statement: int
    operand: str
    place: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"operation {self.statement}" + (f", operand {self.operand}" if self.operand else "")
        return (
            f"{self.instruction}, stage {self.stage}: {where}: {self.place}: expected {self.expected}, "
            f"found {self.found}"
        )
