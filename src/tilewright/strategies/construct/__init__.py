"""Kernels by construction: plans from walks over tilings, priced by a model, nothing measured (Gensor).

There so far: the tilings of one reduction on a CPU, its walks and their way back to plans. Not there yet:
levels of GPUs, the exact Bellman values (formulas 5 and 6), the tree variant (Roller), nests other than
contractions by register tiles and general reductions.
"""
