"""Primitives that move computation and storage of producers and consumers: one a file."""
