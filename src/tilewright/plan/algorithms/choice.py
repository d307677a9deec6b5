"""Which algorithm computes a convolution: an analytic model of cycles, weight traffic included."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.cost import Machine, bandwidth, products_rate
from tilewright.ir import Index, Program, Stage, prove_ge0, substitute_index
from tilewright.lang import WinogradMatch, match_winograd
from tilewright.plan.algorithms.accuracy import AUTO, Accuracy
from tilewright.plan.algorithms.winograd import WINOGRAD_STAGES, TileBlocks, tile_blocks
from tilewright.schedule import Schedule

#: Tiles of the method by the name of the variant.
WINOGRAD_SIZES: Final = MappingProxyType({"f2": 2, "f4": 4})
#: Cycles of both transforms for one tile and one vector of channels, by tile size (counted instructions:
#: loads, multiply-adds and stores of the transform in and of the transform back).
TRANSFORM_CYCLES: Final = {2: (64, 45), 4: (190, 160)}
#: Part of the time to read weights from memory that computing does not hide (fitted to 3x3 convolutions of 64
#: to 512 channels in ResNet-18, direct and both sizes of tiles).
SHOWN: Final = 0.5
#: How much faster than the table of the target says weights are read again from caches, in order: products
#: hide it, unless it takes longer (ResNet3D-18, where blocks of two tiles read all weights 200 times: 24
#: bytes a cycle from the third level).
READ_AHEAD: Final = 1.5
#: Lines of another core that a transform waits for at a time (between 1 and 6, by the machine's state).
LINES_AT_ONCE: Final = 4
#: Part of the machine's peak that the matrix products of small blocks reach.
PRODUCT_EFFICIENCY: Final = 0.93
#: How much faster than direct the model must show Winograd's method to be, before it is chosen.
MARGIN: Final = 1.12


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Winograd's method for the stage ``of`` with tiles of ``m``, which are divided as ``blocks`` say."""

    of: str
    m: int
    blocks: TileBlocks


@dataclass(frozen=True, slots=True)
class WinogradChoice:
    """A convolution to be done by F(m x m, 3x3), and how its tiles are divided."""

    match: WinogradMatch
    m: int
    blocks: TileBlocks
    cycles: float

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages that make the convolution's result."""
        return tuple(f"{self.match.stage.name}_{part}" for part in WINOGRAD_STAGES)

    @property
    def plan(self) -> WinogradPlan:
        """The plan of its nest."""
        return WinogradPlan(self.match.stage.name, self.m, self.blocks)

    def rewrite(self, s: Schedule, last: Stage | None) -> Schedule:
        """The program with the method's stages; the result is computed where ``last`` reads it."""
        name, weights = self.match.stage.name, f"{self.match.weights.buffer}_winograd{self.m}"
        s = s.winograd(name, self.m, weights, self.blocks.tiles)
        return s if last is None else s.inline_stage(name)


def choose_winograd(
    program: Program,
    stage: Stage,
    machine: Machine,
    accuracy: Accuracy = AUTO,
) -> WinogradChoice | None:
    """The method for a convolution stage, ``None`` for the direct one (or for other stages)."""
    match = match_winograd(program, stage)
    if match is None:
        return None
    lanes = machine.target.lanes(match.dtype)
    if match.extent(match.ic) % lanes or match.extent(match.oc) % lanes:
        return None
    best: tuple[float, WinogradChoice | None] = (_direct_cycles(match, machine), None)
    for variant, m in WINOGRAD_SIZES.items():
        if not accuracy.allows(variant):
            continue
        ways = tile_blocks(program, match, m, machine)
        costs = [_winograd_cycles(program, match, m, way, machine) for way in ways]
        cycles = min(costs) * MARGIN
        if accuracy.is_asked_for or cycles < best[0]:
            best = (cycles, WinogradChoice(match, m, ways[costs.index(min(costs))], cycles))
    return best[1]


def _rate(match: WinogradMatch, machine: Machine) -> float:
    """Multiply-adds that all threads do in one cycle."""
    target = machine.target
    return target.lanes(match.dtype) * target.fma_per_cycle * min(machine.threads, target.units)


def with_weights(products: float, rest: float, machine: Machine, nbytes: float, reads: float) -> float:
    """Cycles of products with ``nbytes`` of weights, read from memory, then from a cache, and the rest."""
    memory = nbytes / machine.target.memory[-1].bandwidth
    again = max(0.0, reads - 1) * nbytes / (READ_AHEAD * bandwidth(machine, nbytes))
    return max(max(products, again) + rest + SHOWN * memory, memory + again)


def _taps(match: WinogradMatch) -> int:
    return match.extent(match.kd) if match.kd is not None else 1


def _taps_met(match: WinogradMatch) -> int:
    """Taps along the depth, summed over the depth of the result: those that meet padding are skipped."""
    if match.depth is None:
        return 1
    taps = [(match.kd, Index(tap)) for tap in range(_taps(match))] if match.kd is not None else []
    met = 0
    for at in range(match.extent(match.depth)):
        here = {match.depth: Index(at)}
        for place in [here | {name: tap} for name, tap in taps] or [here]:
            values = [substitute_index(c.index, place) for c in match.along if c.index is not None]
            met += all(prove_ge0(v, {}) for v in values)
    return met


def _direct_cycles(match: WinogradMatch, machine: Machine) -> float:
    channels = match.extent(match.ic) * match.extent(match.oc)
    rows, cols = match.extent(match.rows), match.extent(match.cols)
    points = match.extent(match.n) * _taps_met(match)
    # taps that meet padding are skipped
    inside = (3 * rows - 2) * (3 * cols - 2) if match.inside else 9 * rows * cols
    # narrow data is multiplied by an instruction with narrow weights
    depth = products_rate(match.data.dtype, match.dtype, machine.target)
    weights = 9 * channels * _taps(match) * (match.data.dtype.bytes if depth > 1 else match.dtype.bytes)
    products = points * inside * channels / (depth * _rate(match, machine))
    return with_weights(products, 0.0, machine, weights, 1)


def _winograd_cycles(
    program: Program, match: WinogradMatch, m: int, blocks: TileBlocks, machine: Machine
) -> float:
    target = machine.target
    alpha = (m + 2) ** 2
    ic, oc = match.extent(match.ic), match.extent(match.oc)
    batch = match.extent(match.n)
    depth = match.extent(match.depth) if match.depth else 1
    depth_in = program.buffer(match.data.buffer).shape[2].as_int() if match.depth else 1
    units = min(machine.threads, target.units)
    # threads that work on one image, and images that one of them works on
    inner = max(1, units // batch)
    images = -(-batch * inner // units)
    steps = images * _taps_met(match) * alpha * ic * blocks.turns
    products = steps * blocks.cycles / PRODUCT_EFFICIENCY
    lanes = target.lanes(match.dtype)
    into, back = TRANSFORM_CYCLES[m]
    tiles_in = images * blocks.tiles * depth_in * ic
    alone = 1 if blocks.parts > 1 else inner
    transforms = (tiles_in * into / alone + images * blocks.tiles * depth * oc * back / inner) / lanes
    if alone < inner:
        # what another thread has written comes from its core, line by line
        others = tiles_in * m * m * match.data.dtype.bytes * (inner - 1) / inner
        memory = target.memory[-1]
        transforms += others / memory.line * memory.latency / LINES_AT_ONCE
    weights = 4 * alpha * ic * oc * _taps(match) / blocks.parts
    reads = blocks.turns * _taps_met(match) / _taps(match)
    # the next images find weights that the other threads read at about the same time: as good as computing
    return with_weights(products, transforms, machine, weights, reads)
