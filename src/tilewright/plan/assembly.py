"""From a program to its schedule: algorithms, stages into nests, and the rule for each nest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

from tilewright.analysis import Contraction, pointwise_reader, reads_in_place
from tilewright.ir import (
    Index,
    Program,
    Stage,
)
from tilewright.plan.algorithms.bf16x3 import choose_bf16x3
from tilewright.plan.algorithms.choice import WINOGRAD_SIZES, WinogradChoice, WinogradMode, choose_winograd
from tilewright.plan.algorithms.strassen import StrassenChoice, choose_strassen, schedule_strassen
from tilewright.plan.algorithms.winograd import schedule_winograd
from tilewright.plan.contraction.dot_products import find_matrix, is_matrix
from tilewright.plan.contraction.gemm import is_large_product, schedule_product
from tilewright.plan.contraction.gemv import is_stream, schedule_stream, split_streams
from tilewright.plan.contraction.narrow_windows import Planes, find_planes, schedule_planes
from tilewright.plan.contraction.nest import (
    MIN_PARALLEL_PRODUCTS,
    TileProblem,
    default_tiles,
    schedule_contraction,
)
from tilewright.plan.contraction.output_order import InOrder, find_in_order
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.padding import pad_for_matrices
from tilewright.plan.contraction.precision import contraction_of, round_weights
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.contraction.skinny_gemm import is_wide, schedule_wide
from tilewright.plan.contraction.split_k import is_deep, schedule_deep, split_deep
from tilewright.plan.elementwise.copies import schedule_panels
from tilewright.plan.fallback import fell_back
from tilewright.plan.fused.bands import find_band
from tilewright.plan.fused.chain import find_chain
from tilewright.plan.fused.nests import prepare_bands, schedule_bands, schedule_row_chain
from tilewright.plan.inlining import inline_stages
from tilewright.plan.rows.match import ending_stage
from tilewright.plan.rows.nest import schedule_copy_at, schedule_elementwise, schedule_rows
from tilewright.plan.rows.reduction import LaneReduction, schedule_lanes, split_reductions
from tilewright.plan.rows.split_rows import schedule_parts, share_rows
from tilewright.plan.streaming_stores import store_past_caches
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target


def schedule_unit(
    program: Program,
    target: Target,
    threads: int,
    constants: Collection[str] = (),
    *,
    winograd: WinogradMode = "auto",
    sizes: Sequence[int] = WINOGRAD_SIZES,
) -> Schedule:
    """Schedule a whole program for ``threads`` threads of ``target``.

    ``constants`` names the argument buffers whose contents are known at compile time: their layouts may be
    changed, as those of arguments in scope ``const``: the buffers of the scheduled function say how.
    ``winograd`` says how 3x3 convolutions are done: directly (``off``), by Winograd's method with tiles of 2
    or 4 where it applies (``f2``, ``f4``), or in the fastest way (``auto``), with tiles of ``sizes`` only.
    With ``auto`` and any ``sizes``, products with constant matrices take Strassen's method where that is
    faster. Deterministic.
    """
    s = _scheduled(program, target, threads, constants, winograd, sizes)
    return store_past_caches(s, target)


def _scheduled(
    program: Program,
    target: Target,
    threads: int,
    constants: Collection[str],
    winograd: WinogradMode,
    sizes: Sequence[int],
) -> Schedule:
    s = inline_stages(Schedule(program, operations=target.operations))
    if winograd != "off" and (winograd != "auto" or sizes):
        try:
            changed, choices = apply_algorithms(s, target, threads, winograd, sizes, constants)
            if changed is not s:
                return _schedule_clusters(changed, target, threads, constants, choices)
        except ScheduleError as error:
            s = fell_back(s, "the direct method", error)
    return _schedule_clusters(s, target, threads, constants, {})


def _schedule_clusters(
    s: Schedule,
    target: Target,
    threads: int,
    constants: Collection[str],
    choices: Mapping[str, Choice],
) -> Schedule:
    s = round_weights(pad_for_matrices(s, target, constants), target, constants)
    try:
        chained = _schedule_chain(s, target, threads, constants)
        if chained is not None:
            return chained
    except ScheduleError as error:
        s = fell_back(s, "no chain, step by step", error)
    try:
        changed, along = split_reductions(s, target, threads, constants)
        if along:
            return _schedule_nests(changed, target, threads, constants, choices, along)
    except ScheduleError as error:
        s = fell_back(s, "no vectors along reductions", error)
    return _schedule_nests(s, target, threads, constants, choices, {})


def _schedule_chain(s: Schedule, target: Target, threads: int, constants: Collection[str]) -> Schedule | None:
    """The schedule of a program that is a chain of contractions, ``None`` for others.

    Raises ScheduleError where a step is refused.
    """
    program = s.program
    assert program is not None
    banded = find_band(program, target, threads)
    if banded is not None:
        return schedule_bands(prepare_bands(s, *banded, target), target, threads)
    # without bands, whole rows in tiles; their operands may lie in any order
    s = gather_operands(s, target, constants)
    program = s.program
    assert program is not None
    chain = find_chain(program, target)
    return schedule_row_chain(s, chain, target, threads) if chain is not None and chain.has_rows else None


def _schedule_nests(
    s: Schedule,
    target: Target,
    threads: int,
    constants: Collection[str],
    choices: Mapping[str, Choice],
    along: Mapping[str, LaneReduction],
) -> Schedule:
    s, parts = share_rows(s, target, threads)
    s = split_streams(s, target, constants, threads)
    s = split_deep(s, target, constants, threads)
    s = gather_operands(s, target, constants, {choice.partial for choice in along.values()})
    current = s.program
    assert current is not None
    for cluster in clusters(current, target, constants, choices, along, parts):
        s = cluster(s, threads)
    return s


def apply_algorithms(
    s: Schedule,
    target: Target,
    threads: int,
    mode: WinogradMode,
    sizes: Sequence[int] = WINOGRAD_SIZES,
    constants: Collection[str] = (),
) -> tuple[Schedule, dict[str, Choice]]:
    """Rewrite the convolutions and products for which Winograd's or Strassen's method, or bf16x3, is chosen.

    The choices are keyed by the stage that holds or consumes the result.
    """
    program = s.program
    assert program is not None
    choices: dict[str, Choice] = {}
    for stage in program.stages:
        now = s.program
        assert now is not None
        last = pointwise_reader(now, stage)
        choice = choose_winograd(now, now.stage(stage.name), target, threads, mode, sizes)
        pieces = (
            choose_bf16x3(s, now.stage(stage.name), target, threads, constants) if mode == "auto" else None
        )
        pays = pieces is not None and pieces.gain > 0 and (choice is None or pieces.cycles < choice.cycles)
        if pieces is not None and pays and find_chain(now, target) is None:
            s = pieces.schedule
            continue
        product = choose_strassen(now, now.stage(stage.name), target, threads) if mode == "auto" else None
        if product is not None and ending_stage(now, now.stage(stage.name)) is None:
            # a part of a chain, which is scheduled as a whole
            continue
        if product is not None:
            s = s.strassen(stage.name, product.width, product.weights, product.height, product.copies)
            choices[stage.name if last is None else last.name] = product
            continue
        if choice is None:
            continue
        weights = f"{choice.match.weights.buffer}_winograd{choice.m}"
        s = s.winograd(stage.name, choice.m, weights, choice.blocks.tiles)
        if last is not None:
            s = s.inline_stage(stage.name)
        choices[stage.name if last is None else last.name] = choice
    return s, choices


def gather_operands(
    s: Schedule, target: Target, constants: Collection[str], but: Collection[str] = ()
) -> Schedule:
    """Make operands of contractions that vectors would have to gather tensors of their own, vectors last.

    Stages ``but`` are left as they are.
    """
    program = s.program
    assert program is not None
    for stage in program.stages:
        if stage.name in but:
            continue
        now = s.program
        assert now is not None
        current = now.stage(stage.name)
        last = pointwise_reader(now, current)
        c = is_tileable(now, current, target, last, packed=False)
        if (
            c is None
            or c.b is None
            or c.b_logical is None
            or is_tileable(now, current, target, last) is not None
        ):
            continue
        if panel_layout(now, c, target, constants) is not None:
            continue
        moved = [v for i in c.b_logical.indices for v in i.vars]
        axes = [it.name for it in current.iters if it.name in moved and it.name != c.vector]
        try:
            s = s.gather_operand(
                stage.name, current.operands.index(c.b_logical), [*axes, c.vector], panels_of(stage)
            )
        except ScheduleError as error:
            s = fell_back(s, f"stage {stage.name} reads its operand as it is", error)
    return s


def panels_of(stage: Stage) -> str:
    """The name of the stage that makes an operand of a contraction."""
    return f"{stage.name}_panels"


Cluster = Callable[[Schedule, int], Schedule]
Choice = WinogradChoice | StrassenChoice


def clusters(
    program: Program,
    target: Target,
    constants: Collection[str] = (),
    choices: Mapping[str, Choice] = MappingProxyType({}),
    along: Mapping[str, LaneReduction] = MappingProxyType({}),
    parts: Collection[str] = (),
) -> list[Cluster]:
    """Group the stages of a program into nests, and choose the rule for each.

    A contraction goes with the point-wise stage that alone consumes it; a stage that follows reductions over
    its own rows goes with those, unless threads share these: then ``parts`` are the stages that reduce parts.
    """
    done: set[str] = set()
    out: list[Cluster] = []
    # after what reads them, whose threads they follow
    copies: list[Cluster] = []
    for stage in reversed(program.stages):
        if stage.name in done:
            continue
        done.add(stage.name)
        choice = choices.get(stage.name)
        if choice is not None:
            done.update(choice.stages)
            out.append(_algorithm_rule(choice, stage, target))
            continue
        if stage.name in along:
            done.update(along[stage.name].stages)
            out.append(_lanes_rule(along[stage.name], stage, program))
            continue
        if stage.name in parts:
            out.append(_parts_rule(stage, program, target))
            continue
        ordered = find_in_order(program, stage, target)
        if ordered is not None and not {ordered.last.name} & {*done, *choices, *along}:
            made = _contraction_of(program, ordered.last, target)
            if made is not None:
                epilogue = None if made.stage is ordered.last else ordered.last
                done.update((ordered.last.name, made.stage.name, panels_of(made.stage)))
                out.append(_contraction_rule(made, epilogue, program, target, constants, ordered))
                continue
        if not stage.is_reduction:
            found = _contraction_before(program, stage, target)
            if found is not None:
                done.update((found.stage.name, panels_of(found.stage)))
                out.append(_contraction_rule(found, stage, program, target, constants))
                continue
        alone = is_tileable(program, stage, target, packed=False)
        if alone is not None:
            done.add(panels_of(stage))
            out.append(_contraction_rule(alone, None, program, target, constants))
            continue
        planes = find_planes(program, stage, target)
        if planes is not None:
            done.add(planes.stage.name)
            out.append(_planes_rule(planes, program, target, constants))
            continue
        rows, depth = _rows_before(program, stage, done | set(along), target, parts)
        if rows:
            done.update(r.name for r in rows)
            out.append(_rows_rule(rows, stage, program, depth, target))
        else:
            rule = _elementwise_rule(stage, program, target)
            (copies if _is_for_matrices(program, stage, target) else out).append(rule)
    return [*out[::-1], *copies]


def _is_for_matrices(program: Program, stage: Stage, target: Target) -> bool:
    """Whether a stage makes what only contractions by instructions for whole matrices read."""
    readers = {r.name for made in stage.writes for r in program.consumers(made)} if target.tiles else ()
    found = [contraction_of(program, name, target) for name in readers]
    return bool(found) and all(c is not None and find_matrix(c, target) is not None for c in found)


def _attempt(rule: Cluster, fallback: Cluster | None, name: str) -> Cluster:
    """A rule that gives way to a simpler one where a primitive refuses a step."""

    def run(s: Schedule, threads: int) -> Schedule:
        try:
            return rule(s, threads)
        except ScheduleError as error:
            s = fell_back(s, f"stage {name} by a simpler rule", error)
            return fallback(s, threads) if fallback is not None else s

    return run


def _elementwise_rule(stage: Stage, program: Program, target: Target) -> Cluster:
    def rule(s: Schedule, threads: int) -> Schedule:
        if len(s.loops(stage.name)) > len(stage.iters):
            # computed where it is used
            return s
        panels = schedule_panels(s, stage, program, threads)
        return schedule_elementwise(s, program, stage, target, threads) if panels is None else panels

    return _attempt(rule, None, stage.name)


def _rows_rule(rows: list[Stage], last: Stage, program: Program, depth: int, target: Target) -> Cluster:
    return _attempt(lambda s, n: schedule_rows(s, program, rows, last, depth, target, n), None, last.name)


def _parts_rule(stage: Stage, program: Program, target: Target) -> Cluster:
    simple = _elementwise_rule(stage, program, target)
    return _attempt(lambda s, n: schedule_parts(s, program, stage, target, n), simple, stage.name)


def _planes_rule(p: Planes, program: Program, target: Target, constants: Collection[str]) -> Cluster:
    def simple(s: Schedule, threads: int) -> Schedule:
        for stage in dict.fromkeys((p.stage, p.last)):
            s = _elementwise_rule(stage, program, target)(s, threads)
        return s

    return _attempt(lambda s, n: schedule_planes(s, program, p, target, n, constants), simple, p.last.name)


def _algorithm_rule(choice: Choice, stage: Stage, target: Target) -> Cluster:
    # no fallback of its own: where a step is refused, the whole program takes the direct method
    if isinstance(choice, StrassenChoice):
        return lambda s, n: schedule_strassen(s, choice, stage, target, n)
    return lambda s, n: schedule_winograd(s, choice.match, choice.m, choice.blocks, stage, target, n)


def _lanes_rule(choice: LaneReduction, stage: Stage, program: Program) -> Cluster:
    # no fallback of its own: where a step is refused, the program is scheduled as it was
    return lambda s, n: schedule_lanes(s, program, choice, stage, n)


def _contraction_rule(
    c: Contraction,
    epilogue: Stage | None,
    program: Program,
    target: Target,
    constants: Collection[str],
    ordered: InOrder | None = None,
) -> Cluster:
    def tiled(s: Schedule, threads: int) -> Schedule:
        packed = panel_layout(program, c, target, constants)
        if packed is None:
            name = panels_of(c.stage)
            panels = name if name in {stage.name for stage in program.stages} else None
            alone = ordered is None and panels is None
            wide = alone and is_wide(program, c, target, constants, threads)
            if alone and not wide and is_large_product(program, c, target, constants, threads):
                return schedule_product(s, c, epilogue, target, threads)
            rules = ((is_deep, schedule_deep), (is_wide, schedule_wide), (is_stream, schedule_stream))
            fitting = (do for fits, do in rules if alone and fits(program, c, target, constants, threads))
            rule = next(fitting, None)
            if rule is not None:
                s = rule(s, c, target, threads)
                return s if epilogue is None else _elementwise_rule(epilogue, program, target)(s, threads)
            problem = TileProblem(
                c, epilogue, program.outputs, panels, ordered, _rows_maker(program, c, ordered)
            )
            return schedule_contraction(s, problem, default_tiles(problem, target, threads), target)
        buffer, layout = packed
        s = s.set_layout(buffer, layout)
        now = replace(program, inputs=tuple(b for b in s.func.buffers if b.name not in s.func.outputs))
        again = is_tileable(now, c.stage, target, epilogue)
        if again is None:
            raise ScheduleError(f"the layout of {buffer} leaves {c.stage.name} without a register tile")
        rows = _rows_maker(program, again, ordered)
        problem = TileProblem(again, epilogue, program.outputs, in_order=ordered, rows=rows)
        return schedule_contraction(s, problem, default_tiles(problem, target, threads), target)

    def simple(s: Schedule, threads: int) -> Schedule:
        if ordered is not None:
            s = _contraction_rule(c, epilogue, program, target, constants)(s, threads)
            return _elementwise_rule(ordered.copy, program, target)(s, threads)
        for stage in [c.stage, *([epilogue] if epilogue else [])]:
            s = _elementwise_rule(stage, program, target)(s, threads)
        return s

    return _attempt(tiled, simple, (epilogue or c.stage).name)


def _rows_maker(
    program: Program, c: Contraction, ordered: InOrder | None
) -> Callable[[Schedule, str], Schedule] | None:
    """What computes the operand ``a`` of a product of matrices at a loop; ``None`` where it stays apart.

    Only of products: of windows neighbouring blocks share rows.
    """
    makers = program.producers(c.a.buffer)
    windows = [axis for axis in c.axes("window") if c.extent(axis) > 1]
    if ordered is not None or windows or not is_matrix(c) or len(makers) != 1 or makers[0].is_reduction:
        return None
    if program.consumers(c.a.buffer) != (c.stage,):
        return None
    return lambda s, loop: schedule_copy_at(s, program, makers[0], loop)


def _contraction_of(program: Program, last: Stage, target: Target) -> Contraction | None:
    """The contraction that a stage is, or whose result it alone reads, element by element."""
    if last.is_reduction:
        return is_tileable(program, last, target, packed=False)
    return _contraction_before(program, last, target)


def _contraction_before(program: Program, stage: Stage, target: Target) -> Contraction | None:
    """The contraction whose result ``stage`` alone reads, element by element."""
    for name in stage.reads:
        producers = program.producers(name)
        if (
            len(producers) != 1
            or program.consumers(name) != (stage,)
            or name not in {t.name for t in program.temps}
        ):
            continue
        if not reads_in_place(stage, name) or program.buffer(name).layout is not None:
            continue
        found = is_tileable(program, producers[0], target, stage, packed=False)
        if found is not None:
            return found
    return None


def _rows_before(
    program: Program, stage: Stage, done: set[str], target: Target, parts: Collection[str]
) -> tuple[list[Stage], int]:
    """Stages that feed only this one (directly or not), and the loops that they share with it.

    Among them must be a reduction over the last axes of its operands; otherwise there is nothing to gain.
    """
    members: list[Stage] = []
    inside = {stage.name}
    # what has a layout of its own is stored for that, like the results of the program
    loose = {t.name for t in program.temps if t.layout is None}
    for s in reversed(program.stages[: program.stages.index(stage)]):
        if s.name in done or any(b not in loose for b in s.writes):
            continue
        users = {c.name for b in s.writes for c in program.consumers(b)}
        if users and users <= inside and not is_tileable(program, s, target, packed=False):
            members.append(s)
            inside.add(s.name)
    members.reverse()
    reductions = [m for m in members if m.is_reduction]
    if not reductions or any(m.name in parts for m in members):
        return [], 0
    pars = [it for it in stage.iters if it.kind == "par"]
    depth = len(pars)
    several = False
    for r in reductions:
        own = [
            it for it in r.iters if it.kind == "par" and not (it.extent.is_const and it.extent.as_int() == 1)
        ]
        shared = 0
        used = 0
        for it in pars:
            if used < len(own) and own[used].extent == it.extent:
                used += 1
                shared += 1
            elif it.extent.is_const and it.extent.as_int() == 1:
                shared += 1
            else:
                break
        depth = min(depth, shared)
        products = (
            prod(it.extent.as_int() for it in r.iters) if all(it.extent.is_const for it in r.iters) else 0
        )
        several |= bool(own) and products >= MIN_PARALLEL_PRODUCTS
    if several and all(it.extent == Index(1) for it in pars[:depth]):
        # one row in which many sums are made: nothing stays near, and threads would have nothing to share
        return [], 0
    return (members, depth) if depth else ([], 0)
