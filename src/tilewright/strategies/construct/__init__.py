"""Kernels by construction: plans from states of tilings, priced by a model, nothing measured (Gensor).

There so far: the tilings of one reduction on a CPU, and of products on GPUs; their exact values, walks and
the tree alone; their way back to plans. Not there: nests other than contractions by register tiles and
general reductions, on GPUs other than products.
"""
