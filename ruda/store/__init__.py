"""Tensors on disk: files are read with suspicion and written atomically."""

from ruda.core.errors import StoreError
from ruda.store.checkpoint import Checkpoint, Restored, Saved
from ruda.store.errors import CheckpointWarning, MissingFileError
from ruda.store.files import load, load_metadata, open_arrays, save
from ruda.store.loading import load_into
from ruda.store.npz import load_npy, load_npz, save_npy, save_npz
from ruda.store.report import LoadError, LoadReport
from ruda.store.safetensors import load_arrays, open_file, read_header, save_arrays
from ruda.store.shards import open_shards, read_index, save_shards
from ruda.store.torch_file import load_torch
from ruda.store.torch_writer import save_torch

__all__ = [
    "Checkpoint",
    "CheckpointWarning",
    "LoadError",
    "LoadReport",
    "MissingFileError",
    "Restored",
    "Saved",
    "StoreError",
    "load",
    "load_arrays",
    "load_into",
    "load_metadata",
    "load_npy",
    "load_npz",
    "load_torch",
    "open_arrays",
    "open_file",
    "open_shards",
    "read_header",
    "read_index",
    "save",
    "save_arrays",
    "save_npy",
    "save_npz",
    "save_shards",
    "save_torch",
]
