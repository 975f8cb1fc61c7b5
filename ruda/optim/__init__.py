"""Optimizers, clipping of gradients and schedules of the learning rate."""

from __future__ import annotations

from ruda.core.elsewhere import OPTIM as _ELSEWHERE
from ruda.core.elsewhere import refusing as _refusing
from ruda.optim.accumulator import GradientAccumulator
from ruda.optim.adam import Adam, AdamW
from ruda.optim.adaptive import Adadelta, Adagrad, RMSprop
from ruda.optim.averaging import EMA, SWA, update_batch_norm
from ruda.optim.base import Group, Optimizer, OptimizerStateError
from ruda.optim.clip import clip_grad_norm_, clip_grad_value_, grad_norm
from ruda.optim.factors import (
    constant,
    cosine,
    cosine_restarts,
    exponential,
    linear,
    linear_warmup,
    multi_step,
    noam,
    one_cycle,
    product,
    sequential,
    step_decay,
)
from ruda.optim.lbfgs import LBFGS
from ruda.optim.moments import Adan, Lion, NAdam, RAdam
from ruda.optim.muon import Muon
from ruda.optim.scaler import GradScaler
from ruda.optim.schedule import Schedule
from ruda.optim.sgd import SGD

# Not by a plain assignment: for type checkers a module that has it has all names.
globals()["__getattr__"] = _refusing("ruda.optim", _ELSEWHERE)
