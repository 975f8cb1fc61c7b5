"""The notebook runs, every object in it shows itself, and a browser shows what they wrote."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources import ROOT

NOTEBOOK = ROOT / "examples" / "inspect.ipynb"
PAGE = """<!doctype html><meta charset="utf-8"><title>inspect</title>
<body style="background: white">{body}
<script>
addEventListener("load", () => {{
  const broken = [...document.images].filter((image) => !image.naturalWidth);
  document.body.dataset.images = document.images.length;
  document.body.dataset.broken = broken.length;
}});
</script></body>"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after a run in a kernel of its own."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra notebook")
    client = pytest.importorskip("nbclient", reason="needs the extra notebook")
    pytest.importorskip("ipykernel", reason="needs the extra notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        # Nothing is read from or left in the user's folders.
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        resources = {"metadata": {"path": str(folder)}}
        client.NotebookClient(notebook, timeout=120, resources=resources).execute()
    return notebook


@pytest.fixture(scope="module")
def page(executed: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook as a page that loads nothing."""
    nbconvert = pytest.importorskip("nbconvert", reason="needs the extra notebook")
    body, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(executed)
    path: Path = tmp_path_factory.mktemp("page") / "inspect.html"
    path.write_text(PAGE.format(body=body), "utf-8")
    return path


def browser(*options: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("chromium")
    if command is None:
        pytest.skip("needs chromium")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    return subprocess.run(
        [command, *quiet, *options], capture_output=True, text=True, check=True, timeout=120
    )


def results(notebook: Any) -> list[Any]:
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]


def test_the_stored_notebook_has_no_outputs() -> None:
    """What a run shows belongs to that run; a stored output would go stale."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not [c for c in notebook.cells if c.get("outputs") or c.get("execution_count")]


def test_objects_show_themselves(executed: Any) -> None:
    shown = [output.data["text/html"] for output in results(executed) if "text/html" in output.data]
    assert len(shown) == 7
    # All but the shapes on the first line.
    assert len(results(executed)) == len(shown) + 1
    text = " ".join(shown)
    assert "Sequential" in text
    assert "AdamW" in text
    assert "inf" in text.lower()


def test_images_are_inside_the_page(page: Path) -> None:
    sources = re.findall(r"<img[^>]* src=\"([^\"]*)", page.read_text("utf-8"))
    assert all(source.startswith("data:image/") for source in sources)


def test_a_browser_shows_the_page(page: Path, tmp_path: Path) -> None:
    picture = tmp_path / "inspect.png"
    size = "--window-size=1000,4000"
    browser(size, f"--screenshot={picture}", page.as_uri())
    image = pytest.importorskip("PIL.Image").open(picture)
    pixels = np.asarray(image.convert("L"))
    assert pixels.shape == (4000, 1000)
    # White alone would have one value; text and pictures have many.
    assert len(np.unique(pixels)) > 50
    assert (pixels < 128).mean() > 1e-3


def test_no_image_is_broken(page: Path) -> None:
    shown = browser("--virtual-time-budget=5000", "--dump-dom", page.as_uri()).stdout
    counted = re.search(r'data-images="(\d+)" data-broken="(\d+)"', shown)
    assert counted is not None
    assert counted[2] == "0"


def test_a_broken_image_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "broken.html"
    path.write_text(PAGE.format(body='<img src="data:image/png;base64,AAAA">'), "utf-8")
    shown = browser("--virtual-time-budget=5000", "--dump-dom", path.as_uri()).stdout
    assert 'data-images="1" data-broken="1"' in shown
