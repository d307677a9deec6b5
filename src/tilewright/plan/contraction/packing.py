"""Layouts of constant operands: weights in the panels that register tiles read, packed at compile time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tilewright.analysis import Contraction
from tilewright.ir import CONST, Index, Load, Mod, Program, Var, stmt_loads
from tilewright.plan.contraction.instructions import select_instruction
from tilewright.plan.contraction.register_tiling import choose_tile, vector_width
from tilewright.target import Target

#: Operands below this many elements stay as they are: they live in the first cache level anyway.
MIN_PACKED_ELEMENTS: Final = 256


def panel_layout(
    program: Program, c: Contraction, target: Target, constants: Collection[str], vectors: int | None = None
) -> tuple[str, tuple[str, ...]] | None:
    """The constant operand of a contraction and its layout ``[n tiles][reduction][n within the tile]``.

    Where the other operand is blocked along a reduction axis, that axis is split alike. What a reduction
    takes steps through, as each phase of a transposed convolution does through its window, lies together
    phase by phase (transposed 4x4/2 1x512-256 4x4 0.177 -> 0.126 ms, 1x1024-512 4x4 1.56 -> 0.67; with gaps
    in the layout, 3x3/2, 0.64 -> 0.44). Panels are ``vectors`` wide, by default as register
    tiles. ``None`` where there is no such operand, it is small, it already has a layout, or others read it
    too.
    """
    ld = c.b_logical  # the physical one, where it has no layout yet
    if ld is None:
        return None
    buffer = program.buffer(ld.buffer)
    if buffer.layout is not None or (buffer.scope != CONST and ld.buffer not in constants):
        return None
    uses = [x for stage in program.stages for x in stmt_loads(stage.body) if x.buffer == ld.buffer]
    elements = 1
    for extent in buffer.shape:
        elements *= extent.as_int() if extent.is_const else 0
    found = select_instruction(c, target)
    if len(uses) != 1 or (elements < MIN_PACKED_ELEMENTS and found is None):
        return None
    along = [d for d, i in enumerate(ld.indices) if c.vector in i.vars]
    if len(along) != 1 or ld.indices[along[0]].as_var() != c.vector:
        return None
    n = along[0]
    width = vector_width(c, target)
    if found is not None and found.tile is not None:
        width = found.tile.columns * found.tile.column_tiles
    elif c.vector not in c.axes("batch"):
        width *= choose_tile(c, target).vectors if vectors is None else vectors
    phases: list[str] = []
    outer: list[str] = []
    inner: list[str] = []
    for d, i in enumerate(ld.indices):
        if d == n:
            continue
        run, step = _run_along(c.a, i), _step_of(c, i)
        if step > 1:
            phases.append(f"d{d}%{step}")
            outer.append(f"d{d}//{step}")
        elif run is not None and run < _extent(buffer.shape[d]):
            outer.append(f"d{d}//{run}")
            inner.append(f"d{d}%{run}")
        else:
            outer.append(f"d{d}")
    layout = [f"d{n}//{width}", *phases, *outer, *inner, f"d{n}%{width}"]
    if found is not None:
        # the neighbours that an instruction sums innermost; what it counts is groups of them
        depth = found.group
        d = next(d for d, i in enumerate(ld.indices) if i.as_var() == found.axis)
        at = max(
            p for p, term in enumerate(layout) if term.startswith((f"d{d}%", f"d{d}/")) or term == f"d{d}"
        )
        layout[at] += f"//{depth}"
        layout.append(f"d{d}%{depth}")
    return ld.buffer, tuple(layout)


def _step_of(c: Contraction, i: Index) -> int:
    """How far apart the one reduction axis of an index reads; 1 where there is none, or another one."""
    steps = [abs(i.coefficient(a)) for a in c.axes("k", "window") if a in i.vars]
    return max(1, *steps) if len(steps) == 1 else 1


def _extent(e: Index) -> int:
    return e.as_int() if e.is_const else 1 << 30


def _run_along(a: Load, i: Index) -> int | None:
    """The block length of the last dimension of ``a`` along the axis that ``i`` is, if it is blocked."""
    name = i.as_var()
    if name is None or not a.indices:
        return None
    for atom, coefficient in a.indices[-1].terms:
        if isinstance(atom, Mod) and coefficient == 1 and atom.arg.as_var() == name:
            return atom.divisor
        if isinstance(atom, Var) and atom.name == name:
            return None
    return None
