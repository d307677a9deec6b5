"""The text of reasons: the nest, its loops, one line a way that was open."""

from tilewright.plan import Candidate, Reasons
from tilewright.report import as_reasons


def reasons(*others):
    taken = Candidate("rows", "", 2e-6, {"issue": 1.5e-6, "memory": 0.0})
    return Reasons("Y", ("M",), taken, "RowsPlan(rows=2)", "nest Y\n  do Y\n", others)


def test_prices_are_told_by_that_of_the_taken_one():
    text = as_reasons(reasons(Candidate("rows", "rows 2 -> 4", 3e-6), Candidate("rows", "rows 2 -> 8", None)))
    assert "nest Y with M: by the rule rows" in text and "  do Y" in text
    assert "2 us  taken  (issue 1.5)" in text
    assert "x 1.50  rows 2 -> 4" in text
    assert "by a schedule  rows 2 -> 8" in text
    assert "less" not in text


def test_refusals_and_cheaper_ways_are_told():
    text = as_reasons(
        reasons(
            Candidate("pipeline", "by the rule pipeline", 1e-6),
            Candidate("rows", "rows 2 -> 3", refused="too many"),
        )
    )
    assert "refused  rows 2 -> 3: too many" in text
    assert "another way takes 50% less" in text


def test_no_more_than_are_asked_for():
    many = [Candidate("rows", f"rows 2 -> {n}", 1e-6 * n) for n in range(3, 9)]
    text = as_reasons(reasons(*many), most=2)
    assert "rows 2 -> 4" in text and "rows 2 -> 5" not in text and "and 4 more" in text
