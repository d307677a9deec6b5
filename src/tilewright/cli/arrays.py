"""Arrays in files: reading inputs without trusting them, and writing outputs whole or not at all."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from tilewright.driver import TensorInfo
from tilewright.support import InputError, quoted, replacing, suggestion

Array = npt.NDArray[Any]


def read_feeds(
    files: Mapping[str, str], archive: str | None, inputs: Sequence[TensorInfo]
) -> dict[str, Array]:
    """The inputs found in ``.npy`` files by name and in one ``.npz`` archive.

    Shape and dtype are checked before an array is read. Raises InputError naming the file.
    """
    known = {info.name: info for info in inputs}
    feeds: dict[str, Array] = {}
    if archive is not None:
        feeds.update(_read_archive(archive, known))
    for name, file in files.items():
        info = _known(name, known)
        try:
            with Path(file).open("rb") as stream:
                feeds[name] = _read(stream, info, quoted(file))
        except OSError as error:
            raise InputError(f"cannot read {quoted(file)}: {error.strerror}") from None
    return feeds


def _known(name: str, known: Mapping[str, TensorInfo]) -> TensorInfo:
    if name not in known:
        hint = suggestion(name, known) or f"its inputs are {', '.join(map(quoted, known)) or 'none'}"
        raise InputError(f"the model has no input {quoted(name)}", hint=hint)
    return known[name]


def _read_archive(archive: str, known: Mapping[str, TensorInfo]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(archive) as members:
            for member in members.namelist():
                name = member.removesuffix(".npy")
                with members.open(member) as stream:
                    feeds[name] = _read(stream, _known(name, known), f"{quoted(name)} in {quoted(archive)}")
    except zipfile.BadZipFile as error:
        raise InputError(f"{quoted(archive)} is not an .npz archive: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {quoted(archive)}: {error.strerror or error}") from None
    return feeds


def _read(stream: IO[bytes], info: TensorInfo, place: str) -> Array:
    try:
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = header(stream)
    except (ValueError, EOFError, SyntaxError, TokenError) as error:
        raise InputError(f"{place} is not an .npy array: {error}") from None
    # types that numpy does not know are written as bytes without a meaning
    raw = info.dtype.kind == "V" and dtype == np.dtype((np.void, info.dtype.itemsize))
    if shape != info.shape or not (raw or dtype == info.dtype):
        found = f"{dtype.name}[{', '.join(map(str, shape))}]"
        raise InputError(f"{place} holds {found}, but the input is {info}")
    data = stream.read(info.dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
    try:
        array = np.frombuffer(data, info.dtype)
        return array.reshape(shape, order="F" if fortran else "C")
    except ValueError:
        raise InputError(f"{place} is cut short") from None


def write_archive(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays as ``.npz``: the file appears whole or not at all. Raises InputError where it cannot."""
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot write {quoted(path)}: {error.strerror}") from None
