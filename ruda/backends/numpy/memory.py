"""Handles of the CPU: an ndarray with a version, and views of one."""

from __future__ import annotations

from typing import Any

import numpy as np


class Handle:
    """The base handle of one tensor: its array, the count of in-place changes, its views.

    Without an ``__init__``, because a call that runs none is the cheapest way to make an object;
    ``handle_of`` fills the slots.
    """

    __slots__ = ("__weakref__", "array", "version", "views")

    root = None
    offset = 0

    array: Any
    version: int
    views: list[Any] | None


def handle_of(array: Any) -> Handle:
    """A base handle over ``array``."""
    handle = Handle()
    handle.array = array
    handle.version = 0
    handle.views = None
    return handle


class ViewHandle:
    """A ready ndarray over the memory of ``root``.

    ``owner`` is a weak reference to the tensor that the view was taken from.
    """

    __slots__ = ("__weakref__", "array", "owner", "root")

    def __init__(self, array: Any, root: Handle) -> None:
        self.array = array
        self.root = root
        self.owner: Any = None

    @property
    def version(self) -> int:
        """The version of the base: a change through any view counts for all."""
        return self.root.version

    @version.setter
    def version(self, value: int) -> None:
        self.root.version = value

    @property
    def offset(self) -> int:
        """Elements between the start of the base and the start of this view."""
        return (address(self.array) - address(self.root.array)) // self.array.itemsize


def view_of(handle: Any, array: Any) -> ViewHandle:
    """A view handle over ``array``, which shows memory of ``handle``."""
    return ViewHandle(array, handle if handle.root is None else handle.root)


def address(array: Any) -> int:
    """Where the first element of ``array`` lies, in bytes."""
    return int(array.__array_interface__["data"][0])


def strided(handle: Any, offset: int, shape: Any, strides: Any) -> Any:
    """The ndarray that shows ``shape`` by ``strides`` (elements) from ``offset`` of ``handle``."""
    array = handle.array
    steps = tuple(s * array.itemsize for s in strides)
    interface = dict(array.__array_interface__)
    start = (interface["data"][0] + offset * array.itemsize, interface["data"][1])
    geometry = {"shape": tuple(shape), "strides": steps, "data": start}
    # The interface has no words for the dtypes of ml_dtypes: bytes go through it, then a view.
    shown = _Shown(array, interface | geometry | {"typestr": f"|V{array.itemsize}"})
    return np.asarray(shown).view(array.dtype)


class _Shown:
    """An object that NumPy reads through ``__array_interface__``; it keeps ``base`` alive."""

    def __init__(self, base: Any, interface: dict[str, Any]) -> None:
        self.base = base
        interface.pop("descr", None)
        self.__array_interface__ = interface
