"""What users say of accuracy: words and numbers, and the older name of the same."""

from __future__ import annotations

from typing import Final

from tilewright.plan.algorithms.accuracy import AUTO, EXACT, Accuracy, AccuracyMode
from tilewright.plan.algorithms.methods import METHODS
from tilewright.support import InputError

#: Words for what is asked for, beside a number: the largest error that is accepted.
ACCURACIES: Final[tuple[AccuracyMode, ...]] = ("exact", "auto", "f2", "f4")
#: The older words, of ``winograd=``.
WINOGRAD_MODES: Final = ("auto", "off", "f2", "f4")
#: Before the name of an algorithm, or of a variant of one, that is to be left out.
WITHOUT: Final = "no-"


def read_accuracy(wanted: str | float, winograd: str | None = None) -> Accuracy:
    """What ``accuracy=`` asks for: a word of ``ACCURACIES``, or the largest error, also as text.

    ``no-strassen`` is ``auto`` without that algorithm, ``no-f4,no-bf16x3`` without two. ``winograd`` is the
    older name of all this, with ``off`` for ``exact``. Raises InputError for anything else.
    """
    if winograd is not None:
        if wanted != "auto":
            raise InputError(
                "accuracy= and winograd= say the same thing", hint="give accuracy= alone, the newer name"
            )
        if winograd not in WINOGRAD_MODES:
            raise InputError(
                f"there is no method winograd={winograd!r}", hint=f"it is one of {', '.join(WINOGRAD_MODES)}"
            )
        wanted = "exact" if winograd == "off" else winograd
    for mode in ACCURACIES:
        if wanted == mode:
            return {"auto": AUTO, "exact": EXACT}.get(mode, Accuracy(mode))
    if isinstance(wanted, str) and wanted.startswith(WITHOUT):
        return AUTO.but(name for word in wanted.split(",") for name in _left_out(word, wanted))
    try:
        error = float(wanted)
    except (TypeError, ValueError):
        error = -1.0
    if isinstance(wanted, bool) or not 0 < error < 1:
        raise InputError(
            f"accuracy={wanted!r} is neither {', '.join(ACCURACIES)} nor an error between 0 and 1",
            hint="'exact' is the direct method; 1e-6 accepts that error, of the largest result; "
            "'no-strassen' leaves one algorithm out",
        )
    return Accuracy("auto", error)


def _left_out(word: str, wanted: str) -> tuple[str, ...]:
    """The variants that a word leaves out."""
    known = {m.algorithm.name: m.algorithm.variants for m in METHODS.values()}
    known |= {variant: (variant,) for m in METHODS.values() for variant in m.algorithm.variants}
    name = word.strip().removeprefix(WITHOUT)
    if not word.strip().startswith(WITHOUT) or name not in known:
        raise InputError(
            f"accuracy={wanted!r} leaves out {word.strip()!r}, which is no algorithm",
            hint=f"those that can be left out are {', '.join(WITHOUT + each for each in known)}",
        )
    return known[name]
