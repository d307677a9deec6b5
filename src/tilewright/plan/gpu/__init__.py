"""Rules of GPUs: products of matrices in tiles, rows by blocks or warps, elements by threads."""
