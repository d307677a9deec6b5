"""The list of all primitives: the methods of a schedule, and what a trace may name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Final, Self

from tilewright.schedule.algorithm import Algorithm
from tilewright.schedule.gpu.cooperative_copy import cooperative_copy as _cooperative_copy
from tilewright.schedule.gpu.pad_stride import pad_stride as _pad_stride
from tilewright.schedule.gpu.pipeline import pipeline as _pipeline
from tilewright.schedule.gpu.swizzle import swizzle as _swizzle
from tilewright.schedule.gpu.virtual_threads import virtual_threads as _virtual_threads
from tilewright.schedule.layout.adopt import layout_adopt as _layout_adopt
from tilewright.schedule.layout.decouple_at import decouple_at as _decouple_at
from tilewright.schedule.layout.fold import layout_fold as _layout_fold
from tilewright.schedule.layout.fuse import layout_fuse as _layout_fuse
from tilewright.schedule.layout.pad import layout_pad as _layout_pad
from tilewright.schedule.layout.place import layout_place as _layout_place
from tilewright.schedule.layout.reorder import layout_reorder as _layout_reorder
from tilewright.schedule.layout.split import layout_split as _layout_split
from tilewright.schedule.layout.store_at import store_at as _store_at
from tilewright.schedule.layout.unfold import layout_unfold as _layout_unfold
from tilewright.schedule.layout.unpad import layout_unpad as _layout_unpad
from tilewright.schedule.loop.annotate import annotate as _annotate
from tilewright.schedule.loop.bind import bind as _bind
from tilewright.schedule.loop.blockize import blockize as _blockize
from tilewright.schedule.loop.decompose_init import decompose_init as _decompose_init
from tilewright.schedule.loop.fuse import fuse as _fuse
from tilewright.schedule.loop.import_tree import import_tree as _import_tree
from tilewright.schedule.loop.parallel import parallel as _parallel
from tilewright.schedule.loop.partition import partition as _partition
from tilewright.schedule.loop.peel import peel as _peel
from tilewright.schedule.loop.reorder import reorder as _reorder
from tilewright.schedule.loop.set_layout import set_layout as _set_layout
from tilewright.schedule.loop.set_scope import set_scope as _set_scope
from tilewright.schedule.loop.split import split as _split
from tilewright.schedule.loop.tensorize import tensorize as _tensorize
from tilewright.schedule.loop.tile import tile as _tile
from tilewright.schedule.loop.unroll import unroll as _unroll
from tilewright.schedule.loop.vectorize import vectorize as _vectorize
from tilewright.schedule.producer.cache import cache as _cache
from tilewright.schedule.producer.clone_stage import clone_stage as _clone_stage
from tilewright.schedule.producer.compute_at import compute_at as _compute_at
from tilewright.schedule.producer.hoist_alloc import hoist_alloc as _hoist_alloc
from tilewright.schedule.producer.inline import inline as _inline
from tilewright.schedule.producer.inline_stage import inline_stage as _inline_stage
from tilewright.schedule.producer.reverse_compute_at import reverse_compute_at as _reverse_compute_at
from tilewright.schedule.producer.rfactor import rfactor as _rfactor
from tilewright.schedule.producer.roll import roll as _roll
from tilewright.schedule.producer.slide import slide as _slide
from tilewright.schedule.registry import Primitive, method, primitive_of
from tilewright.schedule.rewrite.as_matrices import as_matrices as _as_matrices
from tilewright.schedule.rewrite.bf16x3 import BF16X3, bf16x3 as _bf16x3
from tilewright.schedule.rewrite.factor_out import factor_out as _factor_out
from tilewright.schedule.rewrite.flatten_rows import flatten_rows as _flatten_rows
from tilewright.schedule.rewrite.fuse_iterators import fuse_iterators as _fuse_iterators
from tilewright.schedule.rewrite.gather_operand import gather_operand as _gather_operand
from tilewright.schedule.rewrite.last_writes import last_writes as _last_writes
from tilewright.schedule.rewrite.pad_operand import pad_operand as _pad_operand
from tilewright.schedule.rewrite.shift_factor import shift_factor as _shift_factor
from tilewright.schedule.rewrite.skip_padding import skip_padding as _skip_padding
from tilewright.schedule.rewrite.split_phases import split_phases as _split_phases
from tilewright.schedule.rewrite.split_scan import split_scan as _split_scan
from tilewright.schedule.rewrite.split_terms import split_terms as _split_terms
from tilewright.schedule.rewrite.split_window import split_window as _split_window
from tilewright.schedule.rewrite.store_as import store_as as _store_as
from tilewright.schedule.rewrite.strassen import STRASSEN, strassen as _strassen
from tilewright.schedule.rewrite.winograd import WINOGRAD, winograd as _winograd
from tilewright.support import Catalog


class Methods(ABC):
    """Every primitive as a method of a schedule, with the signature and the text of its function."""

    __slots__ = ()

    @abstractmethod
    def apply(self, primitive: str, *args: object, **kwargs: object) -> Self:
        """A new schedule with one more step; see :class:`tilewright.schedule.Schedule`."""

    # order of loops
    split = method(_split)
    reorder = method(_reorder)
    fuse = method(_fuse)
    tile = method(_tile)
    partition = method(_partition)
    peel = method(_peel)
    parallel = method(_parallel)
    vectorize = method(_vectorize)
    unroll = method(_unroll)
    bind = method(_bind)
    annotate = method(_annotate)
    decompose_init = method(_decompose_init)
    blockize = method(_blockize)
    tensorize = method(_tensorize)
    import_tree = method(_import_tree)
    set_scope = method(_set_scope)
    set_layout = method(_set_layout)
    # producers, consumers and storage
    compute_at = method(_compute_at)
    reverse_compute_at = method(_reverse_compute_at)
    inline = method(_inline)
    cache = method(_cache)
    hoist_alloc = method(_hoist_alloc)
    slide = method(_slide)
    roll = method(_roll)
    # blocks of threads
    cooperative_copy = method(_cooperative_copy)
    pipeline = method(_pipeline)
    pad_stride = method(_pad_stride)
    swizzle = method(_swizzle)
    virtual_threads = method(_virtual_threads)
    # layouts and other program-phase primitives
    skip_padding = method(_skip_padding)
    gather_operand = method(_gather_operand)
    factor_out = method(_factor_out)
    fuse_iterators = method(_fuse_iterators)
    split_terms = method(_split_terms)
    as_matrices = method(_as_matrices)
    shift_factor = method(_shift_factor)
    pad_operand = method(_pad_operand)
    split_phases = method(_split_phases)
    split_scan = method(_split_scan)
    split_window = method(_split_window)
    last_writes = method(_last_writes)
    flatten_rows = method(_flatten_rows)
    winograd = method(_winograd)
    strassen = method(_strassen)
    bf16x3 = method(_bf16x3)
    store_as = method(_store_as)
    inline_stage = method(_inline_stage)
    clone_stage = method(_clone_stage)
    rfactor = method(_rfactor)
    layout_split = method(_layout_split)
    layout_reorder = method(_layout_reorder)
    layout_fuse = method(_layout_fuse)
    layout_pad = method(_layout_pad)
    layout_unfold = method(_layout_unfold)
    layout_fold = method(_layout_fold)
    layout_unpad = method(_layout_unpad)
    layout_place = method(_layout_place)
    layout_adopt = method(_layout_adopt)
    store_at = method(_store_at)
    decouple_at = method(_decouple_at)


ALGORITHMS: Final[Catalog[str, Algorithm]] = Catalog("algorithms", (WINOGRAD, STRASSEN, BF16X3))
"""Read-only: algorithms by the name of the primitive that rewrites a stage by each."""

PRIMITIVES: Final[Catalog[str, Primitive]] = Catalog(
    "primitives",
    tuple(inspect.unwrap(m) for m in vars(Methods).values() if hasattr(m, "__wrapped__")),
    of=primitive_of,
)
"""Read-only: every primitive by name."""
