"""Whether a network is faster: by most rounds, and in the quietest ones."""

from tilewright.driver.retiming import Comparison, comparison


def test_what_is_faster_in_most_rounds_and_at_its_quietest_is_faster():
    assert comparison([[3.0, 3.1, 9.0], [2.9, 3.0, 8.0]], fresh=True) == Comparison(3.0, 2.9, True, True)


def test_bursts_of_load_make_nothing_faster():
    """A burst that took most of one model's rounds, and none of the other's."""
    slow, quick = [13.0, 13.0, 13.0, 13.0, 13.0, 13.0, 5.0], [5.1] * 7
    found = comparison([slow, quick], fresh=False)
    assert not found.faster and (found.untuned, found.best) == (5.0, 5.1)


def test_what_wins_few_rounds_is_not_faster():
    assert not comparison([[3.0, 3.0, 3.0], [3.1, 2.9, 3.1]], fresh=True).faster
