"""Neural networks: modules, their layers, and functions in ``ruda.nn.functional``."""

from __future__ import annotations

from ruda.nn import functional, init, parametrize
from ruda.nn.activation import (
    ELU,
    GELU,
    GLU,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from ruda.nn.attention import MultiHeadAttention
from ruda.nn.cache import DynamicKVCache, KVCache
from ruda.nn.containers import ModuleDict, ModuleList, Sequential
from ruda.nn.conv import Conv1d, Conv2d, Conv3d
from ruda.nn.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d
from ruda.nn.embed import Embedding
from ruda.nn.groups import ParameterGroups, freeze, parameter_groups
from ruda.nn.linear import Identity, Linear
from ruda.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    CTCLoss,
    DiceLoss,
    GaussianNLLLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    LogCoshLoss,
    LpLoss,
    MSELoss,
    MSLELoss,
    NLLLoss,
    PoissonNLLLoss,
    QuantileLoss,
    RNNTLoss,
    SigmoidFocalLoss,
    SmoothL1Loss,
)
from ruda.nn.margin_losses import (
    ContrastiveLoss,
    CosineEmbeddingLoss,
    CosineSimilarity,
    GramMatrixLoss,
    HingeEmbeddingLoss,
    HingeLoss,
    InfoNCELoss,
    MarginRankingLoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    PairwiseDistance,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from ruda.nn.module import Module, StateDictError
from ruda.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    RMSNorm,
)
from ruda.nn.packed import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
)
from ruda.nn.parameter import Parameter
from ruda.nn.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    Flatten,
    MaxPool1d,
    MaxPool2d,
)
from ruda.nn.positions import LearnedPositions, RotaryEmbedding, SinusoidalPositions
from ruda.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from ruda.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
