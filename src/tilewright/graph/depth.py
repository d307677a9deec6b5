"""How deep the expressions nest that a node adds to those of its operands: kernels keep within a bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.program import nodes_program
from tilewright.ir import Call, children, stmt_exprs

#: Levels of a function that is no single instruction: its polynomial, and what brings arguments into range.
LEVELS_OF_CALL: Final = 16


def expression_depth(node: Node, types: Mapping[str, TensorType], constants: Mapping[str, Array]) -> int:
    """Levels of the node's expressions one within another, those of its stages added up.

    Whoever rewrites or prints an expression goes down level by level, and Python's stack ends at a thousand
    calls.
    """
    made = nodes_program([node], types, constants, node.used_outputs)
    total = 0
    for stage in made.program.stages:
        deepest, todo = 0, [(e, 0) for e in stmt_exprs(stage.body)]
        while todo:
            e, above = todo.pop()
            level = above + (LEVELS_OF_CALL if isinstance(e, Call) else 1)
            deepest = max(deepest, level)
            todo += [(kid, level) for kid in children(e)]
        total += deepest
    return total
