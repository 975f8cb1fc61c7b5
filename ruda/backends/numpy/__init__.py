"""The CPU backend: the NumPy references of the table, run on ndarrays."""
