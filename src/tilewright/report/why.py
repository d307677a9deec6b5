"""Why a nest is made as it is, as text: its loops, the prices of the other ways, what was refused."""

from __future__ import annotations

import textwrap
from typing import Final

from tilewright.plan import Candidate, Reasons
from tilewright.support import shortened

#: Other ways of each kind that are shown; ``--json`` has all.
MOST_SHOWN: Final = 12
MOST_REFUSED: Final = 6
WIDTH: Final = 120
#: Terms that take less of a price than this are left out.
LEAST_SHARE: Final = 0.05


def as_reasons(reasons: Reasons, most: int = MOST_SHOWN) -> str:
    """The text of one nest: what was taken, then the ``most`` cheapest of the others."""
    before = f" with {', '.join(reasons.stages)}" if reasons.stages else ""
    lines = [f"nest {reasons.root}{before}: by the rule {reasons.taken.rule}"]
    lines += [f"    {line}" for line in textwrap.wrap(reasons.plan, WIDTH - 4)]
    lines += [f"  {line}" for line in reasons.tree.splitlines()]
    lines.append(_line(reasons.taken, None, "taken"))
    priced = [each for each in reasons.others if each.seconds is not None]
    lines += [_line(each, reasons.taken.seconds, each.change) for each in priced[:most]]
    unknown = [each for each in reasons.others if each.seconds is None and not each.refused]
    lines += [_line(each, None, each.change) for each in unknown[: most - len(priced)]]
    left = len(priced) + len(unknown) - most
    if left > 0:
        lines.append(f"{'':>12}  … and {left} more")
    refused = [each for each in reasons.others if each.refused]
    lines += [shortened(f"{'refused':>12}  {x.change}: {x.refused}", WIDTH) for x in refused[:MOST_REFUSED]]
    if reasons.margin is not None and reasons.margin < 1:
        less = 1 - reasons.margin
        lines.append(
            f"{'':>12}  by the model another way takes {less:.0%} less; the rule follows its own order"
        )
    return "\n".join(lines) + "\n"


def _line(each: Candidate, taken: float | None, what: str) -> str:
    if each.seconds is None:
        price = "by a schedule"
    elif taken:
        price = f"x {each.seconds / taken:.2f}"
    else:
        price = f"{each.seconds * 1e6:.3g} us"
    terms = sorted(each.terms.items(), key=lambda term: -term[1])
    shown = ", ".join(
        f"{name} {value * 1e6:.3g}" for name, value in terms if value > LEAST_SHARE * (each.seconds or 0)
    )
    return shortened(f"{price:>12}  {what}{f'  ({shown})' if shown else ''}", WIDTH)
