"""What a process does before its first launch: one binding of many, and a context in a thread."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from ruda.backends.cuda import early_context
from ruda.backends.cuda.bindings import binding


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where there is an ``nvmath`` whose packages are slow to import; nothing of it stays."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if "nvmath" in name}
    folder = tmp_path / "nvmath" / "bindings"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "nvmath" / "__init__.py").write_text("from nvmath import bindings\nall_of_it = 1\n")
    (folder / "__init__.py").write_text("from nvmath.bindings import first, second\n")
    (folder / "parts" / "__init__.py").write_text("value = 7\n")
    (folder / "first.py").write_text("from nvmath.bindings.parts import value\n")
    (folder / "second.py").write_text("from nvmath.bindings import parts\nvalue = parts.value\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if "nvmath" in name]:
        del sys.modules[name]
    sys.modules.update(before)


def test_one_binding_comes_without_the_others(package: Path) -> None:
    first = binding("first")
    assert first.value == 7 and first.__file__ == str(package / "first.py")
    assert "nvmath" not in sys.modules and "nvmath.bindings" not in sys.modules
    assert "nvmath.bindings.second" not in sys.modules
    assert binding("first") is first


def test_who_imports_all_of_it_gets_all_of_it(package: Path) -> None:
    first = binding("first")
    import nvmath.bindings.first

    assert nvmath.all_of_it == 1
    assert nvmath.bindings.first is first and nvmath.bindings.second.value == 7
    assert binding("second") is nvmath.bindings.second


def test_threads_get_their_bindings_in_turn(package: Path) -> None:
    """The first has its own while the others begin, and takes its packages away before they end."""
    for name, seconds in (("first", 0.1), ("second", 0.2)):
        with (package / f"{name}.py").open("a") as file:
            file.write(f"import time\ntime.sleep({seconds})\n")
            file.write("from nvmath.bindings import parts as late\n")
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(binding, "first")]
        while "nvmath.bindings.first" not in sys.modules:
            time.sleep(0.001)
        found += [pool.submit(binding, name) for name in ("second", "first")]
        assert [each.result(10).late.value for each in found] == [7, 7, 7]
    assert "nvmath" not in sys.modules and "nvmath.bindings" not in sys.modules


@pytest.mark.usefixtures("package")
def test_a_binding_that_is_missing_leaves_nothing_behind() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"nvmath\.bindings\.third"):
        binding("third")
    assert "nvmath" not in sys.modules and "nvmath.bindings" not in sys.modules


def test_without_the_package_there_is_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if "nvmath" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'nvmath'"):
        binding("cublasLt")


@pytest.mark.parametrize(
    ("count", "made"), [(1, ["init", "get 1"]), (2, ["init", "get 1", "keep"])]
)
def test_a_context_is_made_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, count: int, made: list[str]
) -> None:
    """Of a GPU that is there; one that is not is refused where it is used."""
    called: list[str] = []
    threads: set[str] = set()

    def get(_: object, index: int) -> int:
        called.append(f"get {index}")
        return 0 if index < count else 101

    def init(_: int) -> int:
        threads.add(threading.current_thread().name)
        called.append("init")
        return 0

    def keep(*_: object) -> int:
        called.append("keep")
        return 0

    driver = SimpleNamespace(cuInit=init, cuDeviceGet=get, cuDevicePrimaryCtxRetain=keep)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: driver)
    early_context.begin(1)
    for thread in threading.enumerate():
        if thread.name == "context of the GPU":
            thread.join()
    assert called == made and threads == {"context of the GPU"}


def test_no_context_is_made_where_nothing_could_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(threading, "Thread", pytest.fail)
    early_context.begin(0)


def test_a_machine_without_a_driver_is_left_to_who_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", fail)
    early_context._retain(0)
