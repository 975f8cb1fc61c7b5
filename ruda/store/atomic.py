"""Replacing a file whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from ruda.core.errors import StoreError

# Some network and user-space file systems cannot sync a folder and say so with one of these.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write that becomes ``path`` only when the block ends without an exception.

    Until then, and after any failure or kill, ``path`` holds what it held before. The bytes are in
    a temporary file of the same folder, synced to disk, renamed, and the folder is synced. A link
    is followed and its target replaced. A new file gets the process's usual permissions, a replaced
    one keeps its own. Raises ``StoreError`` where ``path`` is anything but a regular file, and the
    ``OSError`` of a failed write; only ``kill -9`` can leave the temporary file behind.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(pathlib.Path(folder, "note")) as file:
    ...         _ = file.write(b"whole")
    ...     print(pathlib.Path(folder, "note").read_bytes())
    b'whole'
    """
    target = os.path.realpath(os.fspath(path))
    mode = _replaceable_mode(target)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".ruda-{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb", opener=_open_private if mode is not None else None) as file:
            if mode is not None:
                os.chmod(temporary, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def _replaceable_mode(target: str) -> int | None:
    """Return the permissions of the file at ``target``, or None where there is none yet."""
    try:
        # realpath leaves a link only where links form a loop: it is then no regular file.
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        # Where it is the folder that is missing, this names it.
        os.stat(os.path.dirname(target))
        return None
    if not stat.S_ISREG(mode):
        got, expected = f"{stat.filemode(mode)}", "a regular file or a free name"
        raise StoreError("save", "cannot be replaced", got, expected, "another path", target)
    return stat.S_IMODE(mode)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder outlast a crash, where its file system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)
