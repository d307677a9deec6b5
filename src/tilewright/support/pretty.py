"""Small text helpers shared by error messages, printers and reports."""

import difflib
from collections.abc import Collection, Iterable
from typing import Final

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def quoted(name: str, limit: int = 80) -> str:
    r"""A name from the user's model, safe on one line: quoted, control characters escaped, cut to `limit`.

    >>> quoted("conv1")
    "'conv1'"
    >>> quoted("a\nb")
    "'a\\nb'"
    """
    text = name if len(name) <= limit else name[: limit - 1] + "…"
    return repr(text)


def quoted_path(path: object) -> str:
    """The path of a file as `quoted`, long enough to end in the file's name."""
    return quoted(str(path), limit=4096)


def shortened(text: str, width: int) -> str:
    """The text, or as much of it as fits into a line of so many columns, and an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def counted(count: int, noun: str) -> str:
    """A count with its noun in the right number.

    >>> counted(1, "node"), counted(3, "node")
    ('1 node', '3 nodes')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_bytes(count: int) -> str:
    """A size in the largest binary unit that keeps it at least one.

    >>> format_bytes(512), format_bytes(1536)
    ('512 B', '1.5 KiB')
    """
    size, unit = float(count), _BYTE_UNITS[0]
    for larger in _BYTE_UNITS[1:]:
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


#: How alike a word must be to one that is meant: of Python's default, 0.6, `nope` is like `opencl`.
_ALIKE: Final = 0.65


def suggestion(word: str, known: Iterable[str]) -> str:
    """A "did you mean" clause for a misspelt word, or the empty string.

    >>> suggestion("vectorise", ["vectorize", "unroll"])
    "did you mean 'vectorize'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]!r}?" if close else ""


def known_names(word: str, known: Iterable[str], what: str, most: int = 20) -> str:
    """The hint for a name that is not known: what it may have meant, or the first ``most`` that there are.

    >>> known_names("vectorise", ["vectorize", "unroll"], "the primitives")
    "did you mean 'vectorize'?"
    >>> known_names("x", ["vectorize", "unroll"], "the primitives")
    'the primitives are vectorize, unroll'
    """
    names = list(known)
    more = ", …" if len(names) > most else ""
    return suggestion(word, names) or f"{what} are {', '.join(names[:most]) or 'none'}{more}"


def mark_lines(text: str, lines: Collection[int], marker: str = ">>") -> str:
    r"""The text with a margin in which the given lines (from 0) are marked.

    >>> print(mark_lines("for i:\n    S(i)", {1}))
       for i:
    >>     S(i)
    """
    blank = " " * len(marker)
    rows = (f"{marker if at in lines else blank} {row}" for at, row in enumerate(text.splitlines()))
    return "\n".join(row.rstrip() for row in rows)
