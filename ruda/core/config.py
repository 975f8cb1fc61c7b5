"""Every environment variable that ruda reads, with its default and a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

VARIABLES: dict[str, tuple[str, str]] = {
    "RUDA_DEVICE": (
        "",
        "Where new tensors are made when no device is given; empty: a usable GPU, else the CPU.",
    ),
    "RUDA_DEFAULT_FLOAT": ("float32", "Dtype of Python floats and of factories without a dtype."),
    "RUDA_DEFAULT_INT": ("int32", "Dtype of Python integers without a dtype."),
    "RUDA_CACHE": ("", "Folder of compiled kernels; empty means ruda/ in the user's cache folder."),
    "RUDA_ALLOC_CONF": (
        "",
        "How a GPU's memory is handed out: backend (pool, async, direct), split and more.",
    ),
    "RUDA_CUDA_ALLOC": ("", "Another name of RUDA_ALLOC_CONF."),
    "RUDA_MEMORY_DEBUG": (
        "",
        "redzone: canaries around every block of a GPU's memory, and NaN in fresh memory.",
    ),
    "RUDA_LAUNCH_BLOCKING": (
        "",
        "1: wait for the GPU after each operator, so that a failure names it.",
    ),
    "CUDA_LAUNCH_BLOCKING": ("", "The CUDA tools' name of RUDA_LAUNCH_BLOCKING."),
    "RUDA_AUTOTUNE": (
        "off",
        "Choosing products' algorithms on a GPU: off, cached (by times kept on disk), on (timed).",
    ),
    "RUDA_CPU_KERNELS": (
        "auto",
        "off: the CPU runs NumPy alone; auto: also the kernels of the extra cpu, where installed.",
    ),
}


def value(name: str) -> str:
    """The value of the variable ``name``, or its default; an empty one counts as unset."""
    return os.environ.get(name) or VARIABLES[name][0]


def watch(name: str) -> Callable[[], Any]:
    """What gives something that differs once the variable ``name`` is another one.

    It looks into the table behind ``os.environ``, where there is one: a lookup that finds nothing
    raises and catches an error otherwise, at each call of a compiled step.
    """
    variables = os.environ
    table = getattr(variables, "_data", None)
    if table.__class__ is not dict:
        return lambda: os.environ.get(name)
    key = variables.encodekey(name)
    find = table.get
    return lambda: find(key) if os.environ is variables else os.environ.get(name)
