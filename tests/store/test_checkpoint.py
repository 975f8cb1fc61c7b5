"""Checkpoints: resuming changes no bit, and no accident costs more than the last step."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.core.errors import ArgumentError, RudaError, StoreError
from ruda.data import ArrayDataset, DataLoader
from ruda.nn import functional as F
from ruda.store import (
    Checkpoint,
    CheckpointWarning,
    LoadError,
    MissingFileError,
    folder,
    load_arrays,
)
from ruda.store.tree import as_json, decoded, encoded
from tests.store.mutations import COUNTS, mutated
from tests.store.run import Run

ROOT = Path(__file__).parents[2]
TOTAL = 20
KILLS = [20, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]


@pytest.fixture(autouse=True)
def _default_generator():
    state = ruda.random.default_generator.state_dict()
    yield
    ruda.random.default_generator.load_state_dict(state)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> dict[int, str]:
    """The losses of a run that nothing interrupts."""
    return dict(Run(tmp_path_factory.mktemp("whole")).losses(TOTAL))


def linear(value: float = 1.0) -> nn.Module:
    module = nn.Linear(2, 1)
    with ruda.no_grad():
        module.weight.assign(value)
    return module


def state_of(run: Run) -> dict[str, object]:
    tree = {name: part.state_dict() for name, part in run.parts.items() if name != "generators"}
    tree["draws"] = [run.noise.state_dict(), ruda.random.default_generator.state_dict()]
    tree["grads"] = {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None}
    stub, arrays = encoded(tree, "run")
    return {"stub": stub} | {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("step", range(1, TOTAL, 2))
def test_resuming_at_any_step_is_exact(tmp_path, reference, step):
    assert dict(Run(tmp_path).losses(step)).items() <= reference.items()
    run = Run(tmp_path)
    ruda.random.manual_seed(12345)
    assert run.resume() and run.count == step
    assert run.micro_batch == step % 3
    assert dict(run.losses(TOTAL)) == {n: v for n, v in reference.items() if n > step}


def test_restoring_puts_back_every_bit(tmp_path):
    run = Run(tmp_path, keep_last=None)
    dict(run.losses(8))
    expected = state_of(run)
    fresh = Run(tmp_path)
    parameters = list(fresh.model.parameters())
    assert state_of(fresh) != expected
    fresh.resume()
    assert state_of(fresh) == expected
    assert all(p is q for p, q in zip(parameters, fresh.model.parameters()))
    dict(run.losses(11))
    run.checkpoint.discard_after(8)
    assert run.resume()
    assert state_of(run) == expected


def test_a_compiled_step_goes_on_exactly(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    opt = optim.AdamW(model.parameters(), lr=0.1)
    x = ruda.ones((8, 3))

    @ruda.compile
    def step():
        loss = F.mse_loss(model(x), ruda.zeros((8, 1)))
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    saved = Checkpoint(tmp_path)
    first = [step().item() for _ in range(3)]
    saved.save(3, model=model, optimizer=opt)
    after = [step().item() for _ in range(4)]
    saved.restore(model=model, optimizer=opt)
    assert [step().item() for _ in range(4)] == after
    assert first[0] != after[0]


def test_an_optimizer_that_gathers_its_state(tmp_path):
    def step(model: nn.Module, opt: optim.LBFGS) -> float:
        def closure():
            opt.zero_grad()
            loss = ((model(x) - x[:, :1] * 3) ** 2).mean()
            loss.backward()
            return loss

        return opt.step(closure).item()

    x = ruda.asarray(np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32))
    model, saved = linear(), Checkpoint(tmp_path)
    opt = optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    saved.save(0, model=model, optimizer=opt)
    losses = []
    for count in (1, 2, 3):
        losses.append(step(model, opt))
        saved.save(count, model=model, optimizer=opt)
    for count in (2, 1):
        saved.restore(count, model=model, optimizer=opt)
        assert [step(model, opt) for _ in losses[count:]] == losses[count:]
    fresh = linear()
    other = optim.LBFGS(fresh.parameters(), lr=0.1, max_iter=2)
    saved.restore(2, model=fresh, optimizer=other)
    assert step(fresh, other) == losses[2]


def test_scaling_survives(tmp_path):
    scaler, saved = optim.GradScaler(init_scale=64.0), Checkpoint(tmp_path)
    saved.save(1, scaler={"a": scaler})
    other = optim.GradScaler()
    saved.restore(scaler={"a": other})
    assert float(other.get_scale()) == 64.0
    with pytest.raises(StoreError, match="scaler does not fit"):
        saved.restore(scaler={"b": other})


def killed(path: Path, kill_after: int) -> tuple[int, dict[int, str]]:
    """How a run in a process of its own ended, and the losses it printed."""
    command = [sys.executable, "-m", "tests.store.run", path, TOTAL, kill_after]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    pairs = map(str.split, done.stdout.splitlines())
    return done.returncode, {int(number): loss for number, loss in pairs}


@pytest.mark.parametrize("kills", KILLS)
def test_a_run_killed_again_and_again_has_the_losses_of_a_whole_one(tmp_path, reference, kills):
    rng, losses, run, reached = random.Random(4), {}, 0, 0
    for _ in range(kills):
        path = tmp_path / str(run)
        path.mkdir(exist_ok=True)
        newest = max((step for step, _ in folder.steps_in(str(path))), default=0)
        # A loss is printed after its save, so what was seen is never made again.
        assert newest >= reached
        # A save is about thirty such calls.
        code, found = killed(path, rng.randint(1, 120))
        assert not found or min(found) == newest + 1
        losses |= found
        reached = max(found, default=newest)
        run, reached = (run + 1, 0) if code == 0 else (run, reached)
    code, found = killed(tmp_path / str(run), -1)
    assert code == 0
    assert (losses | found).items() <= reference.items()
    assert found[TOTAL] == reference[TOTAL]
    assert sorted(os.listdir(tmp_path / str(run))) == [f"step-{n:08}" for n in (18, 19, 20)]


def test_the_policy_keeps_the_last_and_the_best(tmp_path):
    saved = Checkpoint(tmp_path, keep_last=2, keep_best=2, metric="loss")
    for step, loss in enumerate([5.0, 1.0, 4.0, math.nan, 2.0, 1.0, 9.0, 8.0]):
        saved.save(step, model=linear(), metrics={"loss": loss, "other": 0})
    assert saved.steps() == [1, 5, 6, 7]
    assert saved.latest().step == 7
    assert saved.best()[::2] == (5, {"loss": 1.0, "other": 0.0})
    assert Checkpoint(tmp_path, metric="loss", mode="max").best().step == 6
    assert Checkpoint(tmp_path, metric="none").best() is None
    with pytest.raises(ArgumentError, match="nothing tells the best"):
        Checkpoint(tmp_path).best()
    with pytest.raises(ArgumentError, match="the metric is missing"):
        saved.save(9, model=linear(), metrics={"other": 1})
    everything = Checkpoint(tmp_path, keep_last=None)
    for step in range(8, 12):
        everything.save(step, metrics={"loss": math.inf})
    assert everything.steps() == [1, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ({"keep_last": 0}, "keep_last is too small"),
        ({"keep_best": 1}, "nothing tells the best"),
        ({"keep_best": -1, "metric": "x"}, "nothing tells the best"),
        ({"mode": "least"}, "unknown mode"),
    ],
)
def test_policies_without_sense(tmp_path, policy, match):
    with pytest.raises(ArgumentError, match=match):
        Checkpoint(tmp_path / "new", **policy)
    assert not (tmp_path / "new").exists()


def test_an_empty_folder_has_nothing(tmp_path):
    saved = Checkpoint(tmp_path / "a" / "b")
    assert saved.latest() is None and saved.restore(model=linear()) is None
    assert saved.steps() == []
    with pytest.raises(MissingFileError):
        saved.restore(3)


EXTRA = {
    "tuple": (1, (2.5, None), [True, "text"]),
    "floats": [math.inf, -math.inf, 5e-324, 0.1, -0.0],
    "keys": {3: "a", "3": "b", True: 1, None: 2},
    "order": {"b": 1, "a": 2},
    "$": {"$": "tensor"},
    "big": 2**200,
    "array": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "complex": np.array([1 + 2j, 3.0]),
    "name.x": np.ones(1),
    "name": {"x": np.zeros(1)},
    "empty": ({}, [], ()),
}


def test_extra_survives_exactly(tmp_path):
    saved = Checkpoint(tmp_path)
    tensor = ruda.ones(3, dtype="bfloat16")
    saved.save(1, extra=EXTRA | {"tensor": tensor, "nan": math.nan})
    found = saved.restore().extra
    assert math.isnan(found.pop("nan"))
    assert (loaded := found.pop("tensor")).dtype is ruda.bfloat16 and loaded.tolist() == [1.0] * 3
    assert repr(found) == repr(EXTRA)
    assert list(found["order"]) == ["b", "a"]


@pytest.mark.parametrize(
    "extra", [object(), {"a": {1, 2}}, {(1, 2): 3}, b"raw", np.array(["a"]), "\ud800", 1j]
)
def test_extra_that_cannot_be_stored_writes_nothing(tmp_path, extra):
    saved = Checkpoint(tmp_path)
    with pytest.raises(StoreError, match="save: extra"):
        saved.save(1, extra=extra)
    loop: list = []
    loop.append(loop)
    with pytest.raises(StoreError, match="nested too deeply"):
        saved.save(1, extra=loop)
    assert os.listdir(tmp_path) == []


def test_the_model_is_a_file_of_its_own(tmp_path):
    path = Checkpoint(tmp_path).save(3, model=linear(7.0))
    arrays, _ = load_arrays(os.path.join(path, "model.safetensors"))
    assert arrays["weight"].tolist() == [[7.0, 7.0]]


def test_later_steps_are_not_mixed_up(tmp_path):
    saved = Checkpoint(tmp_path)
    for step in (1, 2, 3):
        saved.save(step, model=linear(step))
    with pytest.raises(ArgumentError, match=r"later steps exist.*discard_after\(1\)"):
        saved.save(2, model=linear())
    assert saved.restore(1, model=linear()).step == 1
    saved.discard_after(1)
    saved.save(2, model=linear(22))
    module = linear()
    assert saved.restore(model=module).step == 2 and module.weight.tolist() == [[22.0, 22.0]]
    saved.save(2, model=linear(23))
    saved.restore(model=module)
    assert module.weight.tolist() == [[23.0, 23.0]]


def damage(path: Path, kind: str) -> None:
    raw = path.read_bytes()
    if kind == "flip":
        path.write_bytes(raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
    elif kind == "cut":
        path.write_bytes(raw[:-2])
    elif kind == "grown":
        path.write_bytes(raw + b"\n")
    elif kind == "oversized":
        os.truncate(path, 1 << 40)
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()


KINDS = ["flip", "cut", "grown", "oversized", "folder", "absent"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["manifest.json", "state.json", "model.safetensors", "optimizer.safetensors"]
)
def test_a_damaged_one_is_passed_over_with_the_reason(tmp_path, kind, name):
    saved, module = Checkpoint(tmp_path, keep_last=5), linear()
    opt = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for step in (1, 2, 3):
        path = saved.save(step, model=linear(step), optimizer=opt)
    damage(Path(path, name), kind)
    if (kind, name) == ("grown", "manifest.json"):
        # A space after a document changes nothing that it says.
        assert saved.latest().step == 3
        return
    with pytest.warns(CheckpointWarning, match="step-00000003.*passed over"):
        assert saved.latest().step == 2
    assert list(saved.damaged) == [path]
    with pytest.warns(CheckpointWarning):
        assert saved.restore(model=module, optimizer=opt).step == 2
    assert module.weight.tolist() == [[2.0, 2.0]]
    with pytest.raises(StoreError):
        saved.restore(3, model=module)
    assert module.weight.tolist() == [[2.0, 2.0]]
    saved.save(3, model=linear(33))
    assert saved.latest().step == 3 and not saved.damaged


def test_all_damaged_is_an_error_not_a_new_start(tmp_path):
    saved = Checkpoint(tmp_path)
    for step in (1, 2):
        os.unlink(os.path.join(saved.save(step, model=linear()), "state.json"))
    for call in (saved.latest, saved.restore):
        with pytest.warns(CheckpointWarning), pytest.raises(StoreError):
            call()


def test_a_checkpoint_under_another_name_is_refused(tmp_path):
    saved = Checkpoint(tmp_path)
    path = saved.save(1, model=linear())
    os.rename(path, tmp_path / "step-00000009")
    with pytest.warns(CheckpointWarning), pytest.raises(StoreError, match="another step"):
        saved.latest()


def test_a_manifest_may_not_name_other_files(tmp_path):
    saved = Checkpoint(tmp_path)
    path = Path(saved.save(1, model=linear()), "manifest.json")
    facts = json.loads(path.read_text())
    del facts["sha256"]
    (tmp_path / "x.json").write_text("{}")
    for name in ("../x.json", "/etc/passwd", "a\0.json", "state.json/../../x.json"):
        facts["files"] = {name: {"size": 2, "sha256": "0" * 64}}
        digest = hashlib.sha256(as_json(facts)).hexdigest()
        path.write_bytes(as_json(facts | {"sha256": digest}))
        with pytest.warns(CheckpointWarning), pytest.raises(StoreError, match="malformed manifest"):
            saved.latest()


def test_what_a_kill_left_is_removed_or_put_back(tmp_path):
    saved = Checkpoint(tmp_path)
    path = Path(saved.save(1, model=linear()))
    (tmp_path / ".new-0123").mkdir()
    (tmp_path / ".new-0123" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".old-elsewhere").mkdir()
    path.rename(tmp_path / ".old-step-00000001")
    with folder.locked(str(tmp_path), wait=True) as is_mine:
        assert is_mine
        Checkpoint(tmp_path)
        assert (tmp_path / ".new-0123").exists()
    assert Checkpoint(tmp_path).latest().step == 1
    assert sorted(os.listdir(tmp_path)) == [".old-elsewhere", "notes.txt", "step-00000001"]


@pytest.mark.parametrize("name", ["fsync", "rename", "mkdir", "replace"])
def test_a_failing_disk_leaves_what_was_there(tmp_path, monkeypatch, name):
    saved = Checkpoint(tmp_path)
    saved.save(1, model=linear(1.0))

    def fails(*args, **kwargs):
        raise OSError(28, "No space left on device")

    for step in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            with pytest.raises(OSError, match="No space"):
                saved.save(step, model=linear(2.0))
    module = linear(0.0)
    assert saved.restore(model=module).step == 1
    assert module.weight.tolist() == [[1.0, 1.0]]
    assert os.listdir(tmp_path) == ["step-00000001"]


def changed_model(run: Run) -> None:
    run.parts["model"] = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))


def changed_shape(run: Run) -> None:
    run.parts["model"] = Run(run.checkpoint.folder).model
    run.parts["model"][4] = nn.Linear(8, 2)


def changed_optimizer(run: Run) -> None:
    run.parts["optimizer"] = optim.SGD(run.model.parameters(), lr=0.1, momentum=0.5)


def changed_schedule(run: Run) -> None:
    groups = [{"params": [p]} for p in run.model.parameters()]
    run.parts["schedule"] = optim.Schedule(optim.SGD(groups, lr=0.1), optim.constant)


def changed_loader(run: Run) -> None:
    run.parts["loader"] = DataLoader(ArrayDataset(np.zeros((3, 4), np.float32)))


def changed_generators(run: Run) -> None:
    run.parts["generators"] = {"other": ruda.random.Generator(1)}


def frozen(run: Run) -> None:
    run.model.requires_grad_(False)


@pytest.mark.parametrize(
    "change",
    [
        changed_model,
        changed_shape,
        changed_optimizer,
        changed_schedule,
        changed_loader,
        changed_generators,
        frozen,
    ],
)
def test_parts_that_do_not_fit_change_nothing(tmp_path, change):
    dict(Run(tmp_path).losses(7))
    run = Run(tmp_path)
    change(run)
    before = state_of(run)
    with pytest.raises(RudaError) as caught:
        run.checkpoint.restore(**run.parts)
    assert state_of(run) == before
    if change in (changed_model, changed_shape):
        assert isinstance(caught.value, LoadError)


def test_parts_come_back_one_by_one(tmp_path):
    dict(Run(tmp_path).losses(7))
    run = Run(tmp_path)
    ruda.random.manual_seed(5)
    run.checkpoint.restore(model=run.model)
    assert ruda.random.default_generator.state_dict() == {"seed": 5, "draw": 0}
    assert all(p.grad is None for p in run.model.parameters())
    assert run.loader.state_dict()["position"] == 0
    run.checkpoint.restore(loader=run.loader)
    assert run.loader.state_dict()["position"] == 4
    with pytest.raises(StoreError, match=r"no scaler was saved.*leaving out scaler="):
        run.checkpoint.restore(model=run.model, scaler=run.optimizer)


@pytest.mark.parametrize("count", COUNTS)
def test_mutations_are_passed_over_and_change_nothing(tmp_path, count):
    run = Run(tmp_path)
    dict(run.losses(2))
    before = state_of(run)
    newest = tmp_path / "step-00000002"
    whole = {path: path.read_bytes() for path in sorted(newest.iterdir())}
    streams = {path: mutated(raw, count) for path, raw in whole.items()}
    for seed in range(count):
        path = random.Random(seed).choice(list(whole))
        damaged = next(streams[path])
        path.write_bytes(damaged)
        try:
            run.checkpoint.restore(2, **run.parts)
        except StoreError:
            assert damaged != whole[path]
        assert state_of(run) == before
        path.write_bytes(whole[path])


@pytest.mark.parametrize("count", COUNTS)
def test_mutated_states_with_sound_checksums_raise_or_decode(count):
    stub, arrays = encoded(EXTRA | {"t": ruda.ones(2)}, "extra")
    refused = 0
    for raw in mutated(json.dumps(stub).encode(), count):
        try:
            tree = json.loads(raw)
        except ValueError:
            continue
        try:
            decoded(tree, arrays, "here")
        except StoreError:
            refused += 1
    assert refused
