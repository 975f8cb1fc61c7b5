"""Counter-based generators of random numbers: a seed, and the number of the next draw.

Each call of a random operator takes one draw number, whatever its size, and its elements follow
from (seed, draw number, index) alone: on every device, however the work is divided.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ruda.core.devices import client, default_gpu
from ruda.core.errors import ArgumentError, DeviceError, DTypeError, StrategyError
from ruda.core.shapes import index
from ruda.ops.reference import philox
from ruda.tensor.host import check_untraced

DRAWS = 1 << philox.DRAW_BITS
SEEDS = 1 << philox.SEED_BITS
JUMP = 1 << 40
# Of a vendor's generator, whose words are counted by 64 bits: each draw has 2**34 of them.
VENDOR_DRAWS = 1 << 30

# Words under these attempts make seeds of other generators: no operator is refused so often.
_SPLITTING = (1 << philox.ATTEMPT_BITS) - 1
_LABELLING = _SPLITTING - 1


class Generator:
    """A stream of random numbers that depends on nothing but ``seed`` and the draws so far.

    ``Generator(seed, a, b)`` is the stream of ``seed`` with the labels ``a`` and ``b``, such as an
    epoch and the index of a sample; streams of different labels are independent. Philox 4x32-10
    underneath: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.

    With ``engine="vendor"`` cuRAND fills uniform, normal and integer tensors on CUDA devices: other
    numbers, the same again for seed, draw and device. Such a stream has 2**30 draws.

    Raises ``ArgumentError`` for a seed or label outside of 0 to 2**64 - 1, and ``StrategyError``
    for ``engine="vendor"`` where no vendor's generator is there.

    >>> generator = Generator(7)
    >>> generator.advance(2), generator.draw
    (0, 2)
    """

    __slots__ = ("__weakref__", "_draw", "_engine", "_lock", "_seed")

    def __init__(self, seed: int = 0, *labels: int, engine: str = "philox") -> None:
        _check_engine(engine)
        check_untraced("Generator", "a generator is made or reseeded")
        self._engine = engine
        self._seed = _word(seed, "seed")
        for label in labels:
            self._seed = _derived(self._seed, _word(label, "label"), 1, _LABELLING)[0]
        self._draw = 0
        self._lock = threading.Lock()

    @property
    def engine(self) -> str:
        """``"philox"``, or ``"vendor"`` for cuRAND."""
        return self._engine

    @property
    def seed(self) -> int:
        """The key of the stream."""
        return self._seed

    @property
    def draw(self) -> int:
        """The number of the next draw."""
        return self._draw

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, draw={self._draw}, engine={self.engine!r})"

    def __reduce__(self) -> Any:
        return _restored, (self._seed, self._draw, self._engine)

    def advance(self, draws: int = 1) -> int:
        """Take the next ``draws`` draw numbers for the caller and return the first of them.

        Atomic: two threads never get the same number.
        """
        count = index(draws, "Generator.advance", "draws")
        check_untraced("Generator.advance", "a generator is moved on by hand")
        with self._lock:
            first = self._draw
            left = (DRAWS if self._engine == "philox" else VENDOR_DRAWS) - first
            if not 0 <= count <= left:
                expected = f"0 to {left}"
                raise ArgumentError("Generator.advance", "leaves the stream", draws, expected)
            self._draw = first + count
        return first

    def advancing(self, draws: int) -> tuple[Any, ...]:
        """``(function, *arguments)``: the one call in C that does what ``advance(draws)`` would.

        A compiled step commits it together with its other changes.
        """
        return setattr, self, "_draw", self._draw + draws

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of ``seed`` from its first draw; returns the generator itself."""
        check_untraced("manual_seed", "a generator is made or reseeded")
        with self._lock:
            self._seed, self._draw = _word(seed, "seed"), 0
        return self

    def split(self, count: int = 2) -> list[Generator]:
        """``count`` generators with seeds of their own, which follow from this stream.

        Takes one draw number, so a second split gives other generators.
        """
        number = index(count, "Generator.split", "count")
        if number < 0:
            raise ArgumentError("Generator.split", "count is negative", count)
        seeds = _derived(self._seed, self.advance(), number, _SPLITTING)
        return [Generator(seed, engine=self._engine) for seed in seeds]

    def jump(self, streams: int = 1) -> Generator:
        """A generator of the same seed, ``streams`` times 2**40 draws further on.

        Generators of different jumps do not overlap until one of them made 2**40 draws. Raises
        ``StrategyError`` for a vendor's, whose stream has fewer.
        """
        if self._engine != "philox":
            what = "the stream of a vendor's generator is too short"
            raise StrategyError("Generator.jump", what, self, hint="split()")
        number = index(streams, "Generator.jump", "streams")
        if number < 0:
            raise ArgumentError("Generator.jump", "streams is negative", streams)
        out = Generator(self._seed)
        out.advance(self._draw + number * JUMP)
        return out

    def state_dict(self) -> dict[str, Any]:
        """Seed and draw number, from which the stream goes on exactly; never waits for a device.

        That of a vendor's generator names the engine too.
        """
        with self._lock:
            named = {} if self._engine == "philox" else {"engine": self._engine}
            return {"seed": self._seed, "draw": self._draw, **named}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``. Raises ``ArgumentError`` for anything else."""
        check_untraced("load_state_dict", "a generator is made or reseeded")
        engine = state.get("engine", "philox")
        if set(state) - {"engine"} != {"seed", "draw"} or engine != self._engine:
            expected = f"seed and draw of the engine {self._engine!r}"
            raise ArgumentError("load_state_dict", "not a generator's state", dict(state), expected)
        seed, draw = _word(state["seed"], "seed"), _word(state["draw"], "draw")
        with self._lock:
            self._seed, self._draw = seed, draw


def _check_engine(engine: str) -> None:
    if engine not in ("philox", "vendor"):
        raise ArgumentError("Generator", "unknown engine", repr(engine), '"philox" or "vendor"')
    if engine == "vendor":
        try:
            client(default_gpu())
        except DeviceError as error:
            what = f"no generator of a vendor's library is there ({error.what})"
            expected, hint = "a CUDA device with cuRAND", 'engine="philox"'
            raise StrategyError("Generator", what, 'engine="vendor"', expected, hint) from None


def _word(value: Any, name: str) -> int:
    number = index(value, "Generator", name)
    if not 0 <= number < SEEDS:
        raise ArgumentError("Generator", f"{name} does not fit", value, "0 to 2**64 - 1")
    return number


def _derived(seed: int, draw: int, count: int, attempt: int) -> list[int]:
    """``count`` seeds from a part of the counter that no random operator reads."""
    words = philox.words(seed, draw, 2 * count, attempt).tolist()
    return [low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)]


def _restored(seed: int, draw: int, engine: str = "philox") -> Generator:
    out = Generator(seed, engine=engine)
    out.advance(draw)
    return out


def _unchecked(seed: int) -> Generator:
    out: Generator = object.__new__(Generator)
    out._seed, out._draw, out._lock, out._engine = seed, 0, threading.Lock(), "philox"
    return out


# This module may load inside a trace, which refuses generators that a replay would make anew.
default_generator = _unchecked(0)


def chosen(generator: Any, op: str, vendor: bool = False) -> Generator:
    """``generator``, or the default one for None; that of a vendor only where it can draw."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        expected = "a ruda.random.Generator or None"
        raise DTypeError(op, "not a generator", type(generator).__name__, expected)
    if generator.engine != "philox" and not vendor:
        what = "a vendor's generator draws uniform, normal and integer tensors alone"
        raise StrategyError(op, what, generator, hint='engine="philox"')
    return generator
