"""Reports: pages that show what models were compiled to, how fast they are, and what tuning tried."""

from tilewright.report.content import Content, Kernel, Link, Points
from tilewright.report.database import of_database
from tilewright.report.model import of_model
from tilewright.report.page import render

__all__ = ["Content", "Kernel", "Link", "Points", "of_database", "of_model", "render"]
