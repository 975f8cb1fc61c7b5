"""``python -m tests.cuda.gate``: compile every CUDA kernel, and fail on errors and on spills."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor

from tests.cuda.gate import listing
from tests.cuda.gate.programs import ARCHITECTURES, Known, Program, check, chosen, programs


def left(kernels: Mapping[str, str], arch: str, known: Known) -> dict[str, str]:
    """The kernels to compile for ``arch`` that did not pass before, names by source."""
    return {
        source: name
        for source, name in kernels.items()
        if chosen(name, source, arch) and not known.has(source, arch)
    }


def run(todo: list[Program], jobs: int, known: Known) -> tuple[list[str], float]:
    """What is wrong, and the seconds of all processors."""
    faults: list[str] = []
    seconds = 0.0
    # Compilers are not forked: a process of its own has a compiler of its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for program, report in zip(todo, pool.map(check, todo), strict=True):
            seconds += report.seconds
            faults += report.faults
            if not report.faults:
                known.add(program)
            for fault in report.faults:
                print(fault, flush=True)
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
    todo = [p for arch in given.arch for p in programs(left(kernels, arch, known), arch)]
    count = sum(len(p.kernels) for p in todo)
    print(f"{len(kernels)} kernels, {count} to compile on {len(given.arch)} architectures")
    faults, seconds = run(todo, given.jobs, known)
    known.save(whole=not given.names and list(given.arch) == list(ARCHITECTURES))
    print(f"{len(faults)} faults; {time.monotonic() - start:.0f} s, {seconds:.0f} s of processors")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
