"""Contractions: register tiles and the nests around them."""
