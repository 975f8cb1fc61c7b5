"""Functions of neural networks, under PyTorch's names and with its order of parameters.

``axis`` stands for ``dim``. Norms take ``axis`` instead of a shape, and the classes of
``cross_entropy`` lie on ``axis=-1`` unless it says otherwise.
"""

from __future__ import annotations

from ruda.nn.padding import pad
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
from ruda.ops.add_norm import add_layer_norm, add_rms_norm
from ruda.ops.attention import attention, explain_attention
from ruda.ops.attention_forms import attention_varlen, scaled_dot_product_attention
from ruda.ops.bilinear import bilinear
from ruda.ops.cells import gru_cell, gru_layer, lstm_cell, lstm_layer, rnn_cell, rnn_layer
from ruda.ops.columns import col2im as fold
from ruda.ops.columns import im2col as unfold
from ruda.ops.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_data_backward,
    conv_forward_nhwc,
    conv_weight_backward,
    explain_conv,
)
from ruda.ops.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ruda.ops.cross_entropy import cross_entropy
from ruda.ops.ctc import ctc_loss
from ruda.ops.deform import deform_conv2d
from ruda.ops.dropout import dropout, dropout1d, dropout2d, dropout3d
from ruda.ops.embed import embedding
from ruda.ops.embed_bag import embedding_bag
from ruda.ops.explog import log_sigmoid as logsigmoid
from ruda.ops.explog import sigmoid
from ruda.ops.gather import one_hot
from ruda.ops.grid import affine_grid, grid_sample
from ruda.ops.hyper import tanh
from ruda.ops.likelihood import (
    dice_loss,
    gaussian_nll_loss,
    log_cosh_loss,
    lp_loss,
    msle_loss,
    poisson_nll_loss,
    quantile_loss,
    sigmoid_focal_loss,
)
from ruda.ops.linear import linear
from ruda.ops.linear_cross_entropy import linear_cross_entropy
from ruda.ops.local_norm import local_response_norm, normalize
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
from ruda.ops.margin import (
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from ruda.ops.noise import alpha_dropout, feature_alpha_dropout, rrelu
from ruda.ops.norm import layer_norm, rms_norm
from ruda.ops.pixel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ruda.ops.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from ruda.ops.positions import (
    alibi_bias,
    alibi_slopes,
    apply_rotary,
    rotary_frequencies,
    sinusoidal_positions,
)
from ruda.ops.power_pool import (
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ruda.ops.resize import interpolate, upsample
from ruda.ops.similarity import (
    contrastive_loss,
    cosine_embedding_loss,
    cosine_similarity,
    gram_matrix_loss,
    info_nce_loss,
    pairwise_distance,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from ruda.ops.softmax import log_softmax, softmax, softmin
from ruda.ops.standard_norm import batch_norm, group_norm, instance_norm
from ruda.ops.transducer import rnnt_loss

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "add_layer_norm",
    "add_rms_norm",
    "affine_grid",
    "alibi_bias",
    "alibi_slopes",
    "alpha_dropout",
    "apply_rotary",
    "attention",
    "attention_varlen",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "channel_shuffle",
    "contrastive_loss",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_data_backward",
    "conv_forward_nhwc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight_backward",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "deform_conv2d",
    "dice_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "embedding_bag",
    "explain_attention",
    "explain_conv",
    "feature_alpha_dropout",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "gram_matrix_loss",
    "grid_sample",
    "group_norm",
    "gru_cell",
    "gru_layer",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "hinge_loss",
    "huber_loss",
    "info_nce_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_cosh_loss",
    "log_softmax",
    "logsigmoid",
    "lp_loss",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "lstm_cell",
    "lstm_layer",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "msle_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "quantile_loss",
    "relu",
    "relu6",
    "rms_norm",
    "rnn_cell",
    "rnn_layer",
    "rnnt_loss",
    "rotary_frequencies",
    "rrelu",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "sigmoid_focal_loss",
    "silu",
    "sinusoidal_positions",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
]
