"""``python -m tests.cuda.gate``: compile every CUDA kernel, and fail on errors and on spills."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor

from tests.cuda.gate import listing
from tests.cuda.gate.programs import ARCHITECTURES, Known, check, chosen, programs


def left(kernels: Mapping[str, str], arch: str, known: Known) -> dict[str, str]:
    """The kernels to compile for ``arch`` that did not pass before, names by source."""
    return {
        source: name
        for source, name in kernels.items()
        if chosen(name, source, arch) and not known.has(source, arch)
    }


def run(pool: Executor, arch: str, kernels: Mapping[str, str], known: Known) -> tuple[int, float]:
    """How much is wrong on one architecture, and the seconds of all processors."""
    todo = list(programs(left(kernels, arch, known), arch))
    faults, seconds = 0, 0.0
    for program, report in zip(todo, pool.map(check, todo), strict=True):
        seconds += report.seconds
        faults += len(report.faults)
        if not report.faults:
            known.add(program)
        for fault in report.faults:
            print(fault, flush=True)
    count = sum(len(program.kernels) for program in todo)
    print(f"{arch}: {count} kernels compiled, {faults} faults, {seconds:.0f} s", flush=True)
    return faults, seconds


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuda.gate", description=__doc__)
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES, help="architectures")
    parser.add_argument("--names", default="", help="only kernels whose name has this in it")
    given = parser.parse_args()
    start, known = time.monotonic(), Known()
    kernels = {s: n for s, n in listing.kernels().items() if given.names in n}
    whole = not given.names and list(given.arch) == list(ARCHITECTURES)
    print(f"{len(kernels)} kernels", flush=True)
    # Compilers are not forked: a process of its own has a compiler of its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
        found = []
        for arch in given.arch:
            found.append(run(pool, arch, kernels, known))
            known.save(whole=False)
    known.save(whole)
    faults, seconds = (sum(each) for each in zip(*found, strict=True))
    spent = time.monotonic() - start
    print(f"{faults} faults; {spent:.0f} s, {seconds:.0f} s of processors")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
