"""Models at fixed sizes: what callers leave unsaid follows from what they say, where the model needs it."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.driver.open_graphs import graphs_at
from tilewright.driver.open_sizes import read_sizes
from tilewright.frontend import ReadModel, Shapes, Source, checked_constants, checked_shapes, read_onnx
from tilewright.graph import Array, Graph, Limits
from tilewright.ir import is_open
from tilewright.support import UserError, get_logger, quoted

_log = get_logger(__name__)


def import_settled(
    model: Source,
    shapes: Shapes | None = None,
    constants: Mapping[str, Array] | None = None,
    limits: Limits | None = None,
) -> Graph:
    """Import a model as :func:`import_onnx` does; sizes may also be what the model makes of those given.

    A file may have two names for what its nodes need to be one size, or expressions of names ("2*n").
    """
    read, given, fixed = read_onnx(model, limits=limits), checked_shapes(shapes), checked_constants(constants)
    known, left = read.sizes(given, fixed)
    if known and left:
        implied = _implied(read, known, left, given, fixed)
        _log.info("sizes that follow: %s", ", ".join(f"{quoted(n)} = {size}" for n, size in implied.items()))
        given |= implied
    return read.graph(given, fixed)


def _implied(
    read: ReadModel,
    known: Mapping[str, int],
    left: list[str],
    given: Mapping[str, tuple[int, ...] | int],
    fixed: Mapping[str, Array],
) -> dict[str, int]:
    """The sizes of which nothing is said that are numbers where the others are what they are said to be."""
    try:
        names = read_sizes({}, {}, read, given, fixed).ranges
        ranges = {name: (size, size) for name, size in known.items() if name in names}
        found = graphs_at(read, read_sizes(ranges, {}, read, given, fixed), given, fixed, 1)
    except UserError:
        return {}  # what is open is said when the model is read without it
    values = found[0][0].of_file()
    return {name: values[name] for name in left if not is_open(values[name])} if len(found) == 1 else {}
