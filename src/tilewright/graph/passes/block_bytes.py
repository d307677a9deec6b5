"""Activations of products with weights of few bits as bytes, where the error is allowed.

    before                                       after
    y = BlockProduct(x, words, scales, zeros)    q, s, sums = BlockQuantize(x)
                                                 y = BlockProduct(q, bytes, scales, zeros, s, sums)

Machines multiply bytes and sum four products at once: in f32 each number is converted and multiplied alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node, TensorType
from tilewright.graph.ops.blocks import WORD, as_bytes
from tilewright.graph.registry import OWN
from tilewright.graph.rewrite import Rewriter
from tilewright.support import get_logger

_log = get_logger(__name__)

#: Numbers of a block that share the scale of their bytes, at most: of 4096 random numbers, one in 100 thirty
#: times as large, products err by 0.85% in groups of 16, 1.2% of 32, 2.3% of 128, and 5.2% where all are one.
MOST_BLOCK: Final = 128
#: Rows of random numbers by which the error is measured, times the columns of one panel.
_ROWS: Final = 4


@dataclass(frozen=True, slots=True)
class BytesInBlocks:
    """Round activations to bytes, with a scale for each block, where products then err by ``most_error``.

    That is of the largest result, with random numbers and a layer's own weights.
    """

    most_error: float
    name: ClassVar[str] = "bytes-in-blocks"

    def __call__(self, graph: Graph) -> Graph:
        """Change the products that stay exact enough."""
        rewriter, made = Rewriter(graph), dict[tuple[str, int], tuple[str, ...]]()
        for node in graph.nodes:
            if (node.domain, node.op) == (OWN, "BlockProduct") and self._is_exact(graph, node):
                _emit(rewriter, rewriter.current(node), made)
            else:
                rewriter.keep(node)
        return rewriter.finish() if made else graph

    def _is_exact(self, graph: Graph, node: Node) -> bool:
        bits, block = (int(str(node.attributes[key])) for key in ("bits", "block"))
        known = [graph.constant(value) for value in node.inputs[1:]]
        if len(node.inputs) > 4 or block > MOST_BLOCK or any(array is None for array in known):
            return False
        words, scale, *zero = (array for array in known if array is not None)
        error = error_of(words[0], bits, block, scale[0], zero[0][0] if zero else None)
        taken = error <= self.most_error
        _log.info(
            "%s: activations %s bytes in blocks of %d, which err by %.1e of the largest result",
            node.name or node.outputs[0], "are" if taken else "would be", block, error,
        )  # fmt: skip
        return taken


def error_of(words: Array, bits: int, block: int, scale: Array, zero: Array | None) -> float:
    """How far products of rounded activations are from those of f32, of the largest, measured on one panel.

    ``words`` are [words, column], ``scale`` and ``zero`` [block, column].
    """
    shifts = np.arange(WORD - bits, -1, -bits, dtype=np.int32)
    signed = (words[:, None, :] << shifts[:, None]) >> np.int32(WORD - bits)
    numbers = signed.reshape(-1, words.shape[1]).astype(np.float64)
    if zero is not None:
        numbers -= np.repeat(zero.astype(np.float64), block, 0)
    weights = numbers * np.repeat(scale.astype(np.float64), block, 0)
    x = np.random.default_rng(0).standard_normal((_ROWS, len(weights) // block, block))
    step = np.abs(x).max(-1, keepdims=True) / np.iinfo(np.int8).max
    rounded = np.rint(x / step) * step
    exact = x.reshape(_ROWS, -1) @ weights
    largest = float(np.abs(exact).max())
    return float(np.abs(rounded.reshape(_ROWS, -1) @ weights - exact).max()) / largest if largest else 0.0


def _emit(rewriter: Rewriter, node: Node, made: dict[tuple[str, int], tuple[str, ...]]) -> None:
    """The product of bytes; all that read one value share what is made of it."""
    bits, block = (int(str(node.attributes[key])) for key in ("bits", "block"))
    x, words, scale, *zero = node.inputs
    source = rewriter.types[x]
    rows, depth = source.sizes
    if (x, block) not in made:
        outputs = tuple(rewriter.fresh(f"{x}.{what}") for what in ("bytes", "scales", "sums"))
        blocks = (rows, int(depth) // block)
        types = [TensorType("i8", (*blocks, block)), TensorType("f32", blocks), TensorType("i32", blocks)]
        quantised = replace(
            node, op="BlockQuantize", inputs=(x,), outputs=outputs, attributes={"block": block}
        )
        rewriter.emit(quantised, types)
        made[x, block] = outputs
    held, steps, sums = made[x, block]
    output = node.outputs[0]
    packed = rewriter.constant(as_bytes(rewriter.constants[words], bits), f"{output}.bytes")
    # numbers are half of their range larger now, and so are zero points
    zeros = [
        rewriter.constant(
            (rewriter.constants[z].astype(np.float32) + np.float32(1 << (bits - 1))), f"{output}.unsigned"
        )
        for z in zero
    ]
    inputs = (held, packed, scale, *(zeros or [""]), steps, sums)
    rewriter.emit(
        replace(node, inputs=inputs, attributes={**node.attributes, "to": source.dtype}),
        [rewriter.types[output]],
    )
