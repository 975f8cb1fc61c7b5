"""Names for what profilers show."""

from __future__ import annotations

from ruda.cuda.devices import gpu
from ruda.tensor.dispatch import clear_plans


def nvtx(enabled: bool = True) -> None:
    """Put what each operator queues in an NVTX range ``op file.py:line``; False: no longer.

    Eager calls are named by the line that runs them. A compiled step has ranges where it runs
    operator by operator: in its first call, while it is captured and in ``measure()``, by the lines
    that were traced. A replay is one launch of a graph, whose kernels carry names of their own,
    which ``explain()`` lists beside the lines. Raises ``DeviceError`` without a GPU.
    """
    gpu().name_ranges(enabled)
    clear_plans()
