"""Chains of contractions as one nest."""
