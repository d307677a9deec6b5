"""How exact results must be: which algorithms other than the direct one may compute sums of products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.plan.algorithms.choice import MOST_ERROR, WINOGRAD_MODES, WinogradMode
from tilewright.support import InputError

#: Words for what is asked for, beside a number: the largest error that is accepted.
EXACT: Final = "exact"
ACCURACIES: Final = (EXACT, "auto", "f2", "f4")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What may be done instead of the direct method, and the largest error, of the largest result, for that.

    The error is measured with each layer's own weights in a sample.
    """

    method: WinogradMode = "auto"
    most_error: float = MOST_ERROR


def read_accuracy(wanted: str | float, winograd: str | None = None) -> Accuracy:
    """What ``accuracy=`` asks for: a word of ``ACCURACIES``, or the largest error, also as text.

    ``winograd`` is its older name, with ``off`` for ``exact``. Raises InputError for anything else.
    """
    if winograd is not None:
        if wanted != "auto":
            raise InputError(
                "accuracy= and winograd= say the same thing", hint="give accuracy= alone, the newer name"
            )
        for mode in WINOGRAD_MODES:
            if winograd == mode:
                return Accuracy(mode)
        raise InputError(
            f"there is no method winograd={winograd!r}", hint=f"it is one of {', '.join(WINOGRAD_MODES)}"
        )
    if wanted == EXACT:
        return Accuracy("off")
    for mode in WINOGRAD_MODES:
        if wanted == mode and mode != "off":
            return Accuracy(mode)
    try:
        error = float(wanted)
    except (TypeError, ValueError):
        error = -1.0
    if isinstance(wanted, bool) or not 0 < error < 1:
        raise InputError(
            f"accuracy={wanted!r} is neither {', '.join(ACCURACIES)} nor an error between 0 and 1",
            hint="'exact' is the direct method; 1e-6 accepts that error, of the largest result",
        )
    return Accuracy("auto", error)
