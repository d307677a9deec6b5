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
from tilewright.plan.contraction.microkernel import MAX_FMAS_PER_TURN, MAX_STEPS_PER_TURN
from tilewright.plan.contraction.register_tiling import MAX_ROWS, RegisterTile, register_tile
from tilewright.plan.contraction.sharing import sharing
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Nest, Place, Step, chain, expanded, sequence, together

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


def strassen_nest(program: Program, choice: StrassenChoice, last: Stage, machine: Machine) -> Nest:
    """The nest of a product whose result ``last`` consumes point by point, if it is not its own.

    Rows of both halves are computed together: the digits of rows and columns stand out of their order.
    """
    match, width = choice.match, choice.width
    sums, *products, result = choice.stages
    machine = sharing(match.stage, machine)
    pars = [it.name for it in match.stage.iters if it.kind == "par"]
    axis = dict(zip(pars, [it.name for it in last.iters], strict=True))
    m, n = axis[match.m], axis[match.n]
    outer = [Step(axis[a], 1) for a in match.outer]
    single = [a for name, a in axis.items() if name not in (match.m, match.n, *match.outer)]
    half, own = match.extent(match.m) // 2, choice.pairs // machine.threads
    share = Step(m, 2 * choice.height) if choice.height else Step(n, own * 2 * width)
    lane: Body = chain([Step(n, 1, "vector")], Leaf(last.name))
    if last.name != result:
        made = expanded([it.name for it in program.stage(result).iters], Leaf(result))
        lane = sequence(Place(result, "make", "register", made), lane)
    rest = [Step(m, 1), *(Step(a, 1, "unroll") for a in single), Step(m, choice.height or half, "unroll")]
    body = sequence(
        *(_product(program, name, choice, machine.target) for name in products),
        chain([*rest, Step(n, width, "unroll")], lane),
    )
    pair = Step(n, 2 * width, hints={"prefetch": f"{choice.weights}@spread"})
    body = chain([pair], body)
    if match.extent(match.n) % (2 * width):
        count = -(-match.extent(match.n) // (2 * width)) if choice.height else own
        body = Cut(n, ((count - 1) * 2 * width,), (body, body)) if count > 1 else body
    number, *ones, row, k = [it.name for it in program.stage(sums).iters]
    added = [
        *(Step(a, 1) for a in (*ones, row)),
        Step(k, choice.lanes),
        Step(number, 1, "unroll"),
        Step(k, 1, "vector"),
    ]
    body = sequence(Place(sums, "make", "local", chain(added, Leaf(sums))), body)
    level = together([*outer, share], body, "parallel" if machine.threads > 1 else "serial")
    panels = (f"d2//{width}", "d0", "d1", f"d2%{width}")
    return Nest(last.name, level, ((choice.weights, panels),))


def _product(program: Program, name: str, choice: StrassenChoice, target: Target) -> Place:
    """One product of quarters for a pair of panels, tile by tile in registers."""
    fmas = choice.rows * choice.vectors
    steps = choice.match.extent(choice.match.k) // 2
    turn = next(
        n
        for n in range(MAX_STEPS_PER_TURN, 0, -1)
        if steps % n == 0 and (n == 1 or n * fmas <= MAX_FMAS_PER_TURN)
    )
    *_, row, column, k = [it.name for it in program.stage(name).iters]
    step = Step(k, 1)
    if turn > 1:
        step.hint("unroll", str(turn))
    if again := reloaded_rows(target, choice.rows, choice.vectors):
        step.hint("reload", f"{again}/{choice.rows}")
    tile = expanded([row, column], Leaf(name))
    kept = Place(name, "keep", "register", chain([step], tile), tile)
    rows = Step(row, choice.rows, hints={"outline": ""})
    return Place(name, "make", "local", chain([rows], sequence(kept)))
