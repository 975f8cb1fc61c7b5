"""Datasets, and loaders that make batches of their samples."""

from __future__ import annotations

from ruda.core.elsewhere import DATA as _ELSEWHERE
from ruda.core.elsewhere import refusing as _refusing
from ruda.data import known
from ruda.data.arrays import MappedDataset, TokenDataset
from ruda.data.collate import Pack, Packed, PackedRows, Pad, Padded, bins, collate
from ruda.data.combine import (
    Subset,
    concat,
    filter,
    map,
    sample,
    shuffle,
    split,
    window,
)
from ruda.data.csv import CsvDataset
from ruda.data.dataset import ArrayDataset, Dataset, TensorDataset
from ruda.data.draws import generator
from ruda.data.errors import (
    DataError,
    MissingDataError,
    MissingExtraError,
    SampleError,
    SharedMemoryError,
    WorkerError,
)
from ruda.data.images import ImageFolder
from ruda.data.jsonl import JsonlDataset
from ruda.data.loader import DataLoader, progress
from ruda.data.samplers import (
    Sampler,
    SequentialSampler,
    ShardSampler,
    ShuffleSampler,
    WeightedSampler,
)
from ruda.data.text import TextDataset

# Not by a plain assignment: for type checkers a module that has it has all names.
globals()["__getattr__"] = _refusing("ruda.data", _ELSEWHERE)
