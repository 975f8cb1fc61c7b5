"""cuDNN graphs through its frontend: one per plan, built when the plan is bound."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ruda.backends.cuda.dnn.frontend import frontend
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import DType, uint8
from ruda.core.shapes import Shape
from ruda.core.spec import spec_of
from ruda.tensor.determinism import is_deterministic

_IN_ORDER = "cuDNN's kernels that add in one order: in float32 some take six times as long"
# What is paid where sums have to be in one order.
_PRICES = {
    "attention_backward": "cuDNN's deterministic kernel: up to half as fast again",
    "conv_data_backward": _IN_ORDER,
    "conv_weight_backward": _IN_ORDER,
}
# How many graphs are kept for other plans.
_REMEMBERED = 256
_NAMES = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "HALF",
    "bfloat16": "BFLOAT16",
}


class Unsupported(Exception):
    """cuDNN has no plan for a graph; the text is its reason."""


@functools.cache
def missing() -> str | None:
    """Why cuDNN cannot be used at all, or None."""
    if importlib.util.find_spec("cudnn") is None:
        return "cuDNN's frontend is not installed (pip install ruda[cudnn])"
    return None


def ordered_prices() -> Mapping[str, str]:
    """Per operator that cuDNN computes, what its ordered kernel costs."""
    return {} if missing() else _PRICES


@functools.cache
def _handle(device: int) -> Any:
    return frontend().create_handle()


def is_ordered(plan: Any) -> bool:
    """Whether its sums must be in one order: as ``plan`` says, else as it is asked for now."""
    return bool(getattr(plan, "ordered", is_deterministic()))


def kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """``make`` of a client, a plan and more that follows from the plan, once for plans alike.

    A graph takes cuDNN 50 ms. It is asked for several times while a step is compiled, and many
    layers of a network are alike.
    """
    made: dict[Any, Any] = {}

    def found(client: Any, plan: Any, *more: Any) -> Any:
        how = getattr(plan, "precision", None), is_ordered(plan)
        key = (client, plan.op.name, plan.specs, plan.out, plan.attrs, *how)
        one = made.get(key, made)
        if one is made:
            if len(made) >= _REMEMBERED:
                made.clear()
            one = made[key] = make(client, plan, *more)
        return one

    return found


class Graph:
    """A graph under construction and then ready to run: operands and results in one numbering.

    ``ordered``: kernels that add in any order are left out.
    """

    def __init__(
        self, client: Any, dtype: DType, tensor_cores: bool = True, ordered: bool = False
    ) -> None:
        cudnn = frontend()
        self.cudnn, self.client = cudnn, client
        notes = cudnn.numerical_note
        self.barred = [] if tensor_cores else [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        self.barred += [notes.NONDETERMINISTIC] * ordered
        self.kinds = cudnn.data_type
        # Handles and kernels are of the device that is current when they are made.
        client.driver.activate()
        self.handle = _handle(client.device.index)
        wide = self.kinds.DOUBLE if dtype.name == "float64" else self.kinds.FLOAT
        self.graph = cudnn.pygraph(
            io_data_type=self.kind(dtype),
            intermediate_data_type=wide,
            compute_data_type=wide,
            handle=self.handle,
        )
        self.count = 0

    def kind(self, dtype: DType) -> Any:
        """What cuDNN calls ``dtype``."""
        return getattr(self.kinds, _NAMES[dtype.name])

    def operand(self, shape: Sequence[int], strides: Sequence[int], dtype: DType) -> Any:
        """The next operand, with strides in elements."""
        self.count += 1
        kind = self.kind(dtype)
        return self.graph.tensor(
            dim=list(shape), stride=list(strides), data_type=kind, uid=self.count
        )

    def result(self, tensor: Any, shape: Sequence[int], strides: Shape, dtype: DType) -> None:
        """Make ``tensor`` the next result, laid out as told."""
        self.count += 1
        tensor.set_output(True).set_dim(list(shape)).set_stride(list(strides))
        tensor.set_data_type(self.kind(dtype)).set_uid(self.count)

    def ready(self) -> Callable[..., None]:
        """Have cuDNN choose its kernels; the function that runs them on one address per number.

        Raises ``Unsupported``.
        """
        modes = self.cudnn.heur_mode
        try:
            self.graph.validate()
            self.graph.build_operation_graph()
            self.graph.create_execution_plans([modes.A, modes.FALLBACK])
            if self.barred:
                self.graph.deselect_numeric_notes(self.barred)
            self.graph.check_support()
            self.graph.build_plans()
        except (self.cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
            raise Unsupported(str(error).strip().splitlines()[-1]) from error
        return self._runner()

    def _runner(self) -> Callable[..., None]:
        client, handle, numbers = self.client, self.handle, range(1, self.count + 1)
        execute, set_stream, now = self.graph.execute, self.cudnn.set_stream, client.now
        room = spec_of(client, (max(self.graph.get_workspace_size(), 1),), uint8)

        def run(*addresses: int) -> None:
            # Freed when this returns; the next one who gets it is behind in the same stream.
            workspace = allocate(client.pool, room)
            if client.order.rehearsed:
                return
            if client.order.crowded:
                client.driver.activate()
            set_stream(handle, now.stream)
            execute(dict(zip(numbers, addresses, strict=True)), workspace.address, handle)

        return run
