"""Tests of the GPU lane under compute-sanitizer: ``python -m tests.gpu.sanitize [TOOL ...]``.

``memcheck`` looks at every access of every kernel, each tensor being an allocation of its own of
the very size it needs; ``racecheck`` at what the threads of a block do to shared memory;
``synccheck`` at barriers. Each tool first has to find a mistake that is there, so that a machine
on which it sees nothing does not pass. The exit status is 0 when all of them found nothing else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
# Rows of each family of kernels, in the dtype that all of them take.
EVERYWHERE = (
    "add exp where floor_divide sum var argmax cumsum cummax sort topk searchsorted bincount "
    "index scatter_put scatter_add index_add embedding take_along_axis concat pad_constant "
    "tril softmax layer_norm rms_norm_backward cross_entropy cross_entropy_joint conv "
    "max_pool grid_sample resample adamw_step attention adjugate cross"
)
SHARED = (
    "sum var argmax logsumexp cumsum cumprod cummax sort argsort topk softmax layer_norm "
    "layer_norm_backward rms_norm_backward cross_entropy_joint attention index_add"
)
ROWS = {"memcheck": EVERYWHERE, "racecheck": SHARED, "synccheck": SHARED}
_BEYOND = "p[blockDim.x * 8 + threadIdx.x] = 1.0f;"
_RACE = "__shared__ float s[64]; s[threadIdx.x] = 1.0f; p[threadIdx.x % 8] = s[63 - threadIdx.x];"
_APART = "if (threadIdx.x < 16) __syncthreads(); p[threadIdx.x % 8] = 1.0f;"
MISTAKES = {"memcheck": _BEYOND, "racecheck": _RACE, "synccheck": _APART}
_LAUNCH = """
import ruda
from ruda.backends.cuda.launch import Launcher
from ruda.core.devices import client
x = ruda.ones(8, device="cuda")
text = 'extern "C" __global__ void mistaken(float* p) {{ {0} }}'
Launcher(client("cuda"), text, "mistaken", 1, 64, (1,))(x.handle.address)
print(x.numpy().sum())
"""


def sanitizer() -> str:
    """The path of the tool; raises ``SystemExit`` where it is not installed."""
    for place in PLACES:
        found = shutil.which(place)
        if found:
            return found
    raise SystemExit("compute-sanitizer is not installed: it is a part of the CUDA toolkit")


def watched(tool: str, command: Sequence[str], limit: float) -> subprocess.CompletedProcess[str]:
    """``python COMMAND`` under ``tool``: status 9 where it found something."""
    options = ["--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
    environment = os.environ | {"RUDA_ALLOC_CONF": "backend:direct", "RUDA_DEVICE": ""}
    return subprocess.run(
        [sanitizer(), *options, sys.executable, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=limit,
    )


def finds_a_mistake(tool: str, limit: float) -> bool:
    """Whether ``tool`` reports a kernel that is wrong."""
    done = watched(tool, ["-c", _LAUNCH.format(MISTAKES[tool])], limit)
    found = "mistaken" in done.stdout and "ERROR SUMMARY: 0 errors" not in done.stdout
    if not found:
        print(f"{tool} does not work here, it saw no mistake:\n{done.stdout[-1500:]}")
    return found


def passes(tool: str, expression: str, limit: float) -> bool:
    """Run the chosen tests under ``tool`` and show the end of what it says."""
    command = ["-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "gpu"]
    done = watched(tool, [*command, "tests/gpu/test_rows.py", "-k", expression], limit)
    print(f"{tool}: exit status {done.returncode}\n{done.stdout[-3000:]}")
    return done.returncode == 0


def expression_of(tool: str, rows: Sequence[str] = ()) -> str:
    """What pytest selects tests by: the first sample of each row in float32."""
    return " or ".join(f"[{row}-0-float32]" for row in rows or ROWS[tool].split())


def main() -> int:
    """Run the tools one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sanitize", description=__doc__)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(ROWS)}; all")
    parser.add_argument("--rows", nargs="+", default=(), help="rows of the table to run")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for each run")
    given = parser.parse_args()
    good = True
    for tool in given.tools or ROWS:
        if finds_a_mistake(tool, given.limit):
            good &= passes(tool, expression_of(tool, given.rows), given.limit)
        else:
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
