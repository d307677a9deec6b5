"""Compiled objects kept on disk, by the digest of everything they depend on.

A file holds a header (format, digest of the content, size) and the content. Files are written under a
temporary name and renamed, so that a reader sees a whole file or none, with any number of processes at work.
A file that does not fit its header counts as absent and is removed. Reading marks a file as used; when the
folder outgrows its bound, files go by age of their last use.

Objects become code of this process, so the folder must belong to this user and be writable by no other. The
cache is a convenience: what goes wrong with the disk is logged and costs time, never a compilation.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.support import Settings, format_bytes, get_logger

FORMAT: Final = 1
"""Version of the files and of their layout in folders."""

SIZE_BOUND: Final = 512 << 20
"""Bytes that the folder may hold; a model has about one megabyte of objects."""

LOW_WATER: Final = 0.75
"""Share of the bound that is kept when files must go, so that not every write evicts."""

WRITES_BETWEEN_CHECKS: Final = 64
"""Of so many writes one looks at the folder's size again: listing it costs about as much as one compilation.
Which one its key says, as most processes write less often.
"""

TEMPORARY_PREFIX: Final = ".new-"
ABANDONED_AFTER: Final = 3600.0
"""Seconds after which a temporary file belongs to a process that died."""

_MAGIC: Final = b"TWOBJ\0"
_DIGEST_BYTES: Final = 20
_HEADER: Final = struct.Struct(f"<6sH{_DIGEST_BYTES}sQ")
_log = get_logger("codegen.cache")


@dataclass(slots=True)
class ObjectCache:
    """The objects below ``folder``; safe with several threads and processes."""

    folder: Path
    size_bound: int = SIZE_BOUND
    _usable: bool | None = field(init=False, default=None)

    def get(self, key: str) -> bytes | None:
        """The object stored under ``key``; ``None`` where there is none that can be trusted."""
        if not self._ready():
            return None
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.info("cannot read the object cache: %s", error)
            return None
        content = _unpack(raw)
        if content is None:
            _log.warning("dropping a damaged file from the object cache: %s", path.name)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an object under ``key``; what is there already is replaced."""
        if not self._ready():
            return
        path = self._path(key)
        temporary = ""
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(_pack(content))
            os.replace(temporary, path)
        except OSError as error:
            _log.info("cannot write the object cache: %s", error)
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return
        if int(key[-4:], 16) % WRITES_BETWEEN_CHECKS == 0:
            self.evict()

    def evict(self) -> None:
        """Remove the files longest unused until the folder is within its bound, and abandoned temporaries."""
        found: list[tuple[float, int, Path]] = []
        newest = 0.0
        for path, status in self._files():
            newest = max(newest, status.st_mtime)
            found.append((status.st_mtime, status.st_size, path))
        for used, _, path in found:
            if path.name.startswith(TEMPORARY_PREFIX) and used < newest - ABANDONED_AFTER:
                with contextlib.suppress(OSError):
                    path.unlink()
        kept = sorted(entry for entry in found if not entry[2].name.startswith(TEMPORARY_PREFIX))
        if sum(size for _, size, _ in kept) <= self.size_bound:
            return
        total, removed = 0, 0
        for _, size, path in reversed(kept):
            total += size
            if total > LOW_WATER * self.size_bound:
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed += 1
        _log.info("removed %d files from the object cache (%s)", removed, format_bytes(self.size_bound))

    def _ready(self) -> bool:
        if self._usable is None:
            self._usable = _private_folder(self.folder)
        return self._usable

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.o"

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            folders = list(self.folder.iterdir())
        except OSError:
            return
        for folder in folders:
            try:
                paths = list(folder.iterdir())
            except OSError:
                continue
            for path in paths:
                with contextlib.suppress(OSError):
                    yield path, path.stat()


def open_cache(settings: Settings) -> ObjectCache | None:
    """The cache that the settings ask for; ``None`` where they turn it off."""
    if not settings.cache:
        return None
    return ObjectCache(settings.cache_dir / "objects" / f"v{FORMAT}")


def _private_folder(folder: Path) -> bool:
    """Make the folder; whether it can be used and only by this user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        _log.warning("no object cache: %s", error)
        return False
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _log.warning("no object cache: %s belongs to, or can be written by, another user", folder)
        return False
    return True


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _pack(content: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, FORMAT, _digest(content), len(content)) + content


def _unpack(raw: bytes) -> bytes | None:
    if len(raw) < _HEADER.size:
        return None
    magic, version, digest, size = _HEADER.unpack_from(raw)
    content = raw[_HEADER.size :]
    if magic != _MAGIC or version != FORMAT or size != len(content) or digest != _digest(content):
        return None
    return content
