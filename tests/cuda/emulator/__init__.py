"""Kernels on the CPU: a driver that compiles CUDA C as C++ and runs it thread by thread.

What needs the instructions of a real GPU is out of its reach; everything else is computed for true,
with every allocation between canaries and filled with NaN at first.
"""

from tests.cuda.emulator.driver import EmulatedDriver, EmulatedPool, emulated_client

__all__ = ["EmulatedDriver", "EmulatedPool", "emulated_client"]
