"""Simple searches that others are compared with."""
