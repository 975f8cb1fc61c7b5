"""The residual network of examples/resnet.py: it learns, resumes exactly, and compiles."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.loading import example

SHORT = [
    *("--images", "400"),
    *("--epochs", "3"),
    *("--batch", "40"),
    *("--width", "4"),
    *("--every", "8"),
    *("--rate", "0.2"),
]


@pytest.fixture(scope="module")
def resnet() -> Iterator[Any]:
    with example("resnet") as module:
        yield module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in the four files of Fashion-MNIST: class n is n bars, in noise."""
    path: Path = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for name, count in (("train", 60_000), ("t10k", 10_000)):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        images = np.zeros((count, 28, 28), np.uint8)
        images[:500] = rng.integers(0, 60, (500, 28, 28))
        for bar in range(9):
            images[labels > bar, 3 * bar + 1] = 255
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
            with gzip.open(path / f"{name}-{kind}-ubyte.gz", "wb", compresslevel=1) as file:
                file.write(head + values.tobytes())
    return path


def start(resnet: Any, folder: Path, out: Path, *more: str) -> Any:
    return resnet.main([*SHORT, "--folder", str(folder), "--out", str(out), *more])


@pytest.fixture(scope="module")
def run(resnet: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return start(resnet, folder, tmp_path_factory.mktemp("whole"))


def assert_same_run(got: Any, want: Any) -> None:
    assert got.losses == want.losses
    assert got.accuracies == want.accuracies
    state = want.model.state_dict()
    for name, tensor in got.model.state_dict().items():
        assert tensor.numpy().tobytes() == state[name].numpy().tobytes(), name


def test_it_learns(run: Any) -> None:
    assert run.done == len(run.losses) == 30
    assert np.mean(run.losses[-5:]) < run.losses[0] - 0.5
    # One in ten would be guessing; the seed is fixed.
    assert run.accuracies[-1] > 0.3


def test_a_stopped_run_goes_on(resnet: Any, folder: Path, run: Any, tmp_path: Path) -> None:
    stopped = start(resnet, folder, tmp_path, "--steps", "13")
    assert stopped.done == 13
    assert_same_run(start(resnet, folder, tmp_path, "--resume"), run)


def test_compiled_steps_are_the_eager_ones(
    resnet: Any, folder: Path, run: Any, tmp_path: Path
) -> None:
    assert_same_run(start(resnet, folder, tmp_path, "--compile"), run)


def test_digits_stand_in(
    resnet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the digits are those of scikit-learn")
    monkeypatch.setattr(resnet.data.known, "FASHION_MNIST", str(tmp_path / "absent"))
    resnet.main([*SHORT, "--steps", "2", "--out", str(tmp_path)])
    assert "so digits" in capsys.readouterr().out


def test_a_folder_without_pictures_is_said(resnet: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^resnet: "):
        start(resnet, tmp_path / "absent", tmp_path)
