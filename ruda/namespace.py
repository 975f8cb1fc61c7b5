"""What the Array API calls the inspection functions: devices, dtypes and capabilities of ruda."""

from __future__ import annotations

from typing import Any

from ruda.core import dtypes
from ruda.core.devices import Device, client, default_device

_KINDS = {
    "bool": dtypes.BOOL,
    "signed integer": dtypes.SIGNED,
    "unsigned integer": dtypes.UNSIGNED,
    "integral": dtypes.INTEGER,
    "real floating": (dtypes.float32, dtypes.float64),
    "complex floating": dtypes.COMPLEX,
    "numeric": (*dtypes.INTEGER, dtypes.float32, dtypes.float64, *dtypes.COMPLEX),
}


class NamespaceInfo:
    """The object that ``ruda.__array_namespace_info__()`` returns."""

    def capabilities(self) -> dict[str, Any]:
        """What is supported of the optional parts, and the largest rank."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where new tensors are made."""
        return default_device()

    def devices(self) -> list[Device]:
        """The devices that tensors can be on here."""
        return [client("cpu").device]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of values without one, by kind."""
        defaults = client(device).defaults
        return {
            "real floating": defaults.floating,
            "complex floating": defaults.complex,
            "integral": defaults.integer,
            "indexing": defaults.index,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes of ``kind`` (a name, a tuple of names, None for all) by name."""
        client(device)
        names = (
            ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        )
        return {d.name: d for name in names for d in _KINDS[name]}


def __array_namespace_info__() -> NamespaceInfo:
    """Devices, dtypes and capabilities, as the Array API asks for them.

    >>> ruda.__array_namespace_info__().default_dtypes()["indexing"]
    ruda.int64
    """
    return NamespaceInfo()
