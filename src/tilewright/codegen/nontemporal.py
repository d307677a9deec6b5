"""Stores that bypass the caches: the hint ``nontemporal`` of a loop, buffers separated by commas.

A result larger than the caches that is stored as usual costs twice: each line is read before it is
overwritten, and pushes out what others need. Within the loop, whole vectors of the named buffers are stored
past the caches instead. The machine stores only aligned vectors so, while arguments are promised the
alignment of their elements: the loop is emitted twice, and the kernel takes the version with these stores
where the buffers begin at a multiple of a vector. Whether a single store lies at a multiple of vectors from
there is decided when it is emitted; others stay as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.llvm.values import Val
from tilewright.codegen.memory import MemoryBuffer
from tilewright.ir import I64


class NonTemporal(Accesses):
    """Emits loops in two versions."""

    vector_bits: int

    @abstractmethod
    def branch(
        self,
        cond: Val,
        written: frozenset[str],
        then: Callable[[], None],
        orelse: Callable[[], None] | None = None,
    ) -> None:
        """A jump."""

    def past_caches(self, names: frozenset[str], written: frozenset[str], emit: Callable[[], None]) -> None:
        """Emit something with the stores of ``names`` past the caches, and without for other alignments."""
        b, st = self.b, self.state
        fresh = frozenset(
            name for name in names - st.nontemporal if isinstance(st.buffers.get(name), MemoryBuffer)
        )
        if not fresh or not fresh & written:
            emit()
            return
        bits = b.const(0, I64)
        for name in sorted(fresh):
            buf = st.buffers[name]
            assert isinstance(buf, MemoryBuffer)
            bits = b.op("or", bits, b.convert("ptrtoint", buf.pointer, I64))
        low = b.op("and", bits, b.const(self.vector_bits // 8 - 1, I64))

        def bypassing() -> None:
            outer = st.nontemporal
            st.nontemporal |= fresh
            emit()
            st.nontemporal = outer
            b.order_nontemporal()

        self.branch(b.compare("icmp eq", low, b.const(0, I64)), written, bypassing, emit)
