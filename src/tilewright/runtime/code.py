"""Machine code of a saved model in this process."""

from __future__ import annotations

import ctypes
import os
import weakref
from ctypes import c_void_p

from tilewright.support import ArtefactError


class SharedCode:
    """A shared library held in memory; its functions may be called as long as this value lives."""

    def __init__(self, content: memoryview, shown: str) -> None:
        """Load the library through a nameless file in memory. Raises ArtefactError where it cannot be."""
        try:
            # The file stays open: its number names the library, and must not name another one meanwhile.
            file = os.memfd_create("tilewright", os.MFD_CLOEXEC)
            try:
                left = content
                while left:
                    left = left[os.write(file, left) :]
                self._library = ctypes.CDLL(f"/proc/self/fd/{file}")
            except OSError:
                os.close(file)
                raise
        except OSError as error:
            raise ArtefactError(f"the code of {shown} cannot be loaded: {error}") from None
        self._shown = shown
        weakref.finalize(self, _unload, self._library._handle, file).atexit = False

    def address(self, name: str) -> int:
        """The address of a function. Raises ArtefactError where there is none of that name."""
        function = getattr(self._library, name, None)
        address = None if function is None else ctypes.cast(function, c_void_p).value
        if not address:
            raise ArtefactError(f"the code of {self._shown} does not hold {name}")
        return address


def _unload(handle: int, file: int) -> None:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [c_void_p]
    close(handle)
    os.close(file)
