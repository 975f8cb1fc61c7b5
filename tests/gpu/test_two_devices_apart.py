"""Two real GPUs: vendors' libraries on both, memory of other libraries, processes of their own."""

from __future__ import annotations

import base64
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda
from ruda.core.devices import client
from tests.gpu.test_two_devices import Pair, in_threads, values

needs_cudnn = pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="no cuDNN")
pytestmark = pytest.mark.filterwarnings(r"ignore:::(torch|cupy|cupyx)(\.|$)")


def on(where: str, *shape: int, seed: int = 0, dtype: str = "float32") -> ruda.Tensor:
    return ruda.asarray(values(*shape, seed=seed), device=where).astype(dtype)


def spd(where: str, n: int) -> ruda.Tensor:
    x = values(3, n, n)
    return ruda.asarray(x @ x.swapaxes(1, 2) + n * np.eye(n, dtype="f4"), device=where)


def drawn(where: str) -> ruda.Tensor:
    g = ruda.random.Generator(3, engine="vendor")
    return ruda.random.normal((1000,), generator=g, device=where)


def image(where: str, dtype: str) -> ruda.Tensor:
    x, w = on(where, 2, 16, 12, 12, dtype=dtype), on(where, 24, 16, 3, 3, seed=1, dtype=dtype)
    return F.conv2d(x, w, padding=1)


def attended(where: str) -> ruda.Tensor:
    return F.attention(*(on(where, 2, 4, 64, 64, seed=s, dtype="bfloat16") for s in range(3)))


CALLS: dict[str, Callable[[str], ruda.Tensor]] = {
    "float32 product": lambda w: on(w, 300, 200) @ on(w, 200, 500, seed=1),
    "bfloat16 product": lambda w: on(w, 256, 512, dtype="bfloat16") @ on(w, 512, 256, seed=1,
                                                                         dtype="bfloat16"),
    "float64 batch": lambda w: on(w, 5, 40, 30, dtype="float64") @ on(w, 5, 30, 20, seed=1,
                                                                      dtype="float64"),
    "linear": lambda w: F.linear(on(w, 64, 96), on(w, 128, 96, seed=1), on(w, 128, seed=2)),
    "fft": lambda w: ruda.abs(ruda.fft.rfft(on(w, 6, 1000))),
    "cholesky": lambda w: ruda.linalg.cholesky(spd(w, 40)),
    "solve": lambda w: ruda.linalg.solve(spd(w, 33), on(w, 3, 33, 4)),
    "eigenvalues": lambda w: ruda.linalg.eigvalsh(spd(w, 24)),
    "singular values": lambda w: ruda.linalg.svdvals(on(w, 50, 30)),
    "vendor's numbers": drawn,
    "sort": lambda w: ruda.sort(on(w, 100_000)),
    "cumsum": lambda w: ruda.cumsum(on(w, 70_000), axis=0),
    "softmax": lambda w: F.softmax(on(w, 20, 5000), axis=-1),
    "scatter": lambda w: ruda.take(on(w, 500, 8), ruda.arange(499, -1, -1, device=w), axis=0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_libraries_of_both_in_turn(pair: Pair, name: str) -> None:
    first, second = pair
    found = []
    for where in (second, first, second, first):
        out = CALLS[name](where)
        assert out.device == where
        found.append(out)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].numpy(), other.numpy())


@needs_cudnn
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_cudnn_of_both_in_turn(pair: Pair, dtype: str) -> None:
    for call in (lambda w: image(w, dtype), attended):
        found = [call(where).astype("float32").numpy() for where in (*pair[::-1], *pair)]
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


def test_libraries_of_both_at_once(pair: Pair) -> None:
    def work(where: str) -> list[Any]:
        names = ("float32 product", "fft", "cholesky", "linear", "sort")
        return [CALLS[name](where).numpy() for _ in range(3) for name in names]

    found = in_threads(*(lambda where=where: work(where) for where in pair))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_large_copies_arrive_whole(pair: Pair) -> None:
    x = ruda.arange(150_000_001, device=pair[0])
    y = x.to(pair[1])
    assert ruda.all(y == ruda.arange(150_000_001, device=pair[1])).item()
    z = y[::-3].to(pair[0])
    assert ruda.all(z == x[::-3]).item()


def test_cupy_on_the_second(pair: Pair) -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(1):
        given = cupy.arange(1000, dtype="float32") * 2
        for x in (ruda.from_dlpack(given), ruda.asarray(given)):
            assert x.device == pair[1]
            np.testing.assert_array_equal((x + 1).numpy(), np.arange(1000) * 2 + 1)
    there = cupy.from_dlpack(on(pair[1], 50) * 2)
    assert there.device.id == 1
    np.testing.assert_array_equal(cupy.asnumpy(there), values(50) * 2)


def test_cupy_takes_memory_of_its_device(pair: Pair) -> None:
    cupy = pytest.importorskip("cupy")
    try:
        for i, where in enumerate(pair):
            cuda.share_memory_with_cupy(where)
            for index, other in enumerate(pair):
                before = cuda.memory_allocated(other)
                with cupy.cuda.Device(index):
                    array = cupy.ones(1 << 20, dtype="float32")
                    assert float(array.sum()) == 1 << 20
                # The second call leaves the first in place for the first GPU.
                assert (cuda.memory_allocated(other) > before) == (index <= i)
                del array
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def test_pytorch_on_the_second(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("PyTorch sees no second GPU")
    given = torch.arange(1000, dtype=torch.float32, device="cuda:1") * 2
    x = ruda.from_dlpack(given)
    assert x.device == pair[1]
    np.testing.assert_array_equal((x + 1).numpy(), np.arange(1000) * 2 + 1)
    there = torch.from_dlpack(on(pair[1], 50) * 2)
    assert there.device.index == 1
    np.testing.assert_array_equal(there.cpu().numpy(), values(50) * 2)


def run(code: str, *given: str, **environment: str) -> str:
    """What a program prints, which has to come to its end."""
    done = subprocess.run(
        [sys.executable, "-c", code, *given],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ALONE = """
import ctypes, numpy as np, ruda
import ruda.nn.functional as F
from ruda import cuda, nn, optim
from ruda.core import devices
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
opt = optim.AdamW(model.parameters(), lr=0.01)
@ruda.compile
def step(x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss
host = ruda.asarray(np.ones((6, 8), "f4"), device="cpu").pin_memory()
assert ruda.empty((3,), pin=True).device == "cpu"
for i in range(5):
    loss = step(host.to("cuda:1", non_blocking=True), ruda.arange(6) % 4)
assert loss.device == "cuda:1" and "one graph" in step.explain()
x = ruda.random.normal((50, 50))
_ = (x @ x, ruda.fft.fft(x[0]), ruda.linalg.svdvals(x), ruda.sort(x), x.numpy())
cuda.synchronize(), cuda.empty_cache(), cuda.memory_stats(), cuda.Stream(), cuda.Event().record()
with cuda.stream(cuda.Stream()):
    x + 1
_ = ruda.from_dlpack(x) + 1
driver = ctypes.CDLL("libcuda.so.1")
flags, active = ctypes.c_uint(), ctypes.c_int()
driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
print(sorted(map(str, devices._clients)), active.value, cuda.current_device())
"""


def test_who_uses_the_second_alone_leaves_the_first_alone(pair: Pair) -> None:
    assert run(ALONE, RUDA_DEVICE="cuda:1").strip() == "['cpu', 'cuda:1'] 0 1"


LATE = """
import numpy as np, ruda
data = [np.full((4, 4), i, "f4") for i in range(12)]
state = ruda.ones((4, 4), device="cuda:0")
@ruda.compile
def step(x):
    state.assign(state * 0.5 + x)
    return state @ x, state.sum()
def seen(x):
    return (x * 2 + 1).sum()
x0 = ruda.asarray(data[1], device="cuda:0")
want, exact = np.ones((4, 4), "f4"), []
found = []
for i in range(12):
    if i == 6:
        far = ruda.ones((4, 4), device="cuda:1")
    x = ruda.asarray(data[i], device="cuda:0")
    if i > 5:
        far = far * 2 - far
        _ = far @ far
    product, total = step(x)
    want = want * np.float32(0.5) + data[i]
    assert np.allclose(product.numpy(), want @ data[i]), i
    assert np.allclose(total.item(), want.sum()), i
    if i > 5:
        _ = far + 1
    assert seen(x).item() == (data[i] * 2 + 1).sum()
print(far.sum().item())
"""


def test_a_second_gpu_comes_late(pair: Pair) -> None:
    assert run(LATE, RUDA_DEVICE="cpu").strip() == "16.0"


STAGED = """
import numpy as np, ruda
from ruda.core.devices import client
for i in (0, 1):
    client(f"cuda:{i}").driver.peer = lambda other: False
x = ruda.arange(10_000_000, device="cuda:0")
y = x.to("cuda:1")
x.assign(0)
assert ruda.all(y == ruda.arange(10_000_000, device="cuda:1")).item()
print((y[::7] + 1).to("cuda:0").sum().item() - np.arange(0, 10_000_000, 7).sum())
"""


def test_copies_where_neither_reads_the_other(pair: Pair) -> None:
    assert run(STAGED, RUDA_DEVICE="cpu").strip() == str(-(-10_000_000 // 7))


BROKEN = """
import ruda
from ruda.core.errors import DeviceError
a, x = (ruda.ones(1 << 20, device=f"cuda:{i}") for i in (0, 1))
assert (a + 1).sum().item() == 2 << 20
x.handle.address += 1 << 44
try:
    (x + 1).numpy()
except DeviceError as error:
    print(error)
"""


def test_a_broken_kernel_of_the_second(pair: Pair) -> None:
    told = run(BROKEN, RUDA_DEVICE="cpu")
    assert "cuda:1" in told
    assert "cuda:0" not in told


WORKER = """
import base64, pickle, sys
from ruda import cuda
x = cuda.open_memory(pickle.loads(base64.b64decode(sys.argv[1])))
x[0, 0] = 99.0
print(x.device, x.sum().item())
cuda.synchronize(x.device)
del x
"""


def test_another_process_sees_memory_of_the_second(pair: Pair) -> None:
    x = ruda.asarray(np.arange(12, dtype="f4").reshape(3, 4), device=pair[1])
    text = base64.b64encode(pickle.dumps(cuda.share_memory(x))).decode()
    assert run(WORKER, text, RUDA_DEVICE="cpu").strip() == "cuda:1 165.0"
    assert x[0, 0].item() == 99


def test_facts_are_of_the_device_that_was_named(pair: Pair) -> None:
    drivers = [client(where).driver for where in pair]
    assert [driver.index for driver in drivers] == [0, 1]
    assert not set(drivers[0]._functions.values()) & set(drivers[1]._functions.values())
    assert cuda.get_device_name(0)
    assert cuda.get_device_name(1)
    with pytest.raises(ruda.DeviceError, match="no such GPU"):
        cuda.synchronize(cuda.device_count())
