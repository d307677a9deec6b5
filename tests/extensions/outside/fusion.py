"""A way of joining groups from outside: a pooling with the product that alone reads it."""

from dataclasses import dataclass

from tilewright.graph import Kind, join_groups


@dataclass(frozen=True)
class PooledProducts:
    """One kernel for both."""

    name: str = "pooled-products"

    def __call__(self, graph, groups, options):
        groups = list(groups)
        for first in [g for g in groups if g.kind is Kind.REDUCTION]:
            readers = [g for g in groups if first.outputs[0] in g.inputs]
            if len(readers) == 1 and readers[0].kind is Kind.CONTRACTION:
                groups[groups.index(readers[0])] = join_groups(first, readers[0])
                groups.remove(first)
        return groups
