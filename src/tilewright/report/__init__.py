"""Reports: pages that show what models were compiled to, how fast they are, and what tuning tried."""

from tilewright.report.content import Content as Content, Kernel as Kernel, Points as Points, Price as Price
from tilewright.report.database import of_database as of_database
from tilewright.report.fusion import (
    BEGINNINGS as BEGINNINGS,
    Beginning as Beginning,
    as_svg as as_svg,
    as_text as as_text,
    of_fusion as of_fusion,
)
from tilewright.report.model import of_model as of_model
from tilewright.report.page import render as render
from tilewright.report.pipeline import (
    StageRow as StageRow,
    as_table as as_table,
    pipeline_svg as pipeline_svg,
    stage_rows as stage_rows,
)
from tilewright.report.why import as_reasons as as_reasons
