"""Static memory planning: where in one arena each intermediate tensor of a run lives.

A run is a list of steps, each reading and writing whole tensors. A tensor is alive from the step that writes
it first to the last step that reads it, both included; two tensors alive at the same step get disjoint bytes,
except where a step may work in place and the tensor it reads dies there.

Offsets are chosen greedily, the largest tensor first, each into the smallest gap that fits (best fit) among
the tensors placed before it that are alive at the same time: "greedy by size" of Pisarchyk & Lee, Efficient
memory management for deep neural net inference, 2020, arXiv:2001.03288, section 5.1.

Tensors may be told apart by kinds, which then share no bytes: threads divide tensors of one shape alike, so
that bytes reused within a kind are written again by the core that has their cache lines.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.support import InternalError, quoted

#: Alignment of every tensor in the arena: a cache line, and the widest vector.
ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: the tensors it reads and writes, scratch included as tensors written by it alone.

    `in_place` lists pairs (written, read): the written tensor may take the bytes of the read one, because
    each element is read before the element at the same place is written. The planner uses such a pair only
    where the read tensor is not needed later and has the same size.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The offset of each planned tensor in bytes, and the size of the arena.

    `shared` maps a tensor that was put in place of another one to that other one.
    """

    offsets: Mapping[str, int]
    size: int
    shared: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))
        object.__setattr__(self, "shared", MappingProxyType(dict(self.shared)))


@dataclass(frozen=True, slots=True)
class _Life:
    first: int
    last: int

    def meets(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan_memory(
    steps: Sequence[Step],
    sizes: Mapping[str, int],
    kept: Collection[str] = (),
    kinds: Mapping[str, Hashable] | None = None,
) -> MemoryPlan:
    """Choose an offset for every tensor named in `sizes` (bytes). Tensors not named there live elsewhere.

    `kept` are tensors needed after the last step. Tensors of different `kinds` never share bytes, whenever
    they are alive. Offsets are multiples of `ALIGNMENT`. Raises InternalError where a step reads a planned
    tensor that no earlier step wrote.
    """
    lives = _lives(steps, sizes, kept)
    kind = dict.fromkeys(lives) if kinds is None else {tensor: kinds[tensor] for tensor in lives}
    shared = _in_place(steps, sizes, lives, kind)
    roots = _roots(shared)
    slots: dict[str, _Life] = {}
    for tensor, life in lives.items():
        root = roots.get(tensor, tensor)
        old = slots.get(root, life)
        slots[root] = _Life(min(old.first, life.first), max(old.last, life.last))
    offsets: dict[str, int] = {}
    size = 0
    for each in dict.fromkeys(kind[root] for root in slots):
        found, taken = _place({root: life for root, life in slots.items() if kind[root] == each}, sizes)
        offsets |= {root: size + offset for root, offset in found.items()}
        size += taken
    return MemoryPlan({tensor: offsets[roots.get(tensor, tensor)] for tensor in lives}, size, shared)


def plan_slots(
    steps: Sequence[Step],
    sizes: Mapping[str, int],
    typical: Mapping[str, int],
    kept: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """Slots of memory for tensors whose sizes only a run knows: those of each are never alive together.

    In a run a slot is as large as the largest tensor in it. Each tensor goes where least is wasted at its
    ``typical`` size, the largest first, and into the bytes of another only where their ``sizes`` are equal
    in every run.
    """
    lives = _lives(steps, sizes, kept)
    shared = _in_place(steps, sizes, lives, dict.fromkeys(lives))
    slots: list[list[str]] = []
    for tensor in sorted(lives, key=lambda tensor: (-typical[tensor], lives[tensor].first, tensor)):
        life = lives[tensor]
        for members in slots:
            if not any(
                life.meets(lives[other]) and shared.get(other) != tensor and shared.get(tensor) != other
                for other in members
            ):
                members.append(tensor)
                break
        else:
            slots.append([tensor])
    return [tuple(members) for members in slots]


def live_bytes(steps: Sequence[Step], sizes: Mapping[str, int], kept: Collection[str] = ()) -> int:
    """The largest sum of the aligned sizes of tensors alive at one step, nothing shared.

    Without in-place pairs no plan can be smaller.
    """
    lives = _lives(steps, sizes, kept)
    return max(
        (sum(_aligned(sizes[t]) for t, life in lives.items() if life.first <= at <= life.last))
        for at in range(-1, len(steps))
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _roots(shared: Mapping[str, str]) -> dict[str, str]:
    """For each tensor that lies where another one lay, the first one there; chains may be long."""
    roots: dict[str, str] = {}
    for tensor in shared:
        path = [tensor]
        while path[-1] in shared and path[-1] not in roots:
            path.append(shared[path[-1]])
        first = roots.get(path[-1], path[-1])
        roots.update(dict.fromkeys(path[:-1], first))
    return roots


def _lives(steps: Sequence[Step], sizes: Mapping[str, int], kept: Collection[str]) -> dict[str, _Life]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, step in enumerate(steps):
        for tensor in step.reads:
            if tensor in sizes:
                if tensor not in first:
                    raise InternalError(f"step {at} reads {quoted(tensor)}, which no earlier step writes")
                last[tensor] = at
        for tensor in step.writes:
            if tensor in sizes:
                first.setdefault(tensor, at)
                last[tensor] = at
    for tensor in kept:
        if tensor in last:
            last[tensor] = len(steps)
    return {tensor: _Life(begin, last[tensor]) for tensor, begin in first.items()}


def _in_place(
    steps: Sequence[Step],
    sizes: Mapping[str, int],
    lives: Mapping[str, _Life],
    kind: Mapping[str, Hashable],
) -> dict[str, str]:
    """The pairs (written -> read) that share their bytes. Each tensor is overwritten at most once."""
    shared: dict[str, str] = {}
    overwritten: set[str] = set()
    for at, step in enumerate(steps):
        for written, read in step.in_place:
            if written not in lives or read not in lives or written in shared or read in overwritten:
                continue
            dies_here = lives[read].last == at and lives[written].first == at and lives[read].first < at
            alike = sizes[written] == sizes[read] and kind[written] == kind[read]
            if dies_here and alike and read not in step.writes:
                shared[written] = read
                overwritten.add(read)
    return shared


#: Steps in one bucket of what is placed.
_BUCKET: Final = 64


class _Placed:
    """Slots that have a place, found by when they live: most live for a few of many thousand steps."""

    def __init__(self) -> None:
        self._slots: list[tuple[int, int, _Life]] = []
        self._buckets: dict[int, list[int]] = {}

    def add(self, offset: int, end: int, life: _Life) -> None:
        """Take a slot in."""
        for bucket in range(life.first // _BUCKET, life.last // _BUCKET + 1):
            self._buckets.setdefault(bucket, []).append(len(self._slots))
        self._slots.append((offset, end, life))

    def meeting(self, life: _Life) -> list[tuple[int, int]]:
        """Offset and end of those alive at the same time as another, by offset."""
        buckets = range(life.first // _BUCKET, life.last // _BUCKET + 1)
        near = {at for bucket in buckets for at in self._buckets.get(bucket, ())}
        slots = (self._slots[at] for at in near)
        return sorted((offset, end) for offset, end, other in slots if life.meets(other))


def _place(slots: Mapping[str, _Life], sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offsets of the slots, and the arena's size. Ties are broken by time, then by name."""
    order = sorted(slots, key=lambda tensor: (-sizes[tensor], slots[tensor].first, tensor))
    offsets: dict[str, int] = {}
    placed = _Placed()
    arena = 0
    for tensor in order:
        life, need = slots[tensor], _aligned(sizes[tensor])
        best: tuple[int, int] | None = None  # (gap, offset)
        free = 0
        for offset, end in placed.meeting(life) if need else ():
            gap = offset - free
            if gap >= need and (best is None or gap < best[0]):
                best = (gap, free)
            free = max(free, end)
        at = best[1] if best is not None else free
        offsets[tensor] = at
        if need:
            placed.add(at, at + need, life)
        arena = max(arena, at + need)
    return offsets, arena
