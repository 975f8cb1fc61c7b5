"""Folders of images, one folder a class; decoded by pillow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError
from ruda.data.dataset import place
from ruda.data.errors import DataError, MissingDataError, MissingExtraError
from ruda.tensor.tensor import RudaTensor, from_array

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

_OP = "ImageFolder"
_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}


class ImageFolder:
    """Images in one folder for each class; sample i is ``(image, label)``.

    ``image`` is uint8 ``[channels, height, width]``: 1, 3 or 4 channels for ``mode`` "L", "RGB" or
    "RGBA", turned as the camera says. ``size = (height, width)`` resizes all of them, as batches
    need. ``label`` counts the folder names in alphabetical order; ``classes`` has the names, or
    gives them. Files are found by their suffix, in alphabetical order, at any depth.

    Raises ``DataError`` with the file for one that cannot be decoded or has more than ``largest``
    pixels, and ``MissingExtraError`` without pillow.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        mode: str = "RGB",
        size: tuple[int, int] | None = None,
        classes: list[str] | None = None,
        largest: int = 1 << 26,
    ) -> None:
        if mode not in _CHANNELS:
            raise ArgumentError(_OP, "unknown mode", repr(mode), sorted(_CHANNELS))
        _pillow()
        self.root = os.path.abspath(os.fspath(root))
        if not os.path.isdir(self.root):
            raise MissingDataError(_OP, self.root)
        self.mode = mode
        self.size = size
        self.largest = largest
        found = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        self.classes = found if classes is None else list(classes)
        self.samples = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in _images(os.path.join(self.root, name))
        ]
        if not self.samples:
            expected = f"folders of files that end in {', '.join(SUFFIXES)}"
            raise DataError(_OP, "there are no images", expected=expected, path=self.root)

    def __repr__(self) -> str:
        return f"ImageFolder({self.root!r})"

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[RudaTensor, int]:
        path, label = self.samples[place(index, len(self), _OP)]
        pixels = self._decoded(path)
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        channels_first = np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
        return from_array(channels_first, "cpu"), label

    def _decoded(self, path: str) -> Any:
        images, operations = _pillow()
        try:
            with images.open(path) as image:
                if image.width * image.height > self.largest:
                    got, hint = f"{image.width} × {image.height} pixels", "a larger largest="
                    raise DataError(_OP, "the image is too large", got, hint=hint, path=path)
                turned = operations.exif_transpose(image).convert(self.mode)
            if self.size is not None:
                turned = turned.resize(self.size[::-1])
            return np.asarray(turned)
        except DataError:
            raise
        except FileNotFoundError as error:
            raise MissingDataError(_OP, path) from error
        except Exception as error:
            # Decoders of damaged files raise whatever their authors did not think of.
            what = f"the image cannot be decoded ({type(error).__name__}: {error})"
            raise DataError(_OP, what, path=path) from error


def _images(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        raise MissingDataError(_OP, folder)
    return sorted(
        os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(SUFFIXES)
    )


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise MissingExtraError(_OP, "pillow") from error
    return Image, ImageOps
