"""The text of kernels that are written by hand: a ``.cu`` file beside its launcher, with settings.

A setting is a ``#define`` between the headers and the rest of the file: types, sizes, the name of
the kernel. One file so serves a class of kernels, and each instance has its own readable name.
"""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")


def instance(launcher: str, **settings: object) -> str:
    """The source of the ``.cu`` file with the stem of ``launcher`` (a ``__file__``), as set."""
    lines = _text(Path(launcher).with_suffix(".cu")).splitlines()
    headers = [line for line in lines if line.startswith("#include")]
    rest = [line for line in lines if not line.startswith("#include")]
    defines = [f"#define {name} {value}" for name, value in settings.items()]
    return "\n".join([*headers, *defines, *rest, ""])
