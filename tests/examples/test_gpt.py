"""The GPT of examples/gpt.py on a few steps: it learns, reports, stops, goes on, and compiles."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ruda

GPT = Path(__file__).parents[2] / "examples" / "gpt.py"
STEPS = 24


@pytest.fixture(scope="module")
def gpt() -> Any:
    spec = importlib.util.spec_from_file_location("gpt", GPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpt"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpt"]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of random words: letters that follow from each other, so there is much to learn."""
    words = np.array(["river", "stone", "light", "under", "green", "seven"])
    drawn = np.random.default_rng(0).choice(words, (3000, 8))
    path: Path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text("\n".join(" ".join(line) for line in drawn))
    return path


def options(book: Path, out: Path) -> list[str]:
    sizes = "--width 16 --context 16 --layers 1 --batch 8 --rate 1e-2 --reports 2"
    return f"--steps {STEPS} --text {book} --out {out} {sizes}".split()


def run(gpt: ModuleType, book: Path, out: Path, *more: str) -> Any:
    return gpt.main([*options(book, out), *more])


@pytest.fixture(scope="module")
def whole(gpt: ModuleType, book: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run from the first step to the last, and its folder."""
    out = tmp_path_factory.mktemp("whole")
    return run(gpt, book, out), out


def assert_same_run(got: Any, want: Any) -> None:
    """Equal in every bit: losses, judgements and parameters."""
    assert got.losses == want.losses
    assert [*map(tuple, got.judged)] == [*map(tuple, want.judged)]
    state = want.model.state_dict()
    for name, tensor in got.model.state_dict().items():
        assert tensor.numpy().tobytes() == state[name].numpy().tobytes(), name


def test_the_loss_falls(whole: Any) -> None:
    trained, _ = whole
    assert trained.done == len(trained.losses) == STEPS
    # Guessing evenly costs log(size of the alphabet); the seed is fixed, and so is this run.
    assert trained.losses[0] == pytest.approx(np.log(len(trained.text.alphabet)), rel=0.05)
    assert np.mean(trained.losses[-4:]) < trained.losses[0] - 0.5
    assert [step for step, _ in trained.judged] == [STEPS // 2, STEPS]
    assert trained.judged[1][1] < trained.judged[0][1]


def test_curve_and_checkpoint_are_written(whole: Any) -> None:
    trained, out = whole
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    saved = ruda.load(out / "gpt.safetensors")
    names = {f"model.{name}" for name in trained.model.state_dict()}
    assert names < set(saved)
    assert all(name.startswith(("model.", "optimizer.")) for name in saved)


def test_samples_are_of_the_alphabet(whole: Any) -> None:
    trained, _ = whole
    before = trained.model.state_dict()["head.weight"].numpy(copy=True)
    text = trained.write(length=20)
    assert len(text) == len("\ndef ") + 20
    assert set(text) <= set(trained.text.alphabet)
    np.testing.assert_array_equal(trained.model.head.weight.numpy(), before)
    assert trained.model.training


@pytest.mark.usefixtures("interruptible")
def test_interrupt_saves_and_resume_goes_on(
    gpt: ModuleType,
    book: Path,
    tmp_path: Path,
    whole: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    step, handler = gpt.Run.step, signal.getsignal(signal.SIGINT)

    def interrupted(self: Any, x: Any, y: Any) -> Any:
        if self.done == 8:
            signal.raise_signal(signal.SIGINT)
        return step(self, x, y)

    monkeypatch.setattr(gpt.Run, "step", interrupted)
    stopped = run(gpt, book, tmp_path)
    monkeypatch.undo()
    assert stopped.done == len(stopped.losses) == 9
    assert signal.getsignal(signal.SIGINT) is handler
    assert "interrupted after step 9" in "".join(capsys.readouterr())
    assert_same_run(run(gpt, book, tmp_path, "--resume"), whole[0])


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_ends_at_once(
    gpt: ModuleType, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, x: Any, y: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(gpt.Run, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(gpt, book, tmp_path)
    assert not (tmp_path / "gpt.safetensors").exists()


def test_compiled_steps_are_the_eager_ones(
    gpt: ModuleType, book: Path, tmp_path: Path, whole: Any
) -> None:
    assert_same_run(run(gpt, book, tmp_path, "--compile"), whole[0])


def test_a_resumed_finished_run_changes_nothing(gpt: ModuleType, book: Path, whole: Any) -> None:
    assert_same_run(run(gpt, book, whole[1], "--resume"), whole[0])


def test_steps_and_reports_are_fitted_to_the_time(gpt: ModuleType, book: Path) -> None:
    text, shape = gpt.Text(*gpt.read_text(book)), gpt.Shape(16, 16, 4, 1)
    assert gpt.steps_and_reports_in(0.0, 8, text, shape, 4) == (20, 1)
    steps, reports = gpt.steps_and_reports_in(60.0, 8, text, shape, 4)
    assert steps > 20
    assert reports == 8


def test_bigram_entropy_of_known_texts(gpt: ModuleType) -> None:
    assert gpt.Text("ab" * 9, "ab" * 9).bigram_entropy() == 0.0
    # After an a comes a or b, as often as not; after a b always a.
    assert gpt.Text("aab", "aabaab" * 500).bigram_entropy() == pytest.approx(
        2 / 3 * np.log(2), rel=1e-3
    )


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_too_little_text_is_said(gpt: ModuleType, tmp_path: Path, kind: str) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a few words")
    where = short if kind == "file" else tmp_path
    with pytest.raises(SystemExit, match=r"^gpt: too little text in .*Got .*Expected .*Try"):
        run(gpt, where, tmp_path / "out")
