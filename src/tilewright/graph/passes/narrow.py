"""First layers in a narrower type: what a caller gives in f32, rounded for a convolution by instructions.

    before                  after
    y = Conv(x, w, b)       r = Pad(Cast(x))
                            t = ConvWide(r, w with taps in groups)      sums in f32
                            y = Add(t, b)

Values between kernels are rounded where they are stored; inputs of a model are not, so that the convolution
that reads one would be in f32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.graph.model import Graph, Node, TensorType
from tilewright.graph.passes.taps import by_rows, by_taps, grouped_taps
from tilewright.graph.registry import OWN
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import dtype_of


@dataclass(frozen=True, slots=True)
class NarrowInputs:
    """Round f32 inputs of the model to ``dtype`` for convolutions that read them.

    ``group`` products of neighbours are what an instruction of the machine sums at once. With ``depth``, the
    most that one sums up, channels and taps of a row are such neighbours where they are no more than that.
    """

    dtype: str
    group: int
    depth: int = 0
    name: ClassVar[str] = "narrow-inputs"

    def __call__(self, graph: Graph) -> Graph:
        """Change the convolutions whose taps fill groups well."""
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes:
            if not self._applies(graph, node):
                rewriter.keep(node)
                continue
            changed = True
            self._emit(rewriter, rewriter.current(node))
        return rewriter.finish() if changed else graph

    def _applies(self, graph: Graph, node: Node) -> bool:
        if node.op != "Conv" or node.domain or node.inputs[0] not in graph.inputs:
            return False
        if graph.types[node.inputs[0]].dtype != "f32":
            return False
        known = [graph.constant(value) for value in node.used_inputs[1:]]
        if any(array is None for array in known) or known[0] is None:
            return False
        taps = grouped_taps(node, known[0].shape, self.group)
        return taps is not None and taps < self.group * known[0].shape[-1]

    def _emit(self, rewriter: Rewriter, node: Node) -> None:
        graph = rewriter.graph
        (output,) = node.outputs
        type_ = TensorType(self.dtype, graph.types[node.inputs[0]].shape)
        rounded = rewriter.fresh(f"{output}.rounded")
        cast = replace(
            node, op="Cast", inputs=node.inputs[:1], outputs=(rounded,), attributes={"to": self.dtype}
        )
        rewriter.emit(cast, [type_])
        weights = graph.constants[node.inputs[1]]
        fill = np.zeros((), dtype_of(self.dtype).numpy)
        with_channels = weights.shape[1] * weights.shape[-1] <= self.depth
        change = by_rows if with_channels else by_taps
        made = change(rewriter, node, (rounded, type_), weights, fill, self.group)
        made = replace(made, op="ConvWide", domain=OWN, inputs=(*made.inputs, *node.inputs[2:]))
        rewriter.emit(made, [graph.types[output]])
