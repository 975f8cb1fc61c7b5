"""Docstrings: what their examples may take for granted, and whose are not collected."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest

# The suite is about the CPU unless a test names a device, on machines with a GPU as well.
os.environ.setdefault("RUDA_DEVICE", "cpu")

import ruda

# Without the extra `cpu` these modules cannot be imported.
collect_ignore_glob = [] if find_spec("numba") else ["ruda/backends/numpy/kernels/*.py"]


@pytest.fixture(autouse=True)
def _names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["ruda"] = ruda
