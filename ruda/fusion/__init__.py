"""Compiled steps: the trace of a function, its guards and state, and the replay."""
