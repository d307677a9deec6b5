"""What an instruction is to the compiler: its meaning as a stage, where its operands are, what it costs.

The meaning is a :class:`~tilewright.ir.Stage` like those of programs: over the instruction's axes it defines
the elements of its first operand, the result. Everything else that the compiler asks is read off it: which
axes are summed over, which operand spans which, whether a result is started or added to. (ISA Mapper,
Sec. 2.1: programs and instructions in one representation.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, Literal

from tilewright.ir import (
    Access,
    Binary,
    Cast,
    Const,
    DType,
    Expr,
    Index,
    Iter,
    Load,
    Stage,
    Store,
    stmt_loads,
    store,
    var,
)
from tilewright.support import TargetError, digest

MAX_RANK: Final = 8
"""Most dimensions of an operand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an operand of an instruction must be.

    ``scope`` is empty for memory. Of the operand's slowest axis, ``group`` neighbours lie together, faster
    than all other axes. Along axes in ``strided`` elements may lie any distance apart; what axes in
    ``overlapping`` move along may be moved along by others, too, as windows that overlap are; along axes in
    ``broadcast`` all may be the same element. ``alignment`` is in bytes.
    """

    scope: str = ""
    group: int = 1
    strided: tuple[str, ...] = ()
    overlapping: tuple[str, ...] = ()
    broadcast: tuple[str, ...] = ()
    alignment: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand of an instruction: its element type, the axes that it spans, slowest first, and its place.

    ``indices`` are those of its access in the instruction's stage; ``axes`` stand there in order.
    """

    name: str
    dtype: DType
    axes: tuple[str, ...]
    indices: tuple[Index, ...]
    placement: Placement

    @property
    def group(self) -> int:
        """Neighbours of the slowest axis that lie together."""
        return self.placement.group

    @property
    def scope(self) -> str:
        """Where it is: empty for memory."""
        return self.placement.scope

    def strided(self, axis: str) -> bool:
        """Whether elements along an axis may lie any distance apart."""
        return axis in self.placement.strided

    def overlapping(self, axis: str) -> bool:
        """Whether elements along an axis may be elements along others, too."""
        return axis in self.placement.overlapping

    def row_step(self, slow: Sequence[int], fast: Sequence[int]) -> int | None:
        """Elements in memory from row to row, 0 where there is one row; ``None`` where they lie otherwise.

        ``slow`` and ``fast`` give how far from the first element each one along its two axes is. Elements of
        a row must lie together, and so must the ``group`` rows of a group, element by element.
        """
        group = self.group
        rows = slow[::group]
        step = rows[1] - rows[0] if len(rows) > 1 else 0
        in_rows = all(d == n * step for n, d in enumerate(rows))
        in_groups = all(d == slow[n - n % group] + n % group for n, d in enumerate(slow))
        together = all(d == n * group for n, d in enumerate(fast))
        return step if in_rows and in_groups and together else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """How LLVM is asked for an instruction.

    ``intrinsic`` names it; ``{lanes}``, ``{bits}`` and ``{elements}`` stand for the lanes of a register, its
    bits and the elements of an operand in it, and ``bits`` are the sizes of registers that there are. The
    intrinsic takes operands as elements of the type ``word``, in LLVM's spelling. ``form`` is what surrounds
    the call: vectors of ``lanes``, one register a ``matrix``, or numbered ``tiles``.
    """

    intrinsic: str
    form: Literal["lanes", "matrix", "tiles"]
    word: str = ""
    bits: tuple[int, ...] = ()

    def name(self, bits: int, lane_bits: int, element_bits: int) -> str:
        """The intrinsic for registers of so many bits."""
        return self.intrinsic.format(bits=bits, lanes=bits // lane_bits, elements=bits // element_bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction: a stage over its axes, done at once.

    The stage writes one buffer, the result, and reads the others; a stage with ``init`` starts its result,
    one that reads it without adds to it. ``epilogue`` are stages that follow, each reading what the one
    before writes: a chain done by one instruction. ``placements`` say where operands are (default: memory).

    Every operand spans the axes in ``lanes`` first: along those each lane works alone, so a program runs them
    as a vector loop around the instruction, in as many lanes as it has. ``emission`` is the template of its
    code (``None``: code cannot have it), ``features`` are the CPU features that it needs (in LLVM's
    spelling), ``latency`` is in cycles, ``per_cycle`` how many of them start in one cycle, ``ports`` name
    what they occupy. Along axes in ``partial`` one execution may do less than the extent, by whole groups, in
    the same time. One that ``gathers`` is done by ``threads`` threads, a warp or more, together: each has its
    own results, and may read what any of them names.

    Raises :class:`~tilewright.support.TargetError` for a description that contradicts itself.
    """

    name: str
    stage: Stage
    placements: tuple[tuple[str, Placement], ...] = ()
    epilogue: tuple[Stage, ...] = ()
    emission: Emission | None = None
    features: frozenset[str] = frozenset()
    latency: float = 1
    per_cycle: float = 1
    ports: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    gathers: bool = False
    threads: int = 32
    operands: tuple[Operand, ...] = field(init=False, compare=False, repr=False)
    """The result, and what is read, in the order in which it stands in the stages."""
    axes: tuple[tuple[str, int], ...] = field(init=False, compare=False, repr=False)
    """The axes with their extents."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", _axes(self))
        object.__setattr__(self, "operands", _operands(self))
        extents = dict(self.axes)
        if not {*self.partial, *self.lanes} <= set(extents):
            raise TargetError(
                f"instruction {self.name!r}: a partial axis or one of lanes is none of its axes"
            )
        known = {o.name for o in self.operands}
        for name, placement in self.placements:
            if name not in known:
                raise TargetError(
                    f"instruction {self.name!r}: {name!r} is placed, and is none of its operands",
                    hint=f"its operands are {', '.join(sorted(known))}",
                )
            if placement.group < 1 or placement.alignment < 1:
                raise TargetError(
                    f"instruction {self.name!r}: group and alignment of {name} must be positive"
                )
        for operand in self.operands:
            if self.lanes and operand.axes[: len(self.lanes)] != self.lanes:
                raise TargetError(
                    f"instruction {self.name!r}: {operand.name} does not span {', '.join(self.lanes)} first"
                )
        if self.latency <= 0 or self.per_cycle <= 0:
            raise TargetError(f"instruction {self.name!r}: latency and per_cycle must be positive")

    @property
    def digest(self) -> str:
        """A digest of what decides which code is right: all but the costs."""
        return digest(
            self.name,
            (self.stage, *self.epilogue),
            self.placements,
            self.emission,
            self.lanes,
            self.partial,
            *((self.gathers,) if self.gathers else ()),
        )

    def operand(self, name: str) -> Operand:
        """The operand of that name; raises TargetError where there is none."""
        for o in self.operands:
            if o.name == name:
                return o
        raise TargetError(
            f"instruction {self.name!r} has no operand {name!r}",
            hint=f"its operands are {', '.join(o.name for o in self.operands)}",
        )

    @property
    def result(self) -> Operand:
        """The operand that is written."""
        return self.operands[0]

    @property
    def source(self) -> Operand | None:
        """The operand that is read, of one that reads at most one."""
        return self.operands[1] if len(self.operands) > 1 else None

    @property
    def factors(self) -> tuple[str, str] | None:
        """The operands of which it adds products to the result; ``None`` where it does something else."""
        return None if self.epilogue else _factors(self.stage)

    @property
    def is_contraction(self) -> bool:
        """Whether it adds products of two operands to its result."""
        return self.factors is not None

    @property
    def a(self) -> Operand:
        """The first factor of a contraction."""
        return self.operand(self._factor(0))

    @property
    def b(self) -> Operand:
        """The second factor of a contraction."""
        return self.operand(self._factor(1))

    def _factor(self, n: int) -> str:
        found = self.factors
        if found is None:
            raise TargetError(f"instruction {self.name!r} is no contraction: it has no factors")
        return found[n]

    @property
    def accumulates(self) -> bool:
        """Whether the result's old elements take part."""
        first = self.stage
        return first.init is None and any(ld.buffer in first.writes for ld in stmt_loads(first.body))

    @property
    def products(self) -> int:
        """Points of its axes: of a contraction, the multiplications done at once."""
        return prod(extent for _, extent in self.axes)

    @property
    def inner_axes(self) -> tuple[tuple[str, int], ...]:
        """The axes of one lane with their extents: those that a program's loops are matched with."""
        return tuple((name, extent) for name, extent in self.axes if name not in self.lanes)

    @property
    def depth(self) -> int:
        """Points that are folded into one element of the result."""
        spanned = {v for i in self.result.indices for v in i.vars}
        return prod(extent for name, extent in self.axes if name not in spanned)

    @property
    def together(self) -> int:
        """Neighbours along the reduction that lie together in ``b``."""
        return self.b.group if self.b.group > 1 else self.depth


def _axes(row: Instruction) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for stage in (row.stage, *row.epilogue):
        names = [it.name for it in stage.iters]
        if len(set(names)) != len(names):
            raise TargetError(f"instruction {row.name!r}: axes must be distinct")
        for it in stage.iters:
            if not it.lo.is_const or not it.hi.is_const or it.lo != Index(0) or it.hi.const < 1:
                raise TargetError(
                    f"instruction {row.name!r}: axis {it.name!r} must go from 0 to a positive number"
                )
            if found.setdefault(it.name, it.hi.const) != it.hi.const:
                raise TargetError(f"instruction {row.name!r}: two stages disagree on the axis {it.name!r}")
    return tuple(found.items())


def _operands(row: Instruction) -> tuple[Operand, ...]:
    """The result of the last stage, and what stages read that none of them wrote before."""
    stages = (row.stage, *row.epilogue)
    made: set[str] = set()
    accesses: dict[str, tuple[tuple[Index, ...], DType]] = {}
    for stage in stages:
        if not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
            raise TargetError(f"instruction {row.name!r}: stage {stage.name!r} is not a single assignment")
        (w,) = stage.body.writes
        if stage is stages[-1]:
            accesses = {w.buffer: (w.indices, w.value.dtype), **accesses}
        made.add(w.buffer)
        for ld in stmt_loads(stage.body):
            if ld.buffer in made:
                continue
            if accesses.setdefault(ld.buffer, (ld.indices, ld.dtype)) != (ld.indices, ld.dtype):
                raise TargetError(
                    f"instruction {row.name!r}: {ld.buffer!r} is read at two places",
                    hint="an operand is what one access touches: give each access a buffer of its own",
                )
    known = dict(_axes(row))
    out: list[Operand] = []
    for name, (indices, dtype) in accesses.items():
        if len(indices) > MAX_RANK:
            raise TargetError(f"instruction {row.name!r}: {name!r} has more than {MAX_RANK} dimensions")
        axes = tuple(dict.fromkeys(v for i in indices for v in known if v in i.vars))
        for v in (v for i in indices for v in i.vars):
            if v not in known:
                raise TargetError(f"instruction {row.name!r}: {name} spans unknown axis {v!r}")
        placement = dict(row.placements).get(name, Placement())
        out.append(Operand(name=name, dtype=dtype, axes=axes, indices=indices, placement=placement))
    return tuple(out)


def _factors(stage: Stage) -> tuple[str, str] | None:
    if not isinstance(stage.body, Store) or stage.init is not None:
        return None
    (w,) = stage.body.writes
    if not isinstance(w.value, Binary) or w.value.op != "add" or w.value.a != old_value(w):
        return None
    term = w.value.b
    if not isinstance(term, Binary) or term.op != "mul":
        return None
    loads = [e.a if isinstance(e, Cast) else e for e in (term.a, term.b)]
    if not all(isinstance(ld, Load) for ld in loads):
        return None
    first, second = (ld.buffer for ld in loads if isinstance(ld, Load))
    return first, second


def old_value(w: Access) -> Load:
    """What is in an element before it is written."""
    return Load(w.buffer, w.indices, w.value.dtype)


def element(name: str, axes: Sequence[str], dtype: DType) -> Load:
    """An element of an operand at its axes."""
    return Load(name, tuple(var(axis) for axis in axes) or (Index(0),), dtype)


def stage_of(name: str, axes: Sequence[tuple[str, int]], result: Load, value: Expr) -> Stage:
    """``result := value`` over the axes; those that the result does not span are reductions."""
    spanned = {v for i in result.indices for v in i.vars}
    iters = tuple(Iter(a, Index(0), Index(n), "par" if a in spanned else "red") for a, n in axes)
    return Stage(name, iters, store(result.buffer, result.indices, value))


def contraction(
    axes: Sequence[tuple[str, int]],
    result: Load,
    a: Load,
    b: Load,
) -> Stage:
    """``result += a * b``, with products formed in the type of the result.

    >>> from tilewright.ir import I8, I32, U8
    >>> c, a = element("c", ("lane",), I32), element("a", ("lane", "k"), U8)
    >>> stage = contraction((("lane", 16), ("k", 4)), c, a, element("b", ("lane", "k"), I8))
    >>> print(stage.body.writes[0].value)
    (c[lane] + (cast(a[lane, k], i32, wrap) * cast(b[lane, k], i32, wrap)))
    """
    total = result.dtype
    factors = [e if e.dtype == total else Cast(e, total) for e in (a, b)]
    return stage_of("product", axes, result, Binary("add", result, Binary("mul", *factors)))


def copy(axes: Sequence[tuple[str, int]], result: Load, source: Load) -> Stage:
    """``result := source``."""
    return stage_of("copy", axes, result, source)


def clear(axes: Sequence[tuple[str, int]], result: Load) -> Stage:
    """``result := 0``."""
    return stage_of("clear", axes, result, Const(0.0 if result.dtype.is_float else 0, result.dtype))
