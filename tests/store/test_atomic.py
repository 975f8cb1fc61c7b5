"""Whatever stops a save, the file is its old self or its new one, never a mixture."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ruda.core.errors import StoreError
from ruda.store import safetensors
from ruda.store.atomic import replacing
from ruda.store.safetensors import load_arrays, save_arrays

NAMES = ("a", "b", "c", "d")
# A save of NAMES passes these points: one per tensor, file sync, rename, folder sync.
POINTS = len(NAMES) + 3
ROOT = Path(__file__).parents[2]


def arrays_of(value: int) -> dict[str, np.ndarray]:
    return {name: np.full(100_000, value) for name in NAMES}


def value_of(path: Path) -> int:
    """The one value that all of a whole file's arrays hold."""
    loaded, _ = load_arrays(path)
    assert tuple(loaded) == NAMES
    values = {int(value) for array in loaded.values() for value in np.unique(array)}
    assert len(values) == 1
    return values.pop()


STOPPED = """
import os, signal, sys
import numpy as np
from ruda.store import safetensors

def stopping(function):
    def call(*args):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)
    return call

left = int(sys.argv[2])
os.fsync, os.replace = stopping(os.fsync), stopping(os.replace)
safetensors._little_endian_bytes = stopping(safetensors._little_endian_bytes)
safetensors.save_arrays(sys.argv[1], {name: np.full(100_000, 2) for name in "abcd"})
"""

ENDLESS = """
import sys
import numpy as np
from ruda.store import safetensors

value = 1
while True:
    value += 1
    safetensors.save_arrays(sys.argv[1], {name: np.full(100_000, value) for name in "abcd"})
    print(value, flush=True)
"""


def started(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("point", range(POINTS))
def test_kill_at_each_point_leaves_a_whole_file(tmp_path, point):
    path = tmp_path / "model.safetensors"
    save_arrays(path, arrays_of(1))
    with started(STOPPED, path, point) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert value_of(path) == (2 if point == POINTS - 1 else 1)


@pytest.mark.parametrize("seed", range(4))
def test_kill_at_any_moment_leaves_a_whole_file(tmp_path, seed):
    path = tmp_path / "model.safetensors"
    save_arrays(path, arrays_of(1))
    with started(ENDLESS, path) as process:
        assert process.stdout.readline() == "2\n"
        time.sleep(random.Random(seed).uniform(0, 0.1))
        process.kill()
        printed = [2, *map(int, process.stdout.read().split())]
    # The last save may have been renamed but not yet reported.
    assert value_of(path) - printed[-1] in (0, 1)


@pytest.fixture
def stop_at(monkeypatch):
    """Call `stop` at one of the points of a save."""

    def arm(point: int, stop) -> None:
        passed = iter(range(POINTS))

        def stopping(function):
            def call(*args):
                if next(passed) == point:
                    stop()
                return function(*args)

            return call

        for owner, name in ((os, "fsync"), (os, "replace"), (safetensors, "_little_endian_bytes")):
            monkeypatch.setattr(owner, name, stopping(getattr(owner, name)))

    return arm


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("point", range(POINTS))
def test_keyboard_interrupt_leaves_a_whole_file_and_no_temporary(tmp_path, stop_at, point):
    path = tmp_path / "model.safetensors"
    save_arrays(path, arrays_of(1))
    stop_at(point, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        save_arrays(path, arrays_of(2))
    assert os.listdir(tmp_path) == [path.name]
    assert value_of(path) == (2 if point == POINTS - 1 else 1)


@pytest.mark.parametrize("point", range(POINTS - 1))
def test_full_disk_leaves_the_old_file_and_no_temporary(tmp_path, stop_at, point):
    def refuse() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "model.safetensors"
    save_arrays(path, arrays_of(1))
    stop_at(point, refuse)
    with pytest.raises(OSError, match="No space left"):
        save_arrays(path, arrays_of(2))
    assert os.listdir(tmp_path) == [path.name]
    assert value_of(path) == 1


def test_a_write_that_the_system_refuses_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.safetensors"
    save_arrays(path, arrays_of(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_arrays(path, arrays_of(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == [path.name]
    assert value_of(path) == 1


def test_the_file_is_synced_before_the_rename_and_the_folder_after(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def noted_sync(handle: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def noted_replace(source: str, target: str) -> None:
        assert os.path.dirname(source) == os.path.dirname(target) == str(tmp_path)
        events.append(os.path.getsize(source))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with replacing(tmp_path / "note") as file:
        file.write(b"whole")
    assert events == ["file", 5, "folder"]


def test_folders_that_cannot_be_synced_are_accepted(tmp_path, monkeypatch):
    fsync = os.fsync
    code = errno.EINVAL

    def refusing(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refusing)
    with replacing(tmp_path / "note") as file:
        file.write(b"whole")
    assert (tmp_path / "note").read_bytes() == b"whole"
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"), replacing(tmp_path / "note"):
        pass


def test_permissions_follow_the_umask_or_the_replaced_file(tmp_path):
    path = tmp_path / "note"
    for mask in (0o022, 0o077, 0o002):
        path.unlink(missing_ok=True)
        before = os.umask(mask)
        try:
            with replacing(path):
                pass
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    for mode in (0o600, 0o640, 0o666):
        path.chmod(mode)
        with replacing(path) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_links_are_followed(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "real").write_bytes(b"old")
    link, dangling, loop = tmp_path / "link", tmp_path / "dangling", tmp_path / "loop"
    link.symlink_to(Path("elsewhere", "real"))
    dangling.symlink_to(folder / "new")
    loop.symlink_to(loop)
    for path, name in ((link, "real"), (dangling, "new")):
        with replacing(path) as file:
            file.write(b"new")
        assert path.is_symlink()
        assert (folder / name).read_bytes() == b"new"
    with pytest.raises(StoreError, match="cannot be replaced"), replacing(loop):
        pass
    assert sorted(os.listdir(folder)) == ["new", "real"]


def test_only_regular_files_are_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe, Path("/dev/null")):
        with pytest.raises(StoreError, match=r"save: cannot be replaced in .* Got .* Expected"):
            save_arrays(path, arrays_of(1))
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        save_arrays(tmp_path / "none" / "model.safetensors", arrays_of(1))
    assert caught.value.filename == str(tmp_path / "none")


def test_names_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    save_arrays(path, arrays_of(3))
    assert value_of(path) == 3
