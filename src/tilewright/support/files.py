"""Writing files: whole or not at all, and never in place of what is no file."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream of what shall be the content of ``path`` when the block ends; nothing if it raises.

    Symbolic links are followed: what they name is replaced. A new file gets the permissions that the process
    gives to files (its umask), another one keeps its own. Raises OSError where that cannot be: also for a
    device, a pipe and whatever else is no regular file.
    """
    target = replaceable(path)
    temporary = target.with_name(f".tilewright-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            if target.exists():
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
            yield stream
            stream.flush()
            os.fsync(handle)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replaceable(path: str | os.PathLike[str]) -> Path:
    """The file behind a path, all links followed. Raises OSError where there is something, but no file."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        kind = "a directory" if target.is_dir() else "not a regular file"
        raise OSError(errno.EINVAL, f"it is {kind}")
    return target
