"""Functions as kernels, by the language of a device."""

from __future__ import annotations

from dataclasses import replace

from tilewright.codegen.clike.c import emit_c
from tilewright.codegen.clike.cuda import emit_cuda
from tilewright.codegen.clike.device import DeviceSource, KernelEntry
from tilewright.codegen.clike.launches import Grid
from tilewright.codegen.clike.opencl import emit_opencl
from tilewright.ir import ONE, LoopFunction
from tilewright.support import TargetError, known_names

_GPU = {"cuda": emit_cuda, "opencl": emit_opencl}
_ONE = (ONE, ONE, ONE)


def emit_kernels(func: LoopFunction, language: str) -> DeviceSource:
    """A lowered function in ``cuda``, ``opencl`` or ``c``. Raises TargetError, ScheduleError.

    In C all of a function is one kernel, launched once: thread loops are loops.
    """
    if language in _GPU:
        return _GPU[language](func)
    if language != "c":
        raise TargetError(
            f"there is no language {language!r}", hint=known_names(language, (*_GPU, "c"), "the languages")
        )
    # what holds of the sizes is checked before a launch
    made = emit_c(replace(func, assumes=()))
    entry = KernelEntry(
        symbol=made.symbol,
        grid=Grid(_ONE, _ONE, frozenset()),
        buffers=tuple(b.name for b in func.buffers),
        scalars=tuple(p.name for p in func.params),
        scalar_bytes=8,
        shared_bytes=0,
        dynamic_bytes=0,
    )
    return DeviceSource(made.text, (entry,), ((0, ()),), ())
