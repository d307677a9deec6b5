"""The onnx package's node tests through import, passes, fusion and the reference evaluation of programs.

`pytest tests/conformance --update-golden` writes the list of what passes; review its difference.
"""

from __future__ import annotations

import onnx
import pytest

from conformance import engines
from conformance.node_cases import ONNX_VERSION, Entry, NotRunnableError, cases, read_list, run, write_list

LIST = "passing_reference.txt"
LISTED = read_list(LIST)
#: The share of cases that must pass at least.
SHARE = 0.35


def _outcome(name: str) -> Entry | None:
    try:
        return run(cases()[name], engines.reference)
    except (NotRunnableError, AssertionError):
        return None


def test_the_package_is_the_one_that_is_counted() -> None:
    assert onnx.__version__.startswith(ONNX_VERSION + ".")


def test_enough_cases_are_listed() -> None:
    assert set(LISTED) <= set(cases())
    assert len(LISTED) >= SHARE * len(cases())


@pytest.mark.parametrize("name", sorted(LISTED))
def test_listed_cases_pass(name: str) -> None:
    assert run(cases()[name], engines.reference) == LISTED[name]


def test_no_other_case_passes(update_golden: bool) -> None:
    wanted = [name for name in cases() if update_golden or name not in LISTED]
    found = {name: entry for name in wanted if (entry := _outcome(name))}
    if update_golden:
        write_list(
            LIST, found, "Node tests that pass by reference evaluation, with the inputs fixed for them."
        )
    else:
        assert not found, f"list these: pytest {__file__} --update-golden"
