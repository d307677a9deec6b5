r"""Machine files: system graphs as JSON, untrusted, with a schema and a version.

    {"schema": "tilewright.machine", "version": 1, "name": "two-files", "home": "dram",
     "memories": [{"name": "dram", "bytes": 1073741824}, {"name": "ra", "bytes": 8192, "align": 64}],
     "channels": [{"name": "bus", "bytes_per_cycle": 64}],
     "moves": [{"name": "load", "from": "dram", "to": "ra", "bytes_per_cycle": 32, "latency": 100,
                "streams": ["s"], "channels": ["bus"], "transposes": true, "strides": true}],
     "instructions": [{"name": "matmul", "semantics": ["program(\"matmul\")", ...], "cycles": "max(m, 16)",
                       "latency": "m + 46", "chained": ["C"]}],
     "units": [{"name": "mxu", "stream": "s", "places": {"matmul": {"A": ["ra"], ...}}}],
     "groups": [{"index": "c", "count": 4, "memories": [{"name": "c{c}.ra", ...}], "moves": [...]}]}

``semantics`` is the text of a program (``ir/printer.py``), as one string or a list of its lines; its
parameters are the sizes over which ``cycles`` and ``latency`` are formulas. A group's nodes are repeated
``count`` times, with the group's index in braces in their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tilewright.ir import (
    If,
    Program,
    Select,
    Stage,
    iter_env,
    prove_ge0,
    prove_lt,
    read_program,
    stmt_exprs,
    stmt_loads,
    stmt_writes,
    walk,
)
from tilewright.mapping.needle import Needle
from tilewright.mapping.system.cycles import Cycles
from tilewright.mapping.system.graph import (
    Channel,
    Memory,
    Mover,
    SystemGraph,
    SystemInstruction,
    Unit,
)
from tilewright.support import (
    ParseError,
    ProgramError,
    TargetError,
    known_names,
    quoted,
    quoted_path,
)

SCHEMA: Final = "tilewright.machine"
VERSION: Final = 1
MAX_FILE: Final = 4 << 20
"""Bytes of the longest machine file that is read."""
MAX_NODES: Final = 10_000
"""Nodes of the largest machine, groups repeated."""

_TOP: Final = (
    "schema", "version", "name", "comment", "home", "issue",
    "memories", "channels", "moves", "instructions", "units", "groups",
)  # fmt: skip
_T = TypeVar("_T")


def shipped_machines() -> tuple[str, ...]:
    """Names of the machines that come with the package."""
    folder = resources.files("tilewright.mapping.system") / "machines"
    return tuple(sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")))


def load_machine(name: str | Path) -> SystemGraph:
    """A shipped machine by its name, or the one in a file. Raises TargetError where there is none such."""
    if str(name) in shipped_machines():
        file = resources.files("tilewright.mapping.system") / "machines" / f"{name}.json"
        return parse_machine(file.read_text(encoding="utf-8"))
    path = Path(name)
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
    except OSError as error:
        raise TargetError(
            f"the machine file {quoted_path(path)} cannot be read: {error.strerror}",
            hint=known_names(str(name), shipped_machines(), "the machines that come with the package"),
        ) from None
    if len(data) > MAX_FILE:
        raise TargetError(f"the machine file {quoted_path(path)} has more than {MAX_FILE} bytes")
    try:
        return parse_machine(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise TargetError(f"the machine file {quoted_path(path)} is not UTF-8") from None


def parse_machine(text: str) -> SystemGraph:
    """The machine that a text describes. Raises TargetError, naming the node, where it describes none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of more digits than Python reads
        raise TargetError(f"the machine is no JSON: {error}") from None
    top = _Fields(data, "the machine")
    top.known(_TOP)
    if top.text("schema") != SCHEMA or top.whole("version") != VERSION:
        raise TargetError(f"the machine is not of schema {SCHEMA}, version {VERSION}")
    nodes = _Nodes()
    nodes.add(top)
    for group in top.records("groups", "group"):
        nodes.add_group(group)
    return SystemGraph(
        top.text("name"),
        top.text("home"),
        nodes.memories.done(),
        nodes.channels.done(),
        nodes.movers.done(),
        nodes.units.done(),
        _named([_instruction(r) for r in top.records("instructions", "instruction")], "instruction"),
        top.whole("issue", 1),
    )


class _Fields:
    """A JSON object whose fields are asked for by type; errors name the object."""

    def __init__(self, data: object, owner: str, index: Mapping[str, int] | None = None) -> None:
        if not isinstance(data, dict):
            raise TargetError(f"{owner} must be an object")
        self.data: dict[str, Any] = data
        self.index = index or {}
        name = data.get("name")
        self.owner = f"{owner} {quoted(self.filled(name))}" if isinstance(name, str) else owner

    def known(self, names: Sequence[str]) -> None:
        for name in self.data:
            if name not in names:
                raise TargetError(
                    f"{self.owner} has an unknown field {quoted(name)}",
                    hint=known_names(name, names, "the fields"),
                )

    def filled(self, text: str) -> str:
        for name, n in self.index.items():
            text = text.replace(f"{{{name}}}", str(n))
        return text

    def text(self, name: str, default: str | None = None) -> str:
        value = self.data.get(name, default)
        if not isinstance(value, str) or not value or len(value) > 200:
            raise TargetError(f"{self.owner}: {name} must be a text of up to 200 characters")
        return self.filled(value)

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.data.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 60:
            raise TargetError(f"{self.owner}: {name} must be an integer")
        return value

    def flag(self, name: str) -> bool:
        value = self.data.get(name, False)
        if not isinstance(value, bool):
            raise TargetError(f"{self.owner}: {name} must be true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        return self._texts(self.data.get(name, []), name)

    def _texts(self, value: object, name: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
            raise TargetError(f"{self.owner}: {name} must be a list of names")
        return tuple(self.filled(x) for x in value)

    def records(self, name: str, kind: str) -> list[_Fields]:
        value = self.data.get(name, [])
        if not isinstance(value, list):
            raise TargetError(f"{self.owner}: {name} must be a list")
        return [_Fields(x, kind, self.index) for x in value]

    def places(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        value = self.data.get("places")
        if not isinstance(value, dict) or not all(isinstance(x, dict) for x in value.values()):
            raise TargetError(f"{self.owner}: places must give memories per instruction and operand")
        return {
            instruction: {o: self._texts(m, f"places of {instruction}") for o, m in operands.items()}
            for instruction, operands in value.items()
        }


class _Kind(dict[str, _T]):
    """Nodes of one kind by name, each name once."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def put(self, name: str, node: _T) -> None:
        if name in self:
            raise TargetError(f"the machine has two {self.kind} nodes called {quoted(name)}")
        if len(self) >= MAX_NODES:
            raise TargetError(f"the machine has more than {MAX_NODES} {self.kind} nodes")
        self[name] = node

    def done(self) -> Mapping[str, _T]:
        return MappingProxyType(dict(self))


class _Nodes:
    def __init__(self) -> None:
        self.memories: _Kind[Memory] = _Kind("memory")
        self.channels: _Kind[Channel] = _Kind("channel")
        self.movers: _Kind[Mover] = _Kind("move")
        self.units: _Kind[Unit] = _Kind("unit")

    def add_group(self, group: _Fields) -> None:
        group.known(("index", "count", "memories", "channels", "moves", "units"))
        index, count = group.text("index"), group.whole("count")
        if not index.isidentifier() or not 1 <= count <= MAX_NODES:
            raise TargetError(f"a group's index must be a name and its count between 1 and {MAX_NODES}")
        for n in range(count):
            self.add(_Fields(group.data, "group", {index: n}))

    def add(self, f: _Fields) -> None:
        for r in f.records("memories", "memory"):
            r.known(("name", "bytes", "align", "uses", "comment"))
            uses = r.whole("uses") if "uses" in r.data else None
            self.memories.put(
                r.text("name"), Memory(r.text("name"), r.whole("bytes"), r.whole("align", 1), uses)
            )
        for r in f.records("channels", "channel"):
            r.known(("name", "bytes_per_cycle", "comment"))
            self.channels.put(r.text("name"), Channel(r.text("name"), r.whole("bytes_per_cycle")))
        for r in f.records("moves", "move"):
            r.known(
                ("name", "from", "to", "bytes_per_cycle", "latency", "streams",
                 "transposes", "strides", "channels", "queue", "comment")
            )  # fmt: skip
            mover = Mover(
                r.text("name"),
                r.text("from"),
                r.text("to"),
                r.whole("bytes_per_cycle"),
                r.whole("latency"),
                r.texts("streams"),
                r.flag("transposes"),
                r.flag("strides"),
                r.texts("channels"),
                r.whole("queue", 16),
            )
            self.movers.put(mover.name, mover)
        for r in f.records("units", "unit"):
            r.known(("name", "stream", "places", "queue", "comment"))
            unit = Unit(r.text("name"), r.text("stream"), r.places(), r.whole("queue", 16))
            self.units.put(unit.name, unit)


def _instruction(r: _Fields) -> SystemInstruction:
    r.known(("name", "semantics", "cycles", "latency", "chained", "comment"))
    lines = r.data.get("semantics")
    text = (
        "\n".join(lines) + "\n"
        if isinstance(lines, list) and all(isinstance(x, str) for x in lines)
        else lines
    )
    if not isinstance(text, str):
        raise TargetError(f"{r.owner}: semantics must be the text of a program, or its lines")
    try:
        program = read_program(text)
    except ParseError as error:
        raise TargetError(f"{r.owner}: its semantics are no program: {error}") from None
    if not program.outputs:
        raise TargetError(f"{r.owner}: its semantics have no output")
    for p in program.params:
        if p.hi > 1 << 20:
            raise TargetError(f"{r.owner}: the size {quoted(p.name)} has no upper bound below 2**20")
        if all(p != atom for s in program.stages for it in s.iters for atom, _ in it.extent.terms):
            raise TargetError(f"{r.owner}: the size {quoted(p.name)} is the extent of no axis")
    chained = r.texts("chained")
    for name in chained:
        if all(name != b.name for b in program.outputs):
            raise TargetError(f"{r.owner}: the chained operand {quoted(name)} is no output")
    _check_elements(program, r.owner)
    try:
        Needle.of_program(r.text("name"), program)
    except (ProgramError, TargetError) as error:
        raise TargetError(f"{r.owner}: no program can be it: {error.what}", hint=error.hint) from None
    sizes = {p.name: (p.lo, p.hi) for p in program.params}
    cycles = Cycles.of(r.data.get("cycles", ""), sizes, r.owner)
    latency = Cycles.of(r.data.get("latency", r.data.get("cycles", "")), sizes, r.owner)
    return SystemInstruction(r.text("name"), program, cycles, latency, frozenset(chained))


def _check_elements(program: Program, owner: str) -> None:
    """Refuse semantics that touch elements which operands have not; conditions are the simulator's."""
    for stage in program.stages:
        parts = [part for part in (stage.init, stage.body) if part is not None]
        touched = [(ld.buffer, ld.indices) for part in parts for ld in stmt_loads(part)]
        touched += [w for part in parts for w in stmt_writes(part)]
        env = iter_env(stage.iters)
        for name, indices in dict.fromkeys(touched):
            for d, (x, size) in enumerate(zip(indices, program.buffer(name).shape, strict=True)):
                if not (prove_ge0(x, env) and prove_lt(x, size, env)) and not _has_conditions(stage):
                    raise TargetError(
                        f"{owner}: its semantics reach beyond {name}: index {x} of dimension {d}, which has"
                        f" {size} elements",
                        hint="declare the operand as large as it is used, or the axis shorter",
                    )


def _has_conditions(stage: Stage) -> bool:
    parts = [part for part in (stage.init, stage.body) if part is not None]
    found = [e for part in parts for top in stmt_exprs(part) for e in walk(top)]
    return any(isinstance(e, Select) for e in found) or any(isinstance(part, If) for part in parts)


def _named(found: list[SystemInstruction], kind: str) -> Mapping[str, SystemInstruction]:
    out: _Kind[SystemInstruction] = _Kind(kind)
    for i in found:
        out.put(i.name, i)
    return out.done()
