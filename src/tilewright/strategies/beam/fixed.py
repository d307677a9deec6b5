"""Parts of a state that the user has decided: where some stages are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from tilewright.plan import AtLoop, StageGraph, loops_of
from tilewright.strategies.beam.state import Place, State
from tilewright.support import InputError, known_names, quoted

#: The place of stages by their number, and the root of the nest that they are in (-1: of none; no number:
#: of that where the producer is inside of whose loop they are).
Fixed: TypeAlias = Mapping[int, tuple[Place, int | None]]
#: What a user writes, by the place inside of a nest.
INSIDE: Final[Mapping[str, Place]] = {"tile": "tile", "row": "row", "slide": "slide"}


def fixed_parts(g: StageGraph, given: Mapping[str, str]) -> Fixed:
    """The places of stages by name: ``own``, ``inline``, or ``ROOT.tile``, ``ROOT.row``, ``ROOT.slide``.

    Or ``STAGE.AXIS``, inside of the loop along an axis of another producer.
    Raises InputError for other places, for names of no stages, and for stages that are not decided about.
    """
    numbers = {n.name: n.index for n in g.nodes}

    def number(name: str) -> int:
        if name not in numbers:
            hint = known_names(name, list(numbers), "the stages")
            raise InputError(f"the program has no stage {quoted(name)}", hint=hint)
        if not g.nodes[numbers[name]].plain:
            raise InputError(
                f"nothing is decided about the stage {quoted(name)}",
                hint="scans, updates and stages of several results keep their default schedule",
            )
        return numbers[name]

    out: dict[int, tuple[Place, int | None]] = {}
    for name, text in given.items():
        n, (home, _, place) = number(name), text.rpartition(".")
        if text == "own":
            out[n] = "own", n
        elif text == "inline":
            out[n] = "inline", -1
        elif home and place in INSIDE:
            out[n] = INSIDE[place], number(home)
        elif home and place in (loops := [it.name for it in loops_of(g.nodes[number(home)].stage)]):
            out[n] = AtLoop(home, loops.index(place)), None
        else:
            raise InputError(
                f"{quoted(text)} is no place for the stage {quoted(name)}",
                hint="own, inline, or inside of another nest: ROOT.tile, ROOT.row, ROOT.slide, STAGE.AXIS",
            )
    return out


def keeps(state: State, fixed: Fixed) -> bool:
    """Whether a state has the fixed parts."""
    return all(
        state.places[n] == place and home in (None, state.homes[n]) for n, (place, home) in fixed.items()
    )
