"""Row kernels and optimizer steps compile for every architecture, with no register spilt."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import ruda
from ruda.core.dtypes import DType
from ruda.core.spec import Spec, spec_of
from ruda.ops.listing import load
from ruda.tensor.dispatch import OPS
from tests.cuda.test_compile import ARCHITECTURES, spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
rows = pytest.importorskip("ruda.backends.cuda.prim.rows")

load()


class Nothing:
    """In the place of a launcher: keeps what it would have compiled."""

    made: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, client: Any, source: str, name: str, *rest: Any) -> None:
        self.made.append((name, source))


def calls(x: Spec, weight: Spec, row: Spec, target: Spec) -> list[tuple[str, Any, Any]]:
    """Rows of a class each, with operands and attributes."""
    return [
        ("softmax", (x,), (1,)),
        ("log_softmax_backward", (x, x), (1,)),
        ("layer_norm", (x, weight, weight), (1, 1e-5)),
        ("add_rms_norm", (x, x, weight), (1, 1e-5)),
        ("layer_norm_backward", (x, x, weight, row, row), (1,)),
        ("rms_norm_backward", (x, x, weight, row), (1,)),
        ("cross_entropy", (x, target, weight), (1, -100, 0.1, 0.01)),
        ("cross_entropy_backward", (row, x, target, row, weight), (1, -100, 0.1, 0.01)),
    ]


def parts_of(run: Any) -> Any:
    """What a function that runs a row is made of, also behind another function."""
    if hasattr(run, "parts"):
        return run.parts
    cells = (cell.cell_contents for cell in run.__closure__ or ())
    found = (parts_of(c) for c in cells if hasattr(c, "__closure__"))
    return next((parts for parts in found if parts is not None), None)


def kernels(client: Any, dtype: DType, n: int) -> list[tuple[str, str]]:
    """Names and sources of the kernels of rows of ``n``, with packs and without."""
    x, weight = spec_of(client, (4096, n), dtype), spec_of(client, (n,), ruda.float32)
    row, target = (spec_of(client, (4096,), d) for d in (ruda.float32, ruda.int64))
    Nothing.made = []
    for name, specs, attrs in calls(x, weight, row, target):
        parts = parts_of(OPS[name].plan(specs, attrs).run)
        made = rows.Kernel(parts.work, parts.held, parts.stream)
        if parts.sums:
            summing = rows.Summing(parts.work, parts.stream, parts.stream)
            made, make = summing.rows, summing._make
        else:
            make = made.made
        make(made.vec)
        make(1)
    return list(dict(Nothing.made).items())


@pytest.mark.parametrize(
    ("arch", "dtype", "n"),
    [
        *((arch, ruda.bfloat16, 4096) for arch in ARCHITECTURES),
        ("sm_90a", ruda.bfloat16, 128),
        ("sm_90a", ruda.float32, 8192),
        pytest.param("sm_90a", ruda.float32, 65536, marks=pytest.mark.slow),
        pytest.param("sm_80", ruda.float32, 4096, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_rows(
    client: Any, monkeypatch: pytest.MonkeyPatch, arch: str, dtype: DType, n: int
) -> None:
    monkeypatch.setattr(rows, "Launcher", Nothing)
    found = kernels(client, dtype, n)
    assert len(found) >= 8
    for name, source in found:
        _, log = compiler.compile_cubin(source, name, arch)
        assert {k: v for k, v in spills(log).items() if v} == {}, name


@pytest.mark.parametrize("arch", [arch for arch in ARCHITECTURES if arch != "sm_80"])
@pytest.mark.parametrize(("dtype", "n"), [(ruda.bfloat16, 131072), (ruda.float32, 32768)], ids=str)
def test_rows_of_clusters(
    client: Any, monkeypatch: pytest.MonkeyPatch, arch: str, dtype: DType, n: int
) -> None:
    monkeypatch.setattr(rows, "Launcher", Nothing)
    monkeypatch.setattr(client.driver, "clusters", True)
    found = {name: text for name, text in kernels(client, dtype, n) if "_cluster" in name}
    assert len(found) >= 3
    for name, source in found.items():
        _, log = compiler.compile_cubin(source, name, arch)
        assert {k: v for k, v in spills(log).items() if v} == {}, name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["adamw_step", "adan_step", "radam_step"])
def test_steps(client: Any, arch: str, name: str) -> None:
    from ruda.backends.cuda.codegen_updates import source
    from ruda.backends.cuda.prim.updates import Class
    from ruda.core.spec import weak_spec

    args = OPS[name].args
    first = args.index("step")
    tensors = [spec_of(client, (64,), ruda.float32)] * first
    settings = [weak_spec(client, "float")] * (len(args) - first - 2)
    specs = (*tensors, spec_of(client, (), ruda.int64), spec_of(client, (), ruda.float64))
    update = Class(OPS[name].plan((*specs, *settings), (True, False))).update
    _, log = compiler.compile_cubin(source(update), update.name, arch)
    assert {k: v for k, v in spills(log).items() if v} == {}
