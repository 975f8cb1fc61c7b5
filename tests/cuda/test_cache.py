"""The cache of compiled kernels: by content, whole or not at all, mended when damaged."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
cache = pytest.importorskip("ruda.backends.cuda.cache")

SOURCE = '#include "ruda/types.cuh"\nextern "C" __global__ void one(float* x) { *x = 1.0f; }\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUDA_CACHE", str(tmp_path))
    return tmp_path / "sm_90a"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were compiled, in order."""
    names: list[str] = []
    real = compiler.compile_cubin

    def counting(source: str, name: str, arch: str) -> tuple[bytes, str]:
        names.append(name)
        return real(source, name, arch)  # type: ignore[no-any-return]

    monkeypatch.setattr(compiler, "compile_cubin", counting)
    return names


def test_a_second_request_compiles_nothing(folder: Path, compiled: list[str]) -> None:
    first = cache.cubin(SOURCE, "one", "sm_90a")
    assert cache.cubin(SOURCE, "one", "sm_90a") == first
    assert compiled == ["one"]
    facts = json.loads(next(folder.glob("one-*.json")).read_text())
    assert facts["arch"] == "sm_90a"
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_entry_is_compiled_again(
    folder: Path, compiled: list[str], damage: bytes | None
) -> None:
    code = cache.cubin(SOURCE, "one", "sm_90a")
    path = next(folder.glob("one-*.cubin"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    assert cache.cubin(SOURCE, "one", "sm_90a") == code
    assert compiled == ["one", "one"]
    assert path.read_bytes() == whole


def test_the_key_is_the_whole_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache.key_of(SOURCE, "sm_90a"), cache.key_of(SOURCE, "sm_80")}
    keys.add(cache.key_of(SOURCE.replace("1.0f", "2.0f"), "sm_90a"))
    monkeypatch.setattr(compiler, "header", lambda name: "// another text\n")
    keys.add(cache.key_of(SOURCE, "sm_90a"))
    assert len(keys) == 4


def test_kernels_compiled_together_are_found_one_by_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sources with helpers and settings of the same names, and other headers."""
    from ruda.backends.cuda import batch_compile

    monkeypatch.setenv("RUDA_CACHE", str(tmp_path))
    kernel = 'extern "C" __global__ void {0}(T* x) {{ x[0] = helped(x[0]); }}\n'
    helper = "#define T {0}\n__device__ T helped(T x) {{ return x + {1}; }}\n"
    sources = []
    for k in range(9):
        head = '#include "ruda/types.cuh"\n' if k % 2 else '#include "ruda/limits.cuh"\n'
        body = helper.format(("float", "int", "double")[k % 3], k) + kernel.format(f"kernel_{k}")
        sources.append(head + body)
    wanted = [(source, f"kernel_{k}") for k, source in enumerate(sources)]
    made = batch_compile.loadable(wanted, "sm_90a")
    assert sorted(k for m in made for k in m.kernels) == sorted(wanted)
    assert 1 < len(made) < len(wanted)
    for one in made:
        assert all(name.encode() in one.code for _, name in one.kernels)

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "compile_cubin", refuse)
    assert {m.code for m in batch_compile.loadable(wanted, "sm_90a")} == {m.code for m in made}
    assert cache.cubin(*wanted[3], "sm_90a") in {m.code for m in made}


def test_kernels_that_cannot_be_compiled_together_are_compiled_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ruda.backends.cuda import batch_compile

    monkeypatch.setenv("RUDA_CACHE", str(tmp_path))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    kernel = 'extern "C" __global__ void same(float* x) {{ *x = {0}; }}\n'
    wanted = [(kernel.format(k), "same") for k in (1, 2)]
    assert len({m.code for m in batch_compile.loadable(wanted, "sm_90a")}) == 2
    with pytest.raises(compiler.CompileError, match="same does not compile"):
        batch_compile.loadable([*wanted, (kernel.format("nothing"), "same")], "sm_90a")


def test_headers_get_on_with_each_other_or_are_apart() -> None:
    """One program of all headers for each way to choose between those that are apart."""
    from ruda.backends.cuda import batch_compile

    texts = {path.stem: path.read_text("utf-8") for path in (compiler.INCLUDE / "ruda").iterdir()}
    for chosen in itertools.product(*map(sorted, batch_compile._APART)):
        left = set().union(*batch_compile._APART).difference(chosen)
        used = [
            name
            for name in sorted(texts)
            if left.isdisjoint({name, *batch_compile._names_of(texts[name]).headers})
        ]
        assert set(chosen) <= set(used)
        source = "".join(f'#include "ruda/{name}.cuh"\n' for name in used)
        compiler.compile_cubin(source + SOURCE, "k", "sm_90a")


def test_programs_are_few_and_as_long_as_each_other() -> None:
    from ruda.backends.cuda import batch_compile

    heads = ("rows", "fold", "keys", "philox", "math", "scores")
    lines = [f'#include "ruda/{heads[k % 6]}.cuh"\n' for k in range(40)]
    sources = [line + "// text\n" * (20 * (k % 7)) for k, line in enumerate(lines)]
    groups = batch_compile.grouped(sources, 8)
    assert len(groups) == 8
    assert sorted(s for group in groups for s in group) == sorted(sources)
    works = [sum(map(batch_compile.effort, group)) for group in groups]
    assert max(works) < 1.3 * min(works)
    for group in groups:
        names = frozenset().union(*(batch_compile._names_of(s).headers for s in group))
        assert not any(two <= names for two in batch_compile._APART)
    # As many as there are kinds, if no more are wanted, and never one without a kernel.
    assert len(batch_compile.grouped(sources[:4], 1)) == 2
    assert len(batch_compile.grouped(sources[:3], 8)) == 3


@pytest.mark.parametrize("own", ["#define EACH 4", "static const int EACH = 4;"])
def test_macros_of_headers_do_not_meet_names_of_sources(own: str) -> None:
    from ruda.backends.cuda import batch_compile

    rows = '#include "ruda/rows.cuh"\nstatic const int VEC = 2;\n'
    mine = f'#include "ruda/types.cuh"\n#define T float\n{own}\n'
    other = '#include "ruda/keys.cuh"\n#define T int\n'
    assert sorted(map(len, batch_compile.grouped([rows, mine, other], 1))) == [1, 2]
    assert sorted(batch_compile.grouped([mine, other], 1)[0]) == sorted([mine, other])


def test_a_training_step_is_eight_programs_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels of a GPT that a start with nothing on disk would have to compile."""
    import ruda
    from benchmarks.works import cold
    from ruda.backends.cuda import batch_compile
    from ruda.core.devices import choice
    from tests.fusion.dry import DryDriver, dry

    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(DryDriver, "lazy", True)
    monkeypatch.setattr(DryDriver, "lacks", lambda *_: True, raising=False)
    monkeypatch.setattr(
        DryDriver, "load_all", lambda self, wanted: asked.extend(wanted), raising=False
    )
    for name, size in {"WIDTH": 64, "HEADS": 2, "LAYERS": 2, "BATCH": 4, "CONTEXT": 128}.items():
        monkeypatch.setattr(cold, name, size)
    with dry():
        before, _ = choice()
        try:
            cold.by_ruda()()
        finally:
            ruda.set_default_device(before)
    groups = batch_compile.grouped(list(dict.fromkeys(source for source, _ in asked)), 8)
    assert len(groups) <= 8 < sum(map(len, groups))
