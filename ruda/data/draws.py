"""Random numbers of samples: they follow from seed, epoch and index, not from who makes them."""

from __future__ import annotations

from contextvars import ContextVar

from ruda.ops.generator import Generator, default_generator


class _Stream:
    """The labels of a generator that is made only when somebody draws: making it hashes thrice."""

    def __init__(self, seed: int, labels: tuple[int, ...]) -> None:
        self.seed = seed
        self.labels = labels
        self.generator: Generator | None = None


_CURRENT: ContextVar[_Stream | None] = ContextVar("ruda.data.draws", default=None)


def generator() -> Generator:
    """The generator to draw from while a sample is made.

    While a ``DataLoader`` makes sample i it is Generator(seed, epoch, i), where ``seed`` is the
    loader's: augmentation is the same for any number of workers and after resuming. The k-th
    repetition of a sample within an epoch, and the joining of a batch, have streams of their own.
    Outside of a loader it is the default generator.

    >>> from ruda.data import DataLoader, TensorDataset, map
    >>> def jittered(row):
    ...     return row[0] + ruda.random.normal(row[0].shape, generator=generator())
    >>> data = map(TensorDataset(ruda.zeros((8, 2))), jittered)
    >>> one, two = (list(DataLoader(data, 4, num_workers=n)) for n in (0, 2))
    >>> all(bool((a == b).all()) for a, b in zip(one, two))
    True
    """
    stream = _CURRENT.get()
    if stream is None:
        return default_generator
    if stream.generator is None:
        stream.generator = Generator(stream.seed, *stream.labels)
    return stream.generator


def enter(seed: int, *labels: int) -> None:
    """Let ``generator()`` in this context be Generator(seed, *labels) from now on."""
    _CURRENT.set(_Stream(seed, labels))
