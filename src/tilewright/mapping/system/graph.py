"""System graphs: machines whose memories are managed by programs, as data.

Compute nodes (:class:`Unit`) execute instructions on operands in given memories, memory nodes
(:class:`Memory`) hold tiles at addresses, movement nodes (:class:`Mover`) copy between two memories. Each
node belongs to streams: the sequences of instructions that the machine issues. Sizes are in bytes, times in
clock cycles, bandwidths in bytes a cycle. (ISA Mapper, Sec. 3.2.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.ir import Buffer, Program, print_program, stmt_loads
from tilewright.mapping.system.cycles import Cycles
from tilewright.mapping.system.joined import joined
from tilewright.support import TargetError, digest, known_names, quoted


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory node. ``uses`` is how many operands of one instruction may be in it (``None``: any number)."""

    name: str
    bytes: int
    align: int = 1
    uses: int | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """What several movers share: the streams that use it get equal parts of its bandwidth."""

    name: str
    bytes_per_cycle: int


@dataclass(frozen=True, slots=True)
class Mover:
    """A movement node: copies of tiles from ``source`` to ``target``, issued by any of ``streams``.

    ``transposes``: the order of a tile's dimensions may change on the way; ``strides``: what it moves from or
    to a tensor may lie steps apart there. ``queue`` moves wait at the node before the stream waits.
    """

    name: str
    source: str
    target: str
    bytes_per_cycle: int
    latency: int
    streams: tuple[str, ...]
    transposes: bool = False
    strides: bool = False
    channels: tuple[str, ...] = ()
    queue: int = 16

    def takes(self, *, in_order: bool, apart: bool) -> bool:
        """Whether it moves a box whose dimensions are ``in_order`` or not, its elements ``apart`` or not."""
        return (in_order or self.transposes) and (self.strides or not apart)


@dataclass(frozen=True)
class SystemInstruction:
    """What a unit can do: ``semantics`` is a program whose inputs and outputs are the operands.

    The program's parameters are sizes that may be smaller than their upper bounds; all operands are dense.
    ``cycles`` is how long the unit is busy, ``latency`` when the result can be used. ``chained`` operands
    are accumulators: the unit's next instruction may continue with them without waiting for the latency.
    """

    name: str
    semantics: Program
    cycles: Cycles
    latency: Cycles
    chained: frozenset[str] = frozenset()

    @property
    def operands(self) -> tuple[Buffer, ...]:
        """The operands, inputs first; what lies between stages stays inside of the unit."""
        return (*self.semantics.inputs, *self.semantics.outputs)

    def mode(self, operand: str) -> str:
        """``r``, ``w`` or ``rw`` (an accumulator: read before it is written)."""
        return self._modes[operand]

    @cached_property
    def joined(self) -> Program:
        """What the mapper looks for."""
        return joined(self.semantics)

    @cached_property
    def _modes(self) -> Mapping[str, str]:
        found = {b.name: "r" for b in self.semantics.inputs} | {b.name: "w" for b in self.semantics.outputs}
        for name in [n for n, mode in found.items() if mode == "w"]:
            first = next(s for s in self.semantics.stages if name in {*s.reads, *s.writes})
            if first.init is None and any(load.buffer == name for load in stmt_loads(first.body)):
                found[name] = "rw"
        return found


@dataclass(frozen=True, slots=True)
class Unit:
    """A compute node. ``places`` gives, per instruction and operand, the memories in which it may be."""

    name: str
    stream: str
    places: Mapping[str, Mapping[str, tuple[str, ...]]]
    queue: int = 16


@dataclass(frozen=True)
class SystemGraph:
    """A machine: its nodes by name, and the memory ``home`` in which a program's arguments lie.

    Raises TargetError, naming the node, for a description that contradicts itself.
    """

    name: str
    home: str
    memories: Mapping[str, Memory]
    channels: Mapping[str, Channel]
    movers: Mapping[str, Mover]
    units: Mapping[str, Unit]
    instructions: Mapping[str, SystemInstruction]
    issue: int = 1

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Names of the instruction streams, in the order of their units."""
        return tuple(dict.fromkeys(u.stream for u in self.units.values()))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the whole description."""
        nodes = (self.memories, self.channels, self.movers, self.units)
        meanings = [
            (i.name, print_program(i.semantics), i.cycles, i.latency, i.chained)
            for i in self.instructions.values()
        ]
        return digest(self.name, self.home, self.issue, *(dict(n) for n in nodes), meanings)

    def instruction(self, name: str) -> SystemInstruction:
        """The instruction called ``name``; TargetError where there is none."""
        if name not in self.instructions:
            raise TargetError(
                f"machine {quoted(self.name)} has no instruction {quoted(name)}",
                hint=known_names(name, self.instructions, "its instructions"),
            )
        return self.instructions[name]

    def units_of(self, instruction: str, stream: str) -> tuple[Unit, ...]:
        """The units of a stream that execute an instruction."""
        return tuple(u for u in self.units.values() if u.stream == stream and instruction in u.places)

    def paths(self, source: str, target: str, stream: str) -> tuple[tuple[Mover, ...], ...]:
        """All paths without cycles from one memory to another that a stream can issue, shortest first.

        A path costs the latencies of its moves and the time of a kibibyte.
        """
        found: list[tuple[Mover, ...]] = []

        def walk(at: str, taken: tuple[Mover, ...], seen: frozenset[str]) -> None:
            if at == target:
                found.append(taken)
                return
            for m in self.movers.values():
                if m.source == at and m.target not in seen and stream in m.streams:
                    walk(m.target, (*taken, m), seen | {m.target})

        walk(source, (), frozenset({source}))
        return tuple(sorted(found, key=lambda p: sum(m.latency + 1024 / m.bytes_per_cycle for m in p)))

    def path(self, source: str, target: str, stream: str) -> tuple[Mover, ...]:
        """The shortest path; TargetError, naming both memories, where there is none."""
        found = self.paths(source, target, stream)
        if not found:
            raise TargetError(
                f"machine {quoted(self.name)}: no path of moves that stream {quoted(stream)} issues leads"
                f" from {quoted(source)} to {quoted(target)}",
                hint="add a move, or name the stream among the issuers of those that there are",
            )
        return found[0]


def _check(g: SystemGraph) -> None:
    where = f"machine {quoted(g.name)}"
    for m in g.memories.values():
        if m.bytes < 1 or m.align < 1 or (m.uses is not None and m.uses < 1):
            raise TargetError(f"{where}: memory {quoted(m.name)}: bytes, align and uses must be positive")
        if m.bytes % m.align:
            raise TargetError(f"{where}: memory {quoted(m.name)}: bytes must be a multiple of align")
    if g.home not in g.memories:
        raise TargetError(f"{where}: home is {quoted(g.home)}, which is no memory")
    if g.issue < 1:
        raise TargetError(f"{where}: issue must be positive")
    for c in g.channels.values():
        if c.bytes_per_cycle < 1:
            raise TargetError(f"{where}: channel {quoted(c.name)}: bytes_per_cycle must be positive")
    if not g.units:
        raise TargetError(f"{where}: it has no unit")
    for v in g.movers.values():
        _check_mover(g, v, f"{where}: move {quoted(v.name)}")
        if v.name in g.units:
            raise TargetError(
                f"{where}: a move and a unit are both called {quoted(v.name)}",
                hint="their times are kept by their names",
            )
    for u in g.units.values():
        if u.queue < 1:
            raise TargetError(f"{where}: unit {quoted(u.name)}: queue must be positive")
        for name, places in u.places.items():
            at = f"{where}: unit {quoted(u.name)}, instruction {quoted(name)}"
            if name not in g.instructions:
                raise TargetError(
                    f"{at}: there is no such instruction",
                    hint=known_names(name, g.instructions, "the instructions"),
                )
            _check_places(g, u, name, places, at)
    _check_moves(g, where)
    idle = [n for n in g.instructions if not any(n in u.places for u in g.units.values())]
    if idle:
        raise TargetError(f"{where}: no unit executes the instruction {quoted(idle[0])}")


def _check_moves(g: SystemGraph, where: str) -> None:
    """Refuse moves in a circle that bring nothing to where something is done with it."""
    held, wanted = {g.home}, {g.home}
    for u in g.units.values():
        for name, places in u.places.items():
            for operand, memories in places.items():
                mode = g.instructions[name].mode(operand)
                held |= set(memories) if "w" in mode else set()
                wanted |= set(memories) if "r" in mode else set()

    def after(memories: set[str]) -> set[str]:
        found = memories
        for _ in g.memories:
            found = found | {v.target for v in g.movers.values() if v.source in found}
        return found

    held = after(held)
    for v in g.movers.values():
        circle = after({v.target})
        if v.source not in circle or (v.source in held and circle & wanted):
            continue
        why = f"nothing gets into {quoted(v.source)}"
        if v.source in held:
            why = f"no unit reads what is in {quoted(v.target)}, and it does not get to {quoted(g.home)}"
        raise TargetError(
            f"{where}: move {quoted(v.name)} goes in a circle without effect: {why}",
            hint=f"add a move that leads in from {quoted(g.home)} and one that leads out, or take it away",
        )


def _check_mover(g: SystemGraph, v: Mover, at: str) -> None:
    for end in (v.source, v.target):
        if end not in g.memories:
            raise TargetError(
                f"{at}: there is no memory {quoted(end)}", hint=known_names(end, g.memories, "the memories")
            )
    if v.source == v.target:
        raise TargetError(f"{at}: it leads from {quoted(v.source)} back to itself")
    if v.bytes_per_cycle < 1 or v.latency < 0 or v.queue < 1:
        raise TargetError(f"{at}: bytes_per_cycle and queue must be positive, latency not negative")
    if not v.streams:
        raise TargetError(f"{at}: no stream issues it")
    for name in v.streams:
        if name not in g.streams:
            raise TargetError(
                f"{at}: no unit has the stream {quoted(name)}",
                hint=known_names(name, g.streams, "the streams"),
            )
    for name in v.channels:
        if name not in g.channels:
            raise TargetError(f"{at}: there is no channel {quoted(name)}")
        if v.channels.count(name) > 1:
            raise TargetError(f"{at}: it names the channel {quoted(name)} twice")


def _check_places(g: SystemGraph, u: Unit, name: str, places: Mapping[str, tuple[str, ...]], at: str) -> None:
    operands = g.instructions[name].operands
    for extra in sorted(set(places) - {b.name for b in operands}):
        raise TargetError(f"{at}: it has no operand {quoted(extra)}")
    for b in operands:
        memories = places.get(b.name, ())
        if not memories:
            raise TargetError(f"{at}: no memory is given for operand {quoted(b.name)}")
        for m in memories:
            if m not in g.memories:
                raise TargetError(f"{at}, operand {quoted(b.name)}: there is no memory {quoted(m)}")
            mode = g.instructions[name].mode(b.name)
            if m != g.home and "r" in mode and not _reachable(g, g.home, m, u.stream):
                produced = any(
                    m in other.places[i].get(o.name, ())
                    for other in g.units.values()
                    for i in other.places
                    for o in g.instructions[i].operands
                    if "w" in g.instructions[i].mode(o.name)
                )
                if not produced:
                    raise TargetError(f"{at}: nothing brings operand {quoted(b.name)} into {quoted(m)}")
    if not placements(g, u, name):
        raise TargetError(
            f"{at}: its operands cannot all be placed: each memory may serve"
            " only so many operands of one instruction",
            hint="give an operand another memory, or the memory more uses",
        )


def _reachable(g: SystemGraph, source: str, target: str, stream: str) -> bool:
    return bool(g.paths(source, target, stream))


def placements(g: SystemGraph, unit: Unit, instruction: str) -> tuple[Mapping[str, str], ...]:
    """All ways to place the operands of an instruction at a unit, within the memories' uses."""
    found: list[dict[str, str]] = [{}]
    for operand, memories in unit.places[instruction].items():
        found = [{**p, operand: m} for p in found for m in memories if _fits(g, p, m)]
    return tuple(found)


def _fits(g: SystemGraph, taken: Mapping[str, str], memory: str) -> bool:
    uses = g.memories[memory].uses
    return uses is None or sum(m == memory for m in taken.values()) < uses
