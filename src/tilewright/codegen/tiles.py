"""Tile registers: which register holds what, their configuration, and instructions on tiles (AMX).

Registers are assigned here, not by LLVM: tiles must never be spilled. A function that uses tiles loads one
configuration at its beginning, the shapes of its registers, which fills up as they are assigned; where they
do not suffice, an allocation has a configuration of its own. Operands in memory are loaded into the registers
that are left, and kept there until those are needed for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.scopes import Scope
from tilewright.codegen.llvm.values import Val
from tilewright.codegen.memory import MemoryBuffer, RegisterBuffer
from tilewright.codegen.state import State
from tilewright.codegen.uses import element_wise, executions
from tilewright.ir import (
    TILE,
    Alloc,
    Along,
    Buffer,
    Exec,
    For,
    Index,
    IndexMap,
    Stmt,
    Window,
    stmt_children,
    substitute_index,
    var,
)
from tilewright.support import InternalError, ScheduleError
from tilewright.target import (
    ROW_BYTES,
    ROWS,
    TILES,
    Emission,
    Instruction,
    Operand,
    find_operation,
)

Shape: TypeAlias = tuple[int, int]
"""Rows, and bytes of each."""
#: Bytes of a configuration: palette and start row, the bytes of each register's rows, its rows.
CONFIGURATION_BYTES: Final = 64
#: Registers that operands take turns in, of each shape: more wait for nothing.
OPERAND_REGISTERS: Final = 2


@dataclass(slots=True)
class _Configuration:
    """The shapes of the registers; ``None`` where one has not been used yet."""

    name: str
    shapes: list[Shape | None] = field(default_factory=lambda: [None] * TILES)

    def content(self) -> bytes:
        """As the processor reads it."""
        out = bytearray(CONFIGURATION_BYTES)
        out[0] = 1
        for n, shape in enumerate(self.shapes):
            rows, width = shape or (ROWS, ROW_BYTES)
            out[16 + 2 * n : 18 + 2 * n] = width.to_bytes(2, "little")
            out[48 + n] = rows
        return bytes(out)


@dataclass(slots=True)
class _Tiled:
    """A buffer in tile registers: those it has, and which of them begin where."""

    buffer: Buffer
    shape: Shape
    registers: list[int]
    begins: dict[tuple[int, ...], int] = field(default_factory=dict)


@dataclass(slots=True)
class _Loaded:
    """What a register for operands holds: the first element, the buffer's version then, and where."""

    key: tuple[object, ...]
    version: int
    home: Scope


class Tiles(Accesses):
    """Emits instructions on tiles."""

    def __init__(self, builder: Builder, state: State) -> None:
        super().__init__(builder, state)
        self._tiled: dict[str, _Tiled] = {}
        self._current: _Configuration | None = None
        self._configurations = 0
        self._free: dict[Shape, list[int]] = {}
        self._loaded: dict[int, _Loaded] = {}
        self._known: dict[tuple[Buffer, Along, tuple[Index, ...]], tuple[int, ...]] = {}

    @contextmanager
    def tiles_configured(self, body: Stmt, *, parallel: bool) -> Iterator[None]:
        """A function with this body: its configuration at the beginning, tiles released at the end.

        Bodies of parallel loops are functions of their own, unless this is one (``parallel``).
        """
        if not _allocates_tiles(body, parallel=parallel):
            yield
            return
        outer, self._current = self._current, self._configuration()
        self._configure(self._current)
        yield
        self.b.tables[self._current.name] = self._current.content()
        self.b.declare("llvm.x86.tilerelease", "void", [])
        self.b.effect(lambda _: "call void @llvm.x86.tilerelease()", [])
        self._current = outer

    def configure_again(self, body: Stmt) -> None:
        """After a parallel loop with this body: this thread has done parts of it, too."""
        if self._current is not None and _allocates_tiles(body, parallel=True):
            self._configure(self._current)

    def alloc_tiles(self, s: Alloc, emit: Callable[[Stmt], None]) -> None:
        """Emit the body of an allocation of tiles with its registers."""
        shape, operands = self._shapes(s)
        sizes = [e.as_int() for e in s.buffer.physical_shape]
        extents = _extents_of(s)
        count = prod(-(-size // n) for size, n in zip(sizes, extents, strict=True))
        if self._free:
            raise ScheduleError(
                f"tiles of {s.buffer.name} are allocated where others are",
                hint="allocate them in separate loops",
            )
        outer = self._current
        if outer is None:
            # in a parallel loop that is no function of its own
            with self.tiles_configured(s, parallel=True):
                self.alloc_tiles(s, emit)
            return
        found = _assign(outer, shape, count, operands)
        if found is None:
            own = self._configuration()
            found = _assign(own, shape, count, operands)
            if found is None:
                raise ScheduleError(
                    f"{s.buffer.name} takes {count} tile registers, and its products "
                    f"{sum(operands.values())} more at least: there are {TILES}",
                    hint="make the tiles of results smaller",
                )
            self._current = own
            self._configure(own)
        registers, self._free = found
        self._loaded = {}
        self._tiled[s.buffer.name] = _Tiled(s.buffer, shape, registers)
        emit(s.body)
        del self._tiled[s.buffer.name]
        self._free = {}
        if self._current is not outer:
            assert self._current is not None
            self.b.tables[self._current.name] = self._current.content()
            self._configure(outer)
            self._current = outer

    def execute_on_tiles(self, s: Exec, operation: Instruction, emission: Emission) -> None:
        """Emit an instruction on tiles; what it has in memory is given by its rows."""
        self.require_alone(s)
        b, name = self.b, emission.intrinsic
        if operation.is_contraction:
            result, *operands = s.windows
            registers = [self._tile_of(result, s.instr)]
            for w, operand in zip(operands, operation.operands[1:], strict=True):
                registers.append(self._tile_with(w, operand, s.instr, others=registers[1:]))
            b.declare(name, "void", ["i8 immarg"] * len(registers))
            given = ", ".join(f"i8 {n}" for n in registers)
            b.effect(lambda _: f"call void @{name}({given})", [])
            return
        if len(s.windows) == 1:
            register = self._tile_of(s.windows[0], s.instr)
            b.declare(name, "void", ["i8 immarg"])
            b.effect(lambda _: f"call void @{name}(i8 {register})", [])
            return
        result, source = s.windows
        register = self._tile_of(source, s.instr)
        buf, p, stride = self._rows_of(result, operation.result, s.instr)
        b.declare(name, "void", ["i8 immarg", "ptr", "i64"])
        b.scope.func.written.add(p.root)
        b.effect(lambda o: f"call void @{name}(i8 {register}, ptr {o[0].text}, i64 {stride})", [p])
        self.forget({buf.buffer.name})

    def require_alone(self, s: Exec) -> None:
        """Refuse an instruction on tiles or matrices in lanes, and where only some of them run."""
        if self.state.width > 1 or self.state.guards:
            raise ScheduleError(f"{s.instr} does whole tiles: it cannot be in a vector loop")

    # -- registers ------------------------------------------------------------------------------------------

    def _configuration(self) -> _Configuration:
        self._configurations += 1
        return _Configuration(f"tw_tiles{self._configurations}")

    def _configure(self, c: _Configuration) -> None:
        self.b.declare("llvm.x86.ldtilecfg", "void", ["ptr"])
        self.b.tables.setdefault(c.name, c.content())
        self.b.effect(lambda _: f"call void @llvm.x86.ldtilecfg(ptr @{c.name})", [])

    def _shapes(self, s: Alloc) -> tuple[Shape, dict[Shape, int]]:
        """The shape of the buffer's tiles, and the operands of each shape that a product with them takes."""
        shapes: set[Shape] = set()
        operands: dict[Shape, int] = {}
        name = s.buffer.name
        for node in executions(s.body):
            if all(w.buffer != name for w in node.windows):
                continue
            operation = find_operation(node.instr, self.state.operations)
            taken: list[Shape] = []
            for w, operand in zip(node.windows, operation.operands, strict=True):
                if w.buffer == name:
                    shapes.add(_shape(w, operand))
                elif operation.is_contraction:
                    taken.append(_shape(w, operand))
            for shape in taken:
                operands[shape] = max(operands.get(shape, 0), taken.count(shape))
        if len(shapes) != 1 or name in element_wise(s.body):
            raise ScheduleError(
                f"{name} is in tiles: all that uses it must be instructions, on parts of one size",
                hint="tensorize what fills, sums and reads it",
            )
        return shapes.pop(), dict(sorted(operands.items()))

    def _tile_of(self, w: Window, instr: str) -> int:
        """The register of a window of tiles."""
        tiled = self._tiled.get(w.buffer)
        if tiled is None:
            raise ScheduleError(f"{instr} works on tiles, and {w.buffer} is in none", hint="set_scope tile")
        at = [self.resolve(i) for i in tiled.buffer.physical(w.offsets)]
        if not all(i.is_const for i in at):
            raise ScheduleError(
                f"tiles of {w.buffer} are chosen by {', '.join(map(str, w.offsets))}, not by constants",
                hint="unroll the loops around the instructions",
            )
        begin = tuple(i.const for i in at)
        if begin not in tiled.begins:
            if len(tiled.begins) == len(tiled.registers):
                raise ScheduleError(
                    f"{instr}: windows of {w.buffer} overlap", hint="split loops by the instruction's extents"
                )
            tiled.begins[begin] = tiled.registers[len(tiled.begins)]
        return tiled.begins[begin]

    def _tile_with(self, w: Window, operand: Operand, instr: str, others: Sequence[int] = ()) -> int:
        """The register that an operand in memory is loaded into, or has been; none of ``others``."""
        if w.buffer in self._tiled:
            return self._tile_of(w, instr)
        buf, p, stride = self._rows_of(w, operand, instr)
        shape = _shape(w, operand)
        key = (w.buffer, p.text, p.depth, stride)
        for register in self._free[shape]:
            held = self._loaded.get(register)
            if (
                held is not None
                and register not in others
                and held.key == key
                and held.version == buf.version
                and held.home is self.b.scope
            ):
                break
        else:
            register = next(n for n in self._free[shape] if n not in others)
            held = None
        # the next to be loaded is the one whose use is longest ago
        self._free[shape].remove(register)
        self._free[shape].append(register)
        if held is not None:
            return register
        self._loaded[register] = _Loaded(key, buf.version, self.b.scope)
        self.b.declare("llvm.x86.tileloadd64", "void", ["i8 immarg", "ptr", "i64"])
        self.b.effect(
            lambda o: f"call void @llvm.x86.tileloadd64(i8 {register}, ptr {o[0].text}, i64 {stride})", [p]
        )
        return register

    # -- memory ---------------------------------------------------------------------------------------------

    def _rows_of(self, w: Window, operand: Operand, instr: str) -> tuple[MemoryBuffer, Val, int]:
        """The first element of a window in memory and the bytes from each row to the next.

        Refuses windows that do not lie as the instruction reads them: elements of a row side by side.
        """
        buf = self.state.buffers.get(w.buffer)
        if not isinstance(buf, MemoryBuffer):
            raise ScheduleError(f"{instr} uses {w.buffer}, which is in registers", hint="keep it in memory")
        slow, fast = w.axes
        step = operand.row_step(self._distances(buf, w, slow), self._distances(buf, w, fast))
        if step is None:
            group = operand.group
            order = f"groups of {group} along dimension {slow.dim}, then " if group > 1 else ""
            raise ScheduleError(
                f"{instr}: the elements of {w.buffer} that it takes together do not lie together in memory",
                hint=f"store {order}dimension {fast.dim} innermost (set_layout, cache)",
            )
        p, _, _ = self._first_lane(buf, self._access(buf, w.offsets))
        return buf, p, step * buf.buffer.dtype.bytes or ROW_BYTES

    def _distances(self, buf: MemoryBuffer | RegisterBuffer, w: Window, along: Along) -> tuple[int, ...]:
        """Elements from the first of a window to each along one axis; -1 where that is not known."""
        buffer = buf.buffer
        first = tuple(self.resolve(i) for i in buffer.physical(w.offsets))
        # instructions that follow each other share windows, and a place in memory is that of one element
        known = self._known.get((buffer, along, first))
        if known is None:
            known = self._known[buffer, along, first] = self._apart_by(buf, w, along, first)
        return known

    def _apart_by(
        self, buf: MemoryBuffer | RegisterBuffer, w: Window, along: Along, first: Sequence[Index]
    ) -> tuple[int, ...]:
        names = tuple(map(str, range(len(w.offsets))))
        layout = buf.buffer.layout or IndexMap(names, tuple(map(var, names)), buf.buffer.shape)
        dim, found = layout.dims[along.dim], list[int]()
        moving = [
            (place, before, stride)
            for place, before, stride in zip(layout.exprs, first, buf.strides, strict=True)
            if dim in place.vars
        ]
        for n in range(along.count):
            env = dict(zip(layout.dims, w.offsets, strict=True))
            env[dim] += n * along.step
            total = Index(0)
            for place, before, stride in moving:
                step = self.resolve(substitute_index(place, env)) - before
                if step == Index(0):
                    continue
                if not isinstance(stride, int):
                    return (-1,) * along.count
                total = total + step * stride
            found.append(total.const if total.is_const else -1)
        return tuple(found)


def _assign(
    c: _Configuration, shape: Shape, count: int, operands: Mapping[Shape, int]
) -> tuple[list[int], dict[Shape, list[int]]] | None:
    """Registers of a configuration for results and for operands; ``None`` where it has not enough."""
    shapes = list(c.shapes)
    free = set(range(TILES))

    def take(wanted: Shape, number: int) -> list[int]:
        fitting = [n for n in sorted(free) if shapes[n] == wanted]
        fitting += [n for n in sorted(free) if shapes[n] is None]
        taken = fitting[:number]
        for n in taken:
            shapes[n] = wanted
            free.discard(n)
        return taken

    results = take(shape, count)
    found = {wanted: take(wanted, least) for wanted, least in operands.items()}
    if len(results) < count or any(len(found[wanted]) < least for wanted, least in operands.items()):
        return None
    for wanted, least in operands.items():
        # all that are left where both operands are of one shape
        found[wanted] += take(wanted, TILES if len(operands) == 1 else OPERAND_REGISTERS - least)
    c.shapes[:] = shapes
    return results, found


def _shape(w: Window, operand: Operand) -> Shape:
    """The tile that a window is."""
    slow, fast = (a.count for a in w.axes)
    return slow // operand.group, fast * operand.group * operand.dtype.bytes


def _extents_of(s: Alloc) -> tuple[int, ...]:
    """The physical extents of one tile of a buffer."""
    for node in executions(s.body):
        for w in node.windows:
            if w.buffer == s.buffer.name:
                return w.extents
    raise InternalError(f"no instruction uses the tiles of {s.buffer.name}")


def _allocates_tiles(body: Stmt, *, parallel: bool) -> bool:
    """Whether tiles are allocated in a function of this body."""
    if isinstance(body, Alloc) and body.buffer.scope == TILE:
        return True
    if isinstance(body, For) and body.kind.name == "parallel" and not parallel:
        # a single iteration is done where it stands
        return body.extent == Index(1) and _allocates_tiles(body.body, parallel=False)
    return any(_allocates_tiles(k, parallel=parallel) for k in stmt_children(body))
