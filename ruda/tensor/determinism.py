"""Whether operators must add in one fixed order, and what that costs.

Where a device has a faster kernel that adds in any order, its client asks ``is_deterministic`` when
it binds a plan, and lists the operator in ``ordered_prices``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ruda.core.devices import client as client_of
from ruda.tensor.dispatch import clear_plans

_enabled = False


def is_deterministic() -> bool:
    """Whether kernels that add in any order are out of use."""
    return _enabled


class Deterministic:
    """What a call of ``deterministic`` set; as a context manager it goes back at the end."""

    def __init__(self, enabled: bool, before: bool) -> None:
        self.enabled = enabled
        self._before = before

    @property
    def prices(self) -> Mapping[str, str]:
        """Per operator of the default device, what its ordered kernel costs."""
        prices: Mapping[str, str] = client_of().ordered_prices
        return prices

    def __enter__(self) -> Deterministic:
        return self

    def __exit__(self, *_: object) -> None:
        _set(self._before)

    def __repr__(self) -> str:
        head = f"deterministic: {'on' if self.enabled else 'off'}"
        lines = [f"{name}: {price}" for name, price in self.prices.items()]
        none = f"{client_of().device}: every operator adds in one order anyway, which costs nothing"
        return "\n".join([head, *(lines or [none])])


def _set(enabled: bool) -> None:
    global _enabled
    if enabled != _enabled:
        _enabled = enabled
        clear_plans()


def deterministic(enabled: bool = True) -> Deterministic:
    """Let every operator add in one fixed order from now on, so that a run repeats bit by bit.

    Holds for the whole process, or for the ``with`` block that the result is used in. Nothing is
    refused: where a device has only unordered kernels otherwise, an ordered one runs, and the
    result says at what price. Compiled steps made before are traced again.

    >>> with deterministic():
    ...     print(deterministic())
    deterministic: on
    cpu: every operator adds in one order anyway, which costs nothing
    """
    before = _enabled
    _set(bool(enabled))
    return Deterministic(bool(enabled), before)
