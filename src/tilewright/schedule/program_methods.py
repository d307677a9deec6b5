"""Methods of a schedule for the program phase: layouts and rewrites of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from tilewright.schedule.methods import Methods


class ProgramMethods(Methods):
    """Primitives that change the program before its loops exist."""

    __slots__ = ()

    def inline_stage(self, stage: str) -> Self:
        """Put a stage's definition into its readers, in the program: see ``producer/inline_stage.py``."""
        return self.apply("inline_stage", stage)

    def clone_stage(self, stage: str, reader: str) -> Self:
        """Give one reader of a stage a copy of it: see ``producer/clone_stage.py``."""
        return self.apply("clone_stage", stage, reader)

    def gather_operand(self, stage: str, operand: int, axes: Sequence[str], name: str) -> Self:
        """Compute an operand of a stage into a tensor of its own first."""
        return self.apply("gather_operand", stage, operand, axes, name)

    def pad_operand(
        self, stage: str, operand: int, name: str, order: Sequence[int] = (), block: int = 0
    ) -> Self:
        """Copy an operand of a sum with its padding: see ``rewrite/pad_operand.py``."""
        return self.apply("pad_operand", stage, operand, name, order, block)

    def split_phases(self, stage: str, iterators: Sequence[str]) -> Self:
        """Store what a sum reads in steps to be read by elements: see ``rewrite/split_phases.py``."""
        return self.apply("split_phases", stage, iterators)

    def factor_out(self, stage: str, operands: Sequence[int], name: str) -> Self:
        """Multiply some factors of a sum after a part of it: see ``rewrite/factor_out.py``."""
        return self.apply("factor_out", stage, operands, name)

    def fuse_iterators(self, stage: str, outer: str, inner: str) -> Self:
        """Two axes of a stage as one: see ``rewrite/fuse_iterators.py``."""
        return self.apply("fuse_iterators", stage, outer, inner)

    def split_terms(self, stage: str, name: str, apart: bool) -> Self:
        """A stage for each product of a sum: see ``rewrite/split_terms.py``."""
        return self.apply("split_terms", stage, name, apart)

    def shift_factor(self, stage: str, operand: int, name: str) -> Self:
        """A factor of signed bytes as unsigned ones: see ``rewrite/shift_factor.py``."""
        return self.apply("shift_factor", stage, operand, name)

    def flatten_rows(self, stage: str, lines: str, line: str, multiple: int, name: str) -> Self:
        """Compute two iterators of a sum as one: see ``rewrite/flatten_rows.py``."""
        return self.apply("flatten_rows", stage, lines, line, multiple, name)

    def winograd(self, stage: str, m: int, weights: str, tiles: int = 0) -> Self:
        """Compute a 3x3 convolution by F(m x m, 3x3)."""
        return self.apply("winograd", stage, m, weights, tiles=tiles)

    def strassen(self, stage: str, width: int, weights: str, height: int = 0, copies: bool = True) -> Self:
        """Compute a product with a constant matrix by seven products of quarters."""
        return self.apply("strassen", stage, width, weights, height=height, copies=copies)

    def bf16x3(self, stage: str, weights: str = "", panels: Sequence[int] = ()) -> Self:
        """Compute a sum of products of f32 by three products of bf16 each: see ``rewrite/bf16x3.py``."""
        return self.apply("bf16x3", stage, weights, panels)

    def store_as(self, buffer: str, dtype: str) -> Self:
        """Store an argument in another type: see ``rewrite/store_as.py``."""
        return self.apply("store_as", buffer, dtype)

    def skip_padding(self, stage: str) -> Self:
        """See :func:`~tilewright.schedule.rewrite.skip_padding.skip_padding`."""
        return self.apply("skip_padding", stage)

    def as_matrices(self, stage: str, multiples: Sequence[int], name: str, *, narrow: bool = False) -> Self:
        """A product of matrices: :func:`tilewright.schedule.rewrite.as_matrices.as_matrices`."""
        return self.apply("as_matrices", stage, multiples, name, narrow=narrow)

    def rfactor(
        self,
        stage: str,
        axis: str,
        factor: int,
        *,
        part: Literal["outer", "inner"] = "outer",
        name: str | None = None,
    ) -> Self:
        """Partial results as a stage of their own: :func:`tilewright.schedule.producer.rfactor.rfactor`."""
        return self.apply("rfactor", stage, axis, factor, part=part, name=name)

    def split_scan(self, stage: str, factor: int, name: str) -> Self:
        """A scan in parts: :func:`tilewright.schedule.rewrite.split_scan.split_scan`."""
        return self.apply("split_scan", stage, factor, name)

    def last_writes(self, stage: str, name: str) -> Self:
        """Writes in any order: :func:`tilewright.schedule.rewrite.last_writes.last_writes`."""
        return self.apply("last_writes", stage, name)

    def layout_split(self, tensor: str, dim: int, factors: Sequence[int]) -> Self:
        """Split a tensor's dimension: :func:`tilewright.schedule.layout.split.layout_split`."""
        return self.apply("layout_split", tensor, dim, factors)

    def layout_reorder(self, tensor: str, perm: Sequence[int]) -> Self:
        """Permute a tensor's dimensions: :func:`tilewright.schedule.layout.reorder.layout_reorder`."""
        return self.apply("layout_reorder", tensor, perm)

    def layout_fuse(self, tensor: str, dim: int, count: int) -> Self:
        """Fuse a tensor's dimensions: :func:`tilewright.schedule.layout.fuse.layout_fuse`."""
        return self.apply("layout_fuse", tensor, dim, count)

    def layout_pad(self, tensor: str, dim: int, before: int, after: int) -> Self:
        """Pad a tensor's dimension: :func:`tilewright.schedule.layout.pad.layout_pad`."""
        return self.apply("layout_pad", tensor, dim, before, after)

    def layout_unfold(self, tensor: str, dim: int, tile: int, stride: int) -> Self:
        """Make a dimension overlapping tiles: :func:`tilewright.schedule.layout.unfold.layout_unfold`."""
        return self.apply("layout_unfold", tensor, dim, tile, stride)

    def layout_fold(self, tensor: str, dim: int, stride: int) -> Self:
        """Make overlapping tiles one dimension: :func:`tilewright.schedule.layout.fold.layout_fold`."""
        return self.apply("layout_fold", tensor, dim, stride)

    def layout_unpad(self, tensor: str, dim: int, before: int, after: int) -> Self:
        """Take padding away: :func:`tilewright.schedule.layout.unpad.layout_unpad`."""
        return self.apply("layout_unpad", tensor, dim, before, after)

    def layout_place(self, tensor: str, layout: Sequence[str]) -> Self:
        """Say where a tensor's elements lie: :func:`tilewright.schedule.layout.place.layout_place`."""
        return self.apply("layout_place", tensor, layout)

    def layout_adopt(self, tensor: str) -> Self:
        """Make a tensor's index map its shape: :func:`tilewright.schedule.layout.adopt.layout_adopt`."""
        return self.apply("layout_adopt", tensor)

    def store_at(self, tensor: str, host: str, dim: int, name: str) -> Self:
        """Store a constant inside of another: :func:`tilewright.schedule.layout.store_at.store_at`."""
        return self.apply("store_at", tensor, host, dim, name)

    def decouple_at(self, tensor: str, dim: int, rest: str, name: str) -> Self:
        """Take a constant apart: :func:`tilewright.schedule.layout.decouple_at.decouple_at`."""
        return self.apply("decouple_at", tensor, dim, rest, name)
