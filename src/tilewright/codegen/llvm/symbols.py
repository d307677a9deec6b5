"""Object files: what they define and need, other names for their functions, and all of what a linker asks.

Only 64-bit little-endian ELF, the format of every supported target. Layout: System V ABI, ch. 4 (object
files).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.support import InternalError

_MAGIC: Final = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_SYMTAB, _RELOCATIONS = 2, 4
_GLOBAL, _WEAK = 1, 2
_FUNCTION: Final = 2
_SECTION_BYTES: Final = 64
_SYMBOL_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Symbols:
    """The global functions an object defines, and the names it leaves to be resolved; both sorted."""

    functions: tuple[str, ...]
    undefined: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its type and flags (``sh_type``, ``sh_flags``), its bytes and how they are aligned."""

    kind: int
    flags: int
    alignment: int
    size: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: the number of its section (0: elsewhere), and where it is in that."""

    name: str
    is_global: bool
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """What to write at an offset of a section once the symbol has its place; kinds are the machine's."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


def read_object(content: bytes) -> tuple[list[Section], list[Symbol], list[Relocation]]:
    """Everything in an object file, symbols and sections in their order. Raises as :func:`read_symbols`."""
    read_symbols(content)
    table, _ = _sections(content)
    sections = [
        Section(kind, flags, alignment, size, content[start : start + size])
        for _, kind, flags, _, start, size, _, _, alignment, _ in table
    ]
    symbols: list[Symbol] = []
    relocations: list[Relocation] = []
    for _, kind, _, _, start, size, link, info, _, _ in table:
        if kind == _SYMTAB:
            names = _names(content, table[link])
            for at in range(start, start + size, _SYMBOL_BYTES):
                name, mark, _, section, value, _ = struct.unpack_from("<IBBHQQ", content, at)
                symbols.append(Symbol(_name(names, name), mark >> 4 in (_GLOBAL, _WEAK), section, value))
        elif kind == _RELOCATIONS:
            for at in range(start, start + size, _SYMBOL_BYTES):
                offset, what, addend = struct.unpack_from("<QQq", content, at)
                relocations.append(Relocation(info, offset, what & 0xFFFFFFFF, what >> 32, addend))
    return sections, symbols, relocations


def read_symbols(content: bytes) -> Symbols:
    """The symbols of an object file. Raises InternalError where the bytes are not a whole ELF object."""
    if content[:6] != _MAGIC:
        raise InternalError("bytes to load are not a 64-bit ELF object")
    try:
        return _read(content)
    except (struct.error, IndexError, ValueError) as error:
        raise InternalError(f"bytes to load are a damaged ELF object ({error})") from None


def rename_functions(content: bytes, names: Mapping[str, str]) -> bytes:
    """The object with global names replaced, old to new, where they are defined and where they are called.

    The new names are appended to a copy of the table of names, so that nothing else moves. Raises
    InternalError where the bytes are not a whole ELF object.
    """
    read_symbols(content)
    sections, table_at = _sections(content)
    out = bytearray(content)
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        start, size, link = section[4], section[5], section[6]
        strings = bytearray(_names(content, sections[link]))
        for at in range(start, start + size, _SYMBOL_BYTES):
            name_at, info = struct.unpack_from("<IB", content, at)
            new = names.get(_name(strings, name_at)) if info >> 4 in (_GLOBAL, _WEAK) else None
            if new is not None:
                struct.pack_into("<I", out, at, len(strings))
                strings += new.encode("ascii") + b"\0"
        out += bytes(-len(out) % 16)
        struct.pack_into("<QQ", out, table_at + link * _SECTION_BYTES + 0x18, len(out), len(strings))
        out += strings
    return bytes(out)


def _read(content: bytes) -> Symbols:
    functions: set[str] = set()
    undefined: set[str] = set()
    sections, _ = _sections(content)
    for _, kind, _, _, start, size, link, _, _, _ in sections:
        if kind != _SYMTAB:
            continue
        if start + size > len(content):
            raise ValueError("symbol table beyond the end")
        names = _names(content, sections[link])
        for at in range(start, start + size, _SYMBOL_BYTES):
            name_at, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", content, at)
            if info >> 4 not in (_GLOBAL, _WEAK):
                continue
            name = _name(names, name_at)
            if section == 0:
                undefined.add(name)
            elif info & 15 == _FUNCTION:
                functions.add(name)
    return Symbols(tuple(sorted(functions)), tuple(sorted(undefined)))


def _sections(content: bytes) -> tuple[list[tuple[int, ...]], int]:
    """The section headers (Elf64_Shdr), and where their table begins."""
    offset = struct.unpack_from("<Q", content, 0x28)[0]
    entry_size, count = struct.unpack_from("<HH", content, 0x3A)
    if entry_size != _SECTION_BYTES or offset + entry_size * count > len(content):
        raise ValueError("section table beyond the end")
    return [struct.unpack_from("<IIQQQQIIQQ", content, offset + entry_size * n) for n in range(count)], offset


def _names(content: bytes, section: tuple[int, ...]) -> bytes:
    return content[section[4] : section[4] + section[5]]


def _name(names: bytes | bytearray, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode("ascii", "replace")
