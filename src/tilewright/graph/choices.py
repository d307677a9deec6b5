"""Axes that only a run knows: a graph for each that they may be, of which a run takes one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np

from tilewright.graph.control import Control
from tilewright.graph.infer_control import ControlFlow, kind_of
from tilewright.graph.model import Graph, Node, Subgraph
from tilewright.graph.registry import NotStaticError
from tilewright.graph.unroll import VERSION
from tilewright.support import ModelError, UnsupportedOperatorError, quoted

#: Graphs that are made of one node, and combinations of axes that are looked at, at most.
_MOST_GRAPHS: Final = 32
_MOST_NAMED: Final = 4096


class Choices(ControlFlow):
    """A walk that meets axes which data names."""

    def _chosen(self, node: Node, error: NotStaticError) -> bool:
        """Take in a node whose axes a run names; False where they are too many.

        ``index = table[sum(rank**n * axes[n])]`` is the number of the graph that runs.
        """
        asked, value = error.axes, error.value
        type_ = self.types.get(value)
        if asked is None or type_ is None or not type_.is_static or not isinstance(type_.elements, int):
            return False
        rank, many = asked.rank + (type_.elements if asked.made else 0), type_.elements
        if not rank**many <= _MOST_NAMED:
            return False
        table, graphs, refusal = np.zeros(rank**many, np.int64), dict[object, tuple[int, Graph]](), None
        refused: set[object] = set()
        for at, places in enumerate(product(range(rank), repeat=many)):
            axes = places[::-1]
            key = axes if asked.ordered else frozenset(axes)
            if len({*axes}) < many:
                refused.add(key)
            if key not in graphs and key not in refused:
                try:
                    graph = self._graph(self._with_axes(node, value, np.array(axes, np.int64)), {})
                    graphs[key] = len(graphs), graph
                except UnsupportedOperatorError:
                    return False
                except ModelError as wrong:
                    # such axes are wrong, as runs say that name them
                    refused.add(key)
                    refusal = wrong
            if len(graphs) > _MOST_GRAPHS:
                return False
            table[at] = graphs[key][0] if key in graphs else -1
        if not graphs:
            assert refusal is not None
            raise refusal
        index = self._index(node, value, table, rank, many)
        made = [graph for _, graph in graphs.values()]
        types = [[kind_of(g, g.outputs[at]) for g in made] for at in range(len(node.used_outputs))]
        chosen = replace(node, op="If", inputs=(index,), outputs=node.used_outputs)
        problem = f"{node.location}: what {quoted(value)} holds are no axes that it may have"
        self._controlled(chosen, Control(tuple(made), refusal=problem), types)
        return True

    def _with_axes(self, node: Node, value: str, axes: np.ndarray) -> Subgraph:
        """The node for axes that are known."""
        name, shape = f"{value}/chosen", self.types[value].sizes
        inner = replace(node, inputs=tuple(name if v == value else v for v in node.inputs))
        dtype = np.int32 if self.types[value].dtype == "i32" else np.int64
        return Subgraph((), node.used_outputs, (inner,), {name: axes.astype(dtype).reshape(shape)})

    def _index(self, node: Node, value: str, table: np.ndarray, rank: int, many: int) -> str:
        """The value that says which graph is meant; axes out of range are found where it is made."""
        prefix = f"{node.used_outputs[0]}/axes/"
        flat, places, key, index = (f"{prefix}{name}" for name in ("flat", "places", "key", "index"))
        weights = np.array([rank**n for n in range(many)], np.int64)
        known = {"shape": np.array([-1]), "table": table}
        # row n has what axis n adds to the key
        known |= {f"row{n}": np.arange(rank) * weight for n, weight in enumerate(weights)}
        known |= {f"at{n}": np.array(n) for n in range(many)}
        self._enter({f"{prefix}{name}": array.astype(np.int64) for name, array in known.items()})
        self.run([Node("Reshape", (value, f"{prefix}shape"), (flat,), version=VERSION)])
        total = ""
        for n in range(many):
            one = f"{places}{n}"
            self.run(
                [
                    Node("Gather", (flat, f"{prefix}at{n}"), (f"{one}/axis",), version=VERSION),
                    Node("Gather", (f"{prefix}row{n}", f"{one}/axis"), (one,), version=VERSION),
                ]
            )
            if total:
                self.run([Node("Add", (total, one), (f"{key}{n}",), version=VERSION)])
            total = f"{key}{n}" if total else one
        self.run([Node("Gather", (f"{prefix}table", total), (index,), version=VERSION)])
        return index
