"""Opening and reading files that may be absent, cut short, or no files at all."""

from __future__ import annotations

import os
import stat
from io import FileIO

import numpy as np

from ruda.core.errors import StoreError
from ruda.store.errors import MissingFileError

Path = str | os.PathLike[str]

_GIB = 1 << 30


def opened(path: Path) -> FileIO:
    """Open a regular file to read, without waiting for anybody to write to it.

    Raises ``MissingFileError``, or ``StoreError`` for a folder, pipe or device.
    """
    where = os.fspath(path)
    try:
        file = FileIO(where, opener=_open_without_waiting)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(where) from error
    except IsADirectoryError as error:
        raise _not_a_file(where, "a folder") from error
    except ValueError as error:
        raise _not_a_file(where, "a path with a zero byte") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _not_a_file(where, "a pipe or device")
    return file


def read_into(file: FileIO, space: memoryview) -> None:
    """Fill ``space`` from the file; raises ``StoreError`` where it ends before."""
    done = 0
    while done < len(space):
        count = file.readinto(space[done:])
        if not count:
            raise shrunk(file.name, f"{done} of {len(space)} bytes")
        done += count


def read_small(path: Path, limit: int) -> bytes:
    """Read a whole file; raises ``StoreError`` where it is longer than ``limit`` bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            got, hint = f"{size} bytes", "another file, this one holds no such thing"
            raise StoreError("load", "too large", got, f"at most {limit}", hint, file.name)
        space = bytearray(size)
        read_into(file, memoryview(space))
    return bytes(space)


def shrunk(path: str, got: str) -> StoreError:
    """The error for a file whose size is no longer what it was when it was checked."""
    expected, hint = "the size it had when opened", "loading after its writer has finished"
    return StoreError("load", "the file became shorter", got, expected, hint, path)


def expansion_limit(size: int) -> int:
    """How many bytes of tensors a file of ``size`` bytes may become without being asked for.

    Compression and repeated memory let a small file stand for more than any machine has; honest
    weights grow by far less than this.
    """
    return max(_GIB, 32 * size)


def check_booleans(array: np.ndarray, op: str, name: str, path: str) -> None:
    """Raise ``StoreError`` for a boolean that is not the byte 0 or 1.

    NumPy and kernels take for granted that there is none.
    """
    if array.dtype != np.bool_ or not array.size:
        return
    top = array.view(np.uint8).max()
    if top > 1:
        expected, hint = "0 or 1 in every byte", "dtype uint8, or x.view(numpy.uint8) != 0"
        raise StoreError(op, "not booleans", f"a byte {top}", expected, hint, path, name)


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would otherwise wait for somebody to write to it.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _not_a_file(path: str, got: str) -> StoreError:
    hint = "the path of one file, for instance model.safetensors inside a folder"
    return StoreError("load", "not a regular file", got, "a file of tensors", hint, path)
