"""The rule of products by warpgroups of GPUs: factors in shared memory, which a team of its own fills.

A block has a tile of the result, each warpgroup 64 rows of it. Slices of both factors are boxes of the
arguments, copied by one instruction each into a ring of slots, in rows of 128 bytes whose pieces are turned,
as matrix units read them. (NVIDIA, CUTLASS: "Efficient GEMM in CUDA", warp specialisation.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.analysis import Roles, narrowed, only_inside, padded_read, roles_of
from tilewright.cost import LAUNCH_SECONDS, ProductSize
from tilewright.ir import F32, Program, Stage, Store
from tilewright.plan.gpu.product import MULTIPLES, made_by_products, nest_of, size_of
from tilewright.plan.gpu.product_nest import ProductNest
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.target import GpuTarget
from tilewright.tiling import Bind, Body, Leaf, Level, Place, Step, chain, sequence

#: Threads of a warpgroup, rows that it multiplies, and columns of the smallest product.
GROUP: Final = 128
ROWS: Final = 64
EIGHT: Final = 8
#: Bytes of a row of a slice: what swizzles turn, and what boxes of numbers that lie along it have.
LINE: Final = 128
#: Rows of a block's tile: those of one warpgroup or two.
TILE_ROWS: Final = (64, 128)
TILE_COLUMNS: Final = (64, 128, 192, 256)
STAGES: Final = (2, 3, 4, 5, 6, 8)
#: Registers of a multiprocessor, which its one block divides.
REGISTERS: Final = 1 << 16
#: Registers of a thread that copies, and the most of one that computes (multiples of 8 that add up).
COPYING: Final = 40
MOST_REGISTERS: Final = 240
#: Registers of a thread besides its sums (NVRTC, sm_90a: 26 to 40 for products).
OTHER_REGISTERS: Final = 40
#: Bytes of shared memory besides slices: barriers of a ring, and what slices are aligned by.
OTHER_BYTES: Final = 2048
#: Results of a product whose tiles are not whole: code generation looks at all places of its ends.
MOST_PADDED: Final = 1 << 28
#: Rows of tiles that blocks take together: 16 by 8 of a wave of 132, whose slices are fewest.
TURN: Final = 8
#: Cycles from one step to the next of a warpgroup: waits for barriers of slots and for units.
STEP_CYCLES: Final = 40


@dataclass(frozen=True, slots=True)
class GroupTiles:
    """A tile of a block, ``rows`` x ``columns``, and the slots of its ring.

    >>> GroupTiles(128, 256, 64, 4).threads
    384
    """

    rows: int
    columns: int
    depth: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block: those that compute, and the team that copies."""
        return self.computing + GROUP

    @property
    def computing(self) -> int:
        """Threads that compute."""
        return self.rows // ROWS * GROUP

    @property
    def registers(self) -> int:
        """Registers of a thread at the start: equal shares of all, as one block has a multiprocessor."""
        return REGISTERS // self.threads // EIGHT * EIGHT

    @property
    def own_registers(self) -> int:
        """Registers of a thread that computes: its sums, and what else it needs."""
        return -(-(self.columns // 2 + OTHER_REGISTERS) // EIGHT) * EIGHT

    def shared_bytes(self, element: int) -> int:
        """Bytes of shared memory of a block."""
        return self.stages * (self.rows + self.columns) * self.depth * element + OTHER_BYTES


def group_seconds(size: ProductSize, tiles: GroupTiles, target: GpuTarget) -> float:
    """Seconds of a product: a multiprocessor has one block after the other.

    In a step its units multiply, slices come from the second cache level, warpgroups read their rows and all
    columns from shared memory; what a ring holds arrives meanwhile. Whatever takes longest decides. The first
    slice and the results are waited for.
    """
    element, level = size.element, target.level
    steps, blocks = size.sums // tiles.depth, -(-size.rows // tiles.rows) * -(-size.columns // tiles.columns)
    read = (tiles.rows + tiles.rows // ROWS * tiles.columns) * tiles.depth * element
    step = max(
        tiles.rows * tiles.columns * tiles.depth / (target.tensor_per_cycle * 2 / element) + STEP_CYCLES,
        (tiles.rows + tiles.columns) * tiles.depth * element / level("l2").bandwidth,
        read / level("shared").bandwidth,
        level("memory").latency / (tiles.stages - 1),
    )
    ends = 2 * level("memory").latency + tiles.rows * tiles.columns * 4 / level("l2").bandwidth
    cycles = -(-blocks * size.batch // target.units) * (steps * step + ends)
    moved = size.operand_bytes + size.batch * size.rows * size.columns * 4
    least = moved / (level("memory").bandwidth * target.units)
    return max(cycles, least) / (target.clock_hz or 1e9) + LAUNCH_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class GroupProblem:
    """A product of matrices whose factors are boxes of arguments; ``along`` says which lie along the sums."""

    target: GpuTarget
    nest: ProductNest
    size: ProductSize
    kind: str
    along: tuple[bool, bool]


class GpuGroupProductRule(Rule[GroupProblem, GroupTiles]):
    """Products that ``as_matrices`` made of factors as they lie in memory, by several warps together."""

    name = "gpu_group_product"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"group": GroupTiles})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> GroupProblem | None:
        """The product whose result ``root`` takes element by element, if the device has a unit for it."""
        return group_problem(context.program, context.machine.gpu, root, stages)

    def default(self, problem: GroupProblem) -> GroupTiles:
        """The tiles with the fewest seconds by the model."""
        found = best_groups(problem.size, problem.target)
        assert found is not None  # products are made so where there are some
        return found[0]

    def space(self, problem: GroupProblem) -> Space[GroupTiles]:
        """All tiles that fit."""
        options: dict[str, tuple[object, ...]] = {
            "rows": TILE_ROWS,
            "columns": TILE_COLUMNS,
            "stages": STAGES,
        }
        target = problem.target
        return Space(self.default(problem), options, lambda plan: refusal(problem.size, plan, target))

    def seconds(self, problem: GroupProblem, plan: GroupTiles) -> float | None:
        """By tiles, occupancy and waves."""
        return group_seconds(problem.size, plan, problem.target)

    def trees(self, problem: GroupProblem, plan: GroupTiles) -> tuple[tiling.Nest, ...]:
        """A tile a block, 64 rows of it a warpgroup, slices in a ring."""
        return (group_tree(problem, plan),)


def group_problem(
    program: Program, target: GpuTarget, root: str, stages: tuple[str, ...]
) -> GroupProblem | None:
    """A product as matrix units of warpgroups do it; ``None`` where they cannot.

    Both factors are copies of boxes: elements of an argument one by one, whose strides are multiples of 16
    bytes, and zeros beyond them. Numbers of more than two bytes lie along the sums.
    """
    made = made_by_products(program, stages)
    if made is None or not target.group_units:
        return None
    a, b, result = made
    roles, nest = roles_of(result), nest_of(program, program.stage(root), a, b, result)
    if isinstance(roles, str) or nest is None or nest.adds:
        return None
    kind = _kind(roles, target)
    along = tuple(_lies_along(program, stage, axis) for stage, axis in ((a, "i"), (b, "j")))
    size = size_of(program, nest, a, b)
    if (a.extent("i"), b.extent("j")) != (size.rows, size.columns) and size.rows * size.columns > MOST_PADDED:
        return None
    if kind is None or None in along or (size.element > 2 and along != (True, True)):
        return None
    if best_groups(size, target) is None:
        return None
    return GroupProblem(target, nest, size, kind, (along[0] is True, along[1] is True))


def _kind(roles: Roles, target: GpuTarget) -> str | None:
    """How instructions call the type of the factors; ``None`` where the device has none for it."""
    (a, read), (b, _) = narrowed(roles.a), narrowed(roles.b)
    for row in target.group_units:
        if tuple(o.dtype for o in row.operands) == (read(a).dtype, a.dtype, b.dtype):
            if F32 not in (a.dtype, b.dtype) or (roles.a != a and roles.b != b):
                return row.name.rpartition("_")[2]
    return None


def _lies_along(program: Program, stage: Stage, axis: str) -> bool | None:
    """Whether what a stage copies lies along the sums, or along its other axis; ``None``: it is no box."""
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1 or stage.init is not None:
        return None
    found = padded_read(stage.body.writes[0].value)
    if found is None:
        return None
    value, conditions = found
    source = program.buffer(value.buffer)
    shape = source.physical_shape
    if source.layout is not None or source.halo is not None or not all(e.is_const for e in shape):
        return None
    names = [i.as_var() for i in value.indices]
    moved = [name for name in names if name is not None]
    if len(set(moved)) != len(moved) or not {"k", axis} <= set(moved) or not 2 <= len(shape) <= 5:
        return None
    if any(name is None and not i.is_const for name, i in zip(names, value.indices, strict=True)):
        return None
    ranges = {it.name: (0, stage.extent(it.name)) for it in stage.iters}
    if not only_inside(value.indices, [e.const for e in shape], conditions, ranges):
        return None
    if shape[-1].const * source.dtype.bytes % 16 or names[-1] not in ("k", axis):
        return None
    return names[-1] == "k"


def refusal(size: ProductSize, tiles: GroupTiles, target: GpuTarget) -> str:
    """Why tiles are none for a product; empty where they are."""
    for of, tile, multiple in zip(
        (size.rows, size.columns), (tiles.rows, tiles.columns), MULTIPLES, strict=False
    ):
        if tile > of:
            return "a block's tile is larger than the matrix"
        if of % tile and -(-of // multiple) * multiple % tile:
            return "a block's tile does not divide the matrix, nor what that is filled up to"
    if size.sums % tiles.depth or size.sums // tiles.depth < tiles.stages:
        return f"steps of {tiles.depth} do not divide the sums, or there are fewer than slots"
    if tiles.depth * size.element != LINE:
        return f"rows of slices are not {LINE} bytes"
    registers = tiles.computing * tiles.own_registers + GROUP * COPYING
    if registers > target.registers_per_unit or tiles.own_registers > MOST_REGISTERS:
        return f"about {registers} registers"
    if tiles.shared_bytes(size.element) > target.shared_per_block:
        return f"{tiles.shared_bytes(size.element)} bytes of shared memory of {target.shared_per_block}"
    return ""


@lru_cache(maxsize=4096)
def best_groups(size: ProductSize, target: GpuTarget) -> tuple[GroupTiles, float] | None:
    """The tiles of a product with the fewest seconds by the model, and these; ``None`` where none fit."""
    made = (GroupTiles(m, n, LINE // size.element, s) for m, n, s in product(TILE_ROWS, TILE_COLUMNS, STAGES))
    fitting = [tiles for tiles in made if not refusal(size, tiles, target)]
    if not fitting:
        return None
    # of equals the one that copies further ahead
    best = min(fitting, key=lambda t: (group_seconds(size, t, target), -t.stages, str(t)))
    return best, group_seconds(size, best, target)


def group_tree(problem: GroupProblem, plan: GroupTiles) -> tiling.Nest:
    """The nest of a product by an instruction of warpgroups."""
    nest, size = problem.nest, problem.size
    depth = 32 // size.element
    unit = f"wgmma_m{ROWS}n{plan.columns}k{depth}_{problem.kind}"

    def tile(axes: tuple[str, str], between: list[Step], own: list[Step], leaf: Leaf) -> Body:
        """A tile among the threads of all warpgroups."""
        row, column = axes
        threads = ((row, 16), (row, 1), (column, 2))
        return Level(threads, chain([*between, *own], leaf), "thread.x", (), "mask")

    def own(axes: tuple[str, str], binds: tuple[Bind, Bind, Bind]) -> list[Step]:
        row, column = axes
        steps = ((row, 8), (column, EIGHT), (column, 1))
        return [Step(axis, n, bind, tail="mask") for (axis, n), bind in zip(steps, binds, strict=True)]

    ij, result = ("i", "j"), (nest.rows, nest.columns)
    terms = [Step("k", depth, "unroll", tail="guard")]
    unit_steps = [*own(ij, ("serial", "serial", "serial")), Step("k", 1, tail="guard")]
    sums = tile(ij, terms, unit_steps, Leaf(nest.product, unit))
    begun = tile(ij, [], own(ij, ("unroll", "unroll", "unroll")), Leaf(nest.product))
    stored: Bind = "vector" if nest.store > 1 else "unroll"
    taken = tile(result, [], own(result, ("unroll", "unroll", stored)), Leaf(nest.root))
    copies = [
        _slice(name, axis, length, along, size.element)
        for name, axis, length, along in (
            (nest.b, "j", plan.columns, problem.along[1]),
            (nest.a, "i", plan.rows, problem.along[0]),
        )
    ]
    room = min(MOST_REGISTERS, (problem.target.registers_per_unit - GROUP * COPYING) // plan.computing)
    hints = (("teams", f"{plan.stages}:{COPYING}:{room // EIGHT * EIGHT}"),)
    steps = Level((("k", plan.depth),), sequence(*copies, sums), "serial", hints, "guard")
    start = Place(nest.product, "init", "register", begun)
    body = sequence(Place(nest.product, "make", "register", sequence(start, steps)), taken)
    body = Level(_order(problem, plan), body, "block.x", (), "mask")
    if nest.batch is not None:
        body = Level(((nest.batch, 1),), body, "block.z", (), "mask")
    return tiling.Nest(nest.root, body)


def _order(problem: GroupProblem, plan: GroupTiles) -> tuple[tuple[str, int], ...]:
    """Tiles in the order of blocks: down a few rows, then the next column: neighbours share slices."""
    nest, tiles = problem.nest, -(-problem.size.rows // plan.rows)
    turn = next((n for n in (TURN, TURN // 2, TURN // 4) if tiles > n and tiles % n == 0), 1)
    outer = ((nest.rows, turn * plan.rows),) if turn > 1 else ()
    inner = ((nest.columns, plan.columns), (nest.rows, plan.rows))
    return (*outer, *inner)


def _slice(name: str, axis: str, length: int, along: bool, element: int) -> Place:
    """A slice of a factor in shared memory, in rows of 128 bytes along the sums, or along its other axis."""
    line = LINE // element
    hints = (("swizzle", f"8x{16 // element}"),)
    if along:
        body = chain([Step(axis, 1), Step("k", 1)], Leaf(name))
        return Place(name, "make", "shared", body, None, ("d0", "d2", "d1"), hints)
    if length <= line:
        return Place(
            name, "make", "shared", chain([Step("k", 1), Step(axis, 1)], Leaf(name)), None, (), hints
        )
    body = chain([Step(axis, line), Step("k", 1), Step(axis, 1)], Leaf(name))
    return Place(name, "make", "shared", body, None, ("d0", f"d2//{line}", "d1", f"d2%{line}"), hints)
