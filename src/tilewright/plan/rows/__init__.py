"""Reductions along rows, and chains of them (softmax, normalisations)."""
