"""What things cost on a machine: its caches, bandwidths and issue, each question with one answer."""

from tilewright.cost.analytic import Cost, cost_of, seconds
from tilewright.cost.gpu_nest import nest_seconds
from tilewright.cost.gpu_product import LAUNCH_SECONDS, ProductSize, ProductTiles, product_seconds
from tilewright.cost.issue import reloaded_rows, shared_cycles
from tilewright.cost.machine import (
    KEPT_SHARE,
    PAGE,
    WAYS,
    Machine,
    bandwidth,
    buffer_bytes,
    comes_from_memory,
    exceeds_caches,
    first_ways,
    goes_past_caches,
    last_cache,
    page_cycles,
    perhaps_kept,
    rows_collide,
    whole_cache,
)
from tilewright.cost.occupancy import Occupancy, occupancy
from tilewright.cost.products import (
    execution_cycles,
    is_fast,
    multiply_add_cycles,
    packing_cycles,
    product_rate,
    products_rate,
)
from tilewright.cost.tree import Access, Loop, LoopTree, Work, tree_of

__all__ = [
    "execution_cycles",
    "is_fast",
    "multiply_add_cycles",
    "packing_cycles",
    "product_rate",
    "products_rate",
    "Access",
    "Cost",
    "Loop",
    "LAUNCH_SECONDS",
    "LoopTree",
    "ProductSize",
    "ProductTiles",
    "product_seconds",
    "Work",
    "Occupancy",
    "cost_of",
    "occupancy",
    "seconds",
    "tree_of",
    "KEPT_SHARE",
    "bandwidth",
    "Machine",
    "PAGE",
    "WAYS",
    "buffer_bytes",
    "comes_from_memory",
    "exceeds_caches",
    "first_ways",
    "goes_past_caches",
    "last_cache",
    "nest_seconds",
    "page_cycles",
    "perhaps_kept",
    "reloaded_rows",
    "rows_collide",
    "shared_cycles",
    "whole_cache",
]
