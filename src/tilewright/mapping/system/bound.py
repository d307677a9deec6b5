"""Stages bound to instructions, and the tiles of their operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tilewright.ir import Buffer, DType, Index, substitute_index
from tilewright.mapping.system.stream import Box, spans


@dataclass(frozen=True, slots=True)
class BoundOperand:
    """An operand: the tensor it is a tile of, the access's indices over the stage's axes, and, for each
    dimension of the tile, the tensor's dimension (-1: one of extent 1 that the tensor lacks).
    """

    name: str
    tensor: str
    indices: tuple[Index, ...]
    dims: tuple[int, ...]
    made: bool = False
    """Whether the program makes it: then it may be where no way leads from the home memory."""


@dataclass(frozen=True, slots=True)
class BoundStage:
    """A stage, or a part of one, done by calls of one instruction.

    ``axes`` gives for each axis of the instruction the stage's axis (``None``: one of extent 1) and how far
    one call goes along it. ``initial`` is the instruction that starts a sum which ``instruction`` continues.
    """

    stage: str
    instruction: str
    initial: str | None
    extents: Mapping[str, int]
    reduces: tuple[str, ...]
    axes: Mapping[str, tuple[str | None, int]]
    sizes: Mapping[str, str]
    operands: tuple[BoundOperand, ...]
    result: BoundOperand
    continues: bool = False
    """Whether it adds to a result that is there."""

    @property
    def calls(self) -> int:
        """How often the instruction runs."""
        return prod(-(-n // self.reach(a)) for a, n in self.extents.items())

    def reach(self, axis: str) -> int:
        """How far one call goes along an axis of the stage: 1 where the instruction does not have it."""
        return next((n for a, n in self.axes.values() if a == axis), 1)


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """All stages of a program as instructions, in order, and the tensors, temporary ones included."""

    stages: tuple[BoundStage, ...]
    tensors: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a tensor: a box, and the order of its dimensions in memory (as of a ``Box``)."""

    tensor: str
    lows: tuple[Index, ...]
    extents: tuple[int, ...]
    dims: tuple[int, ...]
    dtype: DType
    steps: tuple[int, ...] = ()

    @property
    def spans(self) -> tuple[int, ...]:
        """As of a ``Box``."""
        return spans(self.extents, self.steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile's shape."""
        return tuple(1 if d < 0 else self.extents[d] for d in self.dims)

    @property
    def box(self) -> Box:
        """The tile in the home memory."""
        return Box(self.tensor, self.lows, self.extents, self.dims, self.steps)

    @property
    def bytes(self) -> int:
        """The tile's size."""
        return prod(self.shape) * self.dtype.bytes

    @property
    def vars(self) -> frozenset[str]:
        """Loop variables that move it."""
        return frozenset().union(*(x.vars for x in self.lows))

    def at(self, values: Mapping[str, Index]) -> Tile:
        """The tile for other values of loop variables."""
        return replace(self, lows=tuple(substitute_index(x, values) for x in self.lows))

    def apart(self, other: Tile) -> bool:
        """Whether the two provably share no element."""
        if self.tensor != other.tensor:
            return True
        for a, n, b, m in zip(self.lows, self.spans, other.lows, other.spans, strict=True):
            gap = b - a
            if gap.is_const and (gap.as_int() >= n or gap.as_int() <= -m):
                return True
        return False


def tile_of(stage: BoundStage, o: BoundOperand, place: Mapping[str, tuple[Index, int]], dtype: DType) -> Tile:
    """The tile of an operand where each axis of the stage begins at a place and goes so far."""
    extents, steps = [1] * len(o.indices), [1] * len(o.indices)
    mapped = [a for a, _ in stage.axes.values() if a]
    for d, x in enumerate(o.indices):
        axis = next((a for a in mapped if x.coefficient(a)), None)
        if axis is not None:
            extents[d] = place[axis][1]
            steps[d] = x.coefficient(axis) if extents[d] > 1 else 1
    lows = tuple(substitute_index(x, {a: lo for a, (lo, _) in place.items()}) for x in o.indices)
    apart = tuple(steps) if max(steps, default=1) > 1 else ()
    return Tile(o.tensor, lows, tuple(extents), o.dims, dtype, apart)
