"""Reductions that are no sums of two factors: any number of operands, any semiring."""
