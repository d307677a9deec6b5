"""The tree of a product by matrix units: a tile a block, a part of it a warp, a few elements a thread.

A warp's tile is made of products of 16 x 8 results, of which each thread has two rows and two columns: with
those rows and columns for loops, what a thread does of one product is the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.cost import ROW_PAD, UNIT_TILE, ProductSize, WarpTiles
from tilewright.plan.gpu.product_nest import ProductNest, block_tile, in_steps, shared_copy
from tilewright.target import Instruction
from tilewright.tiling import Bind, Body, Leaf, Level, Nest, Place, Step, chain, sequence

AXES: Final[tuple[Bind, ...]] = ("thread.z", "thread.y", "thread.x")
#: Threads of a warp by rows and pairs of columns.
LANES: Final = (8, 4)
#: Columns of a fragment that a thread has side by side; of its rows every eighth.
PAIR: Final = 2


def matrix_tree(nest: ProductNest, size: ProductSize, plan: WarpTiles, unit: Instruction) -> Nest:
    """The nest of a product by an instruction of the device's matrix units."""
    # warps along an axis that has one are no threads
    counts = (plan.rows // plan.warp_rows, plan.columns // plan.warp_columns)
    spread = [*(n for n in counts if n > 1), LANES[0] * LANES[1]]
    left = list(AXES[-len(spread) :])
    warps: list[Bind] = [left.pop(0) if n > 1 else "serial" for n in counts]
    copies = []
    for name, copy, length in ((nest.a, nest.copy_a, plan.rows), (nest.b, nest.copy_b, plan.columns)):
        along = copy[0] == "k"
        pad = ROW_PAD // size.element
        if not along and size.element == ROW_PAD // 4:
            # rows of whole words: two of them between those that a thread reads
            pad *= 2
        # slices lie along the sums where their source does
        layout = ("d0", "d2", "d1") if along else ()
        copies.append(shared_copy(name, copy, length, plan.depth, spread, pad=pad, layout=layout))

    def tile(axes: tuple[str, str], between: Sequence[Step], own: Sequence[Step], leaf: Leaf) -> Body:
        """A tile among warps and their threads, its fragments written out."""
        row, column = axes
        fragments = [
            Step(row, UNIT_TILE[0], "unroll", tail="mask"),
            Step(column, UNIT_TILE[1], "unroll", tail="mask"),
        ]
        inner = chain([*between, *fragments, *own], leaf)
        lanes = Level(((row, 1), (column, PAIR)), inner, "thread.x", (), "mask")
        steps = ((row, plan.warp_rows, warps[0]), (column, plan.warp_columns, warps[1]))
        return chain([Step(axis, n, bind, tail="mask") for axis, n, bind in steps], lanes)

    def own(axes: tuple[str, str], binds: tuple[Bind, Bind]) -> list[Step]:
        """What a thread has of a fragment."""
        return [Step(axes[0], LANES[0], binds[0], tail="mask"), Step(axes[1], 1, binds[1], tail="mask")]

    ij, result = ("i", "j"), (nest.rows, nest.columns)
    unit_steps = [*own(ij, ("serial", "serial")), Step("k", 1, tail="guard")]
    along_sums = [Step("k", dict(unit.axes)["k"], tail="guard")]
    sums = tile(ij, along_sums, unit_steps, Leaf(nest.product, unit.name))
    begun = tile(ij, [], own(ij, ("unroll", "unroll")), Leaf(nest.product))
    stored: Bind = "vector" if nest.store > 1 else "unroll"
    taken = tile(result, [], own(result, ("unroll", stored)), Leaf(nest.root))
    start = Place(nest.product, "init", "register", begun)
    return block_tile(nest, plan, sequence(start, in_steps(size, plan, copies, sums)), taken)
