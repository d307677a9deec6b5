"""Choosing by the model: candidates that code generation would refuse are left out."""

from dataclasses import dataclass, field, replace

import pytest
from tests.plans import chosen

from tilewright import lang
from tilewright.cost import Machine
from tilewright.strategies import Candidate, Prices, Task, best_by_model, catalog
from tilewright.support import ScheduleError, TargetError
from tilewright.target import find_target


@dataclass
class _Fixed:
    """A strategy and search of given candidates."""

    candidates: list
    name: str = "fixed"
    seen: list = field(default_factory=list)

    def start(self, task, history, rng):
        return self

    def propose(self, count):
        return self.candidates

    def observe(self, trials):
        self.seen += trials

    def expected_gain(self):
        return 0.0


def task():
    x = lang.placeholder((64, 64), name="X")
    made = lang.compute((64, 64), lambda i, j: x[i, j] + 1, name="Y")
    return Task(lang.program([x], [made]), Machine(find_target("x86_avx512"), 2))


def test_what_code_generation_refuses_is_left_out(monkeypatch):
    wanted = task()
    plan = wanted.default().plan
    strategy = _Fixed([Candidate("default", plan), Candidate("other", plan, predicted=1e-12)])
    checked = catalog.check
    answers = iter([None, TargetError("no such instruction")])

    def check(func, target):
        error = next(answers)
        if error is not None:
            raise error
        checked(func, target)

    monkeypatch.setattr(catalog, "check", check)
    assert best_by_model(strategy, wanted).plan == plan
    assert next(answers, "asked twice") == "asked twice"


def test_what_is_cheaper_is_taken_by_however_little():
    wanted = task()
    base = wanted.default().plan
    (nest,) = base.nests
    other = chosen(wanted.program, base, wanted.machine, replace(nest.choice, vector=1 - nest.choice.vector))
    assert other != base
    price = Prices(wanted).seconds(base)
    found = [Candidate("default", base), Candidate("other", other, predicted=price * 0.99)]
    assert best_by_model(_Fixed(found), wanted).plan == other
    found[1] = Candidate("other", other, predicted=price)
    assert best_by_model(_Fixed(found), wanted).plan == base


def test_where_all_are_refused_the_last_reason_is_given(monkeypatch):
    wanted = task()

    def refuse(func, target):
        raise ScheduleError("register buffer acc is addressed by i")

    monkeypatch.setattr(catalog, "check", refuse)
    with pytest.raises(ScheduleError, match="register buffer acc"):
        best_by_model(_Fixed([Candidate("default", wanted.default().plan)]), wanted)
