"""What a process must ask the kernel for before it may use it."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import Final

#: ``arch_prctl`` of Linux on x86-64, its request for the state of a unit, and the number of tiles' data.
_ARCH_PRCTL: Final = 158
_REQUEST_STATE: Final = 0x1023
_TILE_DATA: Final = 18


@cache
def allow_tiles() -> bool:
    """Whether this process, with all its threads, may use the tile registers of AMX: asks for them, once."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    library = ctypes.CDLL(None)
    library.syscall.restype = ctypes.c_long
    arguments = [ctypes.c_long(n) for n in (_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA)]
    return int(library.syscall(*arguments)) == 0
