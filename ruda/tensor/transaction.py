"""Reading several tensors at once: every copy is queued before any of them is waited for."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from ruda.core.errors import ArgumentError, DTypeError, RudaError
from ruda.core.mode import MODE
from ruda.tensor import host
from ruda.tensor.tensor import RudaTensor


class Reading:
    """One tensor that a transaction reads; its values are there when the transaction is over."""

    __slots__ = ("_tensor", "_values", "position")

    def __init__(self, position: int, tensor: RudaTensor) -> None:
        self.position = position
        self._tensor: RudaTensor | None = tensor
        self._values: Any = None

    def numpy(self) -> Any:
        """The values as an ndarray; raises ``ArgumentError`` before the transaction is over."""
        if self._tensor is not None:
            what = "the transaction is not over, or failed"
            raise ArgumentError("transaction", what, f"reading {self.position}")
        return self._values

    def item(self) -> Any:
        """The one value as a Python scalar."""
        return self.numpy().reshape(()).item()

    def tolist(self) -> Any:
        """The values as nested lists."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def _start(self) -> Callable[[], Any]:
        tensor = self._tensor
        assert tensor is not None
        start = getattr(tensor.spec.client, "start_read", None)
        if start is None:
            return lambda: host.read(tensor, "transaction")
        return start(tensor.spec, tensor.handle)  # type: ignore[no-any-return]

    def _end(self, finish: Callable[[], Any]) -> None:
        self._values = finish()
        self._tensor = None

    def _fail(self, error: RudaError) -> NoReturn:
        spec = None if self._tensor is None else self._tensor.spec
        error.what = f"reading {self.position}, of {spec}, failed: {error.op}: {error.what}"
        error.args = (error.op, error.what, *error.args[2:])
        raise error.renamed("transaction")


class Transaction:
    """The reads of one block: see ``ruda.transaction``. ``results`` holds them in order."""

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._open = True

    def read(self, tensor: RudaTensor) -> Reading:
        """Ask for the values of ``tensor`` at the end of the block."""
        if tensor.__class__ is not RudaTensor:
            got = type(tensor).__name__
            raise DTypeError("transaction", "not a tensor", got, "a ruda tensor")
        if not self._open:
            raise ArgumentError("transaction", "the block is over", hint="a new transaction")
        if MODE.get().tracer is not None:
            host.read(tensor, "transaction")
        out = Reading(len(self._readings), tensor)
        self._readings.append(out)
        return out

    @property
    def results(self) -> list[Any]:
        """The values in the order of registration."""
        return [reading.numpy() for reading in self._readings]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        if kind is None:
            self._run()

    def _run(self) -> None:
        started = []
        for reading in self._by_device():
            try:
                started.append((reading, reading._start()))
            except RudaError as error:
                reading._fail(error)
        for reading, finish in started:
            try:
                reading._end(finish)
            except RudaError as error:
                reading._fail(error)

    def _by_device(self) -> list[Reading]:
        """Device by device, and in the order of registration on each."""
        groups: dict[Any, list[Reading]] = {}
        for reading in self._readings:
            assert reading._tensor is not None
            groups.setdefault(reading._tensor.spec.client, []).append(reading)
        return [reading for group in groups.values() for reading in group]


def transaction() -> Transaction:
    """A block whose reads are made together when it ends; each waits for its own queue alone.

    A failure raises the error of the read that failed and names its tensor.

    >>> with ruda.transaction() as t:
    ...     a = t.read(ruda.asarray([1, 2]))
    ...     b = t.read(ruda.asarray(3.5))
    >>> a.tolist(), b.item()
    ([1, 2], 3.5)
    """
    return Transaction()


def read_many(*tensors: RudaTensor) -> list[Any]:
    """The values of ``tensors`` as ndarrays, read together; no tensors give an empty list.

    >>> [v.tolist() for v in ruda.read_many(ruda.asarray([1]), ruda.asarray(2))]
    [[1], 2]
    """
    with transaction() as t:
        for tensor in tensors:
            t.read(tensor)
    return t.results
