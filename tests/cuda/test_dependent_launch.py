"""Which edges of a graph let a kernel begin early, and that none looks before it has waited."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.backends.cuda import dependent_launch
from tests.fusion.dry import dry, graph_of

A, B, C, D, COPY = range(1, 6)
OWN, OTHER = 70, 80


@pytest.mark.parametrize(
    ("edges", "functions", "expected"),
    [
        ([(A, B), (B, C)], {A: OWN, B: OWN, C: OWN}, [(A, B), (B, C)]),
        # One that does not wait, ahead or behind; a copy between two kernels.
        ([(A, B), (B, C)], {A: OWN, B: OTHER, C: OWN}, []),
        ([(A, COPY), (COPY, B), (B, C)], {A: OWN, B: OWN, C: OWN}, [(B, C)]),
        # A fork has one kernel ahead of each, a join two.
        ([(A, B), (A, C), (B, D), (C, D)], dict.fromkeys((A, B, C, D), OWN), [(A, B), (A, C)]),
    ],
)
def test_a_kernel_behind_one_other_begins_early(
    edges: list[dependent_launch.Edge],
    functions: dict[int, int],
    expected: list[dependent_launch.Edge],
) -> None:
    assert dependent_launch.loose(edges, functions, {OWN}) == expected


class Library:
    """A driver with one graph: edges with what is said of them, and the function of each node."""

    def __init__(self, edges: list[dependent_launch.Edge], functions: dict[int, int]) -> None:
        self.edges = dict.fromkeys(edges, (0, 0, 0))
        self.functions = functions
        self.status = 0

    def cuGraphGetEdges_v2(self, graph: Any, ahead: Any, behind: Any, data: Any, count: Any) -> int:
        count._obj.value = len(self.edges)
        if ahead is not None:
            if not self.edges:
                return 1
            ahead[:], behind[:] = zip(*self.edges, strict=True)
        return self.status

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        kind._obj.value = 0 if node.value in self.functions else 1
        return self.status

    def cuGraphKernelNodeGetParams_v2(self, node: Any, found: Any) -> int:
        found._obj.function = self.functions[node.value]
        return self.status

    def cuGraphRemoveDependencies_v2(
        self, graph: Any, ahead: Any, behind: Any, data: Any, count: Any
    ) -> int:
        for edge, said in zip(zip(ahead, behind, strict=True), data, strict=True):
            assert self.edges.pop(edge) == (said.from_port, said.to_port, said.kind)
        return self.status

    def cuGraphAddDependencies_v2(
        self, graph: Any, ahead: Any, behind: Any, data: Any, count: Any
    ) -> int:
        for edge, said in zip(zip(ahead, behind, strict=True), data, strict=True):
            self.edges[edge] = (said.from_port, said.to_port, said.kind)
        return self.status


def test_edges_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Library([(A, B), (B, COPY), (COPY, C), (C, D)], dict.fromkeys((A, B, C, D), OWN))
    monkeypatch.setattr(dependent_launch, "_driver", lambda: made)
    assert dependent_launch.chain(1, {OWN}) == 2
    programmatic = (1, 0, 1)
    assert made.edges == {
        (A, B): programmatic,
        (B, COPY): (0, 0, 0),
        (COPY, C): (0, 0, 0),
        (C, D): programmatic,
    }
    made.status = 1
    with pytest.raises(dependent_launch.DependentLaunchError, match="status is 1"):
        dependent_launch.chain(1, {OWN})


def test_a_graph_of_one_node_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependent_launch, "_driver", lambda: Library([], {A: OWN}))
    assert dependent_launch.chain(1, {OWN}) == 0


def test_a_driver_without_kinds_of_edges_leaves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependent_launch, "_driver", lambda: None)
    assert dependent_launch.chain(1, {OWN}) == 0


def test_what_is_said_to_the_driver_has_its_layout() -> None:
    assert ctypes.sizeof(dependent_launch._Data) == 8 and dependent_launch._Data.kind.offset == 2
    assert (
        ctypes.sizeof(dependent_launch._Kernel) == 72
        and dependent_launch._Kernel.arguments.offset == 40
    )


def training_step() -> Callable[[], Any]:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32))
    model = model.to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-3)
    x = ruda.asarray(np.ones((256, 64), "f4"), device="cuda")
    y = ruda.asarray(np.arange(256) % 32, device="cuda")

    def step() -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss

    return step


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Sources of the kernels in the graph of a small training step, by name."""
    with dry() as client:
        nodes = graph_of(ruda.compile(training_step()))
        driver: Any = client.driver
        pairs = zip(driver._kernels, driver.sources, strict=True)
        known = {name: source for (name, _), source in pairs}
        return {node.name: known[node.name] for node in nodes if node.name in known}


def test_all_kernels_of_a_small_step_wait_by_themselves(sources: dict[str, str]) -> None:
    assert len(sources) > 8
    assert [name for name, source in sources.items() if not dependent_launch.waits(source)] == []
    assert not dependent_launch.waits("__global__ a() { wait_for_earlier(); } __global__ b() {}")


_TOUCHES = re.compile(r"(ld|st|red|atom|cp)\.(async\.)?[a-z.:]*global")


def test_memory_is_not_touched_before_the_wait(sources: dict[str, str]) -> None:
    """In what the compiler makes of them: loads of constants may be moved to the front."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    for source in dict.fromkeys(sources.values()):
        for name, body in re.findall(r"\.entry (\w+)\((.*?)\n}", ptx_of(nvrtc, source), re.DOTALL):
            before, wait, after = body.partition("griddepcontrol.wait;")
            assert wait and not _TOUCHES.search(before) and _TOUCHES.search(after), name


def ptx_of(nvrtc: Any, source: str) -> str:
    from ruda.backends.cuda import compiler

    headers = compiler.headers_of(source)
    texts = [[part.encode() for part in side] for side in (headers.values(), headers)]
    program = nvrtc.nvrtcCreateProgram(source.encode(), b"x.cu", len(headers), *texts)[1]
    options = [o.encode() for o in ("-arch=compute_90a", *compiler.OPTIONS)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == 0
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.decode()
