"""Program-phase primitives that change arithmetic without changing results: one a file."""
