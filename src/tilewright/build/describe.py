"""What a kernel does, in the words of its axes' roles: algorithm, layouts, register tile, threads.

Read off the program and the schedule that the kernel was compiled from; names of operators play no part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.analysis import Contraction, match_contraction
from tilewright.build.layouts import (is_plain)
from tilewright.build.work import (stage_points)
from tilewright.ir import (
    CONST,
    PARALLEL,
    REGISTER,
    Alloc,
    Binary,
    Block,
    Buffer,
    Call,
    Const,
    FloorDiv,
    For,
    Index,
    Load,
    Mod,
    Program,
    Stage,
    Stmt,
    Unary,
    blocks,
    locate,
    stmt_children,
    stmt_exprs,
    walk,
)
from tilewright.schedule import ALGORITHMS, Schedule, scheduled_program
from tilewright.support import InternalError
from tilewright.target import find_operation

#: Letters of the dimensions of values with channels, as oneDNN and TVM write layouts.
_LETTERS: Final = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
#: Kinds of stages that are named only where a kernel has no others.
_MINOR: Final = ("element-wise", "movement")


@dataclass(frozen=True, slots=True)
class KernelDescription:
    """``algorithm`` such as ``winograd f4`` or ``matmul + row-wise``; layouts by argument, ``NCHW16c``,
    ``plain`` or ``packed``; ``tile`` the rows and columns of results that registers hold (``None``: no such
    tile); ``threads`` that share the work; ``instructions`` of the machine that it asks for by name;
    ``fallbacks`` where a primitive refused a step of a rule: what is done instead, and why.
    """

    algorithm: str
    inputs: dict[str, str]
    constants: dict[str, str]
    outputs: dict[str, str]
    tile: tuple[int, int] | None
    threads: int
    instructions: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()

    @property
    def layouts(self) -> str:
        """Layouts of inputs and outputs in short, each once."""
        sides = (dict.fromkeys(each.values()) for each in (self.inputs, self.outputs))
        return " -> ".join("/".join(side) or "-" for side in sides)

    @property
    def tile_text(self) -> str:
        """The register tile as ``14x32``."""
        return "-" if self.tile is None else f"{self.tile[0]}x{self.tile[1]}"

    def as_data(self) -> dict[str, Any]:
        """The description as plain data, for JSON."""
        return {
            "algorithm": self.algorithm,
            "input_layouts": dict(self.inputs),
            "constant_layouts": dict(self.constants),
            "output_layouts": dict(self.outputs),
            "register_tile": None if self.tile is None else list(self.tile),
            "threads": self.threads,
            "fallbacks": list(self.fallbacks),
        }


def describe(schedule: Schedule, threads: int) -> KernelDescription:
    """Describe the kernel that a schedule makes; ``threads`` is how many a run uses."""
    program = scheduled_program(schedule)
    if program is None:
        raise InternalError("only schedules of programs can be described")
    func = schedule.func
    program = _as_stored(program, schedule)
    instructions = tuple(dict.fromkeys(_instructions(schedule)))
    known = {b.name for b in program.inputs if b.scope == CONST}
    shared = any(at.node.kind == PARALLEL for at in locate(func.body, For))
    return KernelDescription(
        algorithm=_algorithm(schedule, program, instructions),
        inputs={b.name: layout_name(b) for b in func.buffers if b.name not in {*func.outputs, *known}},
        constants={b.name: "plain" if is_plain(b) else "packed" for b in func.buffers if b.name in known},
        outputs={b.name: layout_name(b) for b in func.buffers if b.name in func.outputs},
        tile=_register_tile(schedule, program),
        threads=threads if shared else 1,
        instructions=instructions,
        fallbacks=schedule.notes,
    )


def _as_stored(program: Program, schedule: Schedule) -> Program:
    """The program with values between its stages in the blocks in which the schedule stores them."""
    made = {at.node.buffer.name: at.node.buffer for at in locate(schedule.func.body, Alloc)}

    def stored(b: Buffer) -> Buffer:
        found = made.get(b.name)
        layout = None if found is None or found.scope == REGISTER else found.layout
        blocked = layout is not None and any(isinstance(atom, Mod) for atom, _ in layout.exprs[-1].terms)
        return b.with_(layout=layout) if blocked else b

    return replace(program, temps=tuple(map(stored, program.temps)))


def layout_name(buffer: Buffer) -> str:
    """The layout of a buffer: ``plain``, such as ``NCHW16c``, or ``packed`` for any other."""
    layout = buffer.layout
    if is_plain(buffer) or layout is None:
        return "plain"
    letters = _LETTERS.get(len(layout.dims), "")
    *front, last = layout.exprs
    size = _digit(last, Mod)
    if not letters or size is None or len(front) != len(layout.dims):
        return "packed"
    name, divisor = size
    expected = [
        _digit(e, FloorDiv) == (name, divisor) if dim == name else e.as_var() == dim
        for dim, e in zip(layout.dims, front, strict=True)
    ]
    if not all(expected):
        return "packed"
    return f"{letters}{divisor}{letters[layout.dims.index(name)].lower()}"


def _digit(e: Index, kind: type[FloorDiv] | type[Mod]) -> tuple[str, int] | None:
    """``(d, n)`` of an index ``d // n`` or ``d % n``."""
    if e.const == 0 and len(e.terms) == 1:
        atom, factor = e.terms[0]
        if isinstance(atom, kind) and factor == 1:
            name = atom.arg.as_var()
            return None if name is None else (name, atom.divisor)
    return None


def _algorithm(schedule: Schedule, program: Program, instructions: tuple[str, ...]) -> str:
    """The methods of each nest of loops in order; beside others what only moves or maps goes unnamed."""
    tiles: dict[str, str] = {}
    for step in schedule.trace.steps:
        if step.primitive in ALGORITHMS:
            tiles |= ALGORITHMS[step.primitive].parts(step)
    stages = {stage.name: stage for stage in program.stages}
    own = {stage.name for stage in schedule.source.stages} if isinstance(schedule.source, Program) else set()
    chained = _chain(schedule)
    if chained:
        return chained
    words: list[str] = []
    for nest in _nests(schedule.func.body):
        names = dict.fromkeys(at.node.stage for at in blocks(nest))
        kinds = dict.fromkeys(
            tiles.get(name) or _kind(program, stages[name], name in own) for name in names if name in stages
        )
        main = [kind for kind in kinds if kind not in _MINOR] or list(kinds)[-1:]
        if "reduction" in main and _reads_rows_again([stages[name] for name in names if name in stages]):
            main[main.index("reduction")] = "row-wise"
        word = " + ".join(dict.fromkeys(main))
        if word and word not in words:
            words.append(word)
    named = [word for word in words if word not in _MINOR] or words
    return ", ".join(named) + "".join(f" by {name}" for name in instructions)


def _chain(schedule: Schedule) -> str:
    """The contractions of a chain, and what of them is computed at a time; empty for other schedules.

    In bands several contractions share one nest, and nothing between them is reduced along rows.
    """
    source = schedule.source
    if not isinstance(source, Program):
        return ""
    kinds = {stage.name: _kind(source, stage, written=True) for stage in source.stages}
    nests = [{at.node.stage for at in blocks(nest)} for nest in _nests(schedule.func.body)]
    parts = next((step.args[2] for step in schedule.trace.steps if step.primitive == "rfactor"), None)
    suffix = "" if parts is None else "_part"
    works = [name for name, kind in kinds.items() if kind not in _MINOR]
    last = works[-1] + suffix if works else ""
    if len(works) < 2 or "reduction" in kinds.values() or not nests or not {*works[:-1], last} <= nests[0]:
        return ""
    steps = " > ".join(kinds[name].removeprefix("direct, ") for name in works)
    if parts is not None:
        return f"{steps} in parts of {parts} channels"
    split = next(step for step in schedule.trace.steps if step.primitive == "split")
    factors = split.args[1] if isinstance(split.args[1], tuple) else (split.args[1],)
    return f"{steps} in bands of {math.prod(n for n in factors if isinstance(n, int))}"


def _reads_rows_again(stages: list[Stage]) -> bool:
    """Whether some stage has an instance for each element of what another one reduces."""
    reduced = [stage_points(stage, "par") for stage in stages if stage.is_reduction]
    return any(stage_points(stage, "par") > min(reduced) for stage in stages if not stage.is_reduction)


def _nests(body: Stmt) -> Iterator[Stmt]:
    """The outermost loops, and blocks outside of any."""
    if isinstance(body, For | Block):
        yield body
        return
    for child in stmt_children(body):
        yield from _nests(child)


def _instructions(schedule: Schedule) -> Iterator[str]:
    """The instructions for products that nests became."""
    for step in schedule.trace.steps:
        if step.primitive != "tensorize":
            continue
        if find_operation(str(step.args[1]), schedule.operations).is_contraction:
            yield str(step.args[1])


def _kind(program: Program, stage: Stage, written: bool) -> str:
    """What a stage computes, by the roles of its axes; ``written``: in the program before its schedule."""
    if not stage.is_reduction:
        values = [e for e in stmt_exprs(stage.body) if not isinstance(e, Load | Const)]
        works = any(
            isinstance(e, Binary | Unary | Call) and e.dtype.is_float for v in values for e in walk(v)
        )
        return "element-wise" if works else "movement"
    c = _roles(program, stage)
    if c is None:
        return "reduction"
    windows = any(c.extent(axis) > 1 for axis in c.axes("window"))
    if c.b is None:
        # parts of a reduction that lanes or threads take also look like windows
        return "windows" if windows and written else "reduction"
    if not windows:
        return "matmul"
    return "direct, depthwise" if _is_depthwise(c) else "direct"


def _is_depthwise(c: Contraction) -> bool:
    """Whether a convolution has filters for each channel; an image of one channel has all for that one."""
    if any(c.extent(axis) > 1 for axis in c.axes("k")):
        return False
    shared = all(any(c.extent(axis) > 1 for axis in c.axes(role)) for role in ("m", "n"))
    return not shared or c.group is not None or c.rows is not None


def _roles(program: Program, stage: Stage) -> Contraction | None:
    """The roles of a stage's axes, as the result is stored by it or by the stage that reads it."""
    readers = [reader for name in stage.writes for reader in program.consumers(name)]
    for last in (*(reader for reader in readers if not reader.is_reduction), None):
        if all(it.extent.is_const for it in (last or stage).iters):
            found = match_contraction(program, stage, last)
            if found is not None:
                return found
    return None


def _register_tile(schedule: Schedule, program: Program) -> tuple[int, int] | None:
    """Rows and columns of the largest buffer in registers that holds a contraction's sums."""
    best: tuple[int, int] | None = None
    made = {name: stage for stage in program.stages if stage.is_reduction for name in stage.writes}
    accumulators = {
        at.node.buffer.name: at.node.buffer
        for at in locate(schedule.func.body, Alloc)
        if at.node.buffer.scope == REGISTER
    }
    for name, stage in made.items():
        held = accumulators.get(name) or accumulators.get(f"{stage.name}_register")
        c = _roles(program, stage)
        if held is None or c is None or not all(e.is_const for e in held.physical_shape):
            continue
        sizes = [e.as_int() for e in held.physical_shape]
        at = [i.as_var() for i in c.write.indices].index(c.vector)
        if len(sizes) == len(c.write.indices):
            tile = (math.prod(sizes) // sizes[at], sizes[at])
            if best is None or math.prod(tile) > math.prod(best):
                best = tile
    return best
