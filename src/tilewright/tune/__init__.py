"""Tuning: measuring candidates within a budget, and remembering what was found."""

from tilewright.tune.database import Database, Record, TrialRow
from tilewright.tune.session import Budget, Measurer, TaskResult, tune_task

__all__ = ["Budget", "Database", "Measurer", "Record", "TaskResult", "TrialRow", "tune_task"]
