"""Bulky NumPy meanings of operators: pure functions on ndarrays, named by the rows of the table."""
