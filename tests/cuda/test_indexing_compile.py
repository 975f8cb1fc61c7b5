"""The index kernels compile for every architecture without a GPU and without spills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core import devices
from ruda.nn import functional
from ruda.ops import index
from ruda.tensor.dispatch import OPS, clear_plans

compiler = pytest.importorskip("ruda.backends.cuda.compiler")


@pytest.fixture(scope="module")
def kernels() -> Iterator[dict[str, str]]:
    """The sources of the classes of kernels that a few calls need, by name."""
    from ruda.backends.cuda.client import CudaClient
    from tests.cuda.emulator.driver import EmulatedDriver, NoMemoryLeft

    found: dict[str, str] = {}

    class Listing(EmulatedDriver):
        """Notes the sources, compiles nothing and runs nothing."""

        def kernel(self, source: str, name: str, shared: int = 0) -> int:
            found[name] = source
            return 0

        def launch(self, kernel: int, *rest: int) -> None:
            return None

    where = devices.Device("cuda", 0)
    before = devices._clients.get(where)
    devices._clients[where] = CudaClient(where, Listing(), NoMemoryLeft)  # type: ignore[assignment]
    clear_plans()
    calls()
    yield found
    clear_plans()
    if before is None:
        del devices._clients[where]
    else:
        devices._clients[where] = before


def calls() -> None:
    """One call of each class: sizes and dtypes that take another kernel."""
    for dtype in ("float32", "bfloat16", "float64", "complex128", "int8"):
        x = ruda.asarray(np.zeros((300, 16)), dtype=dtype, device="cuda:0")
        cube = ruda.asarray(np.zeros((5, 300, 2, 8)), dtype=dtype, device="cuda:0")
        for count, kind in ((9, "int64"), (5000, "int32"), (9000, "uint8")):
            i = ruda.asarray(np.zeros(count), dtype=kind, device="cuda:0")
            v = ruda.asarray(np.zeros((count, 16)), dtype=dtype, device="cuda:0")
            written(x, cube, i, v)


def written(x: Any, cube: Any, i: Any, v: Any) -> None:
    """All that reads and writes at ``i``."""
    wide = ruda.broadcast_to(i[:, None], (i.size, 16))
    for part in (x, x[::2, ::2], cube):
        ruda.take(part, i, axis=0)
        part[i, i]
    ruda.take_along_axis(x.T, wide.T, axis=1)
    ruda.index_put(x, i, v)
    ruda.index_add(x, i, 1)
    ruda.index_add(x, i, v)
    ruda.index_add(cube, i, 1, axis=1)
    ruda.index_put(x, (i, i), 1)
    for mode in ("set", "add", "mul", *(["min", "max"] if x.dtype.kind != "complex" else [])):
        ruda.scatter(x, wide, v, axis=0, mode=mode)
    index.index_adjoint(v, i, (300, 16), (0,))
    index.take_along_adjoint(v, wide, (300, 16), (0,))
    if x.dtype.is_inexact:
        functional.embedding(i, x)
        OPS["embedding_backward"].call(v, i, 300, 3)
    ruda.concat([x, x[:, ::2]], axis=1)
    ruda.pad(x, 3)
    ruda.pad(x, [(1, 1), (0, 0)])
    ruda.tril(x)
    ruda.triu(x.T[:, ::2])
    OPS["add_view"].call(x, x[:4], 0, (4, 16), (3, 1))


# All kernels once, in four parts; for other architectures a tenth of them.
PARTS = [("sm_90a", 4, i) for i in range(4)]
OTHERS = [(arch, 10, i) for i, arch in enumerate(["sm_80", "sm_100a", "sm_120"])]


@pytest.mark.parametrize(("arch", "step", "first"), PARTS + OTHERS)
def test_kernels_compile_without_spills(
    kernels: dict[str, str], arch: str, step: int, first: int
) -> None:
    from tests.cuda.test_compile import spills

    chosen = sorted(n for n in kernels if not n.startswith(("copy", "full", "add_", "where")))
    assert len(chosen) > 60
    spilt = {}
    for name in chosen[first::step]:
        code, log = compiler.compile_cubin(kernels[name], name, arch)
        assert code.startswith(b"\x7fELF")
        spilt |= {n: size for n, size in spills(log).items() if size}
    assert spilt == {}
