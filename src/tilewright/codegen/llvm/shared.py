"""Shared libraries from objects, written in this process: saving a model needs neither linker nor C compiler.

Only x86-64, and only what generated code consists of: position-independent functions, constants, calls of one
another and of the C library. Layout: System V ABI, ch. 4 and 5, and its AMD64 supplement, ch. 4.4 (the
relocations).

The file is three segments, each on pages of its own: tables and constants (read), functions and a jump to
each function from outside (execute), and addresses that the dynamic loader fills in (write).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tilewright.codegen.llvm.symbols import Relocation, Section, Symbol, read_object
from tilewright.support import InternalError

NEEDED: Final = ("libm.so.6", "libc.so.6")
"""Libraries that have what generated code calls (``loader.LIBRARY_SYMBOLS``)."""

_X86_64: Final = 62
_PAGE: Final = 4096
_NOBITS: Final = 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_ABSOLUTE, _PLACE, _CALL = 1, 2, 4
_SLOTS: Final = (9, 41, 42)
_SLOT_FILLED, _RELATIVE = 6, 8
_READ, _CODE, _DATA = range(3)
_ACCESS: Final = (4, 5, 6)
_HEADERS: Final = 64 + 5 * 56
_DYNAMIC_BYTES: Final = 16 * 16
_JUMP: Final = 8

_Where = tuple[int, int]
"""A segment, and an offset in it."""


def can_link(objects: Sequence[bytes]) -> bool:
    """Whether the objects are of the machine that :func:`shared_library` knows."""
    return all(content[18:20] == struct.pack("<H", _X86_64) for content in objects)


def shared_library(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """A shared library of the objects, which shows the functions ``exports`` and nothing else.

    Raises InternalError for objects with anything that generated code never has.
    """
    link = _Link()
    for content in objects:
        link.add(content)
    return link.finished(exports)


class _Link:
    """One library in the making: what is placed, and what has to be filled in once all is."""

    def __init__(self) -> None:
        self.segments = (bytearray(), bytearray(), bytearray(_DYNAMIC_BYTES))
        self.defined: dict[str, _Where] = {}
        self.base: tuple[int, ...] = ()
        self.pending: list[tuple[_Where, int, _Where | str, int]] = []

    def add(self, content: bytes) -> None:
        """Place an object's sections; note what its relocations ask for."""
        sections, symbols, relocations = read_object(content)
        places = {
            number: self._place(section) for number, section in enumerate(sections) if section.flags & _ALLOC
        }
        known: list[_Where | str] = []
        for symbol in symbols:
            known.append(self._resolved(symbol, places))
            if symbol.is_global and symbol.section:
                self.defined[symbol.name] = (
                    places[symbol.section][0],
                    places[symbol.section][1] + symbol.value,
                )
        for each in relocations:
            self._note(each, places, known)

    def _place(self, section: Section) -> _Where:
        kind = _CODE if section.flags & _EXECUTE else _DATA if section.flags & _WRITE else _READ
        segment = self.segments[kind]
        segment += bytes(-len(segment) % max(section.alignment, 1))
        at = len(segment)
        segment += bytes(section.size) if section.kind == _NOBITS else section.content
        return kind, at

    def _resolved(self, symbol: Symbol, places: dict[int, _Where]) -> _Where | str:
        if symbol.section == 0 or symbol.is_global:
            return symbol.name
        segment, at = places.get(symbol.section, (_READ, 0))
        return segment, at + symbol.value

    def _note(self, each: Relocation, places: dict[int, _Where], known: list[_Where | str]) -> None:
        if each.section in places:
            segment, at = places[each.section]
            self.pending.append(((segment, at + each.offset), each.kind, known[each.symbol], each.addend))

    def finished(self, exports: Sequence[str]) -> bytes:
        """The library's bytes."""
        if missing := sorted(set(exports) - set(self.defined)):
            raise InternalError(f"no object defines {missing[0]!r}")
        targets = [target for _, _, target, _ in self.pending if isinstance(target, str)]
        outside = sorted(set(targets) - set(self.defined))
        slots: dict[_Where | str, _Where] = {}
        for _, kind, target, _ in self.pending:
            if target not in slots and (kind in _SLOTS or target in outside):
                slots[target] = self._reserve(_DATA, 8)
        jumps = {name: self._reserve(_CODE, _JUMP) for name in outside}
        filled = len(slots) + sum(kind == _ABSOLUTE for _, kind, _, _ in self.pending)
        names = _Names([*outside, *exports], NEEDED if outside else ())
        base = self.base = self._bases(names.size + filled * 24)

        def address(target: _Where | str) -> int:
            segment, at = target if isinstance(target, tuple) else self.defined[target]
            return base[segment] + at

        symbols = [(name, 0) for name in outside] + [(name, address(name)) for name in exports]
        filling = []
        for target, slot in slots.items():
            if target in jumps:
                filling.append((address(slot), (names.number(str(target)) << 32) | _SLOT_FILLED, 0))
            else:
                filling.append((address(slot), _RELATIVE, address(target)))
        for name, jump in jumps.items():
            distance = address(slots[name]) - (address(jump) + 6)
            self._write(jump, b"\xff\x25" + struct.pack("<i", distance))  # jmp *slot(%rip)
        for site, kind, target, addend in self.pending:
            here = address(site)
            if kind in _SLOTS:
                self._write(site, struct.pack("<i", address(slots[target]) + addend - here))
            elif kind in (_PLACE, _CALL):
                there = jumps[str(target)] if target in jumps else target
                self._write(site, struct.pack("<i", address(there) + addend - here))
            elif kind == _ABSOLUTE and target not in jumps:
                filling.append((here, _RELATIVE, address(target) + addend))
            else:
                raise InternalError(f"generated code has a relocation {kind} of {target!r}")
        tables = names.tables(symbols, outside, filling)
        self._write((_DATA, 0), names.dynamic(filled))
        return self._file(tables)

    def _reserve(self, kind: int, size: int) -> _Where:
        segment = self.segments[kind]
        segment += bytes(-len(segment) % 8)
        segment += bytes(size)
        return kind, len(segment) - size

    def _write(self, where: _Where, content: bytes) -> None:
        segment, at = where
        self.segments[segment][at : at + len(content)] = content

    def _bases(self, tables: int) -> tuple[int, ...]:
        """Where each segment's content begins, in the file as in memory."""
        read = _up(_HEADERS + tables, 64)
        code = _up(read + len(self.segments[_READ]), _PAGE)
        return read, code, _up(code + len(self.segments[_CODE]), _PAGE)

    def _file(self, tables: bytes) -> bytes:
        end = self.base[_DATA] + len(self.segments[_DATA])
        out = bytearray(end)
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        out[:64] = ident + struct.pack("<HHIQQQIHHHHHH", 3, _X86_64, 1, 0, 64, 0, 0, 64, 56, 5, 64, 0, 0)
        begins = (0, self.base[_CODE], self.base[_DATA])
        sizes = [at + len(content) for at, content in zip(self.base, self.segments, strict=True)]
        headers = [
            (1, access, begin, size - begin, _PAGE)
            for access, begin, size in zip(_ACCESS, begins, sizes, strict=True)
        ]
        headers += [(2, 6, self.base[_DATA], _DYNAMIC_BYTES, 8), (0x6474E551, 6, 0, 0, 16)]  # dynamic, stack
        for number, (kind, access, at, size, alignment) in enumerate(headers):
            fields = struct.pack("<IIQQQQQQ", kind, access, at, at, at, size, size, alignment)
            out[64 + 56 * number : 120 + 56 * number] = fields
        out[_HEADERS : _HEADERS + len(tables)] = tables
        for at, content in zip(self.base, self.segments, strict=True):
            out[at : at + len(content)] = content
        return bytes(out)


class _Names:
    """The tables that the dynamic loader reads: symbols, names, one hash chain, addresses to fill in."""

    def __init__(self, symbols: Sequence[str], needed: Sequence[str]) -> None:
        self.strings, self.at = bytearray(1), {"": 0}
        for name in (*symbols, *needed):
            self.at[name] = len(self.strings)
            self.strings += name.encode("ascii") + b"\0"
        self.strings += bytes(-len(self.strings) % 8)
        self.symbols, self.needed = tuple(symbols), tuple(needed)
        self.symbol_bytes = 24 * (len(symbols) + 1)
        self.hash_bytes = _up(4 * (3 + len(symbols) + 1), 8)

    @property
    def size(self) -> int:
        """Bytes of all tables but the last one, which has 24 an address to fill in."""
        return self.symbol_bytes + len(self.strings) + self.hash_bytes

    def number(self, name: str) -> int:
        """The number of a symbol in the table."""
        return self.symbols.index(name) + 1

    def tables(
        self,
        symbols: Sequence[tuple[str, int]],
        outside: Sequence[str],
        filling: Sequence[tuple[int, int, int]],
    ) -> bytes:
        """All tables, in their order."""
        out = bytearray(24)
        for name, address in symbols:
            section = 0 if name in outside else 1  # any but none: there is no table of sections
            out += struct.pack("<IBBHQQ", self.at[name], (1 << 4) | 2, 0, section, address, 0)
        out += self.strings
        count = len(symbols) + 1
        chain = [0, *range(2, count), 0][:count]  # one bucket: every symbol leads to the next
        table = struct.pack(f"<{3 + count}I", 1, count, 1 if count > 1 else 0, *chain)
        out += table + bytes(self.hash_bytes - len(table))
        for each in filling:
            out += struct.pack("<QQq", *each)
        return bytes(out)

    def dynamic(self, filled: int) -> bytes:
        """The dynamic section: where the tables are."""
        strings = _HEADERS + self.symbol_bytes
        chains = strings + len(self.strings)
        entries = [(1, self.at[name]) for name in self.needed]
        entries += [(4, chains), (5, strings), (6, _HEADERS), (10, len(self.strings)), (11, 24)]
        entries += [
            (7, chains + self.hash_bytes),
            (8, filled * 24),
            (9, 24),
            (24, 0),
            (30, 8),
        ]  # bind at once
        return b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (0, 0)])


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
