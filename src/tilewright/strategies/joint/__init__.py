"""Layouts and loops searched together: templates of layouts, actors that choose, a learned model (ALT)."""
