"""The words every layer shares: dtypes, shapes, specs, devices, errors, modes.

Nothing in this package imports anything of ruda outside it.
"""
