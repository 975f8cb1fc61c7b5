"""The passes, each of which makes the graph of a step smaller or quicker; ``improve`` orders them.

A pass is one file with one public function. Those that ask for a ``client`` do nothing on a device
that lacks the kernels for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ruda.fusion.graph import Graph, Value
from ruda.fusion.passes.algebra import simplify
from ruda.fusion.passes.attention_layouts import place_results
from ruda.fusion.passes.cse import merge_common_subexpressions
from ruda.fusion.passes.elementwise import fuse_elementwise
from ruda.fusion.passes.elementwise_recompute import recompute_elementwise
from ruda.fusion.passes.gradient_casts import read_uncast_gradients
from ruda.fusion.passes.horizontal import fuse_horizontally
from ruda.fusion.passes.kernel_epilogues import fuse_kernel_epilogues
from ruda.fusion.passes.library_epilogues import fuse_library_epilogues
from ruda.fusion.passes.losses import join_losses
from ruda.fusion.passes.reductions import fuse_reductions
from ruda.fusion.passes.rows import fuse_rows
from ruda.fusion.passes.views import see_through


def improve(graph: Graph, wanted: Iterable[Value], client: Any) -> None:
    """Change ``graph`` in place; the values in ``wanted`` stay, with memory of their own."""
    kept = set(wanted)
    see_through(graph)
    merge_common_subexpressions(graph, kept)
    simplify(graph, kept)
    # Operators whose operands simplification has made one are the same now.
    merge_common_subexpressions(graph, kept)
    read_uncast_gradients(graph, client)
    graph.prune(kept)
    join_losses(graph, kept, client)
    place_results(graph, kept, client)
    fuse_library_epilogues(graph, kept, client)
    fuse_rows(graph, kept, client)
    fuse_reductions(graph, kept, client)
    fuse_kernel_epilogues(graph, kept, client)
    fuse_horizontally(graph, kept, client)
    fuse_elementwise(graph, kept, client)
    recompute_elementwise(graph, kept, client)
