"""Catalogs: own entries in order, those of packages before them, and what is no entry."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tilewright.support import Catalog, InputError, catalog


@dataclass(frozen=True)
class Thing:
    name: str = "thing"


def installed(monkeypatch, **objects):
    """Pretend that a package adds these; a text is a module that is missing."""

    def loads(found):
        def load():
            if isinstance(found, str):
                raise ImportError(found)
            return found

        return load

    def entry_points(group):
        dist = SimpleNamespace(name="outside")
        return [
            SimpleNamespace(name=name, value=f"module:{name}", dist=dist, load=loads(found))
            for name, found in objects.items()
            if group == "tilewright.things"
        ]

    monkeypatch.setattr(catalog, "entry_points", entry_points)


def test_own_entries_are_in_order_and_classes_are_called():
    things = Catalog("things", (Thing("b"), Thing("a"), Thing))
    assert list(things) == ["b", "a", "thing"]
    assert things["thing"] == Thing() and len(things) == 3 and "c" not in things


def test_packages_entries_come_first_by_their_names(monkeypatch):
    installed(monkeypatch, z=Thing("first"), a=Thing("second"))
    assert list(Catalog("things", (Thing("own"),))) == ["second", "first", "own"]
    assert list(Catalog("others", (Thing("own"),))) == ["own"]


def test_entries_are_made_and_named_as_is_said(monkeypatch):
    installed(monkeypatch, x=3)
    assert dict(Catalog("things", (1, 2), of=lambda n: n * 10, key=lambda n: n // 10)) == {
        3: 30,
        1: 10,
        2: 20,
    }


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"x": 5}, "module:x of the package outside is none of the things"),
        ({"x": "no module"}, "module:x of the package outside is none of the things: no module"),
        (
            {"x": Thing("a"), "y": Thing("a")},
            "module:y of the package outside is called 'a', and so is another",
        ),
        ({"x": Thing("own")}, "module:x of the package outside is called 'own', and so is another"),
    ],
)
def test_what_is_none_is_refused_by_its_package(monkeypatch, objects, message):
    installed(monkeypatch, **objects)
    with pytest.raises(InputError, match=message):
        list(Catalog("things", (Thing("own"),)))
