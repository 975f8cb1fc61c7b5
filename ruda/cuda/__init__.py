"""GPUs: devices, streams and events, memory, graphs, sharing between processes.

Without a GPU or without the extra this module can be imported all the same; ``is_available()`` is
False then, and what needs a GPU raises ``DeviceError``.
"""

from ruda.cuda.devices import (
    can_access_peer,
    current_device,
    device,
    device_count,
    device_properties,
    get_device_name,
    is_available,
    synchronize,
)
from ruda.cuda.graphed import make_graphed_callables
from ruda.cuda.graphs import Graph, graph
from ruda.cuda.ipc import MemoryHandle, open_memory, share_memory
from ruda.cuda.memory import (
    MemPool,
    PluggableAllocator,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    record_memory,
    reset_peak,
    reset_peak_memory_stats,
    set_memory_limit,
    share_memory_with_cupy,
    use_allocator,
    use_mem_pool,
)
from ruda.cuda.precompile import precompile
from ruda.cuda.ranges import nvtx
from ruda.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    current_stream,
    default_stream,
    stream,
)

__all__ = [
    "is_available",
    "device_count",
    "current_device",
    "device",
    "device_properties",
    "get_device_name",
    "can_access_peer",
    "synchronize",
    "Stream",
    "ExternalStream",
    "Event",
    "stream",
    "current_stream",
    "default_stream",
    "Graph",
    "graph",
    "make_graphed_callables",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak",
    "reset_peak_memory_stats",
    "memory_stats",
    "memory_summary",
    "memory_snapshot",
    "record_memory",
    "empty_cache",
    "set_memory_limit",
    "MemPool",
    "use_mem_pool",
    "PluggableAllocator",
    "use_allocator",
    "share_memory_with_cupy",
    "MemoryHandle",
    "share_memory",
    "open_memory",
    "precompile",
    "nvtx",
]
