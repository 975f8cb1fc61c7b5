"""Libraries that are not there: they do with NumPy what the real ones do on a GPU.

They read and write the emulated device's memory, which is the host's, and take their arguments as
the real ones do: a wrong leading dimension or batch step gives wrong numbers.
"""
