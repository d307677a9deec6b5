"""What languages like C differ in: one :class:`Dialect` each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from tilewright.ir import CALLS, DType

if TYPE_CHECKING:  # it writes in a dialect
    from tilewright.codegen.clike.helpers import Helpers

WarpFunction: TypeAlias = "Callable[[Helpers, str], str]"
LaneFunction: TypeAlias = "Callable[[Helpers, str, bool, bool], str]"

ALL_CALLS: Final = frozenset(CALLS)
"""Elementary functions that the lowering leaves to the language's own library."""


@dataclass(frozen=True, slots=True)
class GroupInstruction:
    """How text calls a product of several warps; ``turns``: factors may lie across the sums."""

    mnemonic: str
    turns: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A language.

    ``types`` are its names of the IR's element types, as values (f16 and bf16 are computed in f32) and
    ``storage`` those in memory where they differ. ``functions`` holds templates of calls of one f32 argument
    list and one of f64, where they are not C's names. ``prelude`` comes first; ``extensions`` are lines that
    using a type asks for. The fields from ``kernel`` on are of languages for devices.
    """

    name: str
    types: Mapping[str, str]
    storage: Mapping[str, str]
    inline: str
    """How a helper function begins."""
    restrict: str
    functions: Mapping[str, tuple[str, str]]
    prelude: str = ""
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    overrides: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Helper functions that the language does better than by C's means, by name."""
    kernel: str = ""
    """How an entry function begins: ``{name}``, and ``{bounds}`` where a block's threads are constants."""
    bounds: str = ""
    """What says how many threads run: of ``{threads}``, ``{x}``, ``{y}`` and ``{z}``."""
    global_space: str = ""
    shared_space: str = ""
    """The declaration of ``{count}`` elements of ``{type}`` called ``{name}`` that a block shares."""
    dynamic_shared: str = ""
    """The declaration of shared memory ``tw_shared`` given with the launch; empty where there is none."""
    barrier: tuple[str, str] = ("", "")
    """Waiting for the threads of the block, with shared memory visible to them, or global memory as well."""
    group_id: str = ""
    """The number of this block along an axis, ``{axis}`` being x, y or z and ``{n}`` 0, 1 or 2."""
    local_id: str = ""
    """The number of this thread within its block."""
    copy_later: Callable[[Helpers, int, bool], str] | None = None
    """Gives the function that begins a copy of 4, 8 or 16 bytes to shared memory; with ``True`` also told
    whether to, and otherwise zeros arrive there.
    """
    copies_arrive: Callable[[Helpers], str] | None = None
    """Gives the function that a thread waits by for its copies."""
    atomics: Mapping[tuple[str, int], str] = field(default_factory=lambda: MappingProxyType({}))
    """Statements that update an element ``{at}`` by ``{value}`` as a whole, by operation and bits."""
    warp_instructions: Mapping[str, WarpFunction] = field(default_factory=lambda: MappingProxyType({}))
    """What the threads of a warp do together: by instruction what writes it and gives its name, as a
    function of pointers to the operands, each followed by its strides.
    """
    lane_instructions: Mapping[str, LaneFunction] = field(default_factory=lambda: MappingProxyType({}))
    """What they do together and each for its own results; given are also the factors read by words."""
    group_instructions: Mapping[str, GroupInstruction] = field(default_factory=lambda: MappingProxyType({}))
    """Products that several warps of a team do together."""
    fragments: Mapping[str, WarpFunction] = field(default_factory=lambda: MappingProxyType({}))
    """Those of them that also take factors that a warp has brought into registers before."""
    single_blocks_are_constants: bool = False
    """Whether the number of the only block or thread along an axis is written as a constant. Not for PoCL, by
    which some sums in private arrays were wrong once all of their indices were constants (small GPT-2 and
    BERT); the same text with ``get_group_id`` is right, as are CUDA's and C's.
    """
    vectors: bool = False
    """Whether types such as ``float4`` are the language's own; otherwise they are structures."""

    def value_type(self, dtype: DType) -> str:
        """The type of a value in an expression."""
        return self.types[dtype.name]

    def storage_type(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return self.storage.get(dtype.name, self.types[dtype.name])
