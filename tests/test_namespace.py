"""The module `ruda` as a person meets it: version, names, hints for names it does not have."""

from __future__ import annotations

import re
from operator import attrgetter

import pytest

import ruda
from ruda.core.elsewhere import DATA, NAMES, NN, OPTIM


@pytest.mark.parametrize("name", NAMES)
def test_names_from_elsewhere_are_hinted_at(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Try ruda") as caught:
        getattr(ruda, name)
    targets = re.findall(r"ruda\.([\w.]+)", str(caught.value))
    assert targets
    for target in targets:
        assert callable(attrgetter(target)(ruda))


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [(m, n, h) for m, d in (("nn", NN), ("optim", OPTIM), ("data", DATA)) for n, h in d.items()],
)
def test_names_of_other_modules_are_hinted_at(module: str, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"'ruda.{module}' has no attribute '{name}'. Try "):
        getattr(getattr(ruda, module), name)
    for target in re.findall(r"ruda\.([\w.]+)", hint):
        assert attrgetter(target)(ruda) is not None
    assert not hasattr(getattr(ruda, module), "frobnicate")


def test_other_unknown_names_get_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"^module 'ruda' has no attribute 'frobnicate'$"):
        _ = ruda.frobnicate


def test_completion_offers_public_names_alone() -> None:
    names = dir(ruda)
    assert {"exp", "sum", "Tensor", "nn", "optim", "grad", "compile", "__version__"} <= set(names)
    assert not {"Any", "annotations", "importlib"} & set(names)
    assert not [n for n in names if n.startswith("_") and not n.startswith("__")]
    assert all(hasattr(ruda, n) for n in names)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", ruda.__version__)
