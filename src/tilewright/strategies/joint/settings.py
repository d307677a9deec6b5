"""Settings of the joint search: budgets of its stages, and constants of the paper and our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class JointSettings:
    """What a search may spend, and how it looks around.

    ``joint`` trials choose layouts, ``loops`` follow with the best of them; a search whose caller has more
    to spend goes on with loops. ``batch`` points are drawn to begin an episode of ``episode`` steps, of
    whose points the best ``measured`` by the model are measured; in the joint stage only ``each``, for each
    of the ``rounds`` that a layout gets there. ``levels`` is how often a result may be tiled by its layout.
    """

    joint: int = 24
    loops: int = 40
    batch: int = 128
    episode: int = 128
    measured: int = 8
    each: int = 3
    rounds: int = 1
    levels: int = 1


#: A few seconds for a kernel: as many trials as ``tilewright tune`` gives one.
QUICK: Final = JointSettings()
#: ALT, Sec. 7.1: a single operator.
OPERATOR: Final = JointSettings(joint=300, loops=700, each=8, rounds=2, levels=2)
#: ALT, Sec. 7.2: a network, over all its operators.
NETWORK: Final = JointSettings(joint=8000, loops=12000, each=8, rounds=2)

#: U of the reward U - l (ALT, formula 3), where l is the time over the untuned one.
REWARD: Final = 2.0
#: l of what was refused, or is no plan.
REFUSED: Final = 2.0
#: How much of a later reward counts for an earlier step of the walk.
DISCOUNT: Final = 0.8
#: Part of what is measured that is drawn, not chosen by the model: the model would see its own choices only.
DRAWN: Final = 0.25
#: Trials before the learned model is asked.
LEAST_SAMPLES: Final = 12
#: Layouts whose choice one update of their actor looks back on.
REMEMBERED: Final = 8
#: Layouts in a row that are refused or known, after which there are none left.
MOST_REFUSED: Final = 24
#: Loop parameters that states have room for.
MOST_PARAMETERS: Final = 24
#: The tiles of Table 3 of the paper.
TABLE_3: Final = {"ht": 4, "wt": 16, "ot": 16, "it": 1}
