"""The onnx package's node tests, compiled to native code.

`pytest tests/conformance/test_nodes_compiled.py --update-golden` writes the list of what passes, of the cases
that pass by reference evaluation.
"""

from __future__ import annotations

import pytest

from conformance import engines
from conformance.node_cases import Entry, NotRunnableError, cases, read_list, run, write_list
from tilewright.support import TilewrightError

LIST = "passing_compiled.txt"
LISTED = read_list(LIST)
BY_REFERENCE = read_list("passing_reference.txt")
#: The share of cases that must pass at least.
SHARE = 0.35


def _outcome(name: str) -> Entry | None:
    try:
        return run(cases()[name], engines.compiled)
    except (NotRunnableError, AssertionError, TilewrightError):
        return None


def test_enough_cases_are_listed() -> None:
    assert set(LISTED) <= set(BY_REFERENCE)
    assert len(LISTED) >= SHARE * len(cases())


@pytest.mark.few(300)
@pytest.mark.parametrize("name", sorted(LISTED))
def test_listed_cases_pass(name: str) -> None:
    assert run(cases()[name], engines.compiled) == LISTED[name]


def test_no_other_case_passes(update_golden: bool) -> None:
    wanted = [name for name in BY_REFERENCE if update_golden or name not in LISTED]
    found = {name: entry for name in wanted if (entry := _outcome(name))}
    if update_golden:
        write_list(
            LIST, found, "Node tests that pass compiled to native code, with the inputs fixed for them."
        )
    else:
        assert not found, f"list these: pytest {__file__} --update-golden"
