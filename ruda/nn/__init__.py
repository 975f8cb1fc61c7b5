"""Neural networks: modules, their layers, and functions in ``ruda.nn.functional``."""

from __future__ import annotations

from ruda.nn import init
from ruda.nn.containers import ModuleDict, ModuleList, Sequential
from ruda.nn.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d
from ruda.nn.embed import Embedding
from ruda.nn.linear import Identity, Linear
from ruda.nn.module import Module, StateDictError
from ruda.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    RMSNorm,
)
from ruda.nn.parameter import Parameter
