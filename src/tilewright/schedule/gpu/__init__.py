"""Primitives for blocks of threads: copies that they share, tiles that are copied ahead, banks, lanes."""
