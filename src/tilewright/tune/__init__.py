"""Tuning: measuring candidates within a budget, and remembering what was found."""

from tilewright.tune.database import Database, Record
from tilewright.tune.session import Budget, Measurer, TaskResult, tune_task

__all__ = ["Budget", "Database", "Measurer", "Record", "TaskResult", "tune_task"]
