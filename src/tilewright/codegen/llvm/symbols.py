"""Reading the symbol table of an object file: what it defines and what it needs.

Only 64-bit little-endian ELF, the format of every supported target. Layout: System V ABI, ch. 4 (object
files).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tilewright.support import InternalError

_MAGIC: Final = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_SYMTAB: Final = 2
_GLOBAL, _WEAK = 1, 2
_FUNCTION: Final = 2


@dataclass(frozen=True, slots=True)
class Symbols:
    """The global functions an object defines, and the names it leaves to be resolved; both sorted."""

    functions: tuple[str, ...]
    undefined: tuple[str, ...]


def read_symbols(content: bytes) -> Symbols:
    """The symbols of an object file. Raises InternalError where the bytes are not a whole ELF object."""
    if content[:6] != _MAGIC:
        raise InternalError("bytes to load are not a 64-bit ELF object")
    try:
        return _read(content)
    except (struct.error, IndexError, ValueError) as error:
        raise InternalError(f"bytes to load are a damaged ELF object ({error})") from None


def _read(content: bytes) -> Symbols:
    offset, entry_size, count = (
        struct.unpack_from("<Q", content, 0x28)[0],
        *struct.unpack_from("<HH", content, 0x3A),
    )
    if offset + entry_size * count > len(content):
        raise ValueError("section table beyond the end")
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, offset + entry_size * n) for n in range(count)]
    functions: set[str] = set()
    undefined: set[str] = set()
    for _, kind, _, _, start, size, link, _, _, _ in sections:
        if kind != _SYMTAB:
            continue
        if start + size > len(content):
            raise ValueError("symbol table beyond the end")
        names_start, names_size = sections[link][4], sections[link][5]
        names = content[names_start : names_start + names_size]
        for at in range(start, start + size, 24):
            name_at, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", content, at)
            if info >> 4 not in (_GLOBAL, _WEAK):
                continue
            name = names[name_at : names.index(b"\0", name_at)].decode("ascii", "replace")
            if section == 0:
                undefined.add(name)
            elif info & 15 == _FUNCTION:
                functions.add(name)
    return Symbols(tuple(sorted(functions)), tuple(sorted(undefined)))
