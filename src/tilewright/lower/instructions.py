"""Instructions as the loops that they stand for, for languages that do not have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.ir import (
    Access,
    Exec,
    Index,
    Load,
    LoopFunction,
    Stmt,
    Store,
    Window,
    fresh_name,
    map_buffers,
    map_loads,
    map_stmt,
    rename_buffers,
    rename_loops,
    simplify_seqs,
)
from tilewright.lower.flatten import flatten_blocks
from tilewright.lower.inits import decompose_inits
from tilewright.support import InternalError, TargetError
from tilewright.target import Instruction, lane_semantics


def expand_instructions(func: LoopFunction, rows: Mapping[str, Instruction]) -> LoopFunction:
    """Replace every execution of an instruction among ``rows`` by the loops over its axes.

    The function has no blocks (:func:`flatten_blocks`). Raises TargetError for an instruction that is not
    among them.
    """
    taken = {b.name for b in func.buffers} | {p.name for p in func.params} | set(func.body.inner_names)
    taken |= {b.name for b in func.body.allocated}

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Exec):
            return s
        if s.instr not in rows:
            raise TargetError(f"{func.name}: there are no loops for the instruction {s.instr!r}")
        return _expanded(s, rows[s.instr], taken)

    return func.with_body(simplify_seqs(map_stmt(func.body, visit)))


def _expanded(s: Exec, row: Instruction, taken: set[str]) -> Stmt:
    """One execution: the instruction's stages on the elements of its windows."""
    shapes = [tuple(a.count for a in w.axes) or w.extents for w in s.windows]
    part: dict[str, int] = {}
    if row.partial:
        for operand, shape in zip(row.operands, shapes, strict=True):
            part.update(zip(operand.axes, shape, strict=True))
    lane = lane_semantics(row, part)
    body = rename_loops(flatten_blocks(decompose_inits(lane)).body, taken)
    own = {b.name: fresh_name(b.name, taken) for b in (*lane.buffers, *body.allocated)}
    taken.update(own.values())
    body = map_buffers(rename_buffers(body, own), lambda b: replace(b, name=own[b.name]))
    passed: dict[str, _Passed] = {}
    for b, w, shape in zip(lane.buffers, s.windows, shapes, strict=True):
        sizes = tuple(e.as_int() for e in b.shape)
        if _long(sizes) != _long(shape):
            raise InternalError(f"{s.instr}: {w.buffer} is passed as {shape}, its operand has {sizes}")
        passed[own[b.name]] = _Passed(w, sizes)

    def stored(node: Stmt) -> Stmt:
        if not isinstance(node, Store):
            return node
        return Store(tuple(_placed(a, passed) for a in node.writes))

    def loaded(e: Load) -> Load:
        return passed[e.buffer].load(e) if e.buffer in passed else e

    return map_loads(map_stmt(body, stored), loaded)


@dataclass(frozen=True, slots=True)
class _Passed:
    """A window, and the extents of the operand that it is."""

    window: Window
    sizes: tuple[int, ...]

    def place(self, indices: Sequence[Index]) -> tuple[Index, ...]:
        """Where in the window's buffer an element of the operand is."""
        w = self.window
        at = iter(i for i, n in zip(indices, self.sizes, strict=True) if n > 1)
        out = list(w.offsets)
        if not w.axes:
            return tuple(o + next(at) if n > 1 else o for o, n in zip(w.offsets, w.extents, strict=True))
        for a in w.axes:
            if a.count > 1:
                out[a.dim] = out[a.dim] + next(at) * a.step
        return tuple(out)

    def load(self, e: Load) -> Load:
        """A load of the operand as one of the window's buffer."""
        return replace(e, buffer=self.window.buffer, indices=self.place(e.indices))


def _placed(a: Access, passed: Mapping[str, _Passed]) -> Access:
    if a.buffer not in passed:
        return a
    p = passed[a.buffer]
    return replace(a, buffer=p.window.buffer, indices=p.place(a.indices))


def _long(extents: Sequence[int]) -> tuple[int, ...]:
    """The extents of more than one element."""
    return tuple(n for n in extents if n > 1)
