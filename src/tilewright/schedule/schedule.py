"""The schedule: an immutable value that holds a program, the steps applied to it and the loops they gave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, final

from tilewright.ir import (
    Block,
    Buffer,
    For,
    LoopFunction,
    Program,
    blocks,
    buffers_of,
    print_function,
    to_function,
    verify,
    verify_program,
)
from tilewright.schedule.catalog import PRIMITIVES, Methods
from tilewright.schedule.common import find_block, find_loop
from tilewright.schedule.registry import OPERATIONS
from tilewright.schedule.scopes import check_threads
from tilewright.schedule.show import show
from tilewright.schedule.trace import Step, Trace, trace_from_json
from tilewright.support import ScheduleError, known_names, quoted
from tilewright.target import BUILT_IN, Operations


@final
class Schedule(Methods):
    """Every primitive is a method that returns a new schedule; this one never changes.

    A schedule starts from a program (then program-phase primitives come first) or from a loop function.
    ``verify`` runs the verifier after every step. Raises ScheduleError where a primitive is refused.
    ``operations`` are the instructions that ``tensorize`` may name: those of a target
    (:attr:`~tilewright.target.Target.operations`), else those of all built-in ones.
    ``notes`` say what led to the steps: for people, they are no part of the trace.
    """

    __slots__ = ("_current", "_func", "_steps", "notes", "operations", "source", "verify")

    source: Program | LoopFunction
    verify: bool
    notes: tuple[str, ...]
    operations: Operations

    def __init__(
        self,
        source: Program | LoopFunction,
        *,
        verify: bool = False,
        operations: Operations = BUILT_IN,
    ) -> None:
        self.source = source
        self.operations = operations
        self.verify = verify
        self.notes = ()
        self._current = source
        self._func = source if isinstance(source, LoopFunction) else None
        self._steps: tuple[Step, ...] = ()

    @property
    def program(self) -> Program | None:
        """The program as the program phase left it, or ``None`` in the loop phase and for loop functions."""
        return self._current if isinstance(self._current, Program) else None

    def require_program(self, why: str = "this changes the program") -> Program:
        """The program as it stands. Raises ScheduleError, saying ``why``, in the loop phase."""
        if self.program is None:
            raise ScheduleError(
                f"{why}, but the loops already exist",
                hint="apply program-phase primitives to a Program before the first loop primitive",
                program=print_function(self.func),
            )
        return self.program

    @property
    def func(self) -> LoopFunction:
        """The loop function as it stands (in the program phase: the unscheduled one)."""
        if self._func is None:
            assert isinstance(self._current, Program)
            self._func = to_function(self._current)
        return self._func

    @property
    def trace(self) -> Trace:
        """The steps so far, with the digests of the instructions that they name."""
        named = dict.fromkeys(str(s.args[1]) for s in self._steps if s.primitive == "tensorize")
        return Trace(self._steps, tuple((name, self.operations[name].digest) for name in named))

    def loops(self, block: str | None = None) -> tuple[str, ...]:
        """Names of the loops around a block, outermost first; of all loops without one."""
        if block is not None:
            return tuple(loop.var for loop in find_block(self.func, block)[0].loops)
        seen: dict[str, None] = {}
        for place in blocks(self.func.body):
            seen.update(dict.fromkeys(loop.var for loop in place.loops))
        return tuple(seen)

    def block(self, name: str) -> Block:
        """The block of that name; raises ScheduleError where there is none."""
        return find_block(self.func, name)[1]

    def loop(self, name: str) -> For:
        """The loop of that name; raises ScheduleError where there is none."""
        return find_loop(self.func, name)[1]

    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks, in program order."""
        return tuple(place.node.name for place in blocks(self.func.body))

    def buffers(self) -> dict[str, Buffer]:
        """Argument and allocated buffers by name."""
        return buffers_of(self.func)

    def apply(self, primitive: str, *args: object, **kwargs: object) -> Self:
        """Apply the primitive of that name; raises ScheduleError where it is refused."""
        entry = PRIMITIVES.get(primitive)
        if entry is None:
            raise ScheduleError(
                f"there is no primitive {primitive[:80]!r}",
                hint=known_names(primitive, PRIMITIVES, "the primitives", len(PRIMITIVES)),
            )
        step = Step(primitive, *entry.normalise(args, kwargs))
        return self._with(step)

    def replay(self, steps: Trace | Iterable[Step]) -> Schedule:
        """Apply recorded steps.

        Raises ScheduleError, naming the step, where one is refused, and where an instruction is another one
        than that of the same name which a trace was recorded with.
        """
        out: Schedule = self
        for name, recorded in steps.instructions if isinstance(steps, Trace) else ():
            row = self.operations.get(name)
            if row is not None and row.digest != recorded:
                raise ScheduleError(
                    f"the trace was recorded with another instruction {quoted(name)} than this target's",
                    hint="record the schedule again, or give the operations of the target it was made for",
                )
        for n, step in enumerate(steps.steps if isinstance(steps, Trace) else steps):
            try:
                out = out.apply(step.primitive, *step.args, **dict(step.kwargs))
            except ScheduleError as error:
                raise ScheduleError(
                    error.what,
                    where=f"step {n}: {step}",
                    hint=error.hint,
                    shown=error.shown,
                ) from error
        return out

    def with_note(self, note: str) -> Self:
        """The same schedule with one more note; a note that it has already is not repeated."""
        new = self._copy()
        new.notes = tuple(dict.fromkeys((*self.notes, note)))
        return new

    def _copy(self) -> Self:
        new = object.__new__(type(self))
        new.source, new.verify, new.notes = self.source, self.verify, self.notes
        new.operations = self.operations
        new._current, new._func, new._steps = self._current, self._func, self._steps
        return new

    def _with(self, step: Step) -> Self:
        entry = PRIMITIVES[step.primitive]
        given = dict(step.kwargs)
        context = {OPERATIONS: self.operations} if entry.on_target else {}
        new = self._copy()
        new._steps = (*self._steps, step)
        if entry.phase == "program":
            program = self.require_program(f"{step.primitive} changes the program")
            new._current = entry.function(program, *step.args, **given, **context)
            new._func = None
        else:
            new._current = new._func = entry.function(self.func, *step.args, **given, **context)
            check_threads(new.func, self.func, self.func if self._steps else None)
        if self.verify:
            if isinstance(new._current, Program):
                verify_program(new._current)
            else:
                verify(new.func)
        return new

    def __str__(self) -> str:
        return show(self.func)

    def __repr__(self) -> str:
        return f"Schedule({self.source.name!r}, {len(self._steps)} steps)"


def replay(
    source: Program | LoopFunction,
    trace: Trace | str,
    *,
    verify: bool = False,
    operations: Operations = BUILT_IN,
) -> Schedule:
    """The schedule that a trace (or its JSON text) describes, applied to ``source``.

    Raises ArtefactError for text that is no trace, ScheduleError, naming the step, where one is refused.
    """
    steps = load_trace(trace) if isinstance(trace, str) else trace
    return Schedule(source, verify=verify, operations=operations).replay(steps)


def load_trace(text: str | bytes) -> Trace:
    """Read a trace from its JSON text; raises ArtefactError for anything that is not one."""
    return trace_from_json(text, PRIMITIVES)
