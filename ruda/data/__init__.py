"""Datasets, and loaders that make batches of their samples."""

from __future__ import annotations

from ruda.data.dataset import ArrayDataset, Dataset, TensorDataset
from ruda.data.loader import DataLoader, SampleError, collate
