"""Nests in C files: their arguments, and what they do at given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tilewright.frontend.c.preprocess import Preprocessor
from tilewright.frontend.c.reader import Reader
from tilewright.frontend.c.source import Part, Source
from tilewright.ir import LoopFunction
from tilewright.support import Location, ProgramError


@dataclass(frozen=True)
class CNest:
    """A function of C as a nest. It is read anew for given sizes: what is affine may depend on them."""

    source: Source
    part: Part

    def _reader(self, sizes: Mapping[str, int]) -> Reader:
        return Reader(self.source, part=self.part, given=sizes)

    @cached_property
    def _signature(self) -> Reader:
        reader = self._reader({})
        object.__setattr__(
            self, "_arguments", _not_too_deep(self.source, lambda: reader.function(body=False))
        )
        return reader

    @property
    def arguments(self) -> LoopFunction:
        """A function of the same sizes and arguments, without statements."""
        _ = self._signature
        out: LoopFunction = self.__dict__["_arguments"]
        return out

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the parameters, as C has them, and of what the nest uses from outside of functions."""
        return tuple(self._signature.signature)

    @property
    def outside(self) -> tuple[str, ...]:
        """The arguments that are variables outside of functions, in C."""
        return tuple(self._signature.globals)

    @property
    def implied(self) -> Mapping[str, tuple[str, int]]:
        """Sizes that no parameter is: those of what pointers point at, and extents such as ``n * m``.

        Each is of an array and one of its dimensions; :meth:`at` reads extents by their formulas.
        """
        return self._signature.implied

    @property
    def result(self) -> str | None:
        """The argument that what the function returns is written to; ``None`` where it returns nothing."""
        return self._signature.result

    @property
    def left_out(self) -> Location | None:
        """A statement of the function that is outside of the marks, and not part of the nest."""
        for s in self._signature.left_out:
            return self.source.where(s.coord.line, s.coord.column)
        return None

    @property
    def contents(self) -> Mapping[str, npt.NDArray[np.generic]]:
        """Arrays outside of functions that nothing changes, by their names."""
        return self._signature.contents

    def at(self, sizes: Mapping[str, int]) -> LoopFunction:
        """The nest with numbers in the place of sizes; those that are not given stay symbolic.

        Raises ProgramError, with line and column, for what is not part of nests.
        """
        return self.read(sizes)[0]

    def read(self, sizes: Mapping[str, int]) -> tuple[LoopFunction, Mapping[str, Location]]:
        """The nest as :meth:`at` has it, and where its statements stand, by the names of their blocks."""
        reader = self._reader(sizes)
        return _not_too_deep(self.source, reader.function), reader.builder.places


def _not_too_deep(source: Source, read: Callable[[], LoopFunction]) -> LoopFunction:
    try:
        return read()
    except RecursionError:
        raise ProgramError("expressions or statements are nested too deeply", where=source.path) from None


def c_nest(
    path: str | Path,
    name: str | None = None,
    defines: Mapping[str, str] | None = None,
    folders: Sequence[Path] = (),
) -> CNest:
    """The nest of a C file: the function ``name``, or the one that is marked or has loops.

    Headers are read from the file's folder (in quotes) and from ``folders``; of the system's, the types and
    constants of the standard ones are known. Raises ProgramError where there is no such function.
    """
    preprocessor = Preprocessor.of(folders, defines or {})
    return _nest(Source(preprocessor.file(Path(path)), str(path), tuple(preprocessor.headers)), name)


def _nest(source: Source, name: str | None) -> CNest:
    return CNest(source, source.chosen(name))


def read_c_file(
    path: str | Path, defines: Mapping[str, str] | None = None, folders: Sequence[Path] = ()
) -> LoopFunction:
    """The nest of a C file with symbolic sizes; raises ProgramError, with line and column."""
    return c_nest(path, None, defines, folders).at({})


def read_c(
    text: str,
    path: str = "<text>",
    defines: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> LoopFunction:
    """The nest of a C text, at ``sizes`` or with symbolic ones; raises as :func:`read_c_file` does."""
    preprocessor = Preprocessor.of((), defines or {})
    source = Source(preprocessor.text(text, Path(path)), path, tuple(preprocessor.headers))
    return _nest(source, name).at(sizes or {})
