"""The list of all primitives: what a schedule offers and a trace may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.schedule.algorithm import Algorithm
from tilewright.schedule.gpu.cooperative_copy import cooperative_copy
from tilewright.schedule.gpu.pad_stride import pad_stride
from tilewright.schedule.gpu.pipeline import pipeline
from tilewright.schedule.gpu.swizzle import swizzle
from tilewright.schedule.gpu.virtual_threads import virtual_threads
from tilewright.schedule.layout.adopt import layout_adopt
from tilewright.schedule.layout.decouple_at import decouple_at
from tilewright.schedule.layout.fold import layout_fold
from tilewright.schedule.layout.fuse import layout_fuse
from tilewright.schedule.layout.pad import layout_pad
from tilewright.schedule.layout.place import layout_place
from tilewright.schedule.layout.reorder import layout_reorder
from tilewright.schedule.layout.split import layout_split
from tilewright.schedule.layout.store_at import store_at
from tilewright.schedule.layout.unfold import layout_unfold
from tilewright.schedule.layout.unpad import layout_unpad
from tilewright.schedule.loop.annotate import annotate
from tilewright.schedule.loop.bind import bind
from tilewright.schedule.loop.blockize import blockize
from tilewright.schedule.loop.decompose_init import decompose_init
from tilewright.schedule.loop.fuse import fuse
from tilewright.schedule.loop.import_tree import import_tree
from tilewright.schedule.loop.parallel import parallel
from tilewright.schedule.loop.partition import partition
from tilewright.schedule.loop.peel import peel
from tilewright.schedule.loop.reorder import reorder
from tilewright.schedule.loop.set_layout import set_layout
from tilewright.schedule.loop.set_scope import set_scope
from tilewright.schedule.loop.split import split
from tilewright.schedule.loop.tensorize import tensorize
from tilewright.schedule.loop.tile import tile
from tilewright.schedule.loop.unroll import unroll
from tilewright.schedule.loop.vectorize import vectorize
from tilewright.schedule.producer.cache import cache
from tilewright.schedule.producer.clone_stage import clone_stage
from tilewright.schedule.producer.compute_at import compute_at
from tilewright.schedule.producer.hoist_alloc import hoist_alloc
from tilewright.schedule.producer.inline import inline
from tilewright.schedule.producer.inline_stage import inline_stage
from tilewright.schedule.producer.reverse_compute_at import reverse_compute_at
from tilewright.schedule.producer.rfactor import rfactor
from tilewright.schedule.producer.roll import roll
from tilewright.schedule.producer.slide import slide
from tilewright.schedule.registry import Primitive, primitive_of
from tilewright.schedule.rewrite.as_matrices import as_matrices
from tilewright.schedule.rewrite.bf16x3 import BF16X3, bf16x3
from tilewright.schedule.rewrite.factor_out import factor_out
from tilewright.schedule.rewrite.flatten_rows import flatten_rows
from tilewright.schedule.rewrite.fuse_iterators import fuse_iterators
from tilewright.schedule.rewrite.gather_operand import gather_operand
from tilewright.schedule.rewrite.last_writes import last_writes
from tilewright.schedule.rewrite.pad_operand import pad_operand
from tilewright.schedule.rewrite.shift_factor import shift_factor
from tilewright.schedule.rewrite.skip_padding import skip_padding
from tilewright.schedule.rewrite.split_phases import split_phases
from tilewright.schedule.rewrite.split_scan import split_scan
from tilewright.schedule.rewrite.split_terms import split_terms
from tilewright.schedule.rewrite.store_as import store_as
from tilewright.schedule.rewrite.strassen import STRASSEN, strassen
from tilewright.schedule.rewrite.winograd import WINOGRAD, winograd
from tilewright.support import Catalog

_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    # order of loops
    split,
    reorder,
    fuse,
    tile,
    partition,
    peel,
    parallel,
    vectorize,
    unroll,
    bind,
    annotate,
    decompose_init,
    blockize,
    tensorize,
    import_tree,
    set_scope,
    set_layout,
    # producers, consumers and storage
    compute_at,
    reverse_compute_at,
    inline,
    cache,
    hoist_alloc,
    slide,
    roll,
    # blocks of threads
    cooperative_copy,
    pipeline,
    pad_stride,
    swizzle,
    virtual_threads,
    # layouts and other program-phase primitives
    skip_padding,
    gather_operand,
    factor_out,
    fuse_iterators,
    split_terms,
    as_matrices,
    shift_factor,
    pad_operand,
    split_phases,
    split_scan,
    last_writes,
    flatten_rows,
    winograd,
    strassen,
    bf16x3,
    store_as,
    inline_stage,
    clone_stage,
    rfactor,
    layout_split,
    layout_reorder,
    layout_fuse,
    layout_pad,
    layout_unfold,
    layout_fold,
    layout_unpad,
    layout_place,
    layout_adopt,
    store_at,
    decouple_at,
)

ALGORITHMS: Final[Catalog[str, Algorithm]] = Catalog("algorithms", (WINOGRAD, STRASSEN, BF16X3))
"""Read-only: algorithms by the name of the primitive that rewrites a stage by each."""

PRIMITIVES: Final[Catalog[str, Primitive]] = Catalog("primitives", _FUNCTIONS, of=primitive_of)
"""Read-only: every primitive by name."""
