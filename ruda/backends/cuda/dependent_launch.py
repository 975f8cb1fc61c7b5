"""Edges of a captured graph that a kernel may be begun along before the one ahead is over.

A kernel that waits by itself (``wait_for_earlier``) needs no gap in front of it: it is begun when
the last block of the kernel ahead is gone, and what that wrote is on its way meanwhile. Which
kernels do is known from their sources. The functions are the driver's own, since 12.3.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

WAIT = "wait_for_earlier();"
Edge = tuple[int, int]
_KERNEL, _PROGRAMMATIC = 0, 1


class _Data(ctypes.Structure):
    """What is said of an edge: where it leaves a node and reaches the other, and its kind."""

    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("kind", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


class _Kernel(ctypes.Structure):
    """What a graph knows of a kernel."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("geometry", ctypes.c_uint * 7),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class DependentLaunchError(Exception):
    """The driver refuses to read or change the edges of a graph."""


def waits(source: str) -> bool:
    """Whether each kernel of ``source`` waits by itself for those ahead of it."""
    return 0 < source.count("__global__") <= source.count(WAIT)


def loose(
    edges: Sequence[Edge], functions: Mapping[int, int], waiting: Collection[int]
) -> list[Edge]:
    """The edges into a node that is behind one other alone, where both are kernels that wait.

    ``functions`` says which kernel a node launches, if it does.
    """
    behind = Counter(to for _, to in edges)
    found = {node for node, function in functions.items() if function in waiting}
    return [(a, b) for a, b in edges if behind[b] == 1 and a in found and b in found]


@functools.cache
def _driver() -> Any:
    """The driver's library, or None where it knows of one kind of edges only."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    return library if hasattr(library, "cuGraphAddDependencies_v2") else None


def chain(graph: int, waiting: Collection[int]) -> int:
    """Let kernels of ``graph`` begin early where they may; returns how many edges there are."""
    library = _driver() if waiting else None
    if library is None:
        return 0
    edges, nodes = _edges(library, graph)
    chosen = loose(edges, {n: f for n in nodes if (f := _function(library, n))}, waiting)
    if not chosen:
        return 0
    count = len(chosen)
    ends = [(ctypes.c_void_p * count)(*side) for side in zip(*chosen, strict=True)]
    data = (_Data * count)()
    arguments = (ctypes.c_void_p(graph), *ends, data, ctypes.c_size_t(count))
    _checked(library.cuGraphRemoveDependencies_v2(*arguments))
    for each in data:
        each.from_port = each.kind = _PROGRAMMATIC
    _checked(library.cuGraphAddDependencies_v2(*arguments))
    return count


def _edges(library: Any, graph: int) -> tuple[list[Edge], list[int]]:
    """Plain edges between nodes, and all nodes at their ends."""
    count, none = ctypes.c_size_t(), None
    get = library.cuGraphGetEdges_v2
    _checked(get(ctypes.c_void_p(graph), none, none, none, ctypes.byref(count)))
    if not count.value:
        # The driver refuses arrays of no edges.
        return [], []
    ahead, behind = ((ctypes.c_void_p * count.value)() for _ in range(2))
    data = (_Data * count.value)()
    _checked(get(ctypes.c_void_p(graph), ahead, behind, data, ctypes.byref(count)))
    return list(zip(ahead, behind, strict=True)), list(dict.fromkeys([*ahead, *behind]))


def _function(library: Any, node: int) -> int:
    """The kernel that a node launches; 0 where it does something else."""
    kind = ctypes.c_int()
    _checked(library.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
    if kind.value != _KERNEL:
        return 0
    found = _Kernel()
    _checked(library.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(found)))
    return int(found.function or 0)


def _checked(status: int) -> None:
    if status:
        raise DependentLaunchError(f"the driver's status is {status}")
