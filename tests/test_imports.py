"""The arrows between the packages of ruda, checked by reading the imports of every file."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import ROOT, Import, imports, module_name, source_files

# What each package may import of ruda; `ruda` stands for the public names of the whole. A file
# directly in ruda/ is a public face and may re-export from anywhere.
MAY_IMPORT = {
    "core": {"core"},
    "tensor": {"core", "tensor"},
    "display": {"core", "tensor", "display"},
    "ops": {"core", "tensor", "ops"},
    "backends": {"core", "tensor", "ops", "backends"},
    "cuda": {"core", "tensor", "ops", "backends", "autodiff", "cuda"},
    "autodiff": {"core", "tensor", "ops", "autodiff"},
    "fusion": {"core", "tensor", "ops", "fusion"},
    "store": {"core", "tensor", "ops", "store"},
    "data": {"core", "tensor", "ops", "store", "data"},
    "nn": {"core", "tensor", "ops", "autodiff", "fusion", "nn", "ruda"},
    "optim": {"core", "tensor", "ops", "autodiff", "nn", "optim", "ruda"},
    "models": {"core", "tensor", "ops", "autodiff", "nn", "store", "models", "ruda"},
}

CUDA = ("ruda/backends/cuda/",)
CPU = ("ruda/backends/numpy/",)

# Where each package from outside may be imported, by the beginning of the path. What is neither
# here nor in the standard library is a dependency that nobody declared.
BASE = {
    "numpy": (
        "ruda/core/dtypes.py",
        "ruda/tensor/tensor.py",
        "ruda/tensor/dlpack.py",
        "ruda/tensor/host.py",
        "ruda/tensor/operands.py",
        "ruda/display/",
        "ruda/ops/",
        "ruda/store/",
        "ruda/data/",
        "ruda/testing",
        *CPU,
        *CUDA,
    ),
    "ml_dtypes": ("ruda/core/dtypes.py", "ruda/ops/", "ruda/store/", *CPU, *CUDA),
    "typing_extensions": ("ruda/",),
}
EXTRAS = {
    "numba": CPU,
    "llvmlite": CPU,
    "threadpoolctl": CPU,
    "scipy": CPU,
    "cupy": CUDA,
    "cupy_backends": CUDA,
    "cupyx": CUDA,
    "cuda": CUDA,
    "nvmath": CUDA,
    "cudnn": CUDA,
    "tokenizers": ("ruda/models/",),
    "jinja2": ("ruda/models/",),
    "PIL": ("ruda/models/", "ruda/data/"),
    "tqdm": ("ruda/data/",),
}
OUTSIDE = BASE | EXTRAS

# The only imports inside functions, besides optional extras, and why each is there.
INSIDE_FUNCTIONS = {
    ("ruda/__init__.py", "__getattr__"): "public faces load on first use",
    ("ruda/backends/__init__.py", "make_client"): "a backend loads with its first device",
    ("ruda/core/devices.py", "client"): "core knows backends by name only",
    ("ruda/core/devices.py", "_automatic_device"): "as for client; looked up once",
    ("ruda/backends/cuda/bindings.py", "binding"): "one of another library's, by its name",
    ("ruda/backends/cuda/dnn/frontend.py", "_Later.__getattr__"): "another library's optional one",
    ("ruda/nn/module.py", "Module._repr_html_"): "how things look loads when something is shown",
    ("ruda/optim/base.py", "Optimizer._repr_html_"): "as for modules",
    ("ruda/tensor/host.py", "html"): "as for modules",
    ("ruda/tensor/host.py", "text"): "as for modules",
    ("ruda/ops/listing.py", "load"): "listing the table means importing every family",
    ("ruda/backends/numpy/kernels/__init__.py", "loaded"): "numba loads with the first large plan",
    ("ruda/tensor/tensor.py", "_engine"): "the tape's engine stands above the tensor",
    ("ruda/tensor/tensor.py", "RudaTensor.__array_namespace__"): "its answer is ruda itself",
}

# Tracing is invisible except to these: there is no `if tracing` in operators, backends or models.
MAY_READ_TRACER = ("ruda/tensor/", "ruda/fusion/", "ruda/core/mode.py")

SLOW_TO_IMPORT = ("hashlib", "json", "logging", "multiprocessing", "tempfile")


def package(path: Path) -> str:
    """The package of ruda that a file belongs to, empty for the faces in ruda/ itself."""
    return path.parts[1] if len(path.parts) > 2 else ""


def target(item: Import) -> str:
    """What an import reaches: a package of ruda, `ruda`, or a top-level module from outside."""
    names = f"{item.module}.{item.name}".split(".")
    if names[0] != "ruda":
        return names[0]
    return names[1] if names[1] in MAY_IMPORT else "ruda"


def crossed_arrow(path: Path, item: Import) -> Iterator[str]:
    layer = package(path)
    if not layer or item.module.partition(".")[0] != "ruda":
        return
    if layer not in MAY_IMPORT:
        yield f"package {layer} has no place among the arrows"
    elif target(item) not in MAY_IMPORT[layer]:
        yield f"{layer} may not import {target(item)}"


def misplaced_dependency(path: Path, item: Import) -> Iterator[str]:
    name = target(item)
    if item.typing_only or item.module in ("", "<computed>"):
        return
    if item.module.partition(".")[0] == "ruda" or name in sys.stdlib_module_names:
        return
    if name not in OUTSIDE:
        yield f"{name} is no declared dependency"
    elif not path.as_posix().startswith(OUTSIDE[name]):
        yield f"{name} may not be imported here"


def hidden_import(path: Path, item: Import) -> Iterator[str]:
    if item.scope and target(item) not in EXTRAS and not allowed_inside(path, item):
        yield f"import inside {item.scope}"


def allowed_inside(path: Path, item: Import) -> bool:
    return (path.as_posix(), item.scope) in INSIDE_FUNCTIONS


def violations(path: Path, source: str) -> list[str]:
    """What a file does against the arrows, one line each."""
    found = []
    for item in imports(path, source):
        rules = [misplaced_dependency, hidden_import]
        if not allowed_inside(path, item):
            rules.append(crossed_arrow)
        found += [f"{path}:{item.line}: {text}" for rule in rules for text in rule(path, item)]
    if not path.as_posix().startswith(MAY_READ_TRACER):
        found += [f"{path}:{line}: reads the tracer" for line in tracer_reads(source)]
    return found


def tracer_reads(source: str) -> list[int]:
    nodes = ast.walk(ast.parse(source))
    reads = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "tracer"]
    return [node.lineno for node in reads if isinstance(node.ctx, ast.Load)]


def cycle(sources: dict[Path, str]) -> list[str]:
    """A ring of modules that import each other while they load, or nothing.

    Imports for type checkers and inside functions do not run then, and do not count.
    """
    known = {module_name(path) for path in sources}
    graph = {}
    for path, source in sources.items():
        ran = [item for item in imports(path, source) if not item.typing_only and not item.scope]
        reached = {f"{item.module}.{item.name}" for item in ran} & known
        reached |= {item.module for item in ran if f"{item.module}.{item.name}" not in known}
        graph[module_name(path)] = reached & known
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def bound_names(source: str) -> set[str]:
    """Names that a module binds by `def` or by importing them from within packages of ruda."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module != "ruda":
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def read_sources() -> dict[Path, str]:
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in source_files("ruda")}


def test_every_file_respects_the_arrows() -> None:
    found = [text for path, source in read_sources().items() for text in violations(path, source)]
    assert not found, "\n".join(found)


def test_no_modules_import_each_other() -> None:
    assert not cycle(read_sources())


def test_no_package_shares_a_name_with_a_public_function() -> None:
    # `ruda.tensor` is both by design: the package is a callable module.
    init = ROOT / "ruda" / "__init__.py"
    names = bound_names(init.read_text(encoding="utf-8")) if init.exists() else set()
    modules = {path.stem for path in (ROOT / "ruda").iterdir()} - {"tensor"}
    assert not names & modules


def test_allowed_function_imports_are_still_there() -> None:
    sources = read_sources()
    stale = [
        f"{path}: {scope}"
        for path, scope in INSIDE_FUNCTIONS
        if Path(path) in sources
        and scope not in {item.scope for item in imports(Path(path), sources[Path(path)])}
    ]
    assert not stale


def test_importing_ruda_stays_light() -> None:
    script = """
import sys, numpy, ml_dtypes, typing_extensions
before = set(sys.modules)
import ruda
print(*sorted(set(sys.modules) - before))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {*EXTRAS, *SLOW_TO_IMPORT}


PLANTED = [
    ("ruda/core/spec.py", "from ruda.tensor import RudaTensor", "core may not import tensor"),
    ("ruda/core/spec.py", "from ..tensor import node", "core may not import tensor"),
    ("ruda/core/spec.py", "import ruda", "core may not import ruda"),
    ("ruda/tensor/node.py", "import ruda.ops.arith", "tensor may not import ops"),
    ("ruda/ops/arith.py", "from ruda import backends", "ops may not import backends"),
    ("ruda/ops/arith.py", "from ruda.backends.cuda import client", "ops may not import backends"),
    ("ruda/autodiff/api.py", "from ruda.nn import Module", "autodiff may not import nn"),
    ("ruda/fusion/api.py", "from ruda.backends import client", "fusion may not import backends"),
    ("ruda/nn/linear.py", "from ruda.optim import SGD", "nn may not import optim"),
    ("ruda/store/npz.py", "from ruda.nn import Module", "store may not import nn"),
    ("ruda/extra/new.py", "from ruda.core import spec", "has no place among the arrows"),
    ("ruda/tensor/node.py", "import numpy as np", "numpy may not be imported here"),
    ("ruda/nn/linear.py", "from numpy import sum", "numpy may not be imported here"),
    ("ruda/backends/numpy/fast.py", "import cupy", "cupy may not be imported here"),
    ("ruda/ops/arith.py", "from cuda.bindings import driver", "cuda may not be imported here"),
    ("ruda/store/npz.py", "import requests", "requests is no declared dependency"),
    ("ruda/ops/arith.py", "def f():\n    import math", "import inside f"),
    ("ruda/ops/arith.py", "class A:\n    def f(self):\n        import math", "import inside A.f"),
    ("ruda/ops/arith.py", "def f():\n    import_module('ruda.nn')", "ops may not import nn"),
    ("ruda/ops/arith.py", "def f(n):\n    import_module(n)", "import inside f"),
    ("ruda/tensor/node.py", "if X:\n    import numpy", "numpy may not be imported here"),
    ("ruda/nn/linear.py", "if MODE.get().tracer: pass", "reads the tracer"),
]

INNOCENT = [
    ("ruda/core/spec.py", "import math\nfrom ruda.core import shapes"),
    ("ruda/tensor/node.py", "if TYPE_CHECKING:\n    import numpy as np"),
    ("ruda/tensor/tensor.py", "def _engine():\n    import ruda.autodiff"),
    ("ruda/backends/numpy/fast.py", "def f():\n    import numba"),
    ("ruda/backends/cuda/launch.py", "from cuda.bindings import driver"),
    ("ruda/linalg.py", "from ruda.ops.linalg import qr"),
    ("ruda/nn/linear.py", "import ruda\nfrom ruda.nn.module import Module"),
    ("ruda/fusion/tracer.py", "if MODE.get().tracer: pass"),
]


@pytest.mark.parametrize(("path", "source", "text"), PLANTED)
def test_a_planted_violation_is_found(path: str, source: str, text: str) -> None:
    assert any(text in found for found in violations(Path(path), source))


@pytest.mark.parametrize(("path", "source"), INNOCENT)
def test_an_innocent_import_passes(path: str, source: str) -> None:
    assert violations(Path(path), source) == []


def test_a_planted_cycle_is_found() -> None:
    ring = {
        Path("ruda/core/a.py"): "from ruda.core import b",
        Path("ruda/core/b.py"): "from ruda.core.a import thing",
    }
    assert set(cycle(ring)) == {"ruda.core.a", "ruda.core.b"}
    ring[Path("ruda/core/b.py")] = "if TYPE_CHECKING:\n    from ruda.core.a import thing"
    assert cycle(ring) == []


def test_a_planted_name_clash_is_found() -> None:
    assert "fusion" in bound_names("from ruda.fusion.api import compile as fusion")
    assert "nn" not in bound_names("from ruda import nn")
