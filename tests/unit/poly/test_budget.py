"""Budgets of isl: counted operations, and a process of its own behind them, which is ended."""

import time
from contextlib import suppress

import islpy as isl
import pytest

from tilewright import lang
from tilewright.frontend.nests import scop
from tilewright.ir import function_at, to_function
from tilewright.poly import (
    Dependences,
    bounded,
    budget,
    child,
    extract_model,
    import_tree,
    infer_kinds,
    isl_schedule,
    loop_facts,
    tiled,
)
from tilewright.support import ProgramError, ResourceError
from unit.frontend.nests.polybench import KERNELS


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Little is tried at once: what is slow between its operations takes little time then."""
    monkeypatch.setattr(budget, "AT_ONCE", 5_000)
    monkeypatch.setattr(child, "WAITING", 2)


def boxes(count):
    """A question of hundreds of operations a box, whose answer is ``count``."""
    out = isl.Set("{ [i, j] : false }")
    for n in range(count):
        out = out.union(isl.Set(f"{{ [i, j] : {3 * n} <= i < {3 * n + 2} and 0 <= j < {n + 1} }}")).coalesce()
    return len(out.get_basic_sets())


def digits(depth):
    """What is read at an index of so many quotients of quotients and remainders."""

    def at(i, j):
        a = i
        for k in range(depth):
            a = (a * (k + 2) + j * 3 + k) // (k + 3) + (a + j) % (k + 5)
        return a % 300

    x = lang.placeholder((300, 300), name="x")
    a = lang.compute((300, 300), lambda i, j: x[at(i, j), at(j, i)], name="a")
    return lang.program([x], [lang.compute((200, 200), lambda i, j: a[at(i, j), at(j, i)] + 1, name="b")])


def test_what_stays_below_the_count_is_ended():
    """Skewed tiles of seidel-2d: isl pivots tables for minutes between few operations."""
    func = infer_kinds(function_at(scop(KERNELS["seidel_2d"]).func, {"N": 400, "T": 10}))
    dependences = Dependences(extract_model(func))
    found = tiled(dependences, isl_schedule(dependences, "min"), (32,), parallel=True)
    made = import_tree(dependences.model, found.schedule, func.body.names)
    with pytest.raises(
        ResourceError, match="dependences of seidel_2d are too many: isl was ended after 1 sec"
    ):
        loop_facts(made, seconds=1)
    # asked for directly, without any question around
    with pytest.raises(
        ResourceError, match="dependences of S0_1 on A are too many: isl was ended after 1 sec"
    ):
        Dependences(extract_model(made), seconds=1).among()


def test_answers_that_take_many_operations_are_the_same(monkeypatch):
    asked = []
    apart = child.asked_apart
    monkeypatch.setattr(budget, "asked_apart", lambda *a: asked.append(apart(*a)))
    assert bounded(lambda: boxes(2), "boxes") == 2
    assert not asked
    assert bounded(lambda: boxes(60), "boxes") == 60
    assert asked == [""]


def test_operations_that_are_slow_are_not_many_at_once(monkeypatch):
    """Digits of digits: the first 20,000 operations take 0.1 seconds, two million would take minutes."""
    counts = []
    monkeypatch.setattr(budget, "FIRST", 20_000)
    monkeypatch.setattr(budget, "AT_ONCE", 2_000_000)
    monkeypatch.setattr(budget, "AT_ONCE_SECONDS", 0.001)
    monkeypatch.setattr(budget, "counted", lambda q, n, ask=budget.counted: counts.append(n) or ask(q, n))
    with pytest.raises(ResourceError, match="of b on a are too many: isl was ended after 1 seconds"):
        Dependences(extract_model(to_function(digits(3))), seconds=1).among()
    assert counts == [20_000]
    counts.clear()
    monkeypatch.setattr(budget, "AT_ONCE_SECONDS", 1e9)
    assert bounded(lambda: boxes(100), "boxes") == 100
    assert counts[:2] == [20_000, 80_000]


def test_operations_that_are_spent_in_the_process_of_its_own():
    with pytest.raises(ResourceError, match="boxes: isl gave up after 6000 operations"):
        bounded(lambda: boxes(60), "boxes", operations=6_000)


@pytest.mark.parametrize("then", [lambda: int(None), lambda: None, lambda: {}["nothing"]])
def test_nothing_counts_that_is_done_after_operations_are_spent(then):
    """Wrappers return nothing then: what Python makes of that is no answer, and no error of the question."""

    def question():
        with suppress(isl.Error):
            boxes(60)
        return then()

    with pytest.raises(ResourceError, match="boxes: isl gave up after 4000 operations"):
        bounded(question, "boxes", operations=4_000)


def test_other_errors_of_a_long_question_are_its_own():
    def wrong():
        boxes(60)
        raise ProgramError("of the question")

    with pytest.raises(ProgramError, match="of the question"):
        bounded(wrong, "boxes")


def test_memory_that_a_question_takes():
    def greedy():
        boxes(60)
        bytearray(3 << 30)

    with pytest.raises(ResourceError, match="boxes: isl was ended after 20 seconds, or for want of memory"):
        bounded(greedy, "boxes")


def test_a_process_that_waits_for_nothing_is_ended():
    with pytest.raises(child.EndedError):
        child.asked_apart(lambda: str(time.sleep(60)), 1)


def test_a_small_question_inside_of_another_has_a_limit_of_its_own():
    def outer():
        with pytest.raises(ResourceError, match="inner: isl gave up after 100 operations"):
            bounded(lambda: boxes(2), "inner", operations=100)
        return bounded(lambda: boxes(2), "inner")

    assert bounded(outer, "outer") == 2
