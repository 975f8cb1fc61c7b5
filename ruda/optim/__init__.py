"""Optimizers, clipping of gradients and schedules of the learning rate."""

from __future__ import annotations

from ruda.optim.adam import Adam, AdamW
from ruda.optim.adaptive import Adadelta, Adagrad, RMSprop
from ruda.optim.base import Group, Optimizer, OptimizerStateError
from ruda.optim.clip import clip_grad_norm_, clip_grad_value_
from ruda.optim.lbfgs import LBFGS
from ruda.optim.moments import Adan, Lion, NAdam, RAdam
from ruda.optim.muon import Muon
from ruda.optim.schedule import Schedule, constant, cosine, linear_warmup
from ruda.optim.sgd import SGD
