"""Instructions of the machine: ``Exec`` of dot products, in as many lanes as the vector loop around has."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tilewright.codegen.llvm.values import Val
from tilewright.codegen.memory import MemoryBuffer
from tilewright.codegen.tiles import Tiles, uses_tiles
from tilewright.ir import Exec, Load, Window
from tilewright.support import ScheduleError, TargetError
from tilewright.target import Instruction, Move, find_operation

LANE_BITS: Final = 32
"""Bits of a lane of every instruction here: one element of the result, or the operands' elements together."""
SMALLEST_LANES: Final = 4
"""Lanes of the narrowest registers: fewer run in those, the others undefined."""

_INTRINSICS: Final = MappingProxyType(
    {"vdpbf16ps": "llvm.x86.avx512bf16.dpbf16ps", "vpdpbusd": "llvm.x86.avx512.vpdpbusd"}
)
_OPERAND_TYPES: Final = MappingProxyType({"vdpbf16ps": ("bfloat", 16), "vpdpbusd": ("i32", 32)})


class Instructions(Tiles):
    """Emits calls of instructions, and tiles."""

    def execute(self, s: Exec) -> None:
        """Emit one call; lanes come from the vector loop around it."""
        instruction = find_operation(s.instr)
        if uses_tiles(instruction):
            self.execute_on_tiles(s, instruction)
            return
        if isinstance(instruction, Move) or s.instr not in _INTRINSICS:
            raise TargetError(f"no code can be generated for the instruction {s.instr}")
        b, width = self.b, self.state.width
        result, *operands = s.windows
        old = b.splat(self.load(Load(result.buffer, result.offsets, instruction.result.dtype)), width)
        words = [b.splat(self._words(w, instruction), width) for w in operands]
        lanes = max(width, SMALLEST_LANES)
        element, bits = _OPERAND_TYPES[s.instr]
        new = b.dot(
            f"{_INTRINSICS[s.instr]}.{lanes * LANE_BITS}",
            b.resize(old, lanes),
            [b.resize(v, lanes) for v in words],
            f"<{lanes * LANE_BITS // bits} x {element}>",
        )
        self.assign(result.buffer, result.offsets, b.resize(new, width))

    def _words(self, w: Window, instruction: Instruction) -> Val:
        """The elements of a window as one word a lane, or one for all."""
        st, b = self.state, self.b
        buf = st.buffers[w.buffer]
        if not isinstance(buf, MemoryBuffer):
            raise ScheduleError(
                f"{instruction.name} reads {w.buffer}, which is in registers",
                hint="keep operands of instructions in memory",
            )
        dtype, depth = buf.buffer.dtype, instruction.depth
        self._require_together(buf, w, instruction)
        access = self._access(buf, w.offsets)
        const, r = self.evaluate(access.plan)
        if r.irregular or r.lane not in (0, depth):
            raise ScheduleError(
                f"{instruction.name}: lanes of {w.buffer} do not lie side by side",
                hint=f"store its {depth} elements of each lane together, lane after lane (set_layout, stage)",
            )
        lanes = st.width if r.lane else 1
        mask = st.mask if lanes > 1 else None
        if access.products or r.volatile:
            raise ScheduleError(
                f"{instruction.name}: {w.buffer} has sizes or indices that are known only when running"
            )
        place = r.place
        if place is None:
            place = r.place = self._place(buf, r.terms)
        if st.guards and not self.in_bounds(w.buffer, w.offsets):
            return self._guarded_words(
                buf, b.gep(self._pointer(buf, place, r.terms), const, dtype), lanes, mask
            )
        tag = "words" if mask is None else f"words {mask.text}"
        key = (const, lanes, 0 if mask is None else mask.depth, tag)
        hit = self._earlier_load(place.loads, key, buf)
        if hit is not None:
            return hit
        p = b.gep(self._pointer(buf, place, r.terms), const, dtype, local=True)
        v = b.load_words(p, dtype, lanes, mask)
        place.loads[key] = (v, buf.version, b.scope)
        return v

    def _guarded_words(self, buf: MemoryBuffer, p: Val, lanes: int, mask: Val | None) -> Val:
        """Words that may only be read where the present conditions hold."""
        b, dtype, guard = self.b, buf.buffer.dtype, self._guard()
        if lanes > 1:
            return b.load_words(p, dtype, lanes, b.both(mask, b.splat(guard, lanes)))
        one = b.reduce("or", guard) if guard.lanes > 1 else guard
        return b.load_words(b.select(one, p, b.zeros(p.root)), dtype, 1)

    def _require_together(self, buf: MemoryBuffer, w: Window, instruction: Instruction) -> None:
        """Refuse a window whose elements are not consecutive in memory."""
        along = [d for d, extent in enumerate(w.extents) if extent > 1]
        first = buf.buffer.physical(w.offsets)
        for n in range(1, instruction.depth):
            moved = tuple(i + n if d in along else i for d, i in enumerate(w.offsets))
            distance = 0
            for before, after, stride in zip(first, buf.buffer.physical(moved), buf.strides, strict=True):
                step = after - before
                if not step.is_const or not (isinstance(stride, int) or step.const == 0):
                    distance = -1
                    break
                distance += step.const * stride if isinstance(stride, int) else 0
            if distance != n:
                raise ScheduleError(
                    f"{instruction.name}: the {instruction.depth} elements of {w.buffer} that it takes "
                    "together do not lie together in memory",
                    hint="store that dimension innermost, in groups (set_layout, stage)",
                )
