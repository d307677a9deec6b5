"""Leaders beside the default plan: a gain is claimed where there is one, hardly ever where there is none."""

from random import Random

from tests.native_kernel import HOST
from tests.unit.plan.test_unit import PROGRAMS

from tilewright.cost import Machine
from tilewright.plan import UnitPlan
from tilewright.strategies import Candidate, Task, Trial
from tilewright.tune.decide import ROUNDS, decide, least_rounds, likely
from tilewright.tune.measure import TrialLimits

TASK = Task(PROGRAMS["product"], Machine(HOST, 1))
PLAN = TASK.default().plan
DEFAULT = Candidate("default", PLAN)
LEADERS = [Candidate("x", UnitPlan(PLAN.rewrites, (), (str(n),))) for n in range(3)]


class Bursts:
    """All plans take a second, leaders what ``factor`` says of it, times what others leave of the machine."""

    def __init__(self, seed, factor=1.0):
        self.rng, self.factor, self.now = Random(seed), factor, 1.0

    def measure(self, task, candidates, limits):
        times = [[] for _ in candidates]
        for _ in range(limits.rounds):
            for n in range(len(candidates)):
                if self.rng.random() < 0.15:  # a burst begins or ends
                    self.now = self.rng.choice((1.0, 1.0, 1.05, 1.5, 3.0))
                own = 1.0 if n == 0 else self.factor
                times[n].append(own * self.now * self.rng.uniform(0.98, 1.03))
        return [Trial(c, "ok", tuple(t)) for c, t in zip(candidates, times, strict=True)]


def claims(factor, count):
    limits = TrialLimits(rounds=ROUNDS)
    return sum(
        bool(decide(TASK, DEFAULT, LEADERS, Bursts(seed, factor), limits).winners) for seed in range(count)
    )


def test_the_default_against_itself_under_bursts_of_load_claims_no_gain():
    assert claims(1.0, 400) <= 8  # at a confidence of 98%


def test_what_is_slower_is_no_winner():
    assert claims(1.03, 200) == 0


def test_a_gain_is_seen_through_bursts():
    assert claims(0.7, 100) >= 90


def test_winners_come_fastest_first_and_failures_not_at_all():
    class Fixed:
        def measure(self, task, candidates, limits):
            times = (1.0, 0.8, None, 0.7)
            return [
                Trial(c, "ok", (t,) * limits.rounds) if t else Trial(c, "crashed", reason="told so")
                for c, t in zip(candidates, times, strict=True)
            ]

    found = decide(TASK, DEFAULT, LEADERS, Fixed(), TrialLimits(rounds=ROUNDS))
    assert [w.ratio for w in found.winners] == [0.7, 0.8]
    assert (found.seconds, found.untuned.status) == (1.0, "ok")


def test_a_default_that_fails_beside_its_leaders_leaves_no_winner():
    class Broken:
        def measure(self, task, candidates, limits):
            return [Trial(c, "crashed", reason="told so") for c in candidates]

    assert decide(TASK, DEFAULT, LEADERS, Broken(), TrialLimits(rounds=ROUNDS)).winners == ()


def cut_off(rounds, *seconds):
    """Decide where the time ended after so many rounds."""

    class Cut:
        def measure(self, task, candidates, limits):
            return [Trial(c, "ok", (t,) * rounds) for c, t in zip(candidates, seconds, strict=True)]

    return decide(TASK, DEFAULT, LEADERS, Cut(), TrialLimits(rounds=ROUNDS))


def test_too_few_rounds_ask_for_a_larger_gain():
    least = least_rounds(len(LEADERS))
    found = cut_off(least - 1, 1.0, 0.95, 0.85, 1.2)
    assert not found.whole and [w.ratio for w in found.winners] == [0.85]
    found = cut_off(least, 1.0, 0.95, 0.85, 1.2)
    assert found.whole and [w.ratio for w in found.winners] == [0.85, 0.95]


def test_first_measurements_decide_where_nothing_else_was_measured():
    leaders = [Trial(c, "ok", (t,)) for c, t in zip(LEADERS, (0.8, 0.7, 0.95), strict=True)]
    found = likely(Trial(DEFAULT, "ok", (1.0,)), leaders)
    assert not found.whole and [w.ratio for w in found.winners] == [0.7, 0.8]
    assert likely(Trial(DEFAULT, "ok", (1.0,)), []).whole


def test_nothing_is_decided_where_the_time_ends_before():
    class Late:
        def measure(self, task, candidates, limits):
            return [Trial(c, "ok", (1.0,) * limits.rounds) for c in candidates[:-1]]

    assert decide(TASK, DEFAULT, LEADERS, Late(), TrialLimits(rounds=ROUNDS)) is None
