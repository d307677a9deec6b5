"""Linking objects, and C sources with them, into a shared library by the system's C compiler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tilewright.support import InstallationError, InternalError, ResourceError, replaceable, replacing

LINK_TIMEOUT: Final = 120.0
"""Seconds that the C compiler may take."""

COMPILERS: Final = ("cc", "gcc", "clang")
"""Names of the system's C compiler, in order of preference."""

_FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread")
_SOURCES: Final = (".c", ".S")


def link_shared(
    objects: Sequence[bytes],
    path: Path,
    *,
    files: Mapping[str, Iterable[bytes | memoryview]] | None = None,
    sources: Sequence[Path] = (),
    includes: Sequence[Path] = (),
    exports: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Link objects into the shared library ``path``; for ahead-of-time export.

    ``files`` are the contents, in pieces, of files to make for the compiler, by plain name: those that are
    C or assembly are compiled, others may be included. ``sources`` are C files to compile, ``includes``
    folders of headers. With ``exports`` the library shows these symbols only. ``flags`` follow the compiler's
    usual ones.

    The library appears whole or not at all. Raises InstallationError where there is no C compiler,
    ResourceError where it takes longer than ``LINK_TIMEOUT``, InternalError where it refuses.
    """
    replaceable(path)
    compiler = next((found for found in map(shutil.which, COMPILERS) if found), None)
    if compiler is None:
        raise InstallationError(
            "no C compiler found to link a shared library", hint=f"install one of {', '.join(COMPILERS)}"
        )
    with tempfile.TemporaryDirectory(prefix="tilewright-", dir=path.parent) as folder:
        made = {f"{number}.o": (content,) for number, content in enumerate(objects)} | dict(files or {})
        for name, pieces in made.items():
            with Path(folder, name).open("wb") as file:
                file.writelines(pieces)
        compiled = [name for name in made if name.endswith((".o", *_SOURCES))]
        command = [
            compiler,
            "-shared",
            *_FLAGS,
            *flags,
            "-Wl,-z,noexecstack",
            # its file's name as it is: programs linked to it look for that, and -Wl would split at commas
            *("-Xlinker", "-soname", "-Xlinker", path.name),
        ]
        command += ["-I.", *(f"-I{include.resolve()}" for include in includes)]
        if exports:
            script = f"{{ global: {' '.join(f'{name};' for name in exports)} local: *; }};\n"
            Path(folder, "exports.map").write_text(script)
            command.append("-Wl,--version-script=exports.map")
        command += ["-o", "linked.so", *compiled, *(str(source.resolve()) for source in sources), "-lm"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LINK_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ResourceError(f"linking {path.name} took longer than {LINK_TIMEOUT:.0f} s") from None
        if done.returncode:
            first = next(filter(None, map(str.strip, done.stderr.splitlines())), "no explanation")
            raise InternalError(f"linking {path.name} failed: {first[:500]}")
        with replacing(path) as file, Path(folder, "linked.so").open("rb") as linked:
            shutil.copyfileobj(linked, file)
    return path
