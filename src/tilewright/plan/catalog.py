"""The rules by name, in the order in which they are asked: one line a rule."""

from __future__ import annotations

from typing import Any, Final

from tilewright.plan.algorithms.rule import StrassenRule, WinogradRule
from tilewright.plan.blocks import BlocksRule
from tilewright.plan.contraction.rule import ContractionRule
from tilewright.plan.contraction.windows_rule import WindowsRule
from tilewright.plan.elementwise.rule import ElementwiseRule
from tilewright.plan.fused.rule import FusedRule
from tilewright.plan.general.rule import GeneralRule
from tilewright.plan.gpu.elements import GpuElementsRule
from tilewright.plan.gpu.group import GpuGroupProductRule
from tilewright.plan.gpu.groups import GpuGroupRule
from tilewright.plan.gpu.matrix import GpuMatrixRule
from tilewright.plan.gpu.product import GpuProductRule
from tilewright.plan.gpu.rows import GpuRowsRule
from tilewright.plan.gpu.windows import GpuWindowsRule
from tilewright.plan.pipeline.rule import PipelineRule
from tilewright.plan.rows.rule import LanesRule, PartsRule, RowsRule
from tilewright.plan.rule import Rule
from tilewright.plan.scans.rule import ScansRule
from tilewright.support import Catalog

RULES: Final[Catalog[str, Rule[Any, Any]]] = Catalog(
    "rules",
    (
        ContractionRule(),
        WindowsRule(),
        GeneralRule(),
        PipelineRule(),
        ScansRule(),
        RowsRule(),
        ElementwiseRule(),
        GpuWindowsRule(),
        GpuRowsRule(),
        GpuElementsRule(),
        # those that go with rewrites of the program
        BlocksRule(),
        LanesRule(),
        PartsRule(),
        FusedRule(),
        WinogradRule(),
        StrassenRule(),
        GpuProductRule(),
        GpuMatrixRule(),
        GpuGroupProductRule(),
        GpuGroupRule(),
    ),
)
