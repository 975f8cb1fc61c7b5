"""Layers with their channels last compute what those with channels second do."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.ops.rowwise import NormalizationArgumentError


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_a_network_with_channels_last(mode: str) -> None:
    def build(layout: str) -> nn.Sequential:
        conv = nn.Conv2d(3, 8, 3, padding=1, stride=2, padding_mode=mode, layout=layout)
        return nn.Sequential(conv, nn.BatchNorm2d(8, layout=layout))

    first, last = build("nchw"), build("nhwc")
    last.load_state_dict(first.state_dict())
    x = ruda.random.normal((4, 3, 9, 10))
    expected = first(x).permute_dims((0, 2, 3, 1))
    found = last(x.permute_dims((0, 2, 3, 1)))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(last[1].running_var.numpy(), first[1].running_var.numpy(), rtol=1e-5)
    assert "layout='nhwc'" in repr(last)


def test_an_unknown_layout_is_refused() -> None:
    layer = nn.BatchNorm2d(8, layout="chwn")
    with pytest.raises(NormalizationArgumentError, match="unknown layout"):
        layer(ruda.ones((2, 8, 3, 3)))
