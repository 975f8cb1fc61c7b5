"""Neural networks: modules, their layers, and functions in ``ruda.nn.functional``."""

from __future__ import annotations

from ruda.core.elsewhere import NN as _ELSEWHERE
from ruda.core.elsewhere import refusing as _refusing
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
from ruda.nn.conv import Conv1d, Conv2d, Conv3d, DeformConv2d
from ruda.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ruda.nn.dropout import (
    AlphaDropout,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    FeatureAlphaDropout,
)
from ruda.nn.embed import Embedding, EmbeddingBag
from ruda.nn.groups import ParameterGroups, freeze, parameter_groups
from ruda.nn.lazy import (
    LazyBatchNorm1d,
    LazyBatchNorm2d,
    LazyBatchNorm3d,
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyLinear,
)
from ruda.nn.linear import Bilinear, Identity, Linear
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
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LocalResponseNorm,
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
from ruda.nn.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from ruda.nn.parameter import Parameter
from ruda.nn.parameter_containers import ParameterDict, ParameterList
from ruda.nn.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from ruda.nn.positions import LearnedPositions, RotaryEmbedding, SinusoidalPositions
from ruda.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from ruda.nn.shape import (
    ChannelShuffle,
    Flatten,
    Fold,
    PixelShuffle,
    PixelUnshuffle,
    Unflatten,
    Unfold,
    Upsample,
)
from ruda.nn.thresholds import (
    CELU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    ReLU6,
    RReLU,
    Softmax2d,
    Softmin,
    Softshrink,
    Softsign,
    Tanhshrink,
    Threshold,
)
from ruda.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from ruda.nn.vocabulary import AdaptiveLogSoftmaxWithLoss, AdaptiveOutput, LinearCrossEntropyLoss

# Not by a plain assignment: for type checkers a module that has it has all names.
globals()["__getattr__"] = _refusing("ruda.nn", _ELSEWHERE)
