"""Functions of neural networks, under PyTorch's names and with its order of parameters.

``axis`` stands for ``dim``. Norms take ``axis`` instead of a shape, and the classes of
``cross_entropy`` lie on ``axis=-1`` unless it says otherwise.
"""

from __future__ import annotations

from ruda.ops.activation import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softplus,
    softshrink,
    softsign,
    swiglu,
    tanhshrink,
    threshold,
)
from ruda.ops.adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from ruda.ops.attention import attention
from ruda.ops.attention_forms import attention_varlen, scaled_dot_product_attention
from ruda.ops.conv import conv1d, conv2d, conv3d, conv_data_backward, conv_weight_backward
from ruda.ops.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ruda.ops.cross_entropy import cross_entropy
from ruda.ops.dropout import dropout, dropout1d, dropout2d, dropout3d
from ruda.ops.embed import embedding
from ruda.ops.explog import log_sigmoid as logsigmoid
from ruda.ops.explog import sigmoid
from ruda.ops.gather import one_hot
from ruda.ops.hyper import tanh
from ruda.ops.linear import linear
from ruda.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from ruda.ops.norm import layer_norm, rms_norm
from ruda.ops.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from ruda.ops.softmax import log_softmax, softmax
from ruda.ops.standard_norm import batch_norm, group_norm, instance_norm

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "attention",
    "attention_varlen",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_data_backward",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight_backward",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
]
