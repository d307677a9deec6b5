"""store_as: an argument is stored in another type."""

from __future__ import annotations

from tilewright.ir import DTYPES, Program
from tilewright.lang import store_as as rewrite
from tilewright.schedule.registry import primitive
from tilewright.support import ProgramError, ScheduleError, known_names


@primitive("store_as", phase="program")
def store_as(program: Program, buffer: str, dtype: str) -> Program:
    """Store the argument ``buffer`` in the type ``dtype``: rounded where written, widened where read.

    The arithmetic stays in the type of the program. It is the caller who provides an input in that type
    (constants are converted when compiling).

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8,), name="X")
    >>> Y = lang.compute((8,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:8:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.store_as("X", "bf16"))
    func main:
        for i in 0:8:
            block Y(par i=i):
                Y[i] = (cast(X[i], f32, wrap) * f32(2.0))

    Raises ScheduleError for a buffer that is no argument, or an unknown type.
    """
    if dtype not in DTYPES:
        raise ScheduleError(
            f"there is no element type {dtype!r}",
            hint=known_names(dtype, DTYPES, "the types"),
        )
    try:
        return rewrite(program, {buffer: DTYPES[dtype]})
    except ProgramError as error:
        names = [b.name for b in (*program.inputs, *program.outputs)]
        raise ScheduleError(error.what, hint=f"the arguments are {', '.join(names)}") from None
