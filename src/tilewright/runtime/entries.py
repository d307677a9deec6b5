"""Entries of plain data that a file holds, which may be anything: read, or said to be malformed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.runtime.executor import MAX_BYTES

_T = TypeVar("_T")


class MalformedError(Exception):
    """An entry of a manifest is missing or wrong; the text names it."""


def entry(data: Mapping[str, Any], key: str, kind: type[_T]) -> _T:
    """The entry of a kind. Raises MalformedError where it is none."""
    value = data.get(key)
    if not isinstance(value, kind):
        raise MalformedError(key)
    return value


def size(data: Mapping[str, Any], key: str) -> int:
    """An entry that is a number of bytes or of things. Raises MalformedError where it is none."""
    return number(data.get(key), key)


def number(value: object, what: str) -> int:
    """A value as a number of bytes or of things. Raises MalformedError where it is none."""
    if type(value) is not int or not 0 <= value <= MAX_BYTES:
        raise MalformedError(what)
    return value


def text(value: object, what: str) -> str:
    """A value as text. Raises MalformedError where it is none."""
    if not isinstance(value, str):
        raise MalformedError(what)
    return value


def list_of(data: Mapping[str, Any], key: str, item: Callable[[Any, str], _T]) -> tuple[_T, ...]:
    """An entry that is a list, its items read by a function. Raises MalformedError where it is none."""
    return tuple(item(value, key) for value in entry(data, key, list))


def numbers(value: object, count: int, what: str) -> Sequence[int]:
    """A value as a list of so many numbers. Raises MalformedError where it is none."""
    if not isinstance(value, list) or len(value) != count:
        raise MalformedError(what)
    return [number(each, what) for each in value]
