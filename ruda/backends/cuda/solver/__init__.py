"""Decompositions and solves by cuSOLVER and cuBLAS, and cross products."""
