"""Mapping programs onto tensor instructions: three-operand form and access matrices."""

from tilewright.mapping.access import (
    AccessMatrix,
    Operation,
    ThreeOperandForm,
    three_operand_form,
)

__all__ = ["AccessMatrix", "Operation", "ThreeOperandForm", "three_operand_form"]
