"""The nest of a product on a GPU: a tile a block, slices of operands in shared memory, sums in registers.

Each thread has rows and columns in groups that lie together, the groups spread over the tile as if each were
a (virtual) thread's: with groups of four reads of shared memory are wide, and fall into different banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final

from tilewright.cost import ACCESS_ELEMENTS, BlockTiles, ProductTiles
from tilewright.plan.gpu.loops import fused_loops
from tilewright.schedule import Schedule

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

    ``single`` are further axes of the result, of one iteration. ``copy_a`` and ``copy_b`` are the axis of the
    matrix (``i``, ``j`` or ``k``) along which its source lies, and the elements of an access; ``store`` those
    of an access to the result. ``adds``: the batch is of parts of sums, which blocks add to the result, begun
    before, at once.
    """

    root: str
    a: str
    b: str
    product: str
    batch: str | None
    single: tuple[str, ...]
    rows: str
    columns: str
    copy_a: tuple[str, int]
    copy_b: tuple[str, int]
    store: int
    adds: bool = False


def schedule_product(s: Schedule, nest: ProductNest, plan: ProductTiles) -> Schedule:
    """Carry out a nest. Raises ScheduleError where a step is refused."""
    p = nest.product
    down, across = plan.rows // plan.thread_rows, plan.columns // plan.thread_columns
    s, ahead = block_tile(s, nest, plan)
    i, j = s.loops(p)[-2:]
    rows: list[str] = []
    columns: list[str] = []
    for name, (x, y), outer in tile_nests(s, nest, (i, j), (f"{p}_k_i",)):
        s = _thread_tile(s, name, (x, y), plan, (down, across), outer)
        wide = name.endswith("_out") and nest.store > 1
        if wide and _steps(s, f"{name}_jw") > ACCESS_ELEMENTS:
            s = s.split(f"{name}_jw", ACCESS_ELEMENTS, names=[f"{name}_jg", f"{name}_jl"])
            s = s.unroll(f"{name}_jg").vectorize(f"{name}_jl")
        else:
            s = s.vectorize(f"{name}_jw") if wide else s.unroll(f"{name}_jw")
        rows.append(f"{name}_ty")
        columns.append(f"{name}_tx")
    s = s.bind(tuple(rows), "thread.y").bind(tuple(columns), "thread.x")
    terms = min(plan.depth, WRITTEN_OUT // (plan.thread_rows * plan.thread_columns))
    if terms > 1:
        s = s.annotate(f"{p}_k_i", "unroll", str(terms))
    for name, (axis, width) in ((nest.a, nest.copy_a), (nest.b, nest.copy_b)):
        if axis == "k":
            # elements that lie together are stored apart: a row's length decides into which banks
            s = s.pad_stride(name, ACCESS_ELEMENTS)
        s = shared_copies(s, name, axis, width, (down, across), ahead=ahead)
    return s


def block_tile(
    s: Schedule, nest: ProductNest, plan: BlockTiles, *, together: bool = False
) -> tuple[Schedule, bool]:
    """A tile a block: its sums in registers, slices of both operands in shared memory; in steps.

    Slices lie along rows and columns; with ``together`` along the sums, where their source does. Also returns
    whether they are copied a step ahead.
    """
    p = nest.product
    axes = (it.name for it in s.block(nest.root).iters)
    loops = dict(zip(axes, s.loops(nest.root), strict=True))
    m, n = loops[nest.rows], loops[nest.columns]
    if nest.adds and nest.batch is not None:
        s = _begun(s, nest, loops[nest.batch], [loop for axis, loop in loops.items() if axis != nest.batch])
    s = s.split(m, plan.rows, names=[f"{p}_m_o", f"{p}_m_i"], tail="mask")
    s = s.split(n, plan.columns, names=[f"{p}_n_o", f"{p}_n_i"], tail="mask")
    batch = () if nest.batch is None else (loops[nest.batch],)
    s = s.reorder(
        *(loops[each] for each in nest.single), *batch, f"{p}_m_o", f"{p}_n_o", f"{p}_m_i", f"{p}_n_i"
    )
    for loop, axis in (
        *((each, "block.z") for each in batch),
        (f"{p}_m_o", "block.y"),
        (f"{p}_n_o", "block.x"),
    ):
        s = s.bind(loop, axis)
    s = s.compute_at(p, f"{p}_n_o").set_scope(p, "register")
    i, j, k = s.loops(p)[-3:]
    s = s.split(k, plan.depth, names=[f"{p}_k_o", f"{p}_k_i"]).reorder(f"{p}_k_o", f"{p}_k_i", i, j)
    s = s.decompose_init(p, f"{p}_k_o")
    for name, (axis, _) in ((nest.a, nest.copy_a), (nest.b, nest.copy_b)):
        s = s.compute_at(name, f"{p}_k_o").set_scope(name, "shared")
        if together and axis == "k":
            s = s.set_layout(name, ("d0", "d2", "d1"))
    ahead = plan.stages > 1 and _steps(s, f"{p}_k_o") >= plan.stages
    return (s.pipeline(f"{p}_k_o", plan.stages) if ahead else s), ahead


def _begun(s: Schedule, nest: ProductNest, parts: str, loops: list[str]) -> Schedule:
    """The result begun by a kernel before."""
    s = s.reorder(parts, *loops).decompose_init(nest.root, parts)
    s, first = fused_loops(s, s.loops(f"{nest.root}_init"), f"{nest.root}_begun")
    block, thread = f"{nest.root}_begun_block", f"{nest.root}_begun_thread"
    s = s.split(first, BEGUN_THREADS, names=[block, thread])
    return s.bind(block, "block.x").bind(thread, "thread.x")


def tile_nests(
    s: Schedule, nest: ProductNest, inside: tuple[str, str], outer: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, str], tuple[str, ...]], ...]:
    """The nests over a block's tile: its sums begun, added to, and taken; rows, columns, what is around."""
    p = nest.product
    x, y = s.loops(f"{p}_init")[-2:]
    return (
        (f"{p}_init", (x, y), ()),
        (p, inside, outer),
        (f"{p}_out", (f"{p}_m_i", f"{p}_n_i"), ()),
    )


def shared_copies(
    s: Schedule, name: str, axis: str, width: int, threads: tuple[int, ...], *, ahead: bool
) -> Schedule:
    """Share the copies of a slice among the threads, those of the next step as well."""
    for copy in (name, f"{name}_ahead") if ahead else (name,):
        s = _copy(s, copy, axis, width, threads)
    return s


def _thread_tile(
    s: Schedule,
    name: str,
    loops: tuple[str, str],
    plan: ProductTiles,
    threads: tuple[int, int],
    outer: tuple[str, ...],
) -> Schedule:
    """Divide a nest over a tile among threads, each with groups of rows and columns, written out."""
    for loop, letter, count, group in (
        (loops[0], "i", threads[0], min(plan.thread_rows, plan.group_rows)),
        (loops[1], "j", threads[1], min(plan.thread_columns, plan.group_columns)),
    ):
        thread = "ty" if letter == "i" else "tx"
        names = [f"{name}_{letter}v", f"{name}_{thread}", f"{name}_{letter}w"]
        s = s.split(loop, (count, group), names=names, tail="mask")
    s = s.reorder(
        f"{name}_ty", f"{name}_tx", *outer, *(f"{name}_{part}" for part in ("iv", "iw", "jv", "jw"))
    )
    for part in ("iv", "iw", "jv"):
        s = s.unroll(f"{name}_{part}")
    return s


def _copy(s: Schedule, block: str, axis: str, width: int, threads: tuple[int, ...]) -> Schedule:
    """Share a copy among the threads, along the axis in which its source lies."""
    *_, k, other = s.loops(block)
    if axis == "k":
        s = s.reorder(other, k)
    last = s.loops(block)[-1]
    vector = gcd(width, _steps(s, last))
    s = s.cooperative_copy(block, threads, vector=vector)
    rounds = f"{block}_s"
    if _steps(s, rounds) <= MOST_ROUNDS:
        return s.unroll(rounds)
    # compilers write out more, and spend all registers on it
    return s.annotate(rounds, "unroll", str(MOST_ROUNDS))


def _steps(s: Schedule, loop: str) -> int:
    """Iterations of a loop over a tile."""
    return s.loop(loop).extent.as_int()
