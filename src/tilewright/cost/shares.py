"""Parts of caches: how much of a level is there for what. Each question is asked once, and has one answer.

Three are asked by many rules, of whichever level their data are meant for. The others were measured for one
use each, in which other data pass through the level meanwhile; the measurements stand beside them.
"""

from __future__ import annotations

from typing import Final

#: What is read again later, while other data pass: the values of a network between its kernels, an operand
#: that all tiles share, results of a group of columns, panels beside the rows that they are multiplied with.
KEPT_SHARE: Final = 0.5
#: What one nest holds at a time, in its own order, beside its constants and results: blocks of transformed
#: tiles, rows between two contractions, the present and the next panel of weights.
HELD_SHARE: Final = 0.6
#: What hardly anything else passes: operands that every tile sweeps over, the tile of a pipeline. The squares
#: of a transposition, by all second levels: Emerald Rapids, us, with and without asking for the next tile's
#: lines: 400x400 13 -> 15, 512x512 31 both, 700x700 148 -> 92, 1000x1000 455 -> 245, 1400x1400 922 -> 391.
SWEPT_SHARE: Final = 0.75

# -- the first level

#: A chunk of the panels that rows are multiplied with.
CHUNK_SHARE: Final = 0.25
#: The same where rows come from main memory. Emerald Rapids, 48 KiB, of all at once, with chunks of 8, 16, 64
#: and 256 KiB: 6144x4x2048 0.93, 0.95, 1.16, 1.14; 7680x4x2560 0.91, 1.03, 1.13, 1.14.
FAR_CHUNK_SHARE: Final = 1 / 6
#: A part of a result that is put in order, where the panels of all phases pass meanwhile (14 and 17 of 32
#: KiB: 10% faster than a copy at the end, 28 KiB: 6 to 11% slower).
PHASES_SHARE: Final = 0.6

# -- the second level

#: A part of a result that is put in order.
ORDERED_SHARE: Final = 0.125
#: A block of the first operand: panels and results need the rest.
BLOCK_SHARE: Final = 0.4
#: The present and the next panel of a matrix given at run time. Zen 4, the last level full of others' data,
#: asked for in place of not: 35x1500x2560 2.89 -> 2.33 ms, 35x1500x2048 1.86 -> 1.45; where the matrix may be
#: in that level (35x700x2560) 0.97 to 1.02 of the time.
MATRIX_SHARE: Final = 2 / 3
#: From which on lines of a panel, read in place, have left the level before the next tile. Zen 5, of cycles
#: at the peak: tiles of 7x2 and 12x2 take 35x1000x1000 in 94 and 91%, 35x1500x2048 in 83 and 93%,
#: 35x1500x2560 in 84 and 93%, 35x700x2560 in 79 and 89% (panels of 192, 393, 492 KB); 8x2 and 11x2
#: 64x700x2560 in 94 and 91%, 64x1500x2048 in 91 and 94%.
PANEL_SHARE: Final = 0.25
#: The results of a product whose reduction is cut.
RESULTS_SHARE: Final = 0.25
#: What is asked for ahead, until it is used.
NEXT_SHARE: Final = 0.25

# -- the last level, as a whole where it is shared

#: What an operand must exceed for rules that read it once: less comes as fast in any order. Of 20 to 128
#: rows: 32x4000x4096 6.7 -> 5.6 ms, 35x1500x2560 1.28 -> 1.56, 32x1024x4096 1.49 -> 1.27, 32x1024x1024 0.309
#: -> 0.325.
FAR_SHARE: Final = 0.25
#: What the first operand of a large product must exceed: the general rule does as well for less
#: (1024x700x512: 96% of the peak by both, 768x768x768: 96 and 95%, 1024x1024x1024: 89 and 94%).
LARGE_SHARE: Final = 1 / 12
#: The blocks of rows of all threads in it (6144x6000x2048: 82, 96, 97, 90% of the peak with 0.03, 0.06, 0.12,
#: 0.25; Zen 4, of whose level the cores' share is a quarter: 7680x1500x2560 280 ms with 0.03, 277 with 0.06,
#: 271 with 0.12).
ROWS_SHARE: Final = 0.12
#: Up to which each panel reads the first operand again (512x1500x2816: 93% of the peak, 88% in blocks with
#: copies; 2048x2048x2048: 87 and 95%; Zen 4 while others use that level, 512x6000x2560 72.8 and 78.1 ms,
#: 1024x3000x2048 97 and 60).
AGAIN_SHARE: Final = 3 / 8
