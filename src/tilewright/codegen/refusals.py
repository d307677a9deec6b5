"""What code generation can refuse, without emission: the emitter decides, and nobody writes what it makes.

The emitter decides by constants, ranges, lanes and buffers; text is what its builder makes of that. Here the
builder writes nothing, and of loops that are expanded only the first and the last copy are visited: what an
access is does not change between them. Where it does - tiles are counted, lanes joined that other copies
filled - all copies are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tilewright.codegen.clike import emit_kernels
from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.scopes import Scope, Text
from tilewright.codegen.llvm.values import Val
from tilewright.codegen.memory import Keys, RegisterBuffer
from tilewright.codegen.statements import Emitter
from tilewright.codegen.uses import executions
from tilewright.codegen.vectors import reduction_of
from tilewright.ir import DType, For, Index, Load, LoopFunction, Stmt, stmt_children
from tilewright.target import BUILT_IN, GpuTarget, Operations, Target

_VALUE: Final = "%v"


def check(func: LoopFunction, target: Target | GpuTarget) -> None:
    """Raise what generating code of a lowered function for a target would raise, without doing it.

    Raises ScheduleError where the schedule asks for what the target cannot do, TargetError where the target
    has no such loops or instructions. For a device the language's text is made, and dropped.
    """
    if isinstance(target, GpuTarget):
        emit_kernels(func, target.language)
        return
    bits, operations = target.preferred_vector_bits, target.operations
    check_kernel(func, triple=target.llvm_triple, vector_bits=bits, operations=operations)


def check_kernel(
    func: LoopFunction, *, triple: str, vector_bits: int, operations: Operations = BUILT_IN
) -> None:
    """:func:`check` for what :func:`~tilewright.codegen.emit_kernel` emits."""
    every = _joins_lanes(func.body, False) or any(True for _ in executions(func.body))
    _Check(_Silent(triple), vector_bits, operations, every=every).kernel(func, "")


def _joins_lanes(s: Stmt, lanes: bool) -> bool:
    """Whether a reduction of loads is in a vector loop: lanes of registers are joined if all were written."""
    if isinstance(s, For):
        if lanes and (r := reduction_of(s)) is not None and isinstance(r.term, Load):
            return True
        lanes = lanes or s.kind.name == "vector"
    return any(_joins_lanes(k, lanes) for k in stmt_children(s))


class _Silent(Builder):
    """Knows types, lanes and depths of values, and writes nothing."""

    def pure(
        self,
        key: str,
        dtype: DType,
        lanes: int,
        operands: Sequence[Val],
        text: Text,
        *,
        root: str = "",
        local: bool = False,
    ) -> Val:
        """A value as deep as the deepest of its operands."""
        depth = self.depth if local else max((v.depth for v in operands), default=0)
        return Val(_VALUE, dtype, lanes, depth or self.scope.func.base, root)

    def impure(self, dtype: DType, lanes: int, operands: Sequence[Val], text: Text, root: str = "") -> Val:
        """A value of the present scope."""
        return Val(_VALUE, dtype, lanes, self.depth, root)

    def effect(self, text: Text, operands: Sequence[Val]) -> None:
        """Nothing."""

    def localise(self, v: Val, scope: Scope) -> Val:
        """The value: nothing is captured."""
        return v


class _Check(Emitter):
    """Decides what the emitter decides; with ``every`` for each copy of expanded loops."""

    def __init__(self, builder: Builder, vector_bits: int, operations: Operations, *, every: bool) -> None:
        super().__init__(builder, vector_bits, operations, keeps_lanes=True)
        self.every = every

    def _expand(self, s: For, copies: Iterable[Index], emit: Callable[[Stmt], None]) -> None:
        ends = tuple(copies)
        super()._expand(s, ends if self.every else (*ends[:1], *ends[1:][-1:]), emit)

    def keep(self, lanes: bool, keys: Keys) -> None:
        """Nothing: which registers loops carry refuses no program."""

    def _load_register(self, buf: RegisterBuffer, indices: tuple[Index, ...]) -> Val:
        # perhaps a copy that is left out would have written it
        _, _, lanes = self.register_key(buf, indices)
        return Val(_VALUE, buf.buffer.dtype, lanes, self.b.depth)
