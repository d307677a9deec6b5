"""Whether a network is faster: by most rounds, and in the quietest ones."""

from tilewright.driver import retiming
from tilewright.driver.retiming import LEAST_ROUNDS, Comparison, comparison, timed_rounds


def test_what_is_faster_in_most_rounds_and_at_its_quietest_is_faster():
    assert comparison([[3.0, 3.1, 9.0], [2.9, 3.0, 8.0]], fresh=True) == Comparison(3.0, 2.9, True, True)


def test_bursts_of_load_make_nothing_faster():
    """A burst that took most of one model's rounds, and none of the other's."""
    slow, quick = [13.0, 13.0, 13.0, 13.0, 13.0, 13.0, 5.0], [5.1] * 7
    found = comparison([slow, quick], fresh=False)
    assert not found.faster and (found.untuned, found.best) == (5.0, 5.1)


def test_what_wins_few_rounds_is_not_faster():
    assert not comparison([[3.0, 3.0, 3.0], [3.1, 2.9, 3.1]], fresh=True).faster


def test_slow_models_take_fewer_turns(monkeypatch):
    """A comparison that was to take two seconds does not take a minute of somebody's budget."""
    now = [0.0]
    monkeypatch.setattr(retiming.time, "perf_counter", lambda: now[0])

    def takes(seconds):
        def run():
            now[0] += seconds

        return run

    slow = timed_rounds([takes(2.0), takes(2.5)], 9, 0.1)
    assert [len(times) for times in slow] == [LEAST_ROUNDS] * 2 and slow[0] == [2.0] * LEAST_ROUNDS
    assert [len(times) for times in timed_rounds([takes(0.03), takes(0.04)], 9, 0.1)] == [9, 9]
