"""Differentiation: the backward walk over the tape and the functions built on it."""
