"""The end of a process that still holds tensors, streams, graphs and capsules of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What the driver needs is gone when its objects go, as are the names of all modules.
SCRIPT = """
import sys

import ruda
from ruda import cuda, nn, optim
from ruda.backends.cuda.client import CudaClient
from ruda.core import devices
from tests.fusion.dry import DryDriver, NoMemoryLeft


class _Runtime:
    def done(self, what):
        pass


_runtime = _Runtime()


class Driver(DryDriver):
    def release_event(self, event):
        _runtime.done(event)

    def release_graph(self, graph):
        _runtime.done(graph)


where = devices.Device("cuda", 0)
devices._clients[where] = CudaClient(where, Driver(), NoMemoryLeft)
ruda.set_default_device("cuda")
x = ruda.ones((4, 4))
plain = x + 1.0
stream, event, pool, graph = cuda.Stream(), cuda.Event(), cuda.MemPool(), cuda.Graph()
with cuda.use_mem_pool(pool):
    apart = ruda.ones((5, 5))
with cuda.stream(stream):
    aside = x + 1.0
with cuda.graph(graph):
    inside = x * 2.0
capsule = x.__dlpack__()
factor = ruda.ones((4,))
step = ruda.compile(lambda x: (x * factor).sum(axis=0))
results = [step(x) for _ in range(6)]
sys.kept = list(sys.modules.values())
print("made")
"""


def test_nothing_is_said_when_names_are_gone_before_memory() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", SCRIPT]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "made\n", "")
