"""What commands write to files, each whole or not at all, and where output may go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from tilewright.cli.programs import program_file
from tilewright.support import InputError, quoted, replacing


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
    """Raise UsageError where a command would write over a file that it reads.

    What is read may be ``FILE.py:NAME``; None says that it is nothing.
    """
    if output is None:
        return
    for name in read:
        if name is not None and any(_same(output, file) for file in (name, program_file(name))):
            raise click.UsageError(f"--output {quoted(output)} is a file that the command reads")


def check_folder(output: str | None) -> None:
    """Raise InputError where an output's folder is missing: before what takes long, not after it."""
    if output is not None and not Path(output).parent.is_dir():
        raise InputError(f"cannot write {quoted(output)}: its folder is not there")


def _same(output: str, name: str) -> bool:
    try:
        return Path(output).samefile(name)
    except (OSError, ValueError):
        return False
