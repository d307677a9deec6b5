"""The nest of a product by matrix units: a tile a block, a part of it a warp, a few elements a thread.

A warp's tile is made of products of 16 x 8 results, of which each thread has two rows and two columns: with
those rows and columns for loops, what a thread does of one product is the instruction.
"""

from __future__ import annotations

from tilewright.cost import ROW_PAD, UNIT_TILE, WarpTiles
from tilewright.plan.gpu.product_nest import ProductNest, block_tile, shared_copies, tile_nests
from tilewright.schedule import Schedule
from tilewright.target import Instruction

AXES = ("thread.z", "thread.y", "thread.x")
#: Threads of a warp by rows and pairs of columns, and what each has of both.
LANES = (8, 4)
EACH = (2, 2)


def schedule_on_units(s: Schedule, nest: ProductNest, plan: WarpTiles, unit: Instruction) -> Schedule:
    """Carry out a nest. Raises ScheduleError where a step is refused."""
    p = nest.product
    depth = dict(unit.axes)["k"]
    s, ahead = block_tile(s, nest, plan, together=True)
    i, j = s.loops(p)[-2:]
    s = s.split(f"{p}_k_i", depth, names=[f"{p}_k_q", f"{p}_k_r"])
    # warps along an axis that has one are no threads
    counts = {"iw": plan.rows // plan.warp_rows, "jw": plan.columns // plan.warp_columns}
    spread = {part: count for part, count in counts.items() if count > 1} | {"l": LANES[0] * LANES[1]}
    loops: dict[str, list[str]] = {part: [] for part in spread}
    for name, (x, y), outer in tile_nests(s, nest, (i, j), (f"{p}_k_q", f"{p}_k_r")):
        s = _warp_tile(s, name, (x, y), plan, outer)
        for part, found in loops.items():
            found.append(f"{name}_{part}")
    for axis, found in zip(AXES[-len(loops) :], loops.values(), strict=True):
        s = s.bind(tuple(found), axis)
    s = s.tensorize(f"{p}_ir", unit.name)
    for nest_name in (f"{p}_init", f"{p}_out"):
        s = s.unroll(f"{nest_name}_ir")
        wide = nest_name.endswith("_out") and nest.store > 1
        s = s.vectorize(f"{nest_name}_jc") if wide else s.unroll(f"{nest_name}_jc")
    for name, (axis, width) in ((nest.a, nest.copy_a), (nest.b, nest.copy_b)):
        element = s.buffers()[name].dtype.bytes
        pad = ROW_PAD // element
        if axis != "k" and element == ROW_PAD // 4:
            # rows of whole words: two of them between those that a thread reads
            pad *= 2
        s = s.pad_stride(name, pad)
        s = shared_copies(s, name, axis, width, tuple(spread.values()), ahead=ahead)
    return s


def _warp_tile(
    s: Schedule, name: str, loops: tuple[str, str], plan: WarpTiles, outer: tuple[str, ...]
) -> Schedule:
    """Divide a nest over a tile among warps and their threads, products of a warp written out.

    ``outer`` are the loop over those along the sums, and that over the terms of one.
    """
    down, across = plan.warp_rows // UNIT_TILE[0], plan.warp_columns // UNIT_TILE[1]
    for loop, parts, letters in (
        (loops[0], (down, EACH[0], LANES[0]), ("iw", "im", "ir", "ig")),
        (loops[1], (across, LANES[1], EACH[1]), ("jw", "jn", "jo", "jc")),
    ):
        s = s.split(loop, parts, names=[f"{name}_{part}" for part in letters], tail="mask")
    own = [f"{name}_{part}" for part in ("im", "jn", "ir", "jc")]
    s = s.reorder(*(f"{name}_{part}" for part in ("iw", "jw", "ig", "jo")), *outer[:1], *own, *outer[1:])
    s = s.fuse(f"{name}_ig", f"{name}_jo", names=[f"{name}_l"])
    for loop in own[:2]:
        s = s.unroll(loop)
    return s
