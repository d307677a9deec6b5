"""annotate: give a loop a back-end hint."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import LoopFunction, replace_at, stmt_writes
from tilewright.schedule.common import find_loop, refusal
from tilewright.schedule.registry import primitive

HINTS = ("nontemporal", "outline", "pipeline", "prefetch", "unroll")


@primitive("annotate", phase="loop")
def annotate(func: LoopFunction, loop: str, key: str, value: str = "") -> LoopFunction:
    """Set the hint ``key`` of a loop to ``value``, replacing an earlier one.

    Hints never change meaning: ``outline`` makes the body a function of its own, ``unroll`` gives a factor,
    ``pipeline`` a number of stages, ``prefetch`` names buffers: what the end of an outlined body touches, or
    with ``A@8`` what a serial loop touches 8 iterations later, and with ``A+4096`` the elements that lie 4096
    further on in memory than those it touches, into the second cache level (``A+4096:1``: into the first).
    With ``A@spread`` it is what the next iteration reads, asked for bit by bit in the reductions of outlined
    bodies. ``nontemporal`` names buffers, by commas, to which whole vectors are stored past the caches: for
    results larger than those that nobody reads soon.

    Raises ScheduleError for an unknown hint, and for a buffer named ``nontemporal`` that the loop does not
    write.

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
    if key == "nontemporal":
        written = {name for name, _ in stmt_writes(node.body)}
        for name in value.split(","):
            if name not in written:
                raise refusal(
                    func,
                    f"the loop {loop!r} does not write {name!r}",
                    hint=f"it writes {', '.join(sorted(written)) or 'nothing'}",
                    at=[loop],
                )
    hints = (*((k, v) for k, v in node.hints if k != key), (key, value))
    return func.with_body(replace_at(func.body, place.path, replace(node, hints=hints)))
