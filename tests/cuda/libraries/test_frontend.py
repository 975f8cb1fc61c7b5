"""What importing cuDNN's frontend imports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ruda.backends.cuda.dnn.frontend import frontend


def test_pytorch_is_imported_when_somebody_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("Tensor = 'the class of tensors'\n")
    (tmp_path / "cudnn.py").write_text(
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
        "def kind():\n    return torch.Tensor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("torch", "cudnn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    frontend.cache_clear()
    try:
        found = frontend()
        assert found.torch is not None and "torch" not in sys.modules
        assert found.kind() == "the class of tensors" and "torch" in sys.modules
        import torch

        assert torch.Tensor == found.kind() and type(torch).__name__ == "module"
    finally:
        frontend.cache_clear()
        for name in ("torch", "cudnn"):
            sys.modules.pop(name, None)
