"""Other algorithms for contractions: Winograd, Strassen, products of bf16 pieces."""
