"""What commands write to files, each whole or not at all, and where output may go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

import click

from tilewright.cli.programs import program_file
from tilewright.support import InputError, quoted, replaceable, replacing


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
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise InputError(f"cannot write {quoted(path)}: {error.strerror}") from None


def check_output(output: str | None, *read: str | None) -> None:
    """Look at an output before the work that makes it.

    What the command reads may be ``FILE.py:NAME``; None says that it is nothing. Raises UsageError where the
    command would write over one of these, and InputError where nothing can be written there.
    """
    if output is None:
        return
    for name in read:
        if name is not None and any(_same(output, file) for file in (name, program_file(name))):
            raise click.UsageError(f"--output {quoted(output)} is a file that the command reads")
    try:
        # gone when it is closed, and never seen
        with TemporaryFile(dir=replaceable(output).parent):
            pass
    except FileNotFoundError:
        raise InputError(f"cannot write {quoted(output)}: its folder is not there") from None
    except OSError as error:
        raise InputError(f"cannot write {quoted(output)}: {error.strerror}") from None


def _same(output: str, name: str) -> bool:
    try:
        return Path(output).samefile(name)
    except (OSError, ValueError):
        return False
