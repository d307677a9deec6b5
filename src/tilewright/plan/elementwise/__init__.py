"""Element-wise stages: vectors, copies, transpositions."""
