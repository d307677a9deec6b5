"""Primitives on loops: one a file."""
