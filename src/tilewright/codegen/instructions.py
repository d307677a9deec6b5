"""Instructions of the machine: ``Exec`` of dot products, in as many lanes as the vector loop around has."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tilewright.codegen.accesses import split_lane
from tilewright.codegen.llvm.values import Val
from tilewright.codegen.memory import MemoryBuffer, RegisterBuffer
from tilewright.codegen.tiles import Tiles
from tilewright.ir import Along, Exec, Load, Window
from tilewright.support import InternalError, ScheduleError, TargetError
from tilewright.target import Emission, Instruction, find_operation

LANE_BITS: Final = 32
"""Bits of a lane of every instruction here: one element of the result, or the operands' elements together."""
_WORD_BITS: Final = MappingProxyType({"i8": 8, "i16": 16, "bfloat": 16, "half": 16, "i32": 32, "float": 32})


class Instructions(Tiles):
    """Emits calls of instructions, by the templates of their rows."""

    def execute(self, s: Exec) -> None:
        """Emit one call; lanes come from the vector loop around it."""
        instruction = find_operation(s.instr, self.state.operations)
        emission = instruction.emission
        if emission is not None and emission.form == "tiles":
            self.execute_on_tiles(s, instruction, emission)
        elif emission is not None and emission.form == "matrix":
            self._execute_on_matrices(s, instruction, emission)
        elif emission is not None and _has_lanes(instruction):
            self._execute_on_lanes(s, instruction, emission)
        else:
            raise TargetError(
                f"no code can be generated for the instruction {s.instr}",
                hint="its row has no template of code, or lanes of other than 32 bits",
            )

    def _execute_on_lanes(self, s: Exec, instruction: Instruction, emission: Emission) -> None:
        b, width = self.b, self.state.width
        result, *operands = s.windows
        old = b.splat(self.load(Load(result.buffer, result.offsets, instruction.result.dtype)), width)
        words = [b.splat(self._words(w, instruction), width) for w in operands]
        # fewer lanes than a register has run in it, the others undefined
        bits = next((n for n in emission.bits if n >= width * LANE_BITS), width * LANE_BITS)
        element = instruction.operands[1].dtype.bits
        new = b.dot(
            emission.name(bits, LANE_BITS, element),
            b.resize(old, bits // LANE_BITS),
            [b.resize(v, bits // LANE_BITS) for v in words],
            f"<{bits // _WORD_BITS[emission.word]} x {emission.word}>",
        )
        self.assign(result.buffer, result.offsets, b.resize(new, width))

    def _execute_on_matrices(self, s: Exec, instruction: Instruction, emission: Emission) -> None:
        """One register an operand, filled row by row from memory, and the result's stored so."""
        self.require_alone(s)
        b = self.b
        values: list[Val] = []
        for w, operand in zip(s.windows, instruction.operands, strict=True):
            _, p, stride = self._rows_of(w, operand, s.instr)
            rows, columns = (a.count for a in w.axes)
            apart, dtype = stride // operand.dtype.bytes, operand.dtype
            values.append(b.joined([b.load(b.gep(p, n * apart, dtype), dtype, columns) for n in range(rows)]))
        total, *words = values
        new = b.dot(
            emission.name(emission.bits[0], LANE_BITS, words[0].dtype.bits),
            total,
            words,
            f"<{emission.bits[0] // _WORD_BITS[emission.word]} x {emission.word}>",
        )
        result = instruction.result
        buf, p, stride = self._rows_of(s.windows[0], result, s.instr)
        rows, columns = (a.count for a in s.windows[0].axes)
        for n in range(rows):
            row = b.pick(new, new, range(n * columns, (n + 1) * columns))
            b.store(b.gep(p, n * stride // result.dtype.bytes, result.dtype), row)
        self.forget({buf.buffer.name})

    def _words(self, w: Window, instruction: Instruction) -> Val:
        """The elements of a window as one word a lane, or one for all."""
        st, b = self.state, self.b
        buf = st.buffers[w.buffer]
        self._require_together(buf, w, instruction)
        if not isinstance(buf, MemoryBuffer):
            return self._register_words(buf, w, instruction)
        dtype, depth = buf.buffer.dtype, instruction.depth
        access = self._access(buf, w.offsets)
        lane, _, irregular = split_lane(*self._offset(access))
        if irregular or lane not in (0, depth):
            raise _apart(w, instruction)
        lanes = st.width if lane else 1
        mask = st.mask if lanes > 1 else None
        p, loads, at = self._first_lane(buf, access)
        if st.guards and not self.in_bounds(w.buffer, w.offsets):
            return self._guarded_words(buf, p, lanes, mask)
        key = (at, lanes, 0, "words") if mask is None else (at, lanes, mask.depth, f"words {mask.text}")
        hit = self._earlier_load(loads, key, buf)
        if hit is not None:
            return hit
        v = b.load_words(p, dtype, lanes, mask)
        loads[key] = (v, buf.version, b.scope)
        return v

    def _register_words(self, buf: RegisterBuffer, w: Window, instruction: Instruction) -> Val:
        """Words of a register that holds the elements of all lanes together, lane after lane."""
        first, lane, lanes = self.register_key(buf, w.offsets)
        if lane not in (0, instruction.depth):
            raise _apart(w, instruction)
        found = buf.get(self.b, (first, 1, lanes * instruction.depth))
        if found is None:
            raise InternalError(f"register {w.buffer} is read by {instruction.name} before it is written")
        return self.b.as_words(found, lanes)

    def _guarded_words(self, buf: MemoryBuffer, p: Val, lanes: int, mask: Val | None) -> Val:
        """Words that may only be read where the present conditions hold."""
        b, dtype, guard = self.b, buf.buffer.dtype, self._guard()
        if lanes > 1:
            return b.load_words(p, dtype, lanes, b.both(mask, b.splat(guard, lanes)))
        one = b.reduce("or", guard) if guard.lanes > 1 else guard
        return b.load_words(b.select(one, p, b.zeros(p.root)), dtype, 1)

    def _require_together(
        self, buf: MemoryBuffer | RegisterBuffer, w: Window, instruction: Instruction
    ) -> None:
        """Refuse a window whose elements are not consecutive in memory: a layout set after ``tensorize``."""
        for d, extent in enumerate(w.extents):
            if extent > 1 and self._distances(buf, w, Along(d, extent, 1)) != tuple(range(extent)):
                raise ScheduleError(
                    f"{instruction.name}: the {instruction.depth} elements of {w.buffer} that it takes "
                    "together do not lie together in memory",
                    hint="store that dimension innermost, in groups (set_layout, cache)",
                )


def _apart(w: Window, instruction: Instruction) -> ScheduleError:
    depth = instruction.depth
    return ScheduleError(
        f"{instruction.name}: lanes of {w.buffer} do not lie side by side",
        hint=f"store its {depth} elements of each lane together, lane after lane (set_layout, cache)",
    )


def _has_lanes(instruction: Instruction) -> bool:
    """Whether an instruction works in lanes of words: each a result, and as many bits of each operand."""
    first, *others = instruction.operands
    folded = instruction.depth
    return (
        bool(instruction.lanes)
        and first.dtype.bits == LANE_BITS
        and all(o.dtype.bits * folded == LANE_BITS for o in others)
    )
