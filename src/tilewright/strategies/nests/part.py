"""Parts of nests as tasks, tuned as programs are: each by a plan of the program that it is, or by its loops.

A plan of loops is a tree as any other. Its axes are the loops of isl's permutable bands, outermost first, its
root says in which frame they are:

    nest tiles              nest written            nest groups
      for d0/32               do written              do groups
        for d1/32
          do tiles
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import ClassVar, Final, TypeAlias

from tilewright import tiling
from tilewright.cost import Machine, tree_of
from tilewright.ir import F64, Block, For, LoopFunction, Program, int_upper, locate, loop_env
from tilewright.plan import (
    AUTO,
    Accuracy,
    Candidate as Way,
    Nest,
    Reasons,
    UnitPlan,
    of_loops,
    why,
)
from tilewright.poly import allocations_inside, scalars_in_results
from tilewright.schedule import Schedule, Trace
from tilewright.strategies.nests.delayed import delayed_updates
from tilewright.strategies.nests.lifted import lifted_nest, lifted_program
from tilewright.strategies.nests.ordered import along_rows, on_machine, ordered_nest
from tilewright.strategies.nests.tiled import tiled_nest
from tilewright.strategies.search import AnyTime, Candidate, History, Search, Strategy, Task, Trial, task_key
from tilewright.support import ArtefactError, ProgramError, ResourceError, ScheduleError
from tilewright.target import CpuTarget

MARGIN: Final = 0.6
"""Tiles are taken where they should need less than so much of the time of the order as written: their loops
have bounds that are dearer, and the estimate knows lanes and threads alone."""
RULE: Final = 32
"""Points of a tile in each loop, as Pluto has them: three arrays of two loops in f64 fit the first level."""
LEAST: Final = 8
MOST: Final = 512
"""Sizes of tiles: below, bounds cost more than points; above, rows of one array fill the caches."""
MOST_LOOPS: Final = 16
#: The rule of trees whose axes are loops of bands, and the frames that these may be in.
LOOPS: Final = "loops"
WRITTEN, GROUPS, TILES = "written", "groups", "tiles"
#: Parts whose default plans are remembered: those of a nest at a few sizes.
REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class ScheduledNest:
    """A nest as it will run, and in ``notes`` how it came about.

    ``parts`` are the tasks that it consists of, each with its plan; ``schedules`` those of parts that are
    programs.
    """

    func: LoopFunction
    notes: tuple[str, ...]
    parts: tuple[tuple[NestTask, UnitPlan], ...] = ()
    schedules: tuple[Schedule, ...] = ()

    @property
    def plan(self) -> UnitPlan:
        """The plan of a nest that is one part."""
        ((_, plan),) = self.parts
        return plan


def loops_plan(frame: str, tiles: Sequence[int] = ()) -> UnitPlan:
    """The plan of loops in a frame, with so many points of a tile in each."""
    body: tiling.Body = tiling.Leaf(frame)
    for n, size in reversed(list(enumerate(tiles))):
        body = tiling.Level(((f"d{n}", size),), body)
    return UnitPlan(Trace(()), (Nest(LOOPS, frame, (), (tiling.Nest(frame, body),)),))


def frame_of(plan: UnitPlan) -> tuple[str, tuple[int, ...]] | None:
    """The frame of a plan of loops, and the points of its tiles; ``None`` for the plan of a program.

    Raises ArtefactError for a tree of loops that is none.
    """
    if [nest.rule for nest in plan.parts] != [LOOPS]:
        return None
    frame, tiles = plan.parts[0].root, list[int]()
    body = plan.trees[0].body if len(plan.trees) == 1 else None
    while isinstance(body, tiling.Level) and body.axes[0][0] == f"d{len(tiles)}":
        tiles.append(body.axes[0][1])
        body = body.body
    sizes = all(LEAST <= size <= MOST for size in tiles) and bool(tiles) == (frame == TILES)
    if frame not in (WRITTEN, GROUPS, TILES) or not sizes or len(tiles) > MOST_LOOPS:
        raise ArtefactError(
            f"loops have no frame {frame!r} with tiles of {tuple(tiles)}",
            hint=f"{TILES} have sizes from {LEAST} to {MOST}, {WRITTEN} and {GROUPS} none",
        )
    if plan != loops_plan(frame, tiles):
        raise ArtefactError(f"a tree of loops has one level each, d0 outermost, and ends with `do {frame}`")
    return frame, tuple(tiles)


@dataclass(frozen=True, slots=True)
class NestTask:
    """A nest of fixed sizes, or a part of one, to be made fast on a machine: what a program is elsewhere.

    Its plan is that of the program that it is lifted to, or one of its loops (:func:`loops_plan`).
    """

    program: LoopFunction
    machine: Machine
    accuracy: ClassVar[Accuracy] = AUTO
    """Which algorithms are exact enough for a part that is a program."""

    @property
    def key(self) -> str:
        """What records are found by, as of a program."""
        return task_key(self.program, self.machine)

    def default(self) -> ScheduledNest:
        """The part by its default plan: a program where it is one, else in groups, in tiles or as written."""
        return _default(self)

    def carried_out(self, plan: UnitPlan | Trace) -> ScheduledNest:
        """The part as a plan says.

        Raises ArtefactError where that is the plan of something else, ScheduleError, ProgramError or
        ResourceError where it cannot be carried out here.
        """
        if isinstance(plan, UnitPlan) and (found := frame_of(plan)) is not None:
            return self._in_frame(*found)
        made, schedule, written = lifted_nest(self.program, self.machine, plan)
        parts = () if written is None else ((self, written),)
        return ScheduledNest(made, ("lifted to a program",), parts, (schedule,))

    def as_program(self) -> Task | None:
        """The task of the program that the part is lifted to; ``None`` where it is none."""
        if isinstance(_as_program(self), str):
            return None
        return Task(lifted_program(self.program).program, self.machine, accuracy=self.accuracy)

    def canonical(self) -> NestTask:
        """The part itself: isl's schedules depend on names."""
        return self

    def renamed(self, plan: UnitPlan, source: Program | LoopFunction) -> UnitPlan:
        """The plan itself."""
        del source
        return plan

    def search(self, strategy: Strategy, history: History, rng: Random) -> Search:
        """Loops in all frames, and where the part is a program what a strategy proposes for that."""
        program = self.as_program()
        return _NestSearch(self, None if program is None else strategy.start(program, history, rng))

    def reasons(self, plan: UnitPlan) -> tuple[Reasons, ...]:
        """Why the part is made as it is: the other ways, with prices, or why they were not open."""
        taken, frame, lifted = self.carried_out(plan), frame_of(plan), _as_program(self)
        others: list[Way] = []
        if isinstance(lifted, str):
            others.append(Way("program", "lifted to a program", refused=lifted))
        elif frame is not None:
            others.append(self._way(lifted))
        sizes = resized(frame[1]) if frame is not None and frame[1] else ()
        tiles = (loops_plan(TILES, each) for each in dict.fromkeys(((RULE,), *sizes)))
        for other in (loops_plan(WRITTEN), *tiles):
            try:
                made = self.carried_out(other)
            except (ScheduleError, ProgramError, ResourceError) as error:
                others.append(Way(LOOPS, other.parts[0].root, refused=error.what))
            else:
                if made.plan != taken.plan:
                    others.append(self._way(made))
        if frame is None:
            return why(lifted_program(self.program).program, plan, self.machine, others=others)
        others.sort(key=lambda each: (each.seconds is None, each.seconds or 0.0))
        tree = "".join(map(tiling.show, plan.trees))
        return (Reasons(frame[0], (), self._way(taken), taken.notes[-1], tree, tuple(others)),)

    def _way(self, made: ScheduledNest) -> Way:
        return of_loops(self.machine, LOOPS, made.notes[-1], tree_of(made.func, self.machine.on.operations))

    def _in_frame(self, frame: str, tiles: tuple[int, ...]) -> ScheduledNest:
        func, machine = self.program, self.machine
        private = scalars_in_results(allocations_inside(func))
        if frame == TILES:
            # trees have no storage inside of loops
            within = func if private.body.allocated else private
            made, loops = tiled_nest(within, machine, tiles)
            tiles = (*tiles, *[tiles[-1]] * loops)[:loops]
            notes = f"in tiles of {' x '.join(map(str, tiles))}"
        elif frame == WRITTEN:
            made, notes = ordered_nest(private, machine), "in the order in which it is written"
        else:
            grouped = delayed_updates(private, machine.on) if isinstance(machine.on, CpuTarget) else None
            if grouped is None:
                raise ScheduleError(f"{func.name} has no updates that could wait for groups of steps")
            made = on_machine(grouped.func, grouped.facts, machine)
            notes = f"in groups of {grouped.steps} steps, whose rows and columns go first"
        return ScheduledNest(made, (notes,), ((self, loops_plan(frame, tiles)),))


#: What a tuner has to make fast.
AnyTask: TypeAlias = Task | NestTask


@lru_cache(maxsize=REMEMBERED)
def _as_program(task: NestTask) -> ScheduledNest | str:
    """A part by the default plan of the program that it is; why not, where it is none."""
    try:
        made, schedule, plan = lifted_nest(task.program, task.machine)
    except (ScheduleError, ResourceError) as error:
        return f"not lifted: {error.what}"
    assert plan is not None
    return ScheduledNest(made, ("lifted to a program",), ((task, plan),), (schedule,))


@lru_cache(maxsize=REMEMBERED)
def _in_tiles(task: NestTask) -> ScheduledNest | str:
    """A part in tiles of the rule; why not, where it has none."""
    try:
        return task.carried_out(loops_plan(TILES, (RULE,)))
    except (ScheduleError, ProgramError, ResourceError) as error:
        return f"not in tiles: {error.what}"


@lru_cache(maxsize=REMEMBERED)
def _default(task: NestTask) -> ScheduledNest:
    lifted = _as_program(task)
    if not isinstance(lifted, str):
        return lifted
    notes = [lifted]

    def noted(made: ScheduledNest) -> ScheduledNest:
        return replace(made, notes=(*notes, *made.notes))

    try:
        try:
            return noted(task.carried_out(loops_plan(GROUPS)))
        except ScheduleError:
            made = task.carried_out(loops_plan(WRITTEN))
    except ResourceError as error:
        made = ScheduledNest(task.program, (f"nothing known of loops: {error.what}", "as it is written"))
        return noted(replace(made, parts=((task, loops_plan(WRITTEN)),)))
    tiles = _in_tiles(task)
    if isinstance(tiles, str):
        notes.append(tiles)
        return noted(made)
    here, there = (_instances(task.program, each.func, task.machine) for each in (made, tiles))
    if there < MARGIN * here:
        return noted(tiles)
    notes.append("tiles would not run wider")
    return noted(made)


@dataclass(slots=True, eq=False)
class _NestSearch:
    """Loops as written and in tiles of the rule, then in tiles around the fastest.

    Where the part is a program, the candidates of its search come after the first.
    """

    task: NestTask
    program: Search | None
    measured: dict[UnitPlan, float] = field(default_factory=dict)
    proposed: set[UnitPlan] = field(default_factory=set)

    def propose(self, count: int) -> Sequence[Candidate]:
        """Up to so many candidates: of loops, then of the program."""
        found: list[Candidate] = []
        for plan in self._loops():
            if len(found) < count and plan not in self.proposed:
                self.proposed.add(plan)
                found.append(Candidate(LOOPS, plan))
        if self.program is not None and len(found) < count:
            found += self.program.propose(count - len(found))
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """What became of candidates: those of loops, and of the program for its search."""
        others: list[Trial] = []
        for trial in trials:
            plan = trial.candidate.plan
            if isinstance(plan, UnitPlan) and frame_of(plan) is not None:
                self.proposed.add(plan)
                self.measured[plan] = trial.best
            else:
                others.append(trial)
        if self.program is not None:
            self.program.observe(others)

    def expected_gain(self) -> float:
        """What the program's search says; where there is none it is not known."""
        return 1.0 if self.program is None else self.program.expected_gain()

    def end_by(self, until: float) -> None:
        """Give the next proposals by that moment of ``time.monotonic``."""
        if isinstance(self.program, AnyTime):
            self.program.end_by(until)

    def _loops(self) -> Iterator[UnitPlan]:
        yield loops_plan(WRITTEN)
        tiles = _in_tiles(self.task)
        if isinstance(tiles, str):
            return
        yield tiles.plan
        found = {plan: tiles for plan in self.measured for _, tiles in [frame_of(plan) or ("", ())] if tiles}
        # tiles that are no faster than the order as written are not searched around
        others = [t for plan, t in self.measured.items() if plan not in found]
        best = min(found, key=lambda plan: self.measured[plan], default=None)
        if best is not None and self.measured[best] <= min(others, default=float("inf")):
            yield from (loops_plan(TILES, sizes) for sizes in resized(found[best]))


def resized(tiles: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All sizes doubled or halved, then those of one loop alone."""
    for changed in (range(len(tiles)), *([n] for n in range(len(tiles)) if len(tiles) > 1)):
        for wider in (True, False):
            made = tuple(
                (size * 2 if wider else size // 2) if n in changed else size for n, size in enumerate(tiles)
            )
            if all(LEAST <= size <= MOST for size in made):
                yield made


def _by_llvm(b: Block, loops: Sequence[For], lanes: int) -> bool:
    """Whether LLVM puts a statement in lanes: iterations side by side that stay in registers, or a free loop.

    That is the innermost one, or the one around one that is short, which is written out; along rows.
    """
    if len(loops) > 1 and loops[-1].kind.name == "unroll":
        steps = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loops[-2].var in x.vars}
        places = (*(ld.indices for ld in b.reads), *(at for _, at in b.writes))
        return not any(steps & x.vars for at in places for x in at)
    short = loops and loops[-1].extent.is_const and loops[-1].extent.const <= lanes
    for loop in loops[-2 if short else -1 :]:
        kinds = {it.kind for it, x in zip(b.iters, b.bind, strict=True) if loop.var in x.vars}
        if kinds == {"par"} and along_rows(b, loop.var):
            return True
    return False


def _instances(written: LoopFunction, made: LoopFunction, machine: Machine) -> float:
    """Statement instances that run one after another in a function made of another one, roughly.

    A statement counts as in lanes, or on threads, where one of its copies is; the others are borders.
    """
    kinds: dict[str, set[str]] = {}
    for place in locate(made.body, Block):
        kinds.setdefault(place.node.stage, set()).update(loop.kind.name for loop in place.loops)
        if isinstance(machine.on, CpuTarget) and _by_llvm(place.node, place.loops, machine.target.lanes(F64)):
            kinds[place.node.stage].add("vector")
    out = 0.0
    known = {b.name: b.dtype.bytes for b in (*made.buffers, *made.body.allocated)}
    for place in locate(written.body, Block):
        count = 1.0
        for n, loop in enumerate(place.loops):
            count *= int_upper(loop.extent, loop_env(place.loops[:n])) or 0
        found = kinds.get(place.node.stage, set())
        if "vector" in found and isinstance(machine.on, CpuTarget):
            widest = max((known.get(name, 8) for name, _ in place.node.writes), default=8)
            count /= machine.target.preferred_vector_bits / (8 * widest)
        out += count / machine.threads if "parallel" in found else count
    return out
