"""Waves, rotations and slopes against their formulas, and what they promise about distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, IndexRangeError, ShapeError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_waves_are_those_of_the_formula() -> None:
    waves = F.sinusoidal_positions(ruda.arange(50), 8, dtype="float64").numpy()
    for place in (0, 7, 49):
        for i in range(4):
            angle = place / 10_000 ** (2 * i / 8)
            # Two roundings of a float64 angle below 50.
            assert waves[place, 2 * i] == pytest.approx(math.sin(angle), abs=1e-14)
            assert waves[place, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-14)


@pytest.mark.parametrize("kind", [nn.SinusoidalPositions, nn.LearnedPositions])
def test_added_positions(kind: Any, rng: np.random.Generator) -> None:
    layer = kind(6, 4)
    x = ruda.asarray(rng.standard_normal((2, 5, 4)).astype(np.float32))
    places = ruda.asarray([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    np.testing.assert_array_equal(layer(x).numpy()[0], layer(x, places).numpy()[0])
    # Position 1 comes second without, and first with the positions of the other row.
    added = layer(x).numpy() - x.numpy()
    moved = layer(x, places).numpy() - x.numpy()
    np.testing.assert_allclose(moved[1, 0], added[0, 1], rtol=0, atol=1e-6)
    with pytest.raises(ShapeError, match="too long"):
        layer(ruda.ones((1, 7, 4)))
    with pytest.raises(ShapeError, match="does not fit"):
        layer(ruda.ones((1, 5, 3)))
    with pytest.raises(IndexRangeError):
        layer(x, places + 1)


def test_only_learned_positions_are_saved() -> None:
    assert [*nn.LearnedPositions(3, 2).state_dict()] == ["weight"]
    assert not nn.SinusoidalPositions(3, 2).state_dict()


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_turns_pairs_as_complex_numbers(
    interleaved: bool, rng: np.random.Generator
) -> None:
    layer = nn.RotaryEmbedding(8, interleaved=interleaved)
    x = rng.standard_normal((2, 3, 5, 8))
    turned = layer(ruda.asarray(x)).numpy()
    if interleaved:
        pairs, got = x[..., ::2] + 1j * x[..., 1::2], turned[..., ::2] + 1j * turned[..., 1::2]
    else:
        pairs, got = x[..., :4] + 1j * x[..., 4:], turned[..., :4] + 1j * turned[..., 4:]
    rates = 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    expected = pairs * np.exp(1j * np.arange(5)[:, None] * rates)
    # Angles below 4 in float32.
    np.testing.assert_allclose(got, expected, rtol=0, atol=4 * 2**-22)


@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_scores_depend_on_distance_alone(rotary_dim: int | None, rng: np.random.Generator) -> None:
    layer = nn.RotaryEmbedding(8, rotary_dim=rotary_dim)
    q, k = (ruda.asarray(rng.standard_normal((1, 1, 1, 8))) for _ in range(2))

    def score(at: int, other: int) -> float:
        turned = layer(q, ruda.asarray([at])), layer(k, ruda.asarray([other]))
        return ruda.sum(turned[0] * turned[1]).item()

    # Float32 angles up to 30.
    assert score(30, 27) == pytest.approx(score(3, 0), abs=1e-4)
    assert abs(score(30, 20) - score(3, 0)) > 1e-2


def test_positions_may_differ_by_row(rng: np.random.Generator) -> None:
    layer = nn.RotaryEmbedding(4)
    x = ruda.asarray(rng.standard_normal((2, 3, 2, 4)))
    places = ruda.asarray([[3, 4], [0, 9]])
    both = layer(x, places).numpy()
    for row in range(2):
        alone = layer(x[row : row + 1], places[row]).numpy()
        np.testing.assert_array_equal(both[row], alone[0])


def test_half_precision_keeps_exact_angles(rng: np.random.Generator) -> None:
    layer = nn.RotaryEmbedding(8)
    place = ruda.asarray([1001])
    x = ruda.asarray(rng.standard_normal((1, 1, 1, 8)).astype(np.float32))
    exact = layer(x, place).numpy()
    layer.to("bfloat16")
    assert layer.frequencies.dtype == ruda.float32
    low = layer(x.astype("bfloat16"), place)
    assert low.dtype == ruda.bfloat16
    # One rounding of the input and one of the result, relative to the pair's length.
    bound = 2**-7 * np.abs(x.numpy()).max() * math.sqrt(2)
    np.testing.assert_allclose(low.astype("float32").numpy(), exact, rtol=0, atol=bound)


def test_scalings() -> None:
    plain = np.array(F.rotary_frequencies(128, 500_000.0))
    linear = np.array(F.rotary_frequencies(128, 500_000.0, {"type": "linear", "factor": 4.0}))
    np.testing.assert_allclose(linear, plain / 4)
    ntk = np.array(F.rotary_frequencies(128, 500_000.0, {"rope_type": "ntk", "factor": 4.0}))
    assert ntk[0] == plain[0]
    assert ntk[-1] == pytest.approx(plain[-1] / 4)
    llama = np.array(F.rotary_frequencies(128, 500_000.0, LLAMA3))
    waves = 8192 * plain / (2 * math.pi)
    np.testing.assert_array_equal(llama[waves > 4], plain[waves > 4])
    np.testing.assert_allclose(llama[waves < 1], plain[waves < 1] / 8)
    between = (waves >= 1) & (waves <= 4)
    assert between.any()
    smooth = (waves[between] - 1) / 3
    expected = (1 - smooth) * plain[between] / 8 + smooth * plain[between]
    np.testing.assert_allclose(llama[between], expected)


def test_slopes_of_alibi() -> None:
    assert F.alibi_slopes(8) == [2.0**-n for n in range(1, 9)]
    # Twelve heads: those of eight, then every other one of sixteen.
    assert F.alibi_slopes(12)[8:] == [2 ** (-n / 2) for n in (1, 3, 5, 7)]


def test_rotary_must_fit() -> None:
    with pytest.raises(ArgumentError, match="more features turn"):
        nn.RotaryEmbedding(4, rotary_dim=6)
    with pytest.raises(ShapeError, match="RotaryEmbedding: the input"):
        nn.RotaryEmbedding(4)(ruda.ones((1, 1, 2, 6)))
    with pytest.raises(ShapeError, match="RotaryEmbedding: positions"):
        nn.RotaryEmbedding(4)(ruda.ones((1, 1, 2, 4)), ruda.zeros((1, 1, 2), dtype="int64"))
