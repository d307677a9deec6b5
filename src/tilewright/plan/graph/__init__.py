"""Decisions about a whole model: layouts of values, joins of kernels, parts of a batch."""
