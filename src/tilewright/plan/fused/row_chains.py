"""Chains with whole rows between two contractions: does one nest beat a kernel for each of them?

    scores = q k, softmax, weights v            per head small operands, read by each tile of rows: one nest
    down = h w, norm, logits = down head        tens of megabytes, read by each tile of rows: kernels apart

A tile of rows goes through both contractions at once, so each tile reads both right operands whole. While one
head's operands stay in a near cache that costs nothing, and the values between stay near as well. Where they
do not, they come from farther away as often as there are tiles, and threads share tiles of rows alone: few
rows leave threads without work. Kernels of their own read each panel of an operand once for all rows and
share columns too, but store the values between and start the threads again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import row_axis
from tilewright.cost import SWEPT_SHARE, Machine, bandwidth, line_bytes, page_cycles
from tilewright.ir import CONST, Program, Stage
from tilewright.plan.contraction.gather import gather_operands
from tilewright.plan.contraction.register_tiling import choose_tile, is_tileable
from tilewright.plan.contraction.sharing import sharing
from tilewright.plan.fused.bands import LINE_CYCLES, ROW_LINE_CYCLES, crossing
from tilewright.plan.fused.chain import Chain, Link, find_chain
from tilewright.plan.inlining import inline_stages
from tilewright.plan.threads import is_balanced
from tilewright.schedule import Schedule
from tilewright.target import Target

#: Cycles to put one element of a right operand into panels, vectors across its rows (Zen 5: two heads of 201
#: keys by 64 with four queries took 36,000 cycles as one nest and 17,000 as three kernels).
PANEL_CYCLES: Final = 0.75
#: The same under masks, which panels have that threads share and whose columns are no whole vectors (Zen 4:
#: 12 heads of 49 keys by 128 with 16 queries took 45 us so, and 32 where only the last vectors have masks).
MASKED_PANEL_CYCLES: Final = 1.75
#: Part of the walks to pages that out-of-order execution does not hide behind products (Zen 5: 64 x 256 by
#: 256 x 1000 with packed weights took 0.9 of the time).
PAGE_SHARE: Final = 0.1
#: Cycles to start the threads of one more kernel and to wait for the slowest (Zen 5, 24 and 64 rows).
START_CYCLES: Final = 5000.0
#: How often the value between two kernels of their own is read or written: the reduction does both.
PASSES: Final = 4


@dataclass(frozen=True, slots=True)
class RowChainCost:
    """Cycles of a chain with whole rows: as one nest, and as kernels of its own."""

    joined: float
    apart: float

    @property
    def pays(self) -> bool:
        """Whether one nest is no slower."""
        return self.joined <= self.apart


def row_chain_cost(program: Program, machine: Machine) -> RowChainCost | None:
    """What a program costs that is a chain with whole rows; ``None`` for other programs."""
    target = machine.target
    s = inline_stages(Schedule(program, operations=target.operations))
    chain = find_chain(gather_operands(s, target, ()).require_program(), target)
    return None if chain is None or not chain.has_rows else _cost(chain, machine)


def row_chain_pays(program: Program, machine: Machine) -> bool:
    """Whether contractions with rows between them are faster as one nest.

    A program that is no chain, such as one of a single row or of fewer columns than a vector has lanes, would
    be nests one after the other without tiles of registers: kernels of its own are faster.
    """
    cost = row_chain_cost(program, machine)
    return cost is not None and cost.pays


def _cost(chain: Chain, machine: Machine) -> RowChainCost:
    target = machine.target
    head, tail = chain.links
    machine = sharing(tail.stage, machine)
    heads = prod(tail.c.extent(a) for a in chain.outer)
    rows = tail.c.extent(tail.axis)
    even = is_balanced(heads, machine.threads)
    first = is_tileable(head.program, head.stage, target, head.epilogue) or head.c
    height = min(rows, choose_tile(first, target).rows if row_axis(first) else 1)
    tiles = -(-rows // height)
    busiest = -(-heads // machine.threads) * tiles if even else -(-heads * tiles // machine.threads)
    own = [_right_bytes(link) / (heads if _moves_with(link) and chain.outer else 1) for link in chain.links]
    cycles = [_cycles(link, target) for link in chain.links]
    panels = 0 if head.panels is None else _elements(head.panels) * PANEL_CYCLES
    # heads that are shared make panels of their own; others' panels are a parallel loop before the rows
    together = head.panels is not None and not even

    # each tile reads what one head's operands are, from where they stay meanwhile
    again = sum(own) / bandwidth(machine, sum(own), SWEPT_SHARE)
    pages = sum(_pages(link, target) for link in chain.links)
    tile = sum(cycles) / (heads * rows) * height + pages
    made = panels / PANEL_CYCLES * MASKED_PANEL_CYCLES if together and _has_rest(head, target) else panels
    joined = busiest * max(tile, again) + made / machine.threads
    if together and machine.threads > 1:
        # one core writes panels that others read, and takes their lines back in the next run
        joined += _right_bytes(head) / line_bytes(target) * crossing(machine, ROW_LINE_CYCLES)

    starts = crossing(machine, START_CYCLES) if machine.threads > 1 else 0.0
    apart = (1 if together else 2) * starts
    apart += sum(
        max(each, _right_bytes(link) / bandwidth(machine.with_threads(1), _right_bytes(link)))
        / machine.threads
        for link, each in zip(chain.links, cycles, strict=True)
    )
    # where there are few rows, sums along memory do without panels
    apart += min(panels, cycles[0]) / machine.threads
    between = _row_bytes(head)
    apart += PASSES * between / machine.threads / bandwidth(machine, between / machine.threads)
    if not even and machine.threads > 1:
        # each kernel divides rows in its own way: lines lie with the other core
        apart += between / line_bytes(target) * crossing(machine, LINE_CYCLES)
    return RowChainCost(joined, apart)


def _cycles(link: Link, target: Target) -> float:
    """Cycles of a link's multiply-adds on one thread."""
    return _products(link) / (target.lanes(link.c.write.value.dtype) * target.fma_per_cycle)


def _pages(link: Link, target: Target) -> float:
    """Cycles in which one tile of rows waits for the pages of a right operand that is read as it lies.

    Rows of it that are long lie on pages of their own; kernels of their own have constant operands packed.
    """
    assert link.c.b is not None
    b = link.program.buffer(link.c.b.buffer)
    if b.scope != CONST or b.layout is not None:
        return 0.0
    row = b.shape[-1].as_int() * b.dtype.bytes
    lines = _right_bytes(link) / line_bytes(target)
    return lines * page_cycles(row, target) * PAGE_SHARE


def _has_rest(link: Link, target: Target) -> bool:
    """Whether vectors leave a rest of the columns."""
    assert link.panels is not None
    return link.panels.iters[-1].extent.as_int() % target.lanes(link.c.write.value.dtype) != 0


def _products(link: Link) -> int:
    return prod(it.extent.as_int() for it in link.stage.iters)


def _right_bytes(link: Link) -> int:
    """Bytes of the operand that has the columns, of all heads: what is read of its buffer."""
    assert link.c.b is not None
    axes = {name for i in link.c.b.indices for name in i.vars}
    return prod(it.extent.as_int() for it in link.stage.iters if it.name in axes) * link.c.b.dtype.bytes


def _row_bytes(link: Link) -> int:
    """Bytes of the value between the contractions."""
    b = link.program.buffer(link.end.writes[0])
    return prod(n.as_int() for n in b.shape) * b.dtype.bytes


def _moves_with(link: Link) -> bool:
    """Whether the right operand is another one for each head."""
    assert link.c.b is not None
    batch = set(link.c.axes("batch"))
    return any(i.vars & batch for i in link.c.b.indices)


def _elements(stage: Stage) -> int:
    return prod(it.extent.as_int() for it in stage.iters)
