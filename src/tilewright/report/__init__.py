"""Reports: pages that show what models were compiled to, how fast they are, and what tuning tried."""

from tilewright.report.content import Content, Kernel, Points, Price
from tilewright.report.database import of_database
from tilewright.report.fusion import BEGINNINGS, Beginning, FusionReport, as_svg, as_text, of_fusion
from tilewright.report.model import of_model
from tilewright.report.page import render
from tilewright.report.pipeline import StageRow, as_table, pipeline_svg, stage_rows
from tilewright.report.why import as_reasons

__all__ = [
    "as_reasons",
    "BEGINNINGS",
    "Beginning",
    "Content",
    "FusionReport",
    "Kernel",
    "Points",
    "Price",
    "StageRow",
    "as_svg",
    "as_table",
    "as_text",
    "of_database",
    "of_fusion",
    "of_model",
    "pipeline_svg",
    "render",
    "stage_rows",
]
