"""Loading object code into this process.

Objects go through LLVM's ORC linker (JITLink): 0.2 ms an object, and the memory of an unloaded object is free
again. Code is reachable only through :class:`LoadedObject`, which keeps it in memory.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import threading
from functools import lru_cache
from typing import Any, Final

import llvmlite.binding as llvm

from tilewright.codegen.llvm import machine
from tilewright.codegen.llvm.symbols import read_symbols
from tilewright.support import InternalError

LIBRARY_SYMBOLS: Final = ("memcpy", "memmove", "memset", "fma", "fmaf", "fmod", "fmodf")
"""Functions of the C library that LLVM's code generation may call: all that loaded code can reach outside
itself.
"""

LOADS_PER_SESSION: Final = 256
"""Loads after which a session of the linker is left to its objects: it keeps 10 KB of each until it ends."""


class Loader:
    """Links objects into this process; they can be freed one by one. Safe to use from several threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._session: Any = None

    def _open_session(self) -> tuple[Any, int]:
        """The session to load into, and a number that is new in it."""
        with self._lock:
            number = next(self._numbers)
            if number % LOADS_PER_SESSION == 0:
                self._session = llvm.create_lljit_compiler(machine.jit_machine(), use_jit_link=True)
            return self._session, number

    def load(self, *objects: bytes) -> LoadedObject:
        """Link objects together and into this process; they may call each other and ``LIBRARY_SYMBOLS``.

        Raises InternalError for bytes that are no object, and for a call of any other function.
        """
        symbols = [read_symbols(content) for content in objects]
        defined = {name for each in symbols for name in each.functions}
        library = llvm.JITLibraryBuilder()
        outside = _library_symbols()
        for name in sorted({name for each in symbols for name in each.undefined} - defined):
            if name not in outside:
                raise InternalError(f"generated code calls {name!r}, which is nowhere defined")
            library.import_symbol(name, outside[name])
        for content in objects:
            library.add_object_img(content)
        for name in defined:
            library.export_symbol(name)
        try:
            session, number = self._open_session()
            tracker = library.link(session, f"tilewright.{number}")
        except RuntimeError as error:
            raise InternalError(f"cannot load object code: {machine.first_line(str(error))}") from None
        # a session must end after what was loaded into it: this reference is dropped after the tracker's
        # finaliser
        tracker.session = session
        return LoadedObject(tracker, {name: int(tracker[name]) for name in defined}, objects)


class LoadedObject:
    """Code in this process. Its functions may be called as long as this value lives and is not closed."""

    __slots__ = ("_addresses", "_tracker", "objects")

    def __init__(self, tracker: Any, addresses: dict[str, int], objects: tuple[bytes, ...]) -> None:
        self._tracker = tracker
        self._addresses = addresses
        self.objects = objects
        """The object code that was loaded, for saving it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The functions that can be called, sorted."""
        return tuple(sorted(self._addresses))

    def address(self, name: str) -> int:
        """The address of a function; raises InternalError for one that is not there, or is no longer."""
        if self._tracker is None:
            raise InternalError(f"function {name!r} was asked for after its code had been unloaded")
        if name not in self._addresses:
            known = ", ".join(self.names) or "none"
            raise InternalError(f"no function {name!r} in loaded code; there are {known}")
        return self._addresses[name]

    def close(self) -> None:
        """Unload the code; no function of it may be running or be called again."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.close()


@lru_cache(maxsize=1)
def shared_loader() -> Loader:
    """The loader of this process, made on first use."""
    return Loader()


def load_object(*objects: bytes) -> LoadedObject:
    """Load object code through the process's loader, see :meth:`Loader.load`."""
    return shared_loader().load(*objects)


@lru_cache(maxsize=1)
def _library_symbols() -> dict[str, int]:
    libraries = [ctypes.CDLL(None)]
    found = ctypes.util.find_library("m")
    if found is not None:
        libraries.append(ctypes.CDLL(found))
    addresses: dict[str, int] = {}
    for name in LIBRARY_SYMBOLS:
        for library in libraries:
            function = getattr(library, name, None)
            address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
            if address:
                addresses[name] = address
                break
    return addresses
