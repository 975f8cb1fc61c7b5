"""A folder whose subfolders appear whole, one for each step, and are removed whole."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator

from ruda.store.atomic import sync_folder

try:
    import fcntl
except ImportError:  # Windows, where nothing but the names keeps two writers apart.
    fcntl = None  # type: ignore[assignment]

_STEP = re.compile(r"step-([0-9]{8,19})")
_UNFINISHED = ".new-"
_REPLACED = ".old-"


def step_name(step: int) -> str:
    """The name of the subfolder of a step."""
    return f"step-{step:08}"


def steps_in(folder: str) -> list[tuple[int, str]]:
    """The steps there are, newest first, with the paths of their subfolders."""
    found = []
    for name in os.listdir(folder):
        match = _STEP.fullmatch(name)
        if match and name == step_name(int(match[1])):
            found.append((int(match[1]), os.path.join(folder, name)))
    return sorted(found, reverse=True)


def swept(folder: str) -> None:
    """Remove what a killed writer left unfinished, and put back what it was about to replace.

    Does nothing while somebody writes.
    """
    with locked(folder, wait=False) as is_mine:
        if not is_mine:
            return
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isdir(path):
                continue
            step = name.removeprefix(_REPLACED)
            if step != name and _STEP.fullmatch(step):
                _put_back(folder, path, step)
            elif name.startswith(_UNFINISHED):
                shutil.rmtree(path)


@contextlib.contextmanager
def appearing(folder: str, name: str) -> Iterator[str]:
    """Make a subfolder to fill that becomes ``name`` when the block ends without an exception.

    Until then, and after any failure or kill, ``name`` is what it was before.
    """
    target, new = os.path.join(folder, name), _aside(folder, _UNFINISHED)
    old = os.path.join(folder, _REPLACED + name)
    os.mkdir(new)
    try:
        yield new
        sync_folder(new)
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(new, target)
    except BaseException:
        if os.path.lexists(old):
            _put_back(folder, old, name)
        shutil.rmtree(new, ignore_errors=True)
        raise
    sync_folder(folder)
    if os.path.lexists(old):
        shutil.rmtree(old)


def removed(folder: str, path: str) -> None:
    """Remove a subfolder so that nobody sees it half removed."""
    aside = _aside(folder, _UNFINISHED)
    os.rename(path, aside)
    shutil.rmtree(aside)


@contextlib.contextmanager
def locked(folder: str, *, wait: bool) -> Iterator[bool]:
    """Keep other writers out; without ``wait`` say whether that could be done at once.

    The lock is the kernel's, so it ends with the process, however that ends.
    """
    if fcntl is None:
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _lock(handle, wait)
    finally:
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        # Somebody else's, or a file system without locks, where nothing is swept.
        return False
    return True


def _put_back(folder: str, path: str, name: str) -> None:
    """End what a kill between two renames left: the new one stands, or else the old one again."""
    if os.path.lexists(os.path.join(folder, name)):
        shutil.rmtree(path)
    else:
        os.rename(path, os.path.join(folder, name))


def _aside(folder: str, prefix: str) -> str:
    return os.path.join(folder, f"{prefix}{os.urandom(8).hex()}")
