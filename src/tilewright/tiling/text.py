"""Tilings as text, one line a node, and back: what people read, edit and compare.

A part of a cut that equals an earlier one prints as ``part 1 as part 0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from tilewright.support import ParseError, SourceLocation, suggestion
from tilewright.tiling.grammar import BINDS, HOWS, TAILS, Body, Cut, Leaf, Level, Nest, Pairs, Place, Seq

#: Longest text of nests that is read: far above that of a thousand nests.
MAX_CHARACTERS: Final = 1 << 24
#: Levels of nesting that are read: far above what machines have, far below what recursion bears.
MAX_DEPTH: Final = 200
_NAME: Final = r"[A-Za-z_]\w*"
_AXIS: Final = re.compile(rf"({_NAME}(?:/[1-9]\d*)?(?:\*{_NAME}(?:/[1-9]\d*)?)*)/([1-9]\d{{0,17}})\Z")
_PAIR: Final = re.compile(r"([a-z_]+)(?:=(\S+))?\Z")
_WORD: Final = re.compile(rf"{_NAME}\Z")
_STEP: Final = "  "


def show(nest: Nest) -> str:
    """A nest as text, which :func:`parse` reads back.

    >>> print(
    ...     show(Nest("C", Level((("i", 4),), Level((("i", 1),), Leaf("C"), "unroll"), "parallel"))), end=""
    ... )
    nest C
      for i/4 parallel
        for i/1 unroll
          do C
    """
    lines = [f"nest {nest.root}"]
    lines += [f"{_STEP}layout {name} = {' , '.join(exprs)}" for name, exprs in nest.layouts]
    lines += [f"{_STEP}scope {name} = {scope}" for name, scope in nest.scopes]
    return "\n".join([*lines, *_lines(nest.body, 1)]) + "\n"


def line_of(node: Body | Place) -> str:
    """The first line of a node's text."""
    return next(_lines(Seq((node,)) if isinstance(node, Place) else node, 0))


def _pairs(hints: Pairs) -> str:
    return "".join(f" {k}" + (f"={v}" if v else "") for k, v in hints)


def _lines(b: Body, depth: int) -> Iterator[str]:
    pad = _STEP * depth
    if isinstance(b, Leaf):
        yield f"{pad}do {b.stage}" + (f" by {b.instruction}" if b.instruction else "")
    elif isinstance(b, Level):
        axes = " ".join(f"{a}/{n}" for a, n in b.axes)
        words = "".join(f" {x}" for x in (b.bind, b.tail) if x not in ("serial", "exact"))
        yield f"{pad}for {axes}{words}{_pairs(b.hints)}"
        yield from _lines(b.body, depth + 1)
    elif isinstance(b, Cut):
        yield f"{pad}cut {b.axis} at {' '.join(map(str, b.at)) or 'end'}"
        for n, part in enumerate(b.parts):
            same = b.parts.index(part)
            yield f"{pad}part {n}" + (f" as part {same}" if same < n else "")
            if same == n:
                yield from _lines(part, depth + 1)
    else:
        for item in b.items:
            if not isinstance(item, Place):
                yield from _lines(item, depth)
                continue
            layout = f" as {' , '.join(item.layout)}" if item.layout else ""
            yield f"{pad}{item.how} {item.value} in {item.scope}{_pairs(item.hints)}{layout}"
            if item.nest is not None:
                yield from _lines(item.nest, depth + 1)
            if item.drain is not None:
                yield f"{pad}drain"
                yield from _lines(item.drain, depth + 1)


def parse(text: str) -> tuple[Nest, ...]:
    """The nests that a text has, in its order.

    Raises ParseError, with the line, for text that :func:`show` would not write.
    """
    return _Reader(text).nests()


class _Reader:
    """Lines with their depths, and the place of the one that is read next."""

    def __init__(self, text: str) -> None:
        self.rows: list[tuple[int, int, str]] = []
        self.at = 0
        if len(text) > MAX_CHARACTERS:
            raise ParseError(f"the text has {len(text)} characters; at most {MAX_CHARACTERS} are read")
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.strip()
            if not words or words.startswith("#"):
                continue
            indent = len(line) - len(line.lstrip(" "))
            depth = indent // len(_STEP)
            self.rows.append((number, depth, words))
            if indent % len(_STEP) or depth > MAX_DEPTH:
                self.at = len(self.rows) - 1
                self._fail(
                    f"a line is indented by a multiple of {len(_STEP)} spaces, at most {MAX_DEPTH} times"
                )

    def _fail(self, what: str, hint: str | None = None) -> NoReturn:
        if self.at < len(self.rows):
            number, _, words = self.rows[self.at]
            raise ParseError(what, where=SourceLocation("tiling", number, words), hint=hint)
        number = self.rows[-1][0] if self.rows else 1
        raise ParseError(f"the text ends: {what}", where=SourceLocation("tiling", number), hint=hint)

    def _line(self, depth: int) -> str | None:
        """The words of the next line where it stands at that depth."""
        if self.at == len(self.rows) or self.rows[self.at][1] != depth:
            return None
        return self.rows[self.at][2]

    def _name(self, word: str) -> str:
        if not _WORD.match(word):
            self._fail(f"{word!r} is no name")
        return word

    def nests(self) -> tuple[Nest, ...]:
        out: list[Nest] = []
        while self.at < len(self.rows):
            words = (self._line(0) or "").split()
            if len(words) != 2 or words[0] != "nest":
                self._fail("a nest begins with 'nest STAGE'")
            root = self._name(words[1])
            self.at += 1
            layouts, scopes = [], []
            while (line := self._line(1)) is not None and line.startswith(("layout ", "scope ")):
                word, _, rest = line.partition(" ")
                name, found, value = rest.partition(" = ")
                if not found or not value:
                    self._fail(f"a {word} is given as '{word} NAME = …'")
                if word == "layout":
                    layouts.append((self._name(name), tuple(value.split(" , "))))
                else:
                    scopes.append((self._name(name), self._name(value)))
                self.at += 1
            out.append(Nest(root, self._body(1), tuple(layouts), tuple(scopes)))
        return tuple(out)

    def _body(self, depth: int) -> Body:
        items: list[Any] = []
        while (line := self._line(depth)) is not None and not re.match(r"part \d|drain\Z", line):
            word, *words = line.split()
            if word == "do":
                items.append(self._leaf(words))
            elif word == "for":
                items.append(self._level(words, depth))
            elif word == "cut":
                items.append(self._cut(words, depth))
            elif word in HOWS:
                items.append(self._place(word, line, depth))
            else:
                self._fail(
                    f"there is nothing called {word!r}",
                    suggestion(word, ("do", "for", "cut", *HOWS))
                    or "do, for, cut, make, slide, copy, keep …",
                )
        if not items or (
            all(isinstance(x, Place) for x in items if not _keeps(x)) and not any(map(_keeps, items))
        ):
            self._fail("a level has a body: 'for', 'cut', 'do', or a place that keeps its result")
        if len(items) == 1 and not isinstance(items[0], Place):
            body: Body = items[0]
            return body
        return Seq(tuple(items))

    def _leaf(self, words: Sequence[str]) -> Leaf:
        if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "by"):
            self._fail("an instance is 'do STAGE' or 'do STAGE by INSTRUCTION'")
        leaf = Leaf(self._name(words[0]), self._name(words[2]) if len(words) == 3 else "")
        self.at += 1
        return leaf

    def _level(self, words: list[str], depth: int) -> Level:
        axes, rest = [], list(words)
        while rest and (found := _AXIS.match(rest[0])):
            axes.append((found[1], int(found[2])))
            rest.pop(0)
        if not axes:
            self._fail("a level has an axis and the elements of an iteration: 'for i/4'")
        bind: Any = rest.pop(0) if rest and rest[0] in BINDS else "serial"
        tail: Any = rest.pop(0) if rest and rest[0] in TAILS else "exact"
        hints = self._hints(rest)
        self.at += 1
        return Level(tuple(axes), self._body(depth + 1), bind, hints, tail)

    def _hints(self, words: Sequence[str]) -> Pairs:
        out = []
        for word in words:
            found = _PAIR.match(word)
            if found is None:
                self._fail(f"{word!r} is no hint, binding or axis", suggestion(word, (*BINDS, *TAILS)))
            out.append((found[1], found[2] or ""))
        return tuple(out)

    def _cut(self, words: Sequence[str], depth: int) -> Cut:
        if (
            len(words) < 3
            or words[1] != "at"
            or not (words[2:] == ["end"] or all(re.fullmatch(r"[1-9]\d{0,17}", n) for n in words[2:]))
        ):
            self._fail("a cut is 'cut AXIS at ELEMENTS …', or at 'end'")
        axis, at = words[0], tuple(map(int, words[2:])) if words[2] != "end" else ()
        self.at += 1
        parts: list[Body] = []
        while (line := self._line(depth)) is not None and line.startswith("part "):
            found = re.fullmatch(r"part (\d{1,6})(?: as part (\d{1,6}))?", line)
            if found is None or int(found[1]) != len(parts) or (found[2] and int(found[2]) >= len(parts)):
                self._fail(f"the next part is 'part {len(parts)}', or as an earlier one")
            self.at += 1
            parts.append(parts[int(found[2])] if found[2] else self._body(depth + 1))
        if len(parts) != len(at) + 1:
            self._fail(f"a cut at {len(at)} places has {len(at) + 1} parts, not {len(parts)}")
        return Cut(axis, at, tuple(parts))

    def _place(self, how: Any, line: str, depth: int) -> Place:
        head, found, layout = line.partition(" as ")
        words = head.split()
        if len(words) < 4 or words[2] != "in":
            self._fail(f"a place is '{how} VALUE in SCOPE'")
        value, scope, hints = self._name(words[1]), self._name(words[3]), self._hints(words[4:])
        self.at += 1
        nest = drain = None
        if self._line(depth + 1) is not None:
            nest = self._body(depth + 1)
        if self._line(depth) == "drain":
            self.at += 1
            drain = self._body(depth + 1)
        return Place(value, how, scope, nest, drain, tuple(layout.split(" , ")) if found else (), hints)


def _keeps(item: object) -> bool:
    """Whether an item of a sequence is, or has, the body of the level."""
    return not isinstance(item, Place) or item.how in ("keep", "accumulate")
