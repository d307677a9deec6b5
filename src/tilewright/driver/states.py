"""Models whose states stay where they are: what they read from, with the writing of states rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.build import Array
from tilewright.frontend import OpenSource, Shapes
from tilewright.graph import Graph, KeepStates, ListType, TensorType
from tilewright.ir import Index
from tilewright.support import InputError


@dataclass(frozen=True, slots=True, eq=False)
class KeptStates:
    """A source, and its ``states``: the outputs that are written where inputs are, by the names of these."""

    source: OpenSource
    states: Mapping[str, str]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.source.name

    def kinds(self) -> dict[str, TensorType | ListType]:
        """Those of the source."""
        return self.source.kinds()

    def inputs(self) -> dict[str, TensorType]:
        """Those that are tensors."""
        return self.source.inputs()

    def graph(
        self,
        shapes: Shapes | None = None,
        constants: Mapping[str, Array] | None = None,
        open_sizes: Mapping[str, int] | None = None,
        said: Mapping[str, Index] = MappingProxyType({}),
    ) -> Graph:
        """The graph of the source, which writes new entries of states alone."""
        return KeepStates(self.states)(self.source.graph(shapes, constants, open_sizes, said))


def checked_states(state: object) -> dict[str, str]:
    """Outputs by the inputs whose next values they are. Raises InputError for what is no such mapping."""
    given = {} if state is None else state
    if not isinstance(given, Mapping) or not all(isinstance(n, str) for pair in given.items() for n in pair):
        raise InputError("state= maps names of inputs to names of outputs", hint="state={'past': 'present'}")
    if len({*given.values()}) < len(given):
        raise InputError("state= names an output twice")
    return dict(given)
