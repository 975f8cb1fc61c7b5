"""The formulas of optimizer steps in C; what each means stands at the row of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ruda.backends.cuda.codegen_updates import Formula


class Found(NamedTuple):
    """A formula, whether it counts steps, and whether it has its own weight decay."""

    formula: Formula
    counted: bool
    takes_decay: bool = False


_SGD = Formula((), (), (("rate", "lr"),), "p -= g * rate;", counted=False)
_LION = Formula(
    ("m",),
    ("beta1", "beta2"),
    (("rate", "lr"), ("share", "1.0 - beta1"), ("rest", "1.0 - beta2")),
    "p -= ruda_sign(m + (g - m) * share) * rate;\nm += (g - m) * rest;",
    counted=False,
)
_MOMENTS = (("share", "1.0 - beta1"), ("keep", "beta2"), ("rest", "1.0 - beta2"))
_AVERAGES = "m += (g - m) * share;\nv = v * keep + g * g * rest;\n"
_BETAS = ("beta1", "beta2", "eps")
_ADAMW = Formula(
    ("m", "v"),
    _BETAS,
    (
        ("size", "root / (1.0 - pow(beta1, t)) * lr"),
        ("floor_", "root * eps"),
        *_MOMENTS,
    ),
    _AVERAGES + "p -= m / (sqrt(v) + floor_) * size;",
    "const double root = sqrt(1.0 - pow(beta2, t));",
)
_AMSGRAD = Formula(
    ("m", "v", "top"),
    _BETAS,
    (
        ("size", "lr / (1.0 - pow(beta1, t))"),
        ("root", "sqrt(1.0 - pow(beta2, t))"),
        ("floor_", "eps"),
        *_MOMENTS,
    ),
    _AVERAGES + "top = ruda_max(top, v);\np -= m / (sqrt(top) / root + floor_) * size;",
    crowded=True,
)
_NADAM = Formula(
    ("m", "v"),
    ("product", *_BETAS, "momentum_decay"),
    (
        ("here", "lr * (1.0 - present) / (1.0 - product)"),
        ("ahead", "lr * coming / (1.0 - product * coming)"),
        ("root", "sqrt(1.0 - pow(beta2, t))"),
        ("floor_", "eps"),
        *_MOMENTS,
    ),
    _AVERAGES + "p -= (g * here + m * ahead) / (sqrt(v) / root + floor_);",
    "const double present = beta1 * (1.0 - 0.5 * pow(0.96, t * momentum_decay));\n"
    "const double coming = beta1 * (1.0 - 0.5 * pow(0.96, (t + 1.0) * momentum_decay));",
    crowded=True,
)
_RADAM = Formula(
    ("m", "v"),
    _BETAS,
    (
        ("full", "trusted ? size * sqrt(scale * left) : 0.0"),
        ("plain", "trusted ? 0.0 : size"),
        ("floor_", "eps"),
        *_MOMENTS,
    ),
    _AVERAGES + "p -= m * (full / (sqrt(v) + floor_) + plain);",
    "const double left = 1.0 - pow(beta2, t), limit = 2.0 / (1.0 - beta2) - 1.0;\n"
    "const double r = limit - 2.0 * t * (1.0 - left) / left;\n"
    "const bool trusted = r > 5.0;\n"
    "const double scale = (r - 4.0) * (r - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * r);\n"
    "const double size = lr / (1.0 - pow(beta1, t));",
)
_RMSPROP = Formula(
    ("v",),
    ("alpha", "eps"),
    (("rate", "lr"), ("floor_", "eps"), ("keep", "alpha"), ("rest", "1.0 - alpha")),
    "v = v * keep + g * g * rest;\np -= g / (sqrt(v) + floor_) * rate;",
)
_ADAGRAD = Formula(
    ("s",),
    ("lr_decay", "eps"),
    (("rate", "lr / (1.0 + (t - 1.0) * lr_decay)"), ("floor_", "eps")),
    "s += g * g;\np -= g / (sqrt(s) + floor_) * rate;",
)
_ADADELTA = Formula(
    ("v", "u"),
    ("rho", "eps"),
    (("rate", "lr"), ("floor_", "eps"), ("keep", "rho"), ("rest", "1.0 - rho")),
    "v = v * keep + g * g * rest;\n"
    "const T d = g * (sqrt(u + floor_) / sqrt(v + floor_));\n"
    "p -= d * rate;\n"
    "u = u * keep + d * d * rest;",
)
_PLAIN = {
    "sgd_step": _SGD,
    "lion_step": _LION,
    "adamw_step": _ADAMW,
    "amsgrad_step": _AMSGRAD,
    "nadam_step": _NADAM,
    "radam_step": _RADAM,
    "rmsprop_step": _RMSPROP,
    "adagrad_step": _ADAGRAD,
    "adadelta_step": _ADADELTA,
}


def _momentum(nesterov: bool) -> Formula:
    ahead = "g + b * keep" if nesterov else "b"
    return Formula(
        ("b",),
        ("momentum", "dampening"),
        (
            ("rate", "lr"),
            ("keep", "momentum"),
            ("share", "t == 1.0 ? 1.0 : 1.0 - dampening"),
            ("before", "t == 1.0 ? 0.0 : 1.0"),
        ),
        # The buffer of the first step is not looked at: it may hold anything.
        f"b = (before != T(0) ? b * keep : T(0)) + g * share;\np -= ({ahead}) * rate;",
    )


def _adan(proximal: bool, decays: bool) -> Formula:
    lines = [
        "const T turn = later != T(0) ? g - before : T(0);",
        "m += (g - m) * share;",
        "v += (turn - v) * shift;",
        "const T near = g + turn * lead;",
        "n = n * keep + near * near * rest;",
        "const T move = (m * size + v * more) / (sqrt(n) / root + floor_);",
        "p = (p - move) / held;" if proximal else "p = p * held - move;",
        "before = g;",
    ]
    decay = "lr * weight_decay" if decays else "0.0"
    return Formula(
        ("m", "v", "n", "before"),
        ("beta1", "beta2", "beta3", "eps"),
        (
            ("later", "t == 1.0 ? 0.0 : 1.0"),
            ("share", "1.0 - beta1"),
            ("shift", "1.0 - beta2"),
            ("lead", "beta2"),
            ("keep", "beta3"),
            ("rest", "1.0 - beta3"),
            ("size", "lr / (1.0 - pow(beta1, t))"),
            ("more", "lr * beta2 / (1.0 - pow(beta2, t))"),
            ("root", "sqrt(1.0 - pow(beta3, t))"),
            ("floor_", "eps"),
            ("held", f"1.0 + {decay}" if proximal else f"1.0 - {decay}"),
        ),
        "\n".join(lines),
    )


def formula_of(name: str, flags: Mapping[str, bool], decays: bool) -> Found:
    """The formula of a row with its flags."""
    if name == "momentum_step":
        return Found(_momentum(flags["nesterov"]), True)
    if name == "adan_step":
        return Found(_adan(flags["proximal"], decays), True, True)
    formula = _PLAIN[name]
    return Found(formula, formula.counted)
