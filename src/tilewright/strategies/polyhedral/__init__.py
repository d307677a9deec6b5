"""Tile the live-out space, derive what tiles need of producers, fuse after tiling (Zhao & Di, MICRO 2020)."""
