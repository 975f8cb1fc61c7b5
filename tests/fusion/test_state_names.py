"""State is called in explain() and check() what a person would call it."""

from __future__ import annotations

import ruda
from ruda import nn, optim
from ruda.fusion.state_names import readable


def test_paths_lose_what_modules_keep_things_in() -> None:
    path = "self.model._modules['encoder']._modules['0']._buffers['running_mean']"
    assert readable(path) == "self.model.encoder.0.running_mean"
    assert readable("o._state[tensor(<traced>, float32[2, 3]@cpu)][1]") == "o._state[...][1]"
    assert readable("groups[0]['params'][3]") == "groups[0]['params'][3]"


def test_parameters_and_moments_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    @ruda.compile
    def step(x: ruda.Tensor) -> ruda.Tensor:
        loss = (model(x) ** 2).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    x = ruda.random.normal((8, 2))
    step(x)
    text = step.explain()
    for name in ("model.0.weight", "model.1.running_mean", "opt.exp_avg_sq[model.1.bias]"):
        assert f" = {name} : float32" in text
    assert "_modules[" not in text and "_parameters[" not in text and "traced" not in text
    report = step.check(x)
    paths = {entry.name.split()[0]: entry.path for entry in report.entries}
    assert paths["output"] == "" and paths["gradient"].startswith("model.")
    assert "(opt.step[model.0.bias]): 0" in str(report)


def test_moments_of_two_optimizers() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    fast, slow = optim.SGD([weight], lr=0.1, momentum=0.9), optim.AdamW([weight], lr=1e-3)

    @ruda.compile
    def step() -> None:
        (weight * weight).sum().backward()
        fast.step()
        slow.step()
        weight.grad = None

    step()
    text = step.explain()
    assert " = fast.momentum_buffer[" in text and " = slow.exp_avg[" in text
