"""Pipelines: chains of stencils and point-wise stages, in strips of rows."""
