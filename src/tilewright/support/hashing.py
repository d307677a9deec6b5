"""Stable structural hashing: the same value gives the same digest in every process and on every machine.

Values are written in a canonical, self-delimiting form (a type tag, a length, the content) and hashed with
BLAKE2b. Python's `hash()` never takes part. Order is kept for sequences and ignored for sets and mappings.
"""

import dataclasses
import enum
import hashlib
import struct
from collections.abc import Iterable, Mapping

import numpy as np

DIGEST_BYTES = 20
"""Length of a digest: 160 bits, far beyond accidental collision for any cache."""


def digest(*values: object) -> str:
    """The hexadecimal digest of the values, taken as a sequence.

    Accepts None, bool, int, float, str, bytes, enum members, sequences, sets, mappings, dataclasses (their
    compared fields), numpy scalars and arrays, and objects whose ``__canonical__()`` is one of these, nested
    at will; arrays of integers and of such objects, too. Raises TypeError for anything else: what has no
    stated canonical form is not a key.

    >>> digest(1, "a") == digest(1, "a"), digest(1) == digest(1.0), digest(1) == digest(True)
    (True, False, False)
    """
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for value in values:
        for piece in _pieces(value):
            state.update(piece)
    return state.hexdigest()


def digest_text(text: str) -> str:
    """The hexadecimal digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


def canonical_bytes(value: object) -> bytes:
    """The canonical form that `digest` hashes."""
    return b"".join(_pieces(value))


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack("<Q", len(content)) + content


def _group(tag: bytes, items: Iterable[object], count: int) -> Iterable[bytes]:
    yield tag + struct.pack("<Q", count)
    for item in items:
        yield from _pieces(item)


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _pieces(value: object) -> Iterable[bytes]:
    match value:
        case None:
            yield b"N"
        case enum.Enum():
            yield _sized(b"e", f"{_type_name(value)}.{value.name}".encode())
        case np.generic():
            yield from _group(b"g", [value.dtype.name, value.tobytes()], 2)
        case bool():
            yield b"T" if value else b"F"
        case int():
            yield _sized(b"i", str(value).encode())
        case float():
            yield b"f" + struct.pack("<d", value)
        case str():
            yield _sized(b"s", value.encode("utf-8", "surrogatepass"))
        case bytes():
            yield _sized(b"b", value)
        case list() | tuple():
            yield from _group(b"[", value, len(value))
        case set() | frozenset():
            yield b"{" + struct.pack("<Q", len(value))
            yield from sorted(canonical_bytes(item) for item in value)
        case Mapping():
            yield b":" + struct.pack("<Q", len(value))
            yield from sorted(canonical_bytes(key) + canonical_bytes(item) for key, item in value.items())
        case np.ndarray():
            yield from _group(b"a", [value.dtype.str, value.dtype.name, *value.shape], 2 + value.ndim)
            if value.dtype.hasobject:
                if not all(type(v) is int or hasattr(v, "__canonical__") for v in value.flat):
                    raise TypeError("an array of Python objects has no canonical form")
                yield from _group(b"[", value.reshape(-1).tolist(), value.size)
                return
            yield np.ascontiguousarray(value).tobytes()
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field for field in dataclasses.fields(value) if field.compare]
            yield _sized(b"d", _type_name(value).encode())
            yield from _group(b"(", (getattr(value, field.name) for field in fields), len(fields))
        case _ if hasattr(value, "__canonical__"):
            yield _sized(b"o", _type_name(value).encode())
            yield from _pieces(value.__canonical__())
        case _:
            raise TypeError(f"{type(value).__name__} has no canonical form to hash")
