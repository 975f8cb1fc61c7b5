"""The compile gate: every CUDA kernel through NVRTC for every architecture, without a GPU.

``listing`` finds the kernels by running operators on a device that only notes what it would launch,
``calls`` holds the operators beyond the samples of the table, ``programs`` compiles many kernels at
once and judges what ptxas says of them, ``__main__`` is the command that ``make kernels`` runs.
"""
