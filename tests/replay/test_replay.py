"""Restructuring leaves what is compiled as it was: lowered functions of a corpus, by their digests.

``pytest tests/replay`` compares a sample, ``pytest tests/replay --all`` the whole corpus (four minutes on one
core); with ``--update-golden`` they write what they find. A change that means to change code says which
digests change, and why that is faster.
"""

import json
from itertools import groupby
from pathlib import Path

import pytest

from replay import corpus

DIGESTS = Path(__file__).with_name("digests.json")


def pytest_generate_tests(metafunc):
    if "cases" in metafunc.fixturenames:
        chosen = corpus.everything() if metafunc.config.getoption("--all") else corpus.sample()
        ordered = sorted(chosen, key=lambda case: case.source)
        groups = {source: tuple(cases) for source, cases in groupby(ordered, lambda case: case.source)}
        metafunc.parametrize("cases", groups.values(), ids=list(groups))


def stored() -> dict[str, str]:
    return json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}


def write(found: dict[str, str]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found)]
    DIGESTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.mark.timeout(0)
def test_lowered_functions_are_as_they_were(cases, update_golden):
    found = {case.key: " ".join(corpus.digests(case)) for case in cases}
    expected = stored()
    if update_golden:
        write(expected | found)
    else:
        assert found == {key: expected.get(key) for key in found}


def test_digests_tell_functions_apart():
    """A digest that said the same of everything would let all changes pass."""
    wide, narrow = (corpus.digests(corpus.Case("small:resnet18", name, 2)) for name in ("avx512", "avx2"))
    assert len(set(wide)) > len(wide) / 2
    assert wide != narrow
