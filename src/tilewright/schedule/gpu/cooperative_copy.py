"""cooperative_copy: the threads of a block copy a tile together, each the same number of elements."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import For, LoopFunction
from tilewright.schedule.common import find_block, refusal
from tilewright.schedule.loop.bind import bind
from tilewright.schedule.loop.fuse import fuse
from tilewright.schedule.loop.split import split
from tilewright.schedule.loop.vectorize import vectorize
from tilewright.schedule.registry import primitive

#: Axes of the threads of a block, the one whose neighbours touch neighbours in memory last.
AXES = ("thread.z", "thread.y", "thread.x")


@primitive("cooperative_copy", phase="loop")
def cooperative_copy(
    func: LoopFunction, block: str, threads: Sequence[int], *, vector: int = 1
) -> LoopFunction:
    """Share the copies of ``block`` among ``threads``, so many an axis: ``(16, 8)`` are those of y and x.

    All loops around the block, up to what else is there, become one, whose elements go round the threads
    ``vector`` at a time, so that neighbouring threads touch neighbouring memory: loops ``<block>_s``
    (rounds), ``<block>_z`` … ``<block>_x`` (threads) and ``<block>_v`` (a vector).

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((4, 8), name="X")
    >>> Y = lang.compute((4, 8), lambda i, j: X[i, j] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y])).split("i", 4).bind("i_o", "block.x")
    >>> s = s.cache("X", "i_o", scope="shared", name="T")
    >>> print(s)
    func main:
        for i_o in 0:1 thread(block.x):
            alloc T: f32[4, 8] shared
            for T_i in 0:4:
                for T_j in 0:8:
                    block T(par i=T_i, par j=T_j):
                        T[i, j] = X[i, j]
            for i_i in 0:4:
                for j in 0:8:
                    block Y(par i=i_i + 4*i_o, par j=j):
                        Y[i, j] = (T[i, j] * f32(2.0))
    >>> print(s.cooperative_copy("T", (8,), vector=2))
    func main:
        for i_o in 0:1 thread(block.x):
            alloc T: f32[4, 8] shared
            for T_s in 0:2:
                for T_x in 0:8 thread(thread.x):
                    for T_v in 0:2 vector:
                        block T(par i=2*T_s + T_x//4, par j=T_v + 2*(T_x%4)):
                            T[i, j] = X[i, j]
            for i_i in 0:4:
                for j in 0:8:
                    block Y(par i=i_i + 4*i_o, par j=j):
                        Y[i, j] = (T[i, j] * f32(2.0))

    Raises ScheduleError where the loops around the block are not serial or of constant extents, where rows
    are no whole number of vectors, and where :func:`~tilewright.schedule.loop.bind.bind` refuses.
    """
    place, _ = find_block(func, block)
    if not 1 <= len(threads) <= len(AXES) or any(n < 1 for n in threads) or vector < 1:
        raise refusal(
            func,
            f"{block!r} cannot be copied by {tuple(threads)} threads, {vector} elements at a time",
            hint="give one to three positive numbers, for thread.z, y and x",
            at=[block],
        )
    loops: list[For] = []
    # what a loop has beside the block is in a sequence, which is an ancestor, too
    for above in reversed(place.ancestors):
        if not isinstance(above, For) or above.kind.name != "serial":
            break
        loops.insert(0, above)
    if not loops:
        raise refusal(
            func, f"no serial loops are around {block!r} alone", hint="cache a tile first", at=[block]
        )
    for f in loops:
        if not f.extent.is_const or f.step != 1:
            raise refusal(
                func,
                f"loop {f.var!r} has {f.extent} iterations, not a constant number, for threads to share",
                hint="copy a tile of a constant size",
                at=[f.var],
            )
    row = loops[-1].extent.const
    if row % vector:
        raise refusal(
            func,
            f"rows of {row} elements are no whole number of vectors of {vector}",
            hint="choose a divisor, or tiles of another width",
            at=[loops[-1].var, block],
        )
    name = loops[0].var
    for n, inner in enumerate(loops[1:]):
        name_of = f"{block}_f{n}"
        func = fuse(func, name, inner.var, names=(name_of,))
        name = name_of
    names = [f"{block}_{axis[-1]}" for axis in AXES[-len(threads) :]]
    if vector > 1:
        # apart, so that no condition of the threads' tail mentions the lanes
        func = split(func, name, vector, names=(f"{block}_g", f"{block}_v"))
        name = f"{block}_g"
    func = split(func, name, tuple(threads), names=(f"{block}_s", *names))
    for loop, axis in zip(names, AXES[-len(threads) :], strict=True):
        func = bind(func, loop, axis)
    return vectorize(func, f"{block}_v") if vector > 1 else func
