"""Every environment variable that ruda reads, with its default and a sentence."""

from __future__ import annotations

import os

VARIABLES: dict[str, tuple[str, str]] = {
    "RUDA_DEVICE": ("cpu", "Where new tensors are made when no device is given."),
    "RUDA_DEFAULT_FLOAT": ("float32", "Dtype of Python floats and of factories without a dtype."),
    "RUDA_DEFAULT_INT": ("int32", "Dtype of Python integers without a dtype."),
    "RUDA_CACHE": ("", "Folder of compiled kernels; empty means ruda/ in the user's cache folder."),
    "RUDA_CPU_KERNELS": (
        "auto",
        "off: the CPU runs NumPy alone; auto: also the kernels of the extra cpu, where installed.",
    ),
}


def value(name: str) -> str:
    """The value of the variable ``name``, or its default; an empty one counts as unset."""
    return os.environ.get(name) or VARIABLES[name][0]
