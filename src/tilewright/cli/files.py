"""Text in files: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tilewright.support import InputError, quoted


def write_text(path: str, text: str) -> None:
    """Write text: the file appears whole or not at all. Raises InputError where it cannot."""
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".tilewright-", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"cannot write {quoted(path)}: {error.strerror}") from None
