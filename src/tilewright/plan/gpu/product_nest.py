"""The tree of a product on a GPU: a tile a block, slices of operands in shared memory, sums in registers.

Each thread has rows and columns in groups that lie together, the groups spread over the tile as if each were
a (virtual) thread's: with groups of four reads of shared memory are wide, and fall into different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Final

from tilewright.cost import ACCESS_ELEMENTS, BlockTiles, ProductSize, ProductTiles
from tilewright.tiling import Body, Leaf, Level, Nest, Place, Step, chain, sequence

#: Rounds of a copy that are under way at once: each holds a register or four until it is stored.
MOST_ROUNDS: Final = 4
#: Multiply-adds of a thread that are written out: next operands are read meanwhile. NVRTC does so by itself
#: for 4x4 and 4x8 results; for 8x8 it repeats a loop for each term (sm_90: 77 instructions for 64).
WRITTEN_OUT: Final = 256
#: Threads of a block that begins sums.
BEGUN_THREADS: Final = 128


@dataclass(frozen=True, slots=True)
class ProductNest:
    """The stages of a product, the axes of the result, and how many elements lie together along which axis.

    ``copy_a`` and ``copy_b`` are the axis of the matrix (``i``, ``j`` or ``k``) along which its source lies,
    and the elements of an access; ``store`` those of an access to the result. Other axes of the result than
    ``batch``, ``rows`` and ``columns`` have one iteration. ``adds``: the batch is of parts of sums, which
    blocks add to the result, begun before, at once.
    """

    root: str
    a: str
    b: str
    product: str
    batch: str | None
    rows: str
    columns: str
    copy_a: tuple[str, int]
    copy_b: tuple[str, int]
    store: int
    adds: bool = False


def product_tree(nest: ProductNest, size: ProductSize, plan: ProductTiles) -> Nest:
    """The nest of a product by threads that multiply and add."""
    terms = min(plan.depth, WRITTEN_OUT // (plan.thread_rows * plan.thread_columns))
    term = Step("k", 1, hints={"unroll": str(terms)} if terms > 1 else {}, tail="guard")
    threads = (plan.rows // plan.thread_rows, plan.columns // plan.thread_columns)
    # elements that lie together along the sums are stored apart: a row's length decides into which banks
    copies = [
        shared_copy(name, copy, length, plan.depth, threads, pad=ACCESS_ELEMENTS if copy[0] == "k" else 0)
        for name, copy, length in ((nest.a, nest.copy_a, plan.rows), (nest.b, nest.copy_b, plan.columns))
    ]
    sums = _thread_tile(plan, ("i", "j"), Leaf(nest.product), (term,))
    taken = _thread_tile(plan, (nest.rows, nest.columns), Leaf(nest.root), (), nest.store)
    return block_tile(nest, plan, in_steps(size, plan, copies, sums), taken)


def block_tile(nest: ProductNest, plan: BlockTiles, product: Body, taken: Body) -> Nest:
    """A tile a block: its sums in registers, then what takes them."""
    body = sequence(Place(nest.product, "make", "register", product), taken)
    body = Level(((nest.columns, plan.columns),), body, "block.x", (), "mask")
    body = Level(((nest.rows, plan.rows),), body, "block.y", (), "mask")
    if nest.batch is not None:
        body = Level(((nest.batch, 1),), body, "block.z", (), "mask")
    if not nest.adds:
        return Nest(nest.root, body)
    # the result is begun by a kernel before
    axes = f"{nest.rows}*{nest.columns}"
    begun = chain([Step(axes, BEGUN_THREADS, "block.x"), Step(axes, 1, "thread.x")], Leaf(nest.root))
    return Nest(nest.root, sequence(Place(nest.root, "init", "global", begun), body))


def in_steps(size: ProductSize, plan: BlockTiles, copies: Sequence[Place], sums: Body) -> Level:
    """Steps along the sums, each with its slices, which are copied ahead where there are steps enough."""
    ring = plan.stages > 1 and -(-size.sums // plan.depth) >= plan.stages
    hints = (("stages", str(plan.stages)),) if ring else ()
    # the second operand's copy comes first
    return Level((("k", plan.depth),), sequence(*reversed(copies), sums), "serial", hints, "guard")


def shared_copy(
    name: str,
    copy: tuple[str, int],
    length: int,
    depth: int,
    threads: Sequence[int],
    *,
    pad: int,
    layout: tuple[str, ...] = (),
) -> Place:
    """A slice of ``length`` rows or columns in shared memory, copied by all threads along where it lies."""
    axis, width = copy
    vector = gcd(width, depth if axis == "k" else length)
    rounds = -(-depth * length // (vector * prod(threads)))
    hints = [("threads", "x".join(map(str, threads))), ("vector", str(vector))]
    hints += [("along", "k")] if axis == "k" else []
    hints += [("pad", str(pad))] if pad else []
    # compilers write out more, and spend all registers on it
    hints += [("rounds", "all" if rounds <= MOST_ROUNDS else str(MOST_ROUNDS))]
    return Place(name, "make", "shared", Leaf(name), None, layout, tuple(hints))


def _thread_tile(
    plan: ProductTiles, axes: tuple[str, str], leaf: Leaf, terms: Sequence[Step], wide: int = 1
) -> Body:
    """A tile among threads, each with groups of rows and columns, written out; ``terms`` around these."""
    row, column = axes
    rows = min(plan.thread_rows, plan.group_rows)
    columns = min(plan.thread_columns, plan.group_columns)
    last = [Step(column, 1, "vector" if wide > 1 else "unroll", tail="mask")]
    if wide > 1 and columns > ACCESS_ELEMENTS:
        last.insert(0, Step(column, ACCESS_ELEMENTS, "unroll", tail="mask"))
    own = [
        Step(row, plan.rows // plan.thread_rows * rows, "unroll", tail="mask"),
        Step(row, 1, "unroll", tail="mask"),
        Step(column, plan.columns // plan.thread_columns * columns, "unroll", tail="mask"),
        *last,
    ]
    threads = [Step(row, rows, "thread.y", tail="mask"), Step(column, columns, "thread.x", tail="mask")]
    return chain([*threads, *terms, *own], leaf)
