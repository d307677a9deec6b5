"""layout_place: where the elements of a tensor lie, while its indices stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import Buffer, Program
from tilewright.schedule.loop.set_layout import with_layout
from tilewright.schedule.producer.stages import find_tensor
from tilewright.schedule.registry import primitive


@primitive("layout_place", phase="program")
def layout_place(program: Program, tensor: str, layout: Sequence[str]) -> Program:
    """Store ``tensor`` as ``layout`` says, an index a physical dimension: ``("d0", "d1//16", "d1%16")``.

    In place of the layout that it had; without indices it is stored row by row. Accesses and loops stay as
    they are: they name logical indices. See ``layout_adopt`` for loops that follow. Of an argument it is
    the caller who provides the array in that layout.

    >>> from tilewright import lang
    >>> from tilewright.ir import print_program
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((2, 8), name="X")
    >>> Y = lang.compute((2, 8), lambda i, j: X[i, j] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(print_program(s.program).strip())
    program("main")
    X = input(f32[2, 8])
    Y = output(f32[2, 8])
    with stage("Y"):
        i = par(0, 2)
        j = par(0, 8)
        Y[i, j] = X[i, j] * f32(2.0)
    >>> print(print_program(s.layout_place("Y", ("d1//4", "d0", "d1%4")).program).strip())
    program("main")
    X = input(f32[2, 8])
    Y = output(f32[2, 8], layout=index_map([__0, __1], [__1//4, __0, __1%4], [2, 2, 4]))
    with stage("Y"):
        i = par(0, 2)
        j = par(0, 8)
        Y[i, j] = X[i, j] * f32(2.0)

    Raises ScheduleError for an unknown tensor, and for a layout that would put two elements into one place.
    """
    old = replace(find_tensor(program, tensor), layout=None)
    new = with_layout(old, layout) if layout else old

    def placed(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(new if b.name == tensor else b for b in buffers)

    return replace(
        program,
        inputs=placed(program.inputs),
        outputs=placed(program.outputs),
        temps=placed(program.temps),
    )
