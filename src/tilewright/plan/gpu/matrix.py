"""The rule of products by matrix units of GPUs: tiles of blocks and warps, slices in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.analysis import Roles, narrowed, roles_of
from tilewright.cost import ProductSize, WarpTiles, product_seconds
from tilewright.ir import F32
from tilewright.plan.gpu.matrix_nest import matrix_tree
from tilewright.plan.gpu.product import MOST_THREADS, made_by_products, nest_of, size_of
from tilewright.plan.gpu.product_nest import ProductNest
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.target import GpuTarget, Instruction

TILES: Final = (16, 32, 64, 128)
#: Rows and columns of a warp's tile.
WARP_ROWS: Final = (16, 32, 64)
WARP_COLUMNS: Final = (8, 16, 32, 64)
#: Products of a step, one after the other along the sums.
ALONG: Final = (1, 2, 4)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixProblem:
    """A product of matrices, and the instruction that multiplies parts of them."""

    context: Context
    nest: ProductNest
    size: ProductSize
    unit: Instruction


class GpuMatrixRule(Rule[MatrixProblem, WarpTiles]):
    """Products that ``as_matrices`` made of narrow numbers: ``root`` takes those of ``a``, ``b``, product."""

    name = "gpu_matrix"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"warps": WarpTiles})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> MatrixProblem | None:
        """The product whose result ``root`` takes element by element, if the device has a unit for it."""
        program, made = context.program, made_by_products(context.program, stages)
        if made is None:
            return None
        a, b, result = made
        roles = roles_of(result)
        unit = None if isinstance(roles, str) else unit_of(roles, context.machine.gpu)
        nest = nest_of(program, program.stage(root), a, b, result)
        if unit is None or nest is None:
            return None
        return MatrixProblem(context, nest, size_of(program, nest, a, b), unit)

    def default(self, problem: MatrixProblem) -> WarpTiles:
        """The tiles with the fewest seconds by the model."""
        found = best_warps(problem.size, problem.context.machine.gpu, problem.unit)
        assert found is not None  # products are made where there are some
        return found[0]

    def space(self, problem: MatrixProblem) -> Space[WarpTiles]:
        """All tiles that fit."""
        target, depth = problem.context.machine.gpu, dict(problem.unit.axes)["k"]
        options: dict[str, tuple[object, ...]] = {
            "rows": TILES,
            "columns": TILES,
            "depth": tuple(n * depth for n in ALONG),
            "warp_rows": WARP_ROWS,
            "warp_columns": WARP_COLUMNS,
            "stages": (1, 2),
        }
        return Space(self.default(problem), options, lambda plan: refusal(problem.size, plan, target))

    def seconds(self, problem: MatrixProblem, plan: WarpTiles) -> float | None:
        """By tiles, occupancy and waves."""
        return product_seconds(problem.size, plan, problem.context.machine.gpu)

    def trees(self, problem: MatrixProblem, plan: WarpTiles) -> tuple[tiling.Nest, ...]:
        """A tile a block, fragments of it a warp."""
        return (matrix_tree(problem.nest, problem.size, plan, problem.unit),)


def unit_of(roles: Roles, target: GpuTarget) -> Instruction | None:
    """The instruction of a device for the factors of a product; ``None`` where it has none."""
    (a, read), (b, _) = narrowed(roles.a), narrowed(roles.b)
    total = read(a).dtype
    for row in target.matrix_units:
        if tuple(o.dtype for o in row.operands) != (total, a.dtype, b.dtype):
            continue
        # numbers of f32 are multiplied so only where the program rounds them
        if F32 not in (a.dtype, b.dtype) or (roles.a != a and roles.b != b):
            return row
    return None


def depth_of(unit: Instruction) -> int:
    """What terms are filled up to multiples of."""
    return 2 * dict(unit.axes)["k"]


def refusal(size: ProductSize, tiles: WarpTiles, target: GpuTarget) -> str:
    """Why tiles are none for a product; empty where they are."""
    if tiles.rows > size.rows or tiles.columns > size.columns:
        # what lies beyond a matrix is a condition, and an instruction has none
        return "a block's tile is larger than the matrix"
    if tiles.rows % tiles.warp_rows or tiles.columns % tiles.warp_columns:
        return "a warp's tile does not divide its block's"
    if not target.warp <= tiles.threads <= min(MOST_THREADS, target.threads_per_block):
        return f"{tiles.threads} threads a block"
    if size.sums % tiles.depth:
        return f"steps of {tiles.depth} do not divide the sums"
    if tiles.registers > target.registers_per_thread * 3 // 4:
        return f"about {tiles.registers} registers a thread"
    if tiles.shared_bytes(size.element) > target.shared_per_block:
        return "too much shared memory"
    return ""


@lru_cache(maxsize=4096)
def best_warps(size: ProductSize, target: GpuTarget, unit: Instruction) -> tuple[WarpTiles, float] | None:
    """The tiles of a product with the fewest seconds by the model, and these; ``None`` where none fit."""
    depth = dict(unit.axes)["k"]
    made = product(TILES, TILES, (n * depth for n in ALONG), WARP_ROWS, WARP_COLUMNS, (1, 2))
    fitting = [tiles for tiles in (WarpTiles(*each) for each in made) if not refusal(size, tiles, target)]
    if not fitting:
        return None
    best = min(fitting, key=lambda tiles: (product_seconds(size, tiles, target), str(tiles)))
    return best, product_seconds(size, best, target)
