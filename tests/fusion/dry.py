"""A GPU that runs nothing: what a compiled step would launch, counted in a moment.

Memory is numbers, kernels are names. A step is called twice: first operator by operator, then its
graph is captured, and the capture is the list that tests look at.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ruda.backends.cuda.blas import cublaslt
from ruda.backends.cuda.client import CudaClient
from ruda.core import devices
from ruda.tensor.dispatch import clear_plans
from tests.cuda.emulator.driver import EmulatedDriver, NoMemoryLeft
from tests.cuda.libraries.cublaslt import CublasLt


class Node(NamedTuple):
    """One node of a graph: the kernel (or "copy", "fill", "product"), and its blocks or bytes."""

    name: str
    size: int


class DryDriver(EmulatedDriver):
    """Takes everything down and does nothing of it."""

    multiprocessors = 132
    total = 1 << 42

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.sources: list[str] = []
        self._next = 1 << 32
        self.allocated = 0

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        self._kernels.append((name, None))
        self.sources.append(source)
        return len(self._kernels) - 1

    def note(self, name: str, size: int, stream: int) -> None:
        """One more node, of a capture or not."""
        node = Node(name, size)
        if self.graph is not None and stream in self.captured:
            self.graph.append(node)  # type: ignore[arg-type]
        else:
            self.nodes.append(node)

    def launch(self, kernel: int, *rest: int) -> None:
        x, y, z, *_, stream, _arguments, _ = rest
        assert x * y * z, f"{self._kernels[kernel][0]}: an empty grid"
        self.note(self._kernels[kernel][0], x * y * z, stream)

    def launch_graph(self, graph: Any, stream: int) -> None:
        self.nodes += graph

    def release_graph(self, graph: Any) -> None:
        pass

    def allocate(self, nbytes: int) -> int:
        self.allocated += nbytes
        address, self._next = self._next, self._next + (nbytes + 511) // 512 * 512
        return address

    def release(self, address: int) -> None:
        pass

    def memory(self) -> tuple[int, int]:
        return self.total, self.total

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.note("copy to the device", nbytes, stream)

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memset(target, 0, nbytes)

    def on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.note("copy on the device", nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self.note("fill", nbytes, stream)

    def wait(self, stream: int) -> None:
        pass


class _Products(CublasLt):
    """Products as nodes."""

    def __init__(self, driver: DryDriver) -> None:
        super().__init__()
        self.driver = driver

    def matmul(self, handle: int, *given: int) -> None:
        out = self.objects[given[10]]
        ends = {4: "+bias", 6: "+bias+relu", 36: "+bias+gelu", 164: "+bias+gelu", 192: "+gelu"}
        end = ends.get(self.objects[given[0]].epilogue, "")
        self.driver.note("product" + end, out.rows * out.columns * out.count, given[-1])


@contextmanager
def dry() -> Iterator[CudaClient]:
    """The client of such a GPU, ``cuda:0`` inside of the block."""
    where, driver = devices.Device("cuda", 0), DryDriver()
    made = CudaClient(where, driver, NoMemoryLeft)
    library, before = cublaslt.Library(made, _Products(driver)), devices._clients.get(where)
    known, cublaslt.library = cublaslt.library, lambda client: library  # type: ignore[assignment]
    devices._clients[where] = made
    try:
        yield made
    finally:
        clear_plans()
        cublaslt.library = known
        del devices._clients[where]
        if before is not None:
            devices._clients[where] = before


def graph_of(step: Any, *args: Any) -> list[Node]:
    """The nodes of the graph that ``step``, which is compiled, becomes."""
    step(*args)
    (program,) = (p for known in step.programs.values() for p in known)
    assert program.captured is not None, program.stepwise
    return list(program.captured.graph.executable)


def names(nodes: list[Node]) -> list[str]:
    """Without what makes names of kernels different for different classes."""
    return [node.name for node in nodes]


Step = Callable[..., Any]
