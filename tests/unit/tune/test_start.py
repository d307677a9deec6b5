"""Shipped records: they can be read, each is faster than its default was, and searches begin with them."""

from tests.unit.tune.test_database import PLAN, TASK

from tilewright.tune import Database, Record, start_database
from tilewright.tune.transfer import neighbours_of


def test_what_is_shipped_can_be_read():
    with start_database() as start:
        rows = list(start.task_rows())
        assert rows and not any(row.finished for row in rows)
        assert sum(1 for _ in start.rows("trials")) == 0
        for row in rows:
            ranked = start.ranked(row.key)
            assert ranked and all(record.seconds < record.untuned for record in ranked)


def test_searches_begin_with_them_also_for_the_same_task():
    with Database(":memory:") as own, Database(":memory:") as start:
        for each in (own, start):
            each.declare(TASK, "x", TASK.key)
            each.keep(TASK.key, [Record(TASK.key, PLAN, "f", 1.0, 2.0)])
        assert neighbours_of(TASK, TASK.key, own) == ()
        (found,) = neighbours_of(TASK, TASK.key, own, start)
        assert found.candidate.plan == PLAN and found.seconds == (0.5,)
