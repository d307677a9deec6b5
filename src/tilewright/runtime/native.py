"""The native library: loading it, and the types of its functions.

The functions are described in `native/tw_runtime.h`. A call through ctypes releases the GIL.
"""

import ctypes
from ctypes import POINTER, c_double, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from tilewright.support import InstallationError

LIBRARY_PATH: Final = Path(__file__).with_name("_native.so")
HEADER_PATH: Final = Path(__file__).parent / "native" / "tw_runtime.h"
"""The C header with the kernel ABI, for those who compile C against it."""
ENTRY_PATH: Final = Path(__file__).parent / "export" / "entry.c"
"""The C source of the entry point of models that are exported to C."""

ALIGNMENT: Final = 64
"""Alignment in bytes of all memory the runtime hands out (TW_ALIGNMENT)."""
VERSION: Final = 6
"""Version of the library that this module was written for (TW_VERSION)."""
NO_MEMORY: Final = -1
"""Result of a run that found no memory (TW_NO_MEMORY)."""
OUT_OF_RANGE: Final = -2
"""Result of a run that found a number outside of its range (TW_OUT_OF_RANGE)."""
STOPPED: Final = -3
"""Result of a run that was ended between kernels (TW_STOPPED)."""
FIRST: Final = -1
"""The step of checks that are made before any step (TW_FIRST)."""
INPUT, OUTPUT, CONSTANT, ARENA = range(4)
"""Kinds of `Place` (TW_INPUT ...)."""

_HINT = "run `pip install .`, or in a checkout `python setup.py build_ext --inplace`"


class Value(ctypes.Structure):
    """tw_value: the value of a kernel's parameter."""

    _fields_ = (("index", c_int64), ("value", c_int64))


class Place(ctypes.Structure):
    """tw_place: where an argument of a kernel lies."""

    _fields_ = (
        ("kind", c_int32),
        ("index", c_int32),
        ("offset", Value),
        ("advance", Value),
        ("first", c_int64),
    )


class Step(ctypes.Structure):
    """tw_step: one kernel call."""

    _fields_ = (
        ("kernel", c_void_p),
        ("place_count", c_int64),
        ("value_count", c_int64),
        ("repeat", Value),
        ("section", c_int32),
        ("lane", c_int32),
    )


class Check(ctypes.Structure):
    """tw_check: numbers that a step takes as places."""

    _fields_ = (
        ("place", Place),
        ("step", c_int64),
        ("count", Value),
        ("stride", c_int64),
        ("low", Value),
        ("high", Value),
        ("bytes", c_int32),
        ("is_signed", c_int32),
    )


class Copy(ctypes.Structure):
    """tw_copy: an output that is written when all steps have run."""

    _fields_ = (("source", Place), ("target", Place), ("bytes", Value))


class Failure(ctypes.Structure):
    """tw_failure: where a run failed."""

    _fields_ = (("step", c_int64), ("check", c_int64), ("at", c_int64), ("number", c_int64))


class PlanDescription(ctypes.Structure):
    """tw_plan_description: a whole plan."""

    _fields_ = (
        ("steps", POINTER(Step)),
        ("step_count", c_int64),
        ("places", POINTER(Place)),
        ("place_count", c_int64),
        ("values", POINTER(Value)),
        ("value_count", c_int64),
        ("checks", POINTER(Check)),
        ("check_count", c_int64),
        ("copies", POINTER(Copy)),
        ("copy_count", c_int64),
        ("constants", POINTER(c_void_p)),
        ("constant_count", c_int64),
        ("slots", POINTER(Value)),
        ("slot_count", c_int64),
        ("workspace_bytes", c_int64),
        ("scratch_bytes", c_int64),
    )


_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "tw_version": (c_int32, []),
    "tw_now_ns": (c_int64, []),
    "tw_alloc": (c_void_p, [c_int64]),
    "tw_release": (None, [c_void_p]),
    "tw_memory_trim": (None, []),
    "tw_guarded_alloc": (c_void_p, [c_int64, c_int64, c_int32, POINTER(c_void_p), POINTER(c_int64)]),
    "tw_guarded_release": (None, [c_void_p, c_int64]),
    "tw_pool_create": (c_void_p, [c_int32, c_int64, POINTER(c_int32)]),
    "tw_pool_shutdown": (None, [c_void_p]),
    "tw_pool_destroy": (None, [c_void_p]),
    "tw_pool_fork_join_ns": (c_double, [c_void_p, c_int32]),
    "tw_plan_create": (c_void_p, [c_void_p, POINTER(PlanDescription)]),
    "tw_plan_destroy": (None, [c_void_p]),
    "tw_plan_trim": (None, [c_void_p]),
    "tw_plan_reserve": (c_int32, [c_void_p, c_void_p]),
    "tw_stop_by": (c_void_p, [c_void_p]),
    "tw_plan_run": (
        c_int32,
        [
            c_void_p,
            c_void_p,
            c_void_p,
            c_void_p,
            c_int64,
            c_void_p,
            c_void_p,
        ],
    ),
}


@cache
def library() -> ctypes.CDLL:
    """The loaded library, its functions typed. Raises InstallationError if it is missing or outdated."""
    return load_library(LIBRARY_PATH)


def load_library(path: Path) -> ctypes.CDLL:
    """Load and check a build of the library.

    Raises InstallationError where there is none, or one of another version.
    """
    if not path.exists():
        raise InstallationError(f"the native runtime {path.name} has not been built", hint=_HINT)
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise InstallationError(f"the native runtime cannot be loaded: {error}", hint=_HINT) from error
    if (found := loaded.tw_version()) != VERSION:
        raise InstallationError(f"the native runtime has version {found}, not {VERSION}", hint=_HINT)
    return loaded


def now_ns() -> int:
    """Nanoseconds on the monotonic clock, the one that plans are timed with."""
    return int(library().tw_now_ns())
