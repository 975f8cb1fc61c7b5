"""Kernels of the primitive kinds: maps, reductions, copies, factories."""
