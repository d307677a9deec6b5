"""The file of a saved model: a header, a manifest in JSON, and sections of raw bytes.

    header    64 bytes, little-endian: magic, format, size of the header, bytes of the manifest, bytes of the
              file, SHA-256 of the manifest
    manifest  ASCII JSON; its entry ``sections`` states for each section its offset from the first page after
              the manifest, its bytes and its SHA-256
    sections  each at a multiple of ``PAGE``, so that its memory can be mapped and is aligned as kernels want

The digests find damage, not malice: a saved model holds machine code, and is to be trusted as a program is.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.support import ArtefactError, ResourceError, format_bytes, quoted, quoted_path, replacing

FORMAT: Final = 1
"""Version of header and sections. The manifest has a version of its own."""
PAGE: Final = 4096
"""Sections begin at multiples of this."""
MANIFEST_BOUND: Final = 256 << 20
"""Bytes that a manifest may have; that of a large model has about one million."""

MAGIC: Final = b"\x89TWM\r\n\x1a\n"  # as PNG's: shows a file that was sent as text
_HEADER: Final = struct.Struct("<8sIIQQ32s")
_SAVE_AGAIN: Final = "save the model again"


Piece = bytes | memoryview
"""Some bytes of a section; a memoryview must be of bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """An open file: its manifest, and its sections as memory mapped from the file."""

    manifest: dict[str, Any]
    sections: Mapping[str, memoryview]


def write_container(path: Path, manifest: Mapping[str, Any], sections: Mapping[str, Sequence[Piece]]) -> None:
    """Write a file, whole or not at all: what was there before stays until the last moment.

    ``manifest`` is plain data without the entry ``sections``; each section is a sequence of pieces. Raises
    ArtefactError where the file cannot be written.
    """
    entries: dict[str, dict[str, int | str]] = {}
    end = 0
    for name, pieces in sections.items():
        hashed = hashlib.sha256()
        for piece in pieces:
            hashed.update(piece)
        nbytes = sum(map(len, pieces))
        entries[name] = {"offset": end, "bytes": nbytes, "sha256": hashed.hexdigest()}
        end = _whole(end + nbytes)
    text = json.dumps({**manifest, "sections": entries}, separators=(",", ":"), allow_nan=False).encode(
        "ascii"
    )
    base = _whole(_HEADER.size + len(text))
    header = _HEADER.pack(MAGIC, FORMAT, _HEADER.size, len(text), base + end, hashlib.sha256(text).digest())
    try:
        with replacing(path) as file:
            file.write(header + text)
            for name, pieces in sections.items():
                file.seek(base + int(entries[name]["offset"]))
                file.writelines(pieces)
            file.truncate(base + end)
    except OSError as error:
        raise ArtefactError(f"cannot write {quoted_path(path)}: {error.strerror or error}") from None


def open_container(path: Path, *, verify: bool = True) -> Container:
    """Open a file and check it: format, sizes, and with ``verify`` the digests of all sections.

    The manifest's digest is always checked. Raises ArtefactError naming the file and what is wrong with it.
    """
    shown = quoted_path(path)
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            if head[: len(MAGIC)] != MAGIC:
                raise ArtefactError(f"{shown} is not a saved model", hint="CompiledModel.save writes them")
            size = os.fstat(file.fileno()).st_size
            if len(head) < _HEADER.size:
                raise ArtefactError(f"{shown} is cut short: {format_bytes(size)}", hint=_SAVE_AGAIN)
            _, version, header_bytes, manifest_bytes, file_bytes, expected = _HEADER.unpack(head)
            if version != FORMAT or header_bytes != _HEADER.size:
                raise newer_or_older(shown, "format", version, FORMAT)
            if size != file_bytes:
                raise ArtefactError(
                    f"{shown} has {size} bytes, but was written with {file_bytes}", hint=_SAVE_AGAIN
                )
            if manifest_bytes > min(MANIFEST_BOUND, size - _HEADER.size):
                raise ArtefactError(f"{shown} states a manifest of {manifest_bytes} bytes", hint=_SAVE_AGAIN)
            text = file.read(manifest_bytes)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ArtefactError(f"cannot read {shown}: {error.strerror or error}") from None
    except MemoryError:
        raise ResourceError(f"no memory to read {shown}") from None
    if hashlib.sha256(text).digest() != expected:
        raise ArtefactError(f"the manifest of {shown} has been altered", hint=_SAVE_AGAIN)
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        raise ArtefactError(f"the manifest of {shown} is not JSON") from None
    if not isinstance(manifest, dict):
        raise ArtefactError(f"the manifest of {shown} is not an object")
    base = _whole(_HEADER.size + manifest_bytes)
    sections = _sections(manifest.get("sections"), memoryview(mapped)[base:], shown, verify)
    return Container(manifest, sections)


def newer_or_older(shown: str, what: str, found: int, known: int) -> ArtefactError:
    """The error for a file of another version."""
    hint = "install a newer Tilewright, or save the model again" if found > known else _SAVE_AGAIN
    return ArtefactError(f"{shown} has {what} {found}, this Tilewright reads {what} {known}", hint=hint)


def _sections(entries: object, content: memoryview, shown: str, verify: bool) -> dict[str, memoryview]:
    sections: dict[str, memoryview] = {}
    if not isinstance(entries, dict):
        raise ArtefactError(f"the manifest of {shown} states no sections")
    for name, entry in entries.items():
        stated = entry if isinstance(entry, dict) else {}
        offset, nbytes, expected = (stated.get(key) for key in ("offset", "bytes", "sha256"))
        if type(offset) is not int or type(nbytes) is not int or offset % PAGE or min(offset, nbytes) < 0:
            raise ArtefactError(f"the manifest of {shown} does not say where the section {quoted(name)} is")
        if offset + nbytes > len(content):
            raise ArtefactError(f"the section {quoted(name)} of {shown} is not all there", hint=_SAVE_AGAIN)
        sections[name] = content[offset : offset + nbytes]
        if verify and hashlib.sha256(sections[name]).hexdigest() != expected:
            raise ArtefactError(f"the section {quoted(name)} of {shown} has been altered", hint=_SAVE_AGAIN)
    return sections


def _whole(nbytes: int) -> int:
    """Bytes rounded up to whole pages."""
    return -(-nbytes // PAGE) * PAGE
