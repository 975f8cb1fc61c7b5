"""Cards of modules and optimizers."""

from __future__ import annotations

from typing import Any

import ruda
from ruda import nn, optim
from ruda.display import trees
from tests.display.markup import read


class Model(nn.Module):
    """Two tied matrices, a frozen layer, a buffer, a module used twice, a name to escape."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.again = self.body
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", ruda.ones(3))
        self.body[0].requires_grad_(False)

    def extra_repr(self) -> str:
        return "<script>alert(1)</script> & more"


def test_a_module_is_a_tree_with_shapes_counts_and_marks() -> None:
    source = Model()._repr_html_()
    text = " ".join(read(source).text.split())
    # 40 tied once, 4·8 + 8 frozen, 8·4 + 4.
    assert "Model 116 parameters" in text and "76 trained" in text
    assert "0 Linear" in text and "frozen" in text
    assert "tied to embed.weight" in text and "same as body" in text
    assert "scale 3 float32 buffer" in text
    assert "<script>alert(1)</script> & more" in text and "<script" not in source
    assert "<details" in source and "training" in text
    assert "evaluating" in Model().eval()._repr_html_()


def test_a_bare_module_and_a_deep_one() -> None:
    assert "0 parameters" in read(nn.ReLU()._repr_html_()).text
    deep: Any = nn.Linear(1, 1)
    for _ in range(60):
        deep = nn.Sequential(deep)
    assert "2 parameters" in read(deep._repr_html_()).text


def test_a_tree_of_many_rows_is_cut(monkeypatch: Any) -> None:
    monkeypatch.setattr(trees, "MOST_ROWS", 20)
    text = read(nn.Sequential(*[nn.Linear(2, 2) for _ in range(50)])._repr_html_()).text
    assert "more than 20 rows" in text and text.count("Linear") < 20
    assert "300 parameters" in text


def test_an_optimizer_shows_groups_settings_and_state() -> None:
    model = Model()
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1]},
        {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0, "lr": 0.5},
    ]
    opt = optim.AdamW(groups, lr=1e-3)
    page = read(opt._repr_html_())
    text = " ".join(page.text.split())
    assert "AdamW 76 parameters" in text and "2 groups" in text and "step 0" in text
    assert "lr 0.001" in text and "lr 0.5" in text and "betas (0.9, 0.999)" in text
    assert "10 × 4 float32" in text and "exp_avg, exp_avg_sq" in text and "no gradient" in text
    # Two float32 moments for each of 76 parameters, and three int64 counters.
    assert f"{76 * 8 + 3 * 8} B of state" in text


def test_an_optimizer_shows_its_step_and_masters() -> None:
    weight = ruda.tensor([1.0, 2.0], dtype="bfloat16", requires_grad=True)
    opt = optim.AdamW([weight])
    ruda.sum(weight * weight).backward()
    opt.step()
    text = " ".join(read(opt._repr_html_()).text.split())
    assert "step 1" in text and "master float32" in text and "no gradient" not in text
    assert read(optim.SGD([weight], lr=0.1)._repr_html_()).text
