"""Interpreter exit, Ctrl-C and a killed training process leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ruda.data import shared
from tests.sources import ROOT

SCRIPT = """
import os, sys, time
import numpy as np
from ruda.data import DataLoader

class Slow:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index > 3:
            time.sleep({sleep})
        return np.full(50_000, index, np.float32), os.getpid()

if __name__ == "__main__":
    batches = iter(DataLoader(Slow(), 2, num_workers=2, processes={processes}))
    pids = {{int(p) for _ in range(2) for p in next(batches)[1].tolist()}} | {{os.getpid()}}
    print(*pids, flush=True)
    {end}
"""


def started(tmp_path: Path, processes: bool, end: str, sleep: float = 0.2) -> Any:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(processes=processes, end=end, sleep=sleep), "utf-8")
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process whose parent was killed waits for whoever inherits it.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def assert_gone(pids: list[int], parent: int) -> None:
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if is_alive(pid)]
    assert not [n for n in os.listdir(shared.MOUNT) if n.startswith(f"ruda-{parent}-")]


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("sleep", [0.05, 30.0])
def test_exit_with_an_iterator_alive(tmp_path: Path, processes: bool, sleep: float) -> None:
    child = started(tmp_path, processes, "pass", sleep)
    out, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")
    assert_gone([int(pid) for pid in out.split()], child.pid)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("processes", [False, True])
def test_interrupt(tmp_path: Path, processes: bool) -> None:
    child = started(tmp_path, processes, "list(batches)")
    pids = [int(pid) for pid in child.stdout.readline().split()]
    time.sleep(0.3)
    os.killpg(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    assert_gone(pids, child.pid)


def test_kill(tmp_path: Path) -> None:
    child = started(tmp_path, True, "list(batches)", sleep=0.1)
    pids = [int(pid) for pid in child.stdout.readline().split()]
    child.kill()
    child.communicate(timeout=30)
    assert_gone(pids, child.pid)


def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "from ruda.data import DataLoader\n"
        "print(list(DataLoader(range(4), num_workers=1, processes=True)))\n",
        "utf-8",
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "died with exit code 1" in done.stderr
    assert 'a script needs `if __name__ == "__main__":`' in done.stderr
