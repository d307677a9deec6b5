"""Graphs of models with open sizes: one at all sizes, or a few where a comparison parts them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.build import Array
from tilewright.driver.open_sizes import OpenSizes
from tilewright.frontend import OpenSource, Shapes
from tilewright.graph import Graph
from tilewright.ir import OpenSignError, RelationError
from tilewright.support import ModelError, get_logger

_log = get_logger(__name__)


def graphs_at(
    model: OpenSource, sizes: OpenSizes, shapes: Shapes, constants: Mapping[str, Array], most: int
) -> list[tuple[OpenSizes, Graph]]:
    """The graph at all sizes, or graphs at parts of their range, without sizes at which there is no model.

    Raises what importing raises where there is no model at any.
    """
    try:
        return [(sizes, model.graph(shapes, constants, sizes.of_file(), sizes.said))]
    except RelationError as error:
        known = sizes.with_equal(error.difference)
        if known is None:
            parts = sizes.parted(error.difference, equal=True)
        else:
            _log.info("%s: %s has to be 0", error.where, sizes.shown(error.difference))
            parts = (known,)
        refusal: ModelError = error
    except OpenSignError as error:
        parts = sizes.parted(error.difference) if most > 1 else ()
        if parts:
            _log.info("%s: a plan for each sign of %s", error.where, sizes.shown(error.difference))
        refusal = error
    found: list[tuple[OpenSizes, Graph]] = []
    for part in parts:
        try:
            found += graphs_at(model, part, shapes, constants, most // len(parts))
        except ModelError as error:
            refusal = error
    if not found:
        raise refusal
    return found
