import enum
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tilewright.support import canonical_bytes, digest, digest_text


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0
    cached: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Vector:
    x: int
    y: int = 0


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.frozensets(scalars) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def _typed(value):
    """A value whose equality is the equality that hashing promises."""
    match value:
        case dict():
            return {key: _typed(item) for key, item in value.items()}
        case list() | tuple():
            return [_typed(item) for item in value]
        case frozenset():
            return ("set", sorted(map(repr, map(_typed, value))))
        case float():
            return ("float", value.hex())
        case _:
            return (type(value).__name__, value)


@given(values, values)
def test_digests_agree_exactly_when_the_values_do(a, b):
    assert (digest(a) == digest(b)) == (_typed(a) == _typed(b))


def test_digest_is_the_same_everywhere():
    # A change of this constant makes every cache and record of every user stale.
    value = [1, "a", {"k": (2.5, None)}, {3, 1}, b"x", np.arange(3, dtype=np.int32)]
    assert digest(value) == EXPECTED


def test_digest_does_not_depend_on_hash_randomisation():
    code = "from tilewright.support import digest; print(digest({'a','b','c','d'}, {'x': 1, 'y': 2}))"
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1


def test_order_counts_for_sequences_only():
    assert digest([1, 2]) != digest([2, 1])
    assert digest({1, 2}) == digest({2, 1})
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest([["a"], "b"]) != digest([["a", "b"]])
    assert digest("ab", "c") != digest("a", "bc")


def test_dataclasses_by_type_and_compared_fields():
    assert digest(Point(1, 2)) != digest(Vector(1, 2))
    assert digest(Point(1, 2)) != digest(Point(2, 1))
    assert digest(Point(1, cached=1)) == digest(Point(1, cached=2))


def test_enum_members_by_name():
    assert digest(Colour.RED) != digest(Colour.BLUE)
    assert digest(Colour.RED) != digest(1)


def test_arrays_by_type_shape_and_content():
    a = np.arange(6, dtype=np.float32)
    assert digest(a) != digest(a.reshape(2, 3))
    assert digest(a) != digest(a.astype(np.float64))
    assert digest(a.reshape(2, 3).T) == digest(np.ascontiguousarray(a.reshape(2, 3).T))
    assert digest(np.float32(1)) != digest(np.float64(1))


@pytest.mark.parametrize("value", [object(), lambda: 0, Point, np.array([None]), [1, {2: object()}]])
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(TypeError, match="canonical form"):
        canonical_bytes(value)


def test_text_digest():
    assert digest_text("a") != digest_text("b")
    assert len(digest_text("a")) == len(digest(1)) == 40


EXPECTED = "14dfd6956f4fb9555d0d6879d293196039a01a2b"
