"""The rule of products of matrices on GPUs: tiles of blocks and threads, slices in shared memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.cost import (
    ACCESS_ELEMENTS,
    LATE_BYTES,
    LATE_COPIES,
    ProductSize,
    ProductTiles,
    product_seconds,
)
from tilewright.ir import Load, Program, Stage, Store, stmt_loads
from tilewright.plan.gpu.lanes import widest
from tilewright.plan.gpu.product_nest import ProductNest, product_tree
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.target import GpuTarget

#: Multiples of rows, columns and terms that matrices are filled up to: the largest tiles.
MULTIPLES: Final = (128, 128, 16)
TILES: Final = (16, 32, 64, 128)
DEPTHS: Final = (8, 16, 32)
THREAD_ROWS: Final = (1, 2, 4, 8)
THREAD_COLUMNS: Final = (2, 4, 8)
#: Elements of a thread's rows or columns that lie together: 4 are one access, 8 in banks that conflict.
GROUPS: Final = (1, 2, 4, 8)
#: Slices of the operands in shared memory: the one in use, and those that are copied ahead.
STAGES: Final = (1, 2, 3)
#: Slices that are enough where copies arrive before the next step.
AHEAD: Final = 2
#: Threads of a block: at least a warp, at most what leaves registers for tiles.
MOST_THREADS: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class ProductProblem:
    """A product of matrices whose operands are read where they are used."""

    context: Context
    nest: ProductNest
    size: ProductSize


class GpuProductRule(Rule[ProductProblem, ProductTiles]):
    """Products that ``as_matrices`` made: ``root`` takes the results of ``stages``: ``a``, ``b``, product."""

    name = "gpu_product"
    machines = GpuTarget
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"tiles": ProductTiles})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> ProductProblem | None:
        """The product whose result ``root`` takes element by element."""
        program, made = context.program, made_by_products(context.program, stages)
        if made is None:
            return None
        a, b, product = made
        nest = nest_of(program, program.stage(root), a, b, product)
        if nest is None:
            return None
        size = size_of(program, nest, a, b)
        if LATE_COPIES in context.machine.gpu.features and size.element == LATE_BYTES:
            # what is stored across is copied element by element: neighbours by neighbouring threads, so that
            # they come from one line and go to different banks
            nest = replace(nest, copy_a=_single(nest.copy_a), copy_b=_single(nest.copy_b))
        return ProductProblem(context, nest, size)

    def default(self, problem: ProductProblem) -> ProductTiles:
        """The tiles with the fewest seconds by the model."""
        return best_tiles(problem.size, problem.context.machine.gpu)[0]

    def space(self, problem: ProductProblem) -> Space[ProductTiles]:
        """All tiles that fit."""
        target = problem.context.machine.gpu
        options: dict[str, tuple[object, ...]] = {
            "rows": TILES,
            "columns": TILES,
            "depth": DEPTHS,
            "thread_rows": THREAD_ROWS,
            "thread_columns": THREAD_COLUMNS,
            "stages": STAGES,
            "group_rows": GROUPS,
            "group_columns": GROUPS,
        }
        return Space(self.default(problem), options, lambda plan: refusal(problem.size, plan, target))

    def seconds(self, problem: ProductProblem, plan: ProductTiles) -> float | None:
        """By tiles, occupancy and waves."""
        return product_seconds(problem.size, plan, problem.context.machine.gpu)

    def trees(self, problem: ProductProblem, plan: ProductTiles) -> tuple[tiling.Nest, ...]:
        """A tile a block, groups of rows and columns a thread."""
        return (product_tree(problem.nest, problem.size, plan),)


def made_by_products(program: Program, stages: tuple[str, ...]) -> tuple[Stage, Stage, Stage] | None:
    """The stages of a product as ``as_matrices`` makes them: ``a``, ``b``, product; ``None`` of others."""
    known = {s.name for s in program.stages}
    if len(stages) != 3 or any(name not in known for name in stages):
        return None
    a, b, product = (program.stage(name) for name in stages)
    return a, b, product


def refusal(size: ProductSize, tiles: ProductTiles, target: GpuTarget) -> str:
    """Why tiles are none for a product; empty where they are."""
    if tiles.rows % tiles.thread_rows or tiles.columns % tiles.thread_columns:
        return "a thread's tile does not divide its block's"
    for of, group in ((tiles.thread_rows, tiles.group_rows), (tiles.thread_columns, tiles.group_columns)):
        if of % min(of, group):
            return f"groups of {group} do not divide a thread's {of}"
        if group != ACCESS_ELEMENTS and min(of, group) == min(of, ACCESS_ELEMENTS):
            # one form each
            return f"groups of {group} of {of} are those of {ACCESS_ELEMENTS}"
    if not target.warp <= tiles.threads <= min(MOST_THREADS, target.threads_per_block):
        return f"{tiles.threads} threads a block"
    if tiles.depth > MULTIPLES[2] and -(-size.sums // MULTIPLES[2]) * MULTIPLES[2] % tiles.depth:
        return f"steps of {tiles.depth} do not divide the sums"
    if tiles.registers > target.registers_per_thread * 3 // 4:
        return f"about {tiles.registers} registers a thread"
    if tiles.shared_bytes(size.element) > target.shared_per_block:
        return "too much shared memory"
    return ""


@lru_cache(maxsize=4096)
def best_tiles(size: ProductSize, target: GpuTarget) -> tuple[ProductTiles, float]:
    """The tiles of a product with the fewest seconds by the model, and these."""
    # of equals with what is copied ahead: it hides waiting that the model does not know
    best = min(
        _candidates(size, target),
        key=lambda tiles: (product_seconds(size, tiles, target), tiles.stages != AHEAD, str(tiles)),
    )
    return best, product_seconds(size, best, target)


def _candidates(size: ProductSize, target: GpuTarget) -> Iterator[ProductTiles]:
    for rows in TILES:
        for columns in TILES:
            # beyond the next power of two there is nothing left to compute
            if (rows > 16 and rows >= 2 * size.rows) or (columns > 16 and columns >= 2 * size.columns):
                continue
            for depth in DEPTHS:
                for down, across in product(THREAD_ROWS, THREAD_COLUMNS):
                    for stages in STAGES:
                        tiles = ProductTiles(rows, columns, depth, down, across, stages)
                        if not refusal(size, tiles, target):
                            yield tiles


def nest_of(program: Program, root: Stage, a: Stage, b: Stage, product: Stage) -> ProductNest | None:
    """The nest of a product whose result ``root`` takes element by element; ``None`` where it does not."""
    (buffer,) = product.writes
    found = {ld for ld in stmt_loads(root.body) if ld.buffer == buffer}
    if len(found) != 1 or program.consumers(buffer) != (root,):
        return None
    (load,) = found
    axes = tuple(i.as_var() for i in load.indices)
    # blocks that have parts of sums add to the result at once
    adds = any(it.kind == "red" and it.name == axes[0] for it in root.iters)
    if any(it.kind != "par" and not (adds and it.name == axes[0]) for it in root.iters):
        return None
    if any(axis is None and not i.is_const for axis, i in zip(axes, load.indices, strict=True)):
        return None
    if axes[1] is None or axes[2] is None:
        return None
    named = {axis for axis in axes if axis is not None}
    single = (it.name for it in root.iters if it.name not in named)
    if any(root.extent(name) != 1 for name in single) or not isinstance(root.body, Store):
        return None
    copies = []
    for stage, along in ((a, "i"), (b, "j")):
        # whichever axis of the matrix lies together in memory is copied in wide accesses
        ways = [(axis, widest(program, stage, axis, reads=True) if _reads(program, stage, axis) else 1)
                for axis in (along, "k")]  # fmt: skip
        axis, width = max(ways, key=lambda way: way[1])
        if width == 1 and _reads_next(program, stage, "k") and not _reads_next(program, stage, along):
            axis = "k"
        copies.append((axis, width))
    out = 1 if adds else widest(program, root, axes[2], reads=False)
    return ProductNest(
        root=root.name,
        a=a.name,
        b=b.name,
        product=product.name,
        batch=axes[0],
        rows=axes[1],
        columns=axes[2],
        copy_a=copies[0],
        copy_b=copies[1],
        store=min(4, out),
        adds=adds,
    )


def _single(copy: tuple[str, int]) -> tuple[str, int]:
    axis, width = copy
    return (axis, 1) if axis == "k" else (axis, width)


def _reads(program: Program, stage: Stage, axis: str) -> bool:
    return any(axis in ld.vars for ld in stmt_loads(stage.body))


def _reads_next(program: Program, stage: Stage, axis: str) -> bool:
    """Whether the last index of what a stage reads moves by one with an axis, mostly."""
    return any(ld.indices and ld.indices[-1].coefficient(axis) == 1 for ld in stmt_loads(stage.body))


def size_of(program: Program, nest: ProductNest, a: Stage, b: Stage) -> ProductSize:
    """How large the product is, and what its operands take in memory."""
    root = program.stage(nest.root)
    k = program.stage(nest.product).extent("k")
    read = {ld.buffer for stage in (a, b) for ld in stmt_loads(stage.body)}
    nbytes = sum(
        prod(e.as_int() for e in program.buffer(name).shape) * program.buffer(name).dtype.bytes
        for name in sorted(read)
    )
    return ProductSize(
        1 if nest.batch is None else root.extent(nest.batch),
        root.extent(nest.rows),
        root.extent(nest.columns),
        k,
        program.buffer(a.writes[0]).dtype.bytes,
        nbytes,
        (over_windows(stmt_loads(a.body), {"k"}), over_windows(stmt_loads(b.body), {"k"})),
    )


def over_windows(reads: Iterable[Load], sums: Collection[str]) -> bool:
    """Whether a place that is read moves along sums and along results at once."""
    indices = [index for ld in reads for index in ld.indices]
    return any(not index.vars.isdisjoint(sums) and not index.vars <= set(sums) for index in indices)
