"""Batches in memory that two processes share: pickled, with the contents of arrays on the side."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import pickle
import secrets
import tempfile
from typing import Any

import numpy as np

from ruda.data.errors import SharedMemoryError

# Where files are memory and never reach a disk. Elsewhere a temporary file is shared as well.
MOUNT = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()

_ALIGNMENT = 64
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Pickler(pickle.Pickler):
    """Keeps arrays of every dtype out of the stream; NumPy does so only for its own dtypes."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype.kind == "V" and value.dtype.names is None:
            bits = np.dtype(f"u{value.dtype.itemsize}") if value.dtype.itemsize <= 8 else None
            if bits is not None and value.flags.c_contiguous:
                return _viewed, (value.view(bits), value.dtype)
        return NotImplemented


def _viewed(bits: Any, dtype: Any) -> Any:
    return bits.view(dtype)


def new_path() -> str:
    """A free name in shared memory for one worker."""
    return os.path.join(MOUNT, f"ruda-{os.getpid()}-{secrets.token_hex(8)}")


def write(value: Any, path: str) -> tuple[bytes, list[int]]:
    """Put the arrays of ``value`` into the new file ``path``; returns the rest, and their sizes.

    Without arrays no file is made. Raises ``SharedMemoryError`` where there is no room.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    sizes = [view.nbytes for view in views]
    total = _offsets(sizes)[-1]
    if total == 0:
        return stream.getvalue(), sizes
    with open(path, "xb+", opener=_private) as file:
        _reserve(file.fileno(), total, path)
        with mmap.mmap(file.fileno(), total) as memory:
            for view, offset in zip(views, _offsets(sizes), strict=False):
                memory[offset : offset + view.nbytes] = view
    return stream.getvalue(), sizes


def read(stream: bytes, sizes: list[int], path: str) -> Any:
    """What ``write`` was given; its arrays lie in the shared memory, whose name is taken away."""
    offsets = _offsets(sizes)
    if offsets[-1] == 0:
        return pickle.loads(stream, buffers=[bytearray() for _ in sizes])
    with open(path, "rb+") as file:
        memory = memoryview(mmap.mmap(file.fileno(), offsets[-1]))
    remove(path)
    parts = [memory[o : o + n] for o, n in zip(offsets, sizes, strict=False)]
    return pickle.loads(stream, buffers=parts)


def remove(path: str) -> None:
    """Take the name away, if it is still there; memory in use lives on."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _offsets(sizes: list[int]) -> list[int]:
    out = [0]
    for size in sizes:
        out.append(out[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
    return out


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _reserve(handle: int, size: int, path: str) -> None:
    # Writing to a page that was not reserved kills the process once the mount is full.
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.ftruncate(handle, size)
    except OSError as error:
        os.unlink(path)
        if error.errno not in _FULL:
            raise
        folder = os.path.dirname(path)
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        what = f"shared memory in {folder} has no room for a batch"
        got = f"{size:,} bytes, {free:,} of them free"
        hint = (
            "a larger mount (docker run --shm-size), a smaller batch_size or prefetch, or threads"
        )
        raise SharedMemoryError("DataLoader", what, got, hint=hint) from error
