"""Methods of a schedule for the primitives on loops (``schedule/loop/``).

A test holds their signatures equal to those of the primitives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from tilewright.schedule.loop.split import Tail
from tilewright.schedule.methods import Methods


class LoopMethods(Methods):
    """Primitives that change the order of loops. Each is documented in the file of its name."""

    __slots__ = ()

    def split(
        self, loop: str, factor: int | Sequence[int], *, tail: Tail = "guard", names: Sequence[str] = ()
    ) -> Self:
        """One loop becomes a nest: ``i`` becomes ``i_o, i_i``."""
        return self.apply("split", loop, factor, tail=tail, names=names)

    def reorder(self, *loops: str) -> Self:
        """Permute loops of a perfect nest into the given order, outermost first."""
        return self.apply("reorder", *loops)

    def fuse(self, outer: str, inner: str, *, names: Sequence[str] = ()) -> Self:
        """Two loops, one directly inside the other, become one."""
        return self.apply("fuse", outer, inner, names=names)

    def tile(self, loops: Sequence[str], factors: Sequence[int], *, tail: Tail = "guard") -> Self:
        """Split several loops and put all outer ones outside."""
        return self.apply("tile", loops, factors, tail=tail)

    def partition(
        self, loop: str, at: int | Literal["tail"] | Sequence[int], *, names: Sequence[str] = ()
    ) -> Self:
        """Cut a loop's range into loops that follow each other."""
        return self.apply("partition", loop, at, names=names)

    def peel(self, loop: str, which: Literal["first", "last"], *, names: Sequence[str] = ()) -> Self:
        """Take the first or the last iteration out of a loop."""
        return self.apply("peel", loop, which, names=names)

    def parallel(self, loop: str) -> Self:
        """Run a loop's iterations on several threads."""
        return self.apply("parallel", loop)

    def vectorize(self, loop: str) -> Self:
        """Run a loop's iterations as vector lanes."""
        return self.apply("vectorize", loop)

    def unroll(self, loop: str) -> Self:
        """Expand a loop of constant extent."""
        return self.apply("unroll", loop)

    def bind(self, loop: str | Sequence[str], axis: str) -> Self:
        """Give the iterations of a loop, or of several, to a hardware axis such as ``block.x``."""
        return self.apply("bind", loop, axis)

    def annotate(self, loop: str, key: str, value: str = "") -> Self:
        """Give a loop a back-end hint."""
        return self.apply("annotate", loop, key, value)

    def decompose_init(self, block: str, loop: str) -> Self:
        """Initialise a reduction in a block of its own, before ``loop``."""
        return self.apply("decompose_init", block, loop)

    def set_layout(self, buffer: str, layout: Sequence[str]) -> Self:
        """See :func:`~tilewright.schedule.loop.set_layout.set_layout`."""
        return self.apply("set_layout", buffer, layout)

    def blockize(self, loop: str, *, name: str | None = None) -> Self:
        """Make a loop and everything in it one opaque block."""
        return self.apply("blockize", loop, name=name)

    def tensorize(self, loop: str, instr: str) -> Self:
        """Do a nest by one instruction of the machine."""
        return self.apply("tensorize", loop, instr)

    def import_tree(self, stages: Sequence[str], tree: str) -> Self:
        """Run whole stages in the order of a schedule tree, given as isl's text."""
        return self.apply("import_tree", stages, tree)

    def set_scope(self, buffer: str, scope: str) -> Self:
        """Choose the memory of an allocated buffer."""
        return self.apply("set_scope", buffer, scope)
