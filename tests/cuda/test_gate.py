"""The compile gate: it knows every kernel, sees what is wrong, and compiles nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

compiler = pytest.importorskip("ruda.backends.cuda.compiler")

from tests.cuda.gate import listing, programs  # noqa: E402
from tests.cuda.gate.programs import Known, Program, check  # noqa: E402

GOOD = """#include "ruda/math.cuh"
#define T {0}
struct Pair {{ T a, b; }};
extern "C" __global__ void {1}(T* p) {{ Pair x = {{p[0], p[1]}}; p[2] = x.a + x.b; }}
"""
# A thread of this many values has too few registers for them with bounds as tight.
SPILLED = """#include "ruda/math.cuh"
extern "C" __global__ void __launch_bounds__(1024, 2) spilled(float* p, int n) {
    float v[96];
    for (int i = 0; i < 96; ++i) v[i] = p[i * n + threadIdx.x];
    for (int k = 0; k < n; ++k)
        for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 1) % 96] + v[(i + 7) % 96];
    for (int i = 0; i < 96; ++i) p[i * n + threadIdx.x] = v[i];
}
"""
WRONG = 'extern "C" __global__ void wrong(float* p) { *p = no_such_function(1); }\n'


@pytest.fixture(scope="module")
def kernels() -> dict[str, str]:
    return listing.kernels()


def test_every_source_file_is_listed(kernels: dict[str, str]) -> None:
    """By the first line of each, which its instances keep."""
    missing = []
    for path in sorted(Path(compiler.INCLUDE).parent.rglob("*.cu")):
        lines = [n for n in path.read_text().splitlines() if n and not n.startswith("#include")]
        if not any(lines[0] in source for source in kernels):
            missing.append(path.name)
    assert not missing, f"tests/cuda/gate/calls.py calls nothing that runs {missing}"


def test_programs_hold_every_kernel_once(kernels: dict[str, str]) -> None:
    found = [k for p in programs.programs(kernels, "sm_80") for k in p.kernels]
    assert sorted(found) == sorted((name, source) for source, name in kernels.items())
    for program in programs.programs(kernels, "sm_80"):
        assert len({name for name, _ in program.kernels}) == len(program.kernels)


def test_kernels_of_one_program_do_not_see_each_other() -> None:
    pair = tuple((f"good_{t}", GOOD.format(t, f"good_{t}")) for t in ("float", "double"))
    report = check(Program("sm_90a", pair))
    assert report.faults == ()


def test_what_is_wrong_is_told_by_kernel() -> None:
    good = ("good", GOOD.format("int", "good"))
    (fault,) = check(Program("sm_90a", (good, ("spilled", SPILLED)))).faults
    assert fault.startswith("sm_90a spilled: ") and fault.endswith("bytes spilled, 32 allowed")
    (fault,) = check(Program("sm_80", (good, ("wrong", WRONG)))).faults
    assert fault.startswith("sm_80 wrong does not compile:") and "no_such_function" in fault


def test_what_may_spill() -> None:
    assert programs.allowed("sum_f32_f32_f32_rows_k1_r1_v1_p0_r8_r1_s1_iu32") == programs.FEW
    assert programs.allowed("var_u8_f64_f32_rows_k1_r1_v1_p0_r8_r1_s1_iu32") == 96


def test_the_architectures_of_a_kernel() -> None:
    assert programs.chosen("sum_f32", GOOD, "sm_80")
    assert programs.chosen("sum_i16", GOOD, "sm_90a")
    assert not programs.chosen("sum_i16", GOOD, "sm_80")
    named = "// Architectures: sm_90a, sm_100a.\n" + GOOD
    assert programs.declared(named) == ("sm_90a", "sm_100a")
    assert not programs.chosen("sum_f32", named, "sm_120")


def test_what_passed_is_known_by_its_text(tmp_path: Path) -> None:
    known, source = Known(tmp_path), GOOD.format("float", "good")
    known.add(Program("sm_80", (("good", source),)))
    known.save(whole=False)
    again = Known(tmp_path)
    assert again.has(source, "sm_80")
    assert not again.has(source, "sm_90a")
    assert not again.has(source + " ", "sm_80")
    again.save(whole=True)
    Known(tmp_path).save(whole=True)
    assert not Known(tmp_path).has(source, "sm_80")
