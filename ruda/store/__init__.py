"""Tensors on disk: files are read with suspicion and written atomically."""

from ruda.core.errors import StoreError
from ruda.store.errors import MissingFileError
from ruda.store.files import load, load_metadata, save
from ruda.store.safetensors import load_arrays, open_file, read_header, save_arrays

__all__ = [
    "MissingFileError",
    "StoreError",
    "load",
    "load_arrays",
    "load_metadata",
    "open_file",
    "read_header",
    "save",
    "save_arrays",
]
