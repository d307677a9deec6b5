"""Products with constant matrices by one step of Strassen's method: when it pays, and its schedule.

::

    parallel for threads:
        sums of quarters of the left matrix            # each thread for itself: lines that another core
        for pairs of panels:                           # has written cost as much as memory, again and again
            for each of the seven products:
                for tiles of rows: micro-kernel        # differences of weights in registers
            for rows: add products up, epilogue

Weights are read once, one pair of panels after the other; the next pair is asked for while the present one is
used: it is used half as long as a panel of the direct method.

Threads share the rows where reading all weights hides behind what the rows of each compute: a thread makes
the sums of its own ones, and reads what it wrote itself, if the kernel before was shared so too. Where those
are more than the caches hold, it has some of them at a time. Of several left matrices threads share these.
Otherwise they share the pairs, and each copies all rows and makes their sums. The last pair, if it is not
whole, is a copy of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.cost import KEPT_SHARE, Machine, reloaded_rows
from tilewright.ir import F32, Program, Stage
from tilewright.lang import ProductMatch, match_product
from tilewright.plan.contraction.microkernel import MAX_FMAS_PER_TURN, MAX_STEPS_PER_TURN, loops_below
from tilewright.plan.contraction.register_tiling import MAX_ROWS, RegisterTile, register_tile
from tilewright.plan.contraction.sharing import sharing
from tilewright.schedule import Schedule
from tilewright.target import Target

#: Products of quarters, instead of eight.
PRODUCTS: Final = 7
#: Those of them that have a quarter of the left matrix itself for their left operand.
QUARTERS: Final = 3
#: Cycles of one vector of a sum of quarters: its part of four loads, and a store to the second cache level.
SUM_CYCLES: Final = 3.5
#: Cycles of one vector of each of the four quarters of the result: seven stores and loads, eight additions.
RESULT_CYCLES: Final = 28.0
#: Cycles of a register tile beside its multiply-adds (measured, between 768 and 1536 steps).
TILE_CYCLES: Final = 150.0
#: How many times longer than reading the weights from memory the products must take.
COMPUTE_BOUND: Final = 2.0
#: How much faster than direct the model must show the method to be, before it is chosen.
MARGIN: Final = 1.05


@dataclass(frozen=True, slots=True)
class StrassenPlan:
    """Strassen's method for the stage ``of`` in register tiles of ``rows`` times ``vectors``.

    Threads share pairs of panels, or the rows, ``height`` neighbours of each half (0: all).
    """

    of: str
    rows: int
    vectors: int
    lanes: int
    height: int


@dataclass(frozen=True, slots=True)
class StrassenChoice:
    """A product to be done by the method, in register tiles of ``rows`` times ``vectors`` vectors.

    Threads share pairs of panels, or the rows, ``height`` neighbours of each half (0: all).
    """

    match: ProductMatch
    rows: int
    vectors: int
    lanes: int
    height: int = 0
    cycles: float = 0.0
    """What the model says of it, where it was chosen by that."""

    @property
    def plan(self) -> StrassenPlan:
        """The plan of its nest."""
        return StrassenPlan(self.match.stage.name, self.rows, self.vectors, self.lanes, self.height)

    def rewrite(self, s: Schedule, last: Stage | None) -> Schedule:
        """The program with the method's stages."""
        return s.strassen(self.match.stage.name, self.width, self.weights, self.height, self.copies)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def pairs(self) -> int:
        """Pairs of panels, the last one perhaps not whole."""
        return self.match.half(self.width) // self.width

    @property
    def copies(self) -> bool:
        """Whether quarters that are operands themselves are copied like sums.

        Of all rows a thread reads some that another core wrote: while those cost as much as memory, the ones
        that are evicted from its caches and read again would too.
        """
        return self.height == 0

    @property
    def sums(self) -> int:
        """Left operands of the products that are made first."""
        return PRODUCTS if self.copies else PRODUCTS - QUARTERS

    @property
    def weights(self) -> str:
        """The name of the constant that takes the right matrix's place."""
        return f"{self.match.weights.buffer}_quarters"

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages that make the result, its own last."""
        name = self.match.stage.name
        return (f"{name}_sums", *(f"{name}_product{n}" for n in range(1, PRODUCTS + 1)), name)


def choose_strassen(program: Program, stage: Stage, machine: Machine) -> StrassenChoice | None:
    """The method for a product with a constant matrix, ``None`` for the direct one (or for other stages)."""
    match = match_product(program, stage)
    if match is None:
        return None
    best: tuple[float, StrassenChoice] | None = None
    lanes = machine.target.lanes(F32)
    machine = sharing(stage, machine)
    half = match.extent(match.m) // 2
    for vectors in (1, 2, 3, 4):
        pairs = match.half(vectors * lanes) // (vectors * lanes)
        whole = match.extent(match.n) == 2 * pairs * vectors * lanes
        height = _height(match, whole and pairs % machine.threads == 0, machine)
        if height is None:
            continue
        rows = height or half
        tile = register_tile(
            machine.target, rows, pairs * vectors, (vectors,), max_rows=MAX_ROWS, groups=rows
        )
        choice = StrassenChoice(match, tile.rows, vectors, lanes, height)
        cost = _cycles(choice, tile, machine)
        if best is None or cost < best[0]:
            best = (cost, choice)
    if best is None or not _pays(best[1], best[0], machine):
        return None
    return replace(best[1], cycles=best[0])


def _height(match: ProductMatch, even: bool, machine: Machine) -> int | None:
    """Neighbouring rows of each half that a thread has at a time; 0: all, for pairs that threads share.

    A thread has all rows of its left matrices, or of its part of each, unless these and their sums do not
    stay in the caches: then the most that do. ``None`` where threads can share neither.
    """
    half, threads, alone = match.extent(match.m) // 2, machine.threads, match.count == 1
    own, rest = divmod(half, 1 if match.count % threads == 0 else threads)
    if rest or (alone and even and threads > 1 and not panels_hidden(machine.target, 2 * own)):
        return 0 if alone and even else None
    fits = (
        rows
        for rows in range(own, 0, -1)
        if own % rows == 0
        and (rows == own or panels_hidden(machine.target, 2 * rows))
        and _stays(match, 2 * rows * threads, PRODUCTS - QUARTERS, machine.target)
    )
    return next(fits, own)


def _stays(match: ProductMatch, rows: int, sums: int, target: Target) -> bool:
    """Whether so many rows of the left matrix, and so many sums of their quarters, stay in the last cache."""
    last = max((level.size for level in target.memory if level.size is not None), default=0)
    return match.data.dtype.bytes * rows * match.extent(match.k) * (1 + sums / 4) <= KEPT_SHARE * last


def panels_hidden(target: Target, rows: int) -> bool:
    """Whether reading panels from memory hides behind their use for so many rows, if asked for ahead."""
    nbytes = target.vector_bits / 8 * target.fma_per_cycle / rows
    return nbytes * COMPUTE_BOUND <= target.memory[-1].bandwidth


def _cycles(choice: StrassenChoice, tile: RegisterTile, machine: Machine) -> float:
    """Cycles of a product by the method."""
    match = choice.match
    m, n, k = (match.extent(axis) for axis in (match.m, match.n, match.k))
    m *= match.count
    parts = min(machine.threads, machine.target.units)
    columns = 2 * choice.pairs * choice.width
    tiles = m * columns / (choice.rows * choice.width * parts)
    sums = m * k / 4 / choice.lanes * choice.sums * SUM_CYCLES / (parts if choice.height else 1)
    result = m * n / 4 / choice.lanes / parts * RESULT_CYCLES
    # the tiles of all rows of a half that threads share, or of those that one of them has at a time
    share = m / (2 * choice.height * parts) if choice.height else 1 / parts
    products = PRODUCTS * tile.cycles * k / 2 * share
    return products + sums + result + tiles * PRODUCTS / 4 * TILE_CYCLES


def _pays(choice: StrassenChoice, cycles: float, machine: Machine) -> bool:
    target = machine.target
    match = choice.match
    m, n, k = (match.extent(axis) for axis in (match.m, match.n, match.k))
    m *= match.count
    parts = min(machine.threads, target.units)
    tile = register_tile(target, m, -(-n // choice.lanes), (1, 2, 3, 4), max_rows=MAX_ROWS)
    tiles = m * n / (tile.rows * tile.vectors * choice.lanes * parts)
    direct = tile.cycles * k / parts
    memory = match.data.dtype.bytes * n * k / target.memory[-1].bandwidth
    rows = 2 * choice.height * machine.threads or m
    sums = choice.sums * (1 if choice.height else machine.threads)
    if direct < COMPUTE_BOUND * memory or not _stays(match, rows, sums, target):
        return False
    return cycles * MARGIN < direct + tiles * TILE_CYCLES


def schedule_strassen(s: Schedule, choice: StrassenChoice, last: Stage, machine: Machine) -> Schedule:
    """Schedule the stages of a product whose result ``last`` consumes point by point, if it is not its own.

    Raises ScheduleError where a primitive refuses.
    """
    match, width = choice.match, choice.width
    sums, *products, result = choice.stages
    machine = sharing(match.stage, machine)
    s = s.set_layout(choice.weights, (f"d2//{width}", "d0", "d1", f"d2%{width}"))
    names = [it.name for it in match.stage.iters if it.kind == "par"]
    loops = dict(zip(names, s.loops(last.name), strict=True))
    single = [loop for name, loop in loops.items() if name not in (match.m, match.n, *match.outer)]
    half, pairs = match.extent(match.m) // 2, choice.pairs
    if choice.height:
        s = s.split(loops[match.m], [2, choice.height], names=["share", "half", "row"])
        s = s.split(loops[match.n], [2, width], names=["pair", "side", "lane"])
    else:
        s = s.split(loops[match.m], [half], names=["half", "row"])
        s = s.split(
            loops[match.n], [pairs // machine.threads, 2, width], names=["share", "pair", "side", "lane"]
        )
    outer = [loops[axis] for axis in match.outer]
    s = s.reorder(*outer, "share", "pair", "row", *single, "half", "side", "lane")
    share = "share"
    for loop in reversed(outer):
        s, share = s.fuse(loop, share, names=[f"{loop}_share"]), f"{loop}_share"
    if last.name != result:
        s = s.compute_at(result, "side").set_scope(match.stage.writes[0], "register")
        *around, lane = loops_below(s, result, "side")
        for loop in around:
            s = s.unroll(loop)
        s = s.vectorize(lane)
    for name in reversed(products):
        s = _product(s.compute_at(name, "pair"), name, choice, machine.target)
    for loop in (*single, "half", "side"):
        s = s.unroll(loop)
    s = s.vectorize("lane").annotate("pair", "prefetch", f"{choice.weights}@spread")
    s = s.compute_at(sums, share)
    number, *single, row, k = loops_below(s, sums, share)
    s = s.split(k, choice.lanes, names=["vector", "element"])
    s = s.reorder(*single, row, "vector", number, "element").unroll(number).vectorize("element")
    if machine.threads > 1:
        s = s.parallel(share)
    return s.partition("pair", -1) if match.extent(match.n) % (2 * width) else s


def _product(s: Schedule, name: str, choice: StrassenChoice, target: Target) -> Schedule:
    """One product of quarters for a pair of panels, tile by tile in registers."""
    *_, row, lane, k = loops_below(s, name, "pair")
    tile, inner, out = f"{row}_tile", f"{row}_in", f"{name}_acc"
    s = s.split(row, choice.rows, names=[tile, inner])
    s = s.cache(name, at=tile, scope="register", mode="write", name=out)
    s = s.reorder(k, inner, lane).decompose_init(name, k)
    fmas = choice.rows * choice.vectors
    steps = choice.match.extent(choice.match.k) // 2
    turn = next(
        n
        for n in range(MAX_STEPS_PER_TURN, 0, -1)
        if steps % n == 0 and (n == 1 or n * fmas <= MAX_FMAS_PER_TURN)
    )
    s = s.annotate(k, "unroll", str(turn)) if turn > 1 else s
    again = reloaded_rows(target, choice.rows, choice.vectors)
    s = s.annotate(k, "reload", f"{again}/{choice.rows}") if again else s
    for block in (name, f"{name}_init", f"{out}_out"):
        *_, rows, lanes = loops_below(s, block, tile)
        s = s.unroll(rows).vectorize(lanes)
    return s.annotate(tile, "outline")
