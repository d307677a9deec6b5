"""What commands write to files: each whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tilewright.support import InputError, quoted


def write_text(path: str, text: str) -> None:
    """Write text: the file appears whole or not at all. Raises InputError where it cannot."""
    write_bytes(path, text.encode())


def write_folder(path: str, files: Mapping[str, bytes]) -> None:
    """Write files, by plain names, into a folder, which is made. Raises InputError where it cannot."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {quoted(path)}: {error.strerror}") from None
    for name, content in files.items():
        write_bytes(str(Path(path, name)), content)


def write_bytes(path: str, content: bytes) -> None:
    """Write bytes: the file appears whole or not at all. Raises InputError where it cannot."""
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".tilewright-", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"cannot write {quoted(path)}: {error.strerror}") from None
