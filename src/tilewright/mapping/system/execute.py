"""The functional simulator: streams executed on arrays, with every rule of the machine checked.

Memories start undefined; an instruction means what its semantics say, by ``lang.evaluate`` or by the
interpreter. Errors name stream, item and node: undefined bytes read, tiles outside of a memory or a tensor,
misaligned ones, a move between memories that its mover does not connect, an operand where its unit cannot
have it, a memory used too often by one instruction, data of another stream that no event orders, deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import Index, dtype_of, evaluate_index, run_program
from tilewright.lang import evaluate
from tilewright.mapping.system.graph import SystemGraph, SystemInstruction
from tilewright.mapping.system.stream import (
    Box,
    Call,
    Item,
    Move,
    Post,
    Ref,
    Region,
    Repeat,
    StreamProgram,
    Wait,
)
from tilewright.support import InputError, ResourceError, TargetError, known_names, quoted

Array: TypeAlias = "npt.NDArray[Any]"

MAX_ITEMS: Final = 50_000_000
"""Items that a simulation executes before it gives up: streams are untrusted, loops are cheap to write."""
MAX_BYTES: Final = 1 << 33
"""Bytes of memories and tensors that are simulated."""


def check_machine(program: StreamProgram, machine: SystemGraph) -> None:
    """Raise TargetError unless the streams were made for this machine."""
    if program.fingerprint != machine.fingerprint:
        raise TargetError(
            f"the streams were made for machine {quoted(program.machine)} of another description than"
            f" {quoted(machine.name)}",
            hint="schedule the program again",
        )
    for name in program.streams:
        if name not in machine.streams:
            raise TargetError(
                f"machine {quoted(machine.name)} has no stream {quoted(name)}",
                hint=known_names(name, machine.streams, "its streams"),
            )


def execute(
    program: StreamProgram,
    machine: SystemGraph,
    arrays: Mapping[str, npt.ArrayLike],
    params: Mapping[str, int] | None = None,
    *,
    interpreted: bool = False,
    limit: int = MAX_ITEMS,
) -> dict[str, Array]:
    """The outputs of a stream program on arrays by name (inputs, and outputs whose contents are given).

    With ``interpreted`` the reference interpreter runs each instruction (slow), else ``lang.evaluate``.
    Raises InputError for arrays that do not fit, TargetError where the streams break a rule of the machine,
    ResourceError beyond ``limit`` items and iterations or :data:`MAX_BYTES`.
    """
    check_machine(program, machine)
    state = _Machine(program, machine, arrays, dict(params or {}), interpreted, limit)
    running = {name: state.run(items, name, {}) for name, items in program.streams.items()}
    while running:
        before, blocked = state.steps, []
        for name in list(running):
            for event in running[name]:
                blocked.append(f"stream {quoted(name)} waits for {quoted(event)}")
                break
            else:
                del running[name]
                blocked.append("")
        if running and state.steps == before and all(blocked):
            raise TargetError(f"deadlock: {', '.join(blocked)}")
    return state.results()


class _Machine:
    def __init__(
        self,
        program: StreamProgram,
        machine: SystemGraph,
        arrays: Mapping[str, npt.ArrayLike],
        params: dict[str, int],
        interpreted: bool,
        limit: int,
    ) -> None:
        self.limit = limit
        self.program, self.machine, self.params, self.interpreted = program, machine, params, interpreted
        self.steps = 0
        self.order = {name: n for n, name in enumerate(program.streams)}
        self.clocks = {name: np.zeros(len(self.order), np.int64) for name in self.order}
        self.events: dict[str, list[Array]] = {}
        self.memories: dict[str, _Storage] = {}
        self.tensors: dict[str, _Storage] = {}
        for p in program.params:
            if p.name not in params:
                raise InputError(f"the size {quoted(p.name)} has no value")
            if not p.lo <= params[p.name] <= p.hi or params[p.name] % p.multiple_of:
                raise InputError(
                    f"{p.name} = {params[p.name]} is not a multiple of {p.multiple_of} in [{p.lo}, {p.hi}]"
                )
        total = 0
        for t in program.tensors:
            shape = tuple(evaluate_index(x, params) for x in t.shape)
            total += prod(shape) * t.dtype.bytes
            self.check_size(total)
            wanted = not (t.output or t.temp) or t.given
            if wanted and t.name not in arrays:
                raise InputError(f"no array is given for {quoted(t.name)}")
            if wanted:
                a = np.asarray(arrays[t.name])
                if a.shape != shape or a.dtype != t.dtype.numpy:
                    raise InputError(f"{quoted(t.name)} must have shape {shape} and type {t.dtype}")
                self.tensors[t.name] = _Storage(np.array(a), np.ones(shape, np.bool_), len(self.order))
            else:
                self.tensors[t.name] = _Storage(
                    np.zeros(shape, t.dtype.numpy), np.zeros(shape, np.bool_), len(self.order)
                )

    def check_size(self, total: int) -> None:
        if total > MAX_BYTES:
            raise ResourceError(f"the simulation would need more than {MAX_BYTES} bytes")

    def results(self) -> dict[str, Array]:
        out: dict[str, Array] = {}
        for t in self.program.tensors:
            if t.output:
                storage = self.tensors[t.name]
                if not storage.defined.all():
                    at = tuple(int(x[0]) for x in np.nonzero(~storage.defined))
                    raise TargetError(f"the streams end, and {t.name}{list(at)} was never written")
                out[t.name] = storage.data
        return out

    # ---- control ----

    def run(self, items: Sequence[Item], stream: str, env: Mapping[str, int]) -> Iterator[str]:
        for item in items:
            self.step()
            match item:
                case Repeat():
                    lo, hi = (self.index(x, env) for x in (item.lo, item.hi))
                    for v in range(lo, hi):
                        self.step()
                        yield from self.run(item.body, stream, {**env, item.var: v})
                case Move():
                    self.move(item, stream, env)
                case Call():
                    self.call(item, stream, env)
                case Post():
                    self.clocks[stream][self.order[stream]] += 1
                    self.events.setdefault(item.event, []).append(self.clocks[stream].copy())
                case Wait():
                    while not self.events.get(item.event):
                        yield item.event
                    self.steps += 1
                    clock = self.clocks[stream]
                    np.maximum(clock, self.events[item.event].pop(0), out=clock)

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise ResourceError(f"the streams execute more than {self.limit} items and iterations")

    def index(self, x: Index, env: Mapping[str, int]) -> int:
        return evaluate_index(x, {**self.params, **env})

    # ---- items ----

    def move(self, item: Move, stream: str, env: Mapping[str, int]) -> None:
        where = f"stream {quoted(stream)}, move {quoted(item.mover)}"
        mover = self.machine.movers.get(item.mover)
        if mover is None:
            raise TargetError(
                f"{where}: there is no such move",
                hint=known_names(item.mover, self.machine.movers, "the moves"),
            )
        if stream not in mover.streams:
            raise TargetError(f"{where}: this stream does not issue it")
        for ref, end in ((item.source, mover.source), (item.target, mover.target)):
            at = ref.memory if isinstance(ref, Region) else self.machine.home
            if at != end:
                raise TargetError(f"{where}: it leads from {mover.source} to {mover.target}, not {at}")
            if isinstance(ref, Box) and not ref.in_order and not mover.transposes:
                raise TargetError(f"{where}: it cannot change the order of dimensions")
            if isinstance(ref, Box) and ref.steps and not mover.strides:
                raise TargetError(f"{where}: it cannot take elements that lie steps apart")
        value = self.read(item.source, where, stream, env)
        if value.shape != item.target.shape:
            raise TargetError(f"{where}: a tile of shape {value.shape} does not fit {item.target.shape}")
        self.write(item.target, value, where, stream, env)

    def call(self, item: Call, stream: str, env: Mapping[str, int]) -> None:
        where = f"stream {quoted(stream)}, {quoted(item.instruction)} at {quoted(item.unit)}"
        unit = self.machine.units.get(item.unit)
        if unit is None or item.instruction not in unit.places or unit.stream != stream:
            raise TargetError(f"{where}: this stream has no such unit, or the unit no such instruction")
        instruction = self.machine.instructions[item.instruction]
        refs = dict(item.operands)
        check_places(self.machine, item, where)
        inputs: dict[str, Array] = {}
        before: dict[str, Array] = {}
        for b in instruction.operands:
            if "r" in instruction.mode(b.name):
                value = self.read(refs[b.name], where, stream, env)
                (inputs if instruction.mode(b.name) == "r" else before)[b.name] = value
        made = self.meaning(instruction, inputs, before, dict(item.sizes))
        for name, value in made.items():
            if value.shape != refs[name].shape:
                raise TargetError(
                    f"{where}: operand {quoted(name)} has shape {refs[name].shape}, not {value.shape}"
                )
            self.write(refs[name], value, where, stream, env)

    def meaning(
        self,
        instruction: SystemInstruction,
        inputs: Mapping[str, Array],
        before: Mapping[str, Array],
        sizes: Mapping[str, int],
    ) -> dict[str, Array]:
        if self.interpreted:
            arrays = {**inputs, **{n: a.copy() for n, a in before.items()}}
            return run_program(instruction.semantics, arrays, sizes, inout=tuple(before), complete=False)
        return evaluate(instruction.semantics, inputs, sizes, initial=before)

    # ---- memory ----

    def storage(self, memory: str, where: str) -> _Storage:
        if memory not in self.memories:
            node = self.machine.memories.get(memory)
            if node is None or memory == self.machine.home:
                raise TargetError(f"{where}: there is no memory {quoted(memory)} with addresses")
            held = sum(m.data.nbytes for m in self.memories.values())
            self.check_size(held + node.bytes)
            self.memories[memory] = _Storage(
                np.zeros(node.bytes, np.uint8), np.zeros(node.bytes, np.bool_), len(self.order)
            )
        return self.memories[memory]

    def locate(self, ref: Ref, where: str, env: Mapping[str, int]) -> tuple[_Storage, Any, str]:
        """The storage of a tile, what selects it there, and its name for messages."""
        if isinstance(ref, Region):
            offset = self.index(ref.offset, env)
            storage = self.storage(ref.memory, where)
            node = self.machine.memories[ref.memory]
            label = f"{ref.memory}[{offset}:{offset + ref.bytes}]"
            if offset < 0 or offset + ref.bytes > node.bytes:
                raise TargetError(f"{where}: {label} is outside of its {node.bytes} bytes")
            if offset % node.align:
                raise TargetError(f"{where}: {label} is not aligned to {node.align} bytes")
            return storage, slice(offset, offset + ref.bytes), label
        storage = self.tensors[ref.tensor]
        lows = tuple(self.index(x, env) for x in ref.lows)
        steps = ref.steps or (1,) * len(lows)
        boxed = tuple(slice(lo, lo + n, s) for lo, n, s in zip(lows, ref.spans, steps, strict=True))
        shown = ", ".join(f"{x.start}:{x.stop}" + (f":{x.step}" if x.step > 1 else "") for x in boxed)
        label = f"{ref.tensor}[{shown}]"
        for lo, n, size in zip(lows, ref.spans, storage.data.shape, strict=True):
            if lo < 0 or lo + n > size:
                raise TargetError(f"{where}: {label} is outside of the tensor's {storage.data.shape}")
        return storage, boxed, label

    def read(self, ref: Ref, where: str, stream: str, env: Mapping[str, int]) -> Array:
        storage, at, label = self.locate(ref, where, env)
        if not storage.defined[at].all():
            raise TargetError(f"{where}: {label} is read, and not all of it was written")
        self.ordered(storage, at, label, where, stream)
        value: Array = storage.data[at]
        if isinstance(ref, Region):
            return value.view(ref.dtype.numpy).reshape(ref.shape)
        order = [d for d in ref.dims if d >= 0]
        rest = [d for d in range(value.ndim) if d not in order]
        return np.ascontiguousarray(value.transpose(order + rest)).reshape(ref.shape)

    def write(self, ref: Ref, value: Array, where: str, stream: str, env: Mapping[str, int]) -> None:
        storage, at, label = self.locate(ref, where, env)
        self.ordered(storage, at, label, where, stream)
        if isinstance(ref, Region):
            if value.dtype != ref.dtype.numpy:
                raise TargetError(f"{where}: {label} takes {ref.dtype}, not {dtype_of(value.dtype)}")
            storage.data[at] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        else:
            if value.dtype != storage.data.dtype:
                raise TargetError(
                    f"{where}: {label} takes {dtype_of(storage.data.dtype)}, not {dtype_of(value.dtype)}"
                )
            order = [d for d in ref.dims if d >= 0]
            rest = [d for d in range(len(ref.extents)) if d not in order]
            shape = [ref.extents[d] for d in order + rest]
            storage.data[at] = value.reshape(shape).transpose(np.argsort(order + rest))
        storage.defined[at] = True
        if storage.writer is not None and storage.clock is not None:
            n = self.order[stream]
            storage.writer[at], storage.clock[at] = n, self.clocks[stream][n] + 1

    def ordered(self, storage: _Storage, at: Any, label: str, where: str, stream: str) -> None:
        """Refuse data that another stream wrote after the last event that this one knows of."""
        if storage.writer is None or storage.clock is None:
            return
        known = self.clocks[stream].copy()
        known[self.order[stream]] = np.iinfo(np.int64).max
        writers = storage.writer[at]
        if (storage.clock[at] > known[writers]).any():
            raise TargetError(f"{where}: {label} was written by another stream, and no event orders the two")


class _Storage:
    """Bytes or elements, which of them are defined, and who wrote them when (with several streams)."""

    def __init__(self, data: Array, defined: Array, streams: int) -> None:
        self.data, self.defined = data, defined
        self.writer: Array | None = np.zeros(data.shape, np.int16) if streams > 1 else None
        self.clock: Array | None = np.zeros(data.shape, np.int64) if streams > 1 else None


def check_places(machine: SystemGraph, item: Call, where: str) -> None:
    """Raise TargetError where an operand is where the unit cannot have it, or a memory is used too often."""
    places = machine.units[item.unit].places[item.instruction]
    instruction = machine.instructions[item.instruction]
    if {n for n, _ in item.operands} != {b.name for b in instruction.operands}:
        raise TargetError(f"{where}: its operands are {', '.join(b.name for b in instruction.operands)}")
    used: dict[str, int] = {}
    for name, ref in item.operands:
        memory = ref.memory if isinstance(ref, Region) else machine.home
        if memory not in places[name]:
            raise TargetError(
                f"{where}: operand {quoted(name)} cannot be in {quoted(memory)}",
                hint=f"it can be in {', '.join(places[name])}",
            )
        used[memory] = used.get(memory, 0) + 1
    for memory, count in used.items():
        uses = machine.memories[memory].uses
        if uses is not None and count > uses:
            raise TargetError(
                f"{where}: {count} operands in {quoted(memory)}, which serves {uses} of one instruction"
            )
    for p in instruction.semantics.params:
        size = dict(item.sizes).get(p.name)
        if size is None or not p.lo <= size <= p.hi or size % p.multiple_of:
            raise TargetError(
                f"{where}: the size {p.name} = {size} is no multiple of {p.multiple_of} in [{p.lo}, {p.hi}]"
            )
