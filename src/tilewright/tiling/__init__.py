"""Tilings: the value in which decisions about a nest are written, and the function that carries them out."""

from tilewright.tiling.apply import apply
from tilewright.tiling.edits import Edit, neighbours
from tilewright.tiling.grammar import (
    KEPT,
    MADE,
    Bind,
    Body,
    Cut,
    How,
    Leaf,
    Level,
    Nest,
    Place,
    Seq,
    Tail,
    items_of,
    sequence,
)
from tilewright.tiling.price import Prices
from tilewright.tiling.steps import Step, chain, expanded, guarded, shared_chain, together
from tilewright.tiling.text import parse, show
from tilewright.tiling.verify import verify

__all__ = [
    "KEPT",
    "MADE",
    "Bind",
    "Body",
    "Cut",
    "Edit",
    "How",
    "Leaf",
    "Level",
    "Nest",
    "Place",
    "Prices",
    "Seq",
    "Step",
    "Tail",
    "apply",
    "chain",
    "expanded",
    "guarded",
    "items_of",
    "neighbours",
    "parse",
    "sequence",
    "shared_chain",
    "show",
    "together",
    "verify",
]
