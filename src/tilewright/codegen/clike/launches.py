"""From a function to launches: which parts of it are kernels of a device, over which grids.

At the top of a function, outside of all block and thread loops, stand what the host does: allocations of
global memory become workspace, statements that follow one another kernels, and serial loops around kernels
are repeated by launching again. Between two kernels everything is visible to everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.ir import (
    GLOBAL,
    ONE,
    Alloc,
    Barrier,
    Buffer,
    Env,
    Exec,
    For,
    If,
    Index,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    floordiv,
    imax,
    int_upper,
    seq,
    simplify,
    stmt_children,
    substitute_index,
    upper,
    with_stmt_children,
)
from tilewright.support import ScheduleError

AXES: Final = ("x", "y", "z")
MOST_LAUNCHES: Final = 4096
"""Kernels launched by one run of a function: more stands for a schedule that should loop on the device."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A part of a function that is one kernel: ``host`` are the variables of serial loops around it."""

    body: Stmt
    host: tuple[tuple[str, Index, Index], ...]
    env: Env


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: the number of its nest, and the values of the host's loops."""

    nest: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What the host does: memory beside the arguments, the kernels, and their launches in order."""

    workspace: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    steps: tuple[Step, ...]


def is_hardware(s: Stmt) -> bool:
    """Whether a statement is a loop over blocks or threads."""
    return isinstance(s, For) and s.kind.name == "thread"


def has_hardware(s: Stmt) -> bool:
    """Whether a loop over blocks or threads stands in a statement, or is it."""
    return is_hardware(s) or any(map(has_hardware, stmt_children(s)))


def host_plan(func: LoopFunction) -> HostPlan:
    """Divide a lowered function. Raises ScheduleError where the host would have to do what it cannot."""
    planner = _Planner()
    planner.visit(func.body, (), {})
    return HostPlan(tuple(planner.workspace), tuple(planner.nests), tuple(planner.steps(func.body, {})))


class _Planner:
    def __init__(self) -> None:
        self.workspace: list[Buffer] = []
        self.nests: list[Nest] = []
        self._numbers: dict[int, int] = {}

    def visit(self, s: Stmt, host: tuple[tuple[str, Index, Index], ...], env: Env) -> None:
        """Find workspace and nests."""
        if isinstance(s, Seq):
            for part in s.stmts:
                self.visit(part, host, env)
        elif isinstance(s, Alloc) and s.buffer.scope == GLOBAL:
            self.workspace.append(s.buffer)
            self.visit(s.body, host, env)
        elif _repeats(s):
            assert isinstance(s, For)
            inner = {**env, s.var: (s.lo, s.hi - 1)}
            self.visit(s.body, (*host, (s.var, s.lo, s.hi)), inner)
        elif not isinstance(s, Barrier):
            # between kernels all waits for all
            self._numbers[id(s)] = len(self.nests)
            self.nests.append(Nest(_in_step(s), host, env))

    def steps(self, s: Stmt, values: Mapping[str, int]) -> Iterator[Step]:
        """The launches in order."""
        for count, step in enumerate(self._steps(s, values)):
            if count == MOST_LAUNCHES:
                raise ScheduleError(
                    f"one run would launch more than {MOST_LAUNCHES} kernels",
                    hint="bind an outer loop to blocks, so that the loop around the kernels is inside of one",
                )
            yield step

    def _steps(self, s: Stmt, values: Mapping[str, int]) -> Iterator[Step]:
        if id(s) in self._numbers:
            nest = self._numbers[id(s)]
            yield Step(nest, tuple(values[name] for name, _, _ in self.nests[nest].host))
        elif isinstance(s, For):
            lo, hi = (_number(x, values, s) for x in (s.lo, s.hi))
            for value in range(lo, hi, s.step):
                yield from self._steps(s.body, {**values, s.var: value})
        else:
            for child in stmt_children(s):
                yield from self._steps(child, values)


def _repeats(s: Stmt) -> bool:
    """Whether a statement is a serial loop around kernels."""
    return isinstance(s, For) and not is_hardware(s) and has_hardware(s.body)


def _in_step(s: Stmt) -> Stmt:
    """A kernel whose statements outside of all hardware loops wait for each other.

    Memory of a block around them makes one kernel of what would be several, which the host has in order;
    lowering places barriers inside of each only.
    """
    if is_hardware(s) or not has_hardware(s):
        return s
    if isinstance(s, Seq):
        parts = [_in_step(k) for k in s.stmts if not isinstance(k, Barrier)]
        return seq(parts[0], *(x for k in parts[1:] for x in (Barrier(GLOBAL), k)))
    if isinstance(s, For):
        return replace(s, body=seq(_in_step(s.body), Barrier(GLOBAL)))
    return with_stmt_children(s, tuple(map(_in_step, stmt_children(s))))


def _number(x: Index, values: Mapping[str, int], s: For) -> int:
    number = substitute_index(x, {name: Index(value) for name, value in values.items()})
    if not number.is_const:
        raise ScheduleError(
            f"the host cannot repeat kernels over {s.var!r}: its range, {s.lo} to {s.hi}, is no constant",
            hint="bind an outer loop to blocks or threads",
        )
    return number.const


@dataclass(frozen=True, slots=True)
class Grid:
    """The blocks of a kernel and the threads of each, per axis; extents over the function's parameters."""

    blocks: tuple[Index, Index, Index]
    threads: tuple[Index, Index, Index]
    used: frozenset[str]
    """The axes that loops of the kernel name."""

    def extent(self, axis: str) -> Index:
        """The extent along ``block.x`` … ``thread.z``."""
        kind, _, letter = axis.partition(".")
        return (self.blocks if kind == "block" else self.threads)[AXES.index(letter)]


def grid_of(nest: Nest, name: str) -> Grid:
    """The grid of a nest: along each axis the largest extent of its loops.

    Raises ScheduleError where block loops do not contain all of the kernel.
    """
    extents: dict[str, Index] = {}
    _check_blocks(nest.body, name)
    _extents(nest.body, dict(nest.env), extents)
    blocks, threads = (
        tuple(extents.get(f"{kind}.{letter}", ONE) for letter in AXES) for kind in ("block", "thread")
    )
    return Grid((blocks[0], blocks[1], blocks[2]), (threads[0], threads[1], threads[2]), frozenset(extents))


def team_grid(team: Team, grid: Grid, name: str) -> Grid:
    """The threads of a team along its axes, and the blocks of its kernel.

    Raises ScheduleError where loops name more threads than it has, or no known number of them.
    """
    extents: dict[str, Index] = {}
    _extents(team.body, {}, extents)
    x, y, z = (extents.get(f"thread.{letter}", ONE) for letter in AXES)
    count = prod(e.const if e.is_const else team.threads + 1 for e in (x, y, z))
    if count > team.threads:
        raise ScheduleError(f"{name}: team {team.name!r} has {team.threads} threads, its loops name others")
    return Grid(grid.blocks, (x, y, z), frozenset(extents) | {a for a in grid.used if a.startswith("block")})


def _extents(s: Stmt, env: dict[str, tuple[Index, Index]], out: dict[str, Index]) -> None:
    if isinstance(s, For):
        if s.kind.name == "thread":
            if s.kind.axis.partition(".")[2] not in AXES:
                raise ScheduleError(
                    f"kernels have no axis {s.kind.axis}, on which the loop {s.var!r} is",
                    hint="bind it to thread.x, of which warps and lanes are parts",
                )
            count = simplify(floordiv(s.hi - s.lo + (s.step - 1), s.step), env)
            most = upper(count, env)
            if most is None:
                number = int_upper(count, env)
                if number is None:
                    raise ScheduleError(f"the extent of the {s.kind} loop {s.var!r} has no known bound")
                most = Index(number)
            out[s.kind.axis] = imax(out[s.kind.axis], most) if s.kind.axis in out else most
        env = {**env, s.var: (s.lo, s.hi - 1)}
    if isinstance(s, Teams):
        out["thread.x"] = Index(sum(team.threads for team in s.teams))
        return
    for child in stmt_children(s):
        _extents(child, env, out)


def _check_blocks(s: Stmt, name: str) -> None:
    """Block loops contain all that their kernel does: no block waits for another."""
    if isinstance(s, For) and s.kind.axis.startswith("block"):
        _check_blocks(s.body, name)
        return
    if isinstance(s, Alloc | If) and len(stmt_children(s)) == 1:
        _check_blocks(stmt_children(s)[0], name)
        return
    stray = _block_loop(s)
    if stray is not None:
        raise ScheduleError(
            f"{name}: the {stray.kind} loop {stray.var!r} does not contain all that its kernel does",
            hint="blocks do not wait for each other: put loops over blocks around all, directly in one "
            "another, or at the top of the function, where each is a kernel of its own",
        )


def _block_loop(s: Stmt) -> For | None:
    if isinstance(s, For) and s.kind.axis.startswith("block"):
        return s
    return next((found for found in map(_block_loop, stmt_children(s)) if found is not None), None)


def waits(s: Stmt) -> bool:
    """Whether a barrier, or what is said to a channel, stands in a statement."""
    return isinstance(s, Barrier | Sync) or any(map(waits, stmt_children(s)))


def leaves(s: Stmt) -> Iterator[Store | Exec]:
    """The stores and instructions of a statement."""
    if isinstance(s, Store | Exec):
        yield s
    for child in stmt_children(s):
        yield from leaves(child)
