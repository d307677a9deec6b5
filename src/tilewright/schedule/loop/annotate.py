"""annotate: give a loop a back-end hint."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    HINTS,
    LoopFunction,
    buffers_of,
    hint_problem,
    in_place_hints,
    nontemporal_hints,
    prefetch_hints,
    replace_at,
    stmt_loads,
    stmt_writes,
)
from tilewright.schedule.common import find_loop, refusal
from tilewright.schedule.registry import primitive
from tilewright.support import known_names


@primitive("annotate", phase="loop")
def annotate(func: LoopFunction, loop: str, key: str, value: str = "") -> LoopFunction:
    """Set the hint ``key`` of a loop to ``value``, replacing an earlier one.

    Hints never change meaning, and back ends that have no use for one ignore it:

    * ``outline``: the body becomes a function of its own.
    * ``unroll``: so many iterations make one turn.
    * ``pipeline``: so many stages overlap (on accelerators; CPUs do so by themselves).
    * ``prefetch``: what to ask for ahead of its use, by commas. ``A``: what the end of an outlined body
      touches of ``A``. ``A@8``: what a serial loop touches 8 iterations later. ``A+4096``: the elements that
      lie 4096 further on in memory than those it touches, into the second cache level (``A+4096:1``: into the
      first). ``A@spread``: what the next iteration reads, asked for bit by bit in the reductions of outlined
      bodies (``A@spread:2``: what lies together into the second level, too).
    * ``nontemporal``: buffers, by commas, to which whole vectors are stored past the caches. For results that
      are larger than the caches, or that nobody reads soon.
    * ``reload``: a part, such as ``9/14``, of the single elements in a serial loop that vectors are
      multiplied with. Each instruction loads these for itself, as an operand: more loads, less to start.
    * ``teams``: copies to shared memory at the beginning of a loop in a block of threads are made ahead by
      threads of their own: ``4`` slots, or ``4:40:232`` with registers for a thread of theirs and of the
      others. Back ends without such teams copy where the loop says.
    * ``in_place``: intermediate buffers, by commas, that are kept where the result of the loop goes. Done
      where the loop reads each element only for the one that it writes there, and nothing else stands in the
      way (``lower/in_place.py``).

    Raises ScheduleError for an unknown hint, a value that it does not take, a buffer to ask for that there is
    not, a buffer named ``nontemporal`` that the loop does not write, and one named ``in_place`` that it does
    not read.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> Y = lang.compute((10,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:10:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.annotate("i", "outline"))
    func main:
        for i in 0:10 outline:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.vectorize("i").annotate("i", "nontemporal", "Y"))
    func main:
        for i in 0:10 vector nontemporal=Y:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    if key not in HINTS:
        raise refusal(func, f"there is no hint {key!r}", hint=f"the hints are {', '.join(HINTS)}", at=[loop])
    if problem := hint_problem(key, value):
        raise refusal(func, problem, at=[loop])
    hints = (*((k, v) for k, v in node.hints if k != key), (key, value))
    made = replace(node, hints=hints)
    written = {name for name, _ in stmt_writes(node.body)} - {b.name for b in node.allocated}
    known = buffers_of(func)
    for name in sorted(nontemporal_hints(made)):
        if name not in written:
            raise refusal(
                func,
                f"the loop {loop!r} does not write {name!r}, or allocates it itself",
                hint=f"of the buffers around it, it writes {', '.join(sorted(written)) or 'none'}",
                at=[loop],
            )
    read = {ld.buffer for ld in stmt_loads(node.body)}
    for name in sorted(in_place_hints(made) - read):
        raise refusal(
            func,
            f"the loop {loop!r} does not read {name!r}",
            hint=f"it reads {', '.join(sorted(read)) or 'nothing'}",
            at=[loop],
        )
    for name in (p.name for p in prefetch_hints(made)):
        if name not in known:
            hint = known_names(name, sorted(known), "the buffers")
            raise refusal(func, f"there is no buffer {name!r} to ask for ahead", hint=hint, at=[loop])
    return func.with_body(replace_at(func.body, place.path, made))
