"""What PyTorch and NumPy call functions that ruda has under another name.

Only the error for an unknown name reads this; nothing answers to these names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

NAMES = {
    "Generator": "random.Generator",
    "amax": "max",
    "amin": "min",
    "argpartition": "argtopk",
    "argwhere": "nonzero",
    "array": "tensor, or ruda.asarray to share memory",
    "array_equal": "all(x == y)",
    "as_tensor": "asarray",
    "bernoulli": "random.bernoulli",
    "bmm": "matmul",
    "cat": "concat",
    "clamp": "clip",
    "clone": "copy",
    "concatenate": "concat",
    "cross": "linalg.cross",
    "det": "linalg.det",
    "device": "Device",
    "div": "divide",
    "dot": "vecdot",
    "eq": "equal",
    "from_numpy": "asarray",
    "ge": "greater_equal",
    "gt": "greater",
    "hstack": "concat",
    "index_select": "take",
    "inverse": "linalg.inv",
    "kthvalue": "topk",
    "le": "less_equal",
    "log_softmax": "nn.functional.log_softmax",
    "logcumsumexp": "cumlogsumexp",
    "lt": "less",
    "manual_seed": "random.seed",
    "masked_fill": "where",
    "mm": "matmul",
    "mul": "multiply",
    "multinomial": "random.multinomial",
    "mv": "matmul",
    "ne": "not_equal",
    "neg": "negative",
    "normal": "random.normal",
    "outer": "linalg.outer",
    "power": "pow",
    "rand": "random.rand",
    "randint": "random.randint",
    "randn": "random.randn",
    "randperm": "random.permutation",
    "ravel": "flatten",
    "scatter_add": "scatter",
    "seed": "random.seed",
    "set_default_dtype": "set_default_dtypes",
    "softmax": "nn.functional.softmax",
    "sub": "subtract",
    "svd": "linalg.svd",
    "swapdims": "swapaxes",
    "trace": "linalg.trace",
    "true_divide": "divide",
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
    "vstack": "concat",
}
NN = {
    "MultiheadAttention": "ruda.nn.MultiHeadAttention",
    "UpsamplingBilinear2d": "ruda.nn.Upsample",
    "UpsamplingNearest2d": "ruda.nn.Upsample",
    "utils": "ruda.optim for clipping, ruda.nn.parametrize for norms of weights",
}
OPTIM = {
    "ConstantLR": "ruda.optim.Schedule with ruda.optim.constant",
    "CosineAnnealingLR": "ruda.optim.Schedule with ruda.optim.cosine",
    "CosineAnnealingWarmRestarts": "ruda.optim.Schedule with ruda.optim.cosine_restarts",
    "ExponentialLR": "ruda.optim.Schedule with ruda.optim.exponential",
    "LambdaLR": "ruda.optim.Schedule with a function of the step",
    "LinearLR": "ruda.optim.Schedule with ruda.optim.linear",
    "MultiStepLR": "ruda.optim.Schedule with ruda.optim.multi_step",
    "OneCycleLR": "ruda.optim.Schedule with ruda.optim.one_cycle",
    "SequentialLR": "ruda.optim.Schedule with ruda.optim.sequential",
    "StepLR": "ruda.optim.Schedule with ruda.optim.step_decay",
    "lr_scheduler": "ruda.optim.Schedule",
    "swa_utils": "ruda.optim.EMA or ruda.optim.SWA",
}
DATA = {
    "BatchSampler": "ruda.data.DataLoader, which makes batches of any sampler",
    "ConcatDataset": "ruda.data.concat",
    "DistributedSampler": "ruda.data.ShardSampler",
    "RandomSampler": "ruda.data.ShuffleSampler",
    "WeightedRandomSampler": "ruda.data.WeightedSampler",
    "default_collate": "ruda.data.collate",
    "random_split": "ruda.data.split",
}


def refusing(module: str, names: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of a module, which raises ``AttributeError`` with ruda's own name."""

    def refuse(name: str) -> NoReturn:
        hint = f". Try {names[name]}" if name in names else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")

    return refuse
