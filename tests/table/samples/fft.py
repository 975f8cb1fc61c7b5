"""Samples of Fourier transforms and of what is built on them."""

from __future__ import annotations

import ruda
from ruda import fft
from ruda.core.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tests.table.sample import Bad, Composed, Sample

SAMPLES = {
    "fft": [
        Sample(((3, 8),), ((1,), False, "backward")),
        Sample(((5, 3),), ((0, 1), True, "backward")),
        Sample(((2, 3, 5),), ((2, 0), False, "ortho")),
        Sample(((7,),), ((0,), True, "forward")),
        Sample(((1,),), ((0,), False, "backward")),
        Sample(((0, 3),), ((1,), False, "backward")),
        Sample(((2, 3),), ((), False, "backward")),
    ],
    "rfft": [
        Sample(((3, 8),), ((1,), "backward")),
        Sample(((5, 3),), ((1, 0), "ortho")),
        Sample(((2, 3, 5),), ((0, 2), "forward")),
        Sample(((1,),), ((0,), "backward")),
        Sample(((0, 3),), ((1,), "backward")),
    ],
    "irfft": [
        Sample(((3, 5),), ((1,), 8, "backward")),
        Sample(((3, 5),), ((1,), 9, "ortho")),
        Sample(((5, 3),), ((1, 0), 8, "forward")),
        Sample(((1,),), ((0,), 1, "backward")),
        Sample(((0, 3),), ((1,), 4, "backward")),
    ],
}

COMPOSED = [
    Composed("fft-longer", lambda x: fft.fft(x, n=7, axis=0), ((5, 2),)),
    Composed("ifft-shorter", lambda x, y: fft.ifft(x + y * 1j, n=3), ((2, 5), (2, 5))),
    Composed("irfftn", lambda x, y: fft.irfftn(x + y * 1j, s=(4, 5)), ((2, 3, 3), (2, 3, 3))),
    Composed("hfft", lambda x, y: fft.hfft(x + y * 1j, n=6), ((2, 4), (2, 4))),
    Composed("ihfft", fft.ihfft, ((2, 5),)),
    Composed("fftshift", fft.fftshift, ((3, 4),)),
    Composed("ifftshift", lambda x: fft.ifftshift(x, axes=0), ((3, 4),)),
    *(
        Composed(
            f"dct-{kind}-{norm}", lambda x, k=kind, n=norm: fft.dct(x, type=k, norm=n), ((2, 5),)
        )
        for kind in (1, 2, 3, 4)
        for norm in ("backward", "ortho")
    ),
    Composed("idct", lambda x: fft.idct(x, n=6, axis=0), ((5, 2),)),
    Composed(
        "stft",
        lambda x: fft.stft(x, 8, hop_length=3, window=fft.hann(6, dtype="float64")),
        ((2, 20),),
    ),
    Composed(
        "istft",
        lambda x, y: fft.istft(
            x + y * 1j, 8, hop_length=2, window=fft.hann(8, dtype="float64"), length=10
        ),
        ((2, 5, 7), (2, 5, 7)),
    ),
]

BAD = [
    Bad(lambda: fft.fft(ruda.ones(0)), ShapeError, "fft: an axis to transform is empty"),
    Bad(lambda: fft.fft(ruda.ones(3), n=0), ShapeError, "fft: too few elements"),
    Bad(lambda: fft.ifft(ruda.ones(3), norm="unit"), ArgumentError, "ifft: unknown norm"),
    Bad(lambda: fft.fft(ruda.ones(3), axis=1), AxisError, "fft: axis out of range"),
    Bad(
        lambda: fft.fftn(ruda.ones((3, 3)), axes=(0, 0)), AxisError, "fftn: an axis is named twice"
    ),
    Bad(lambda: fft.fftn(ruda.ones(3), s=(2, 2), axes=(0,)), ShapeError, "fftn: sizes and axes"),
    Bad(lambda: fft.irfft(ruda.ones(1)), ShapeError, "irfft: too few elements"),
    Bad(lambda: fft.rfft(ruda.asarray([1 + 1j])), DTypeError, "rfft: dtype not supported"),
    Bad(lambda: fft.fft(ruda.asarray([1])), DTypeError, "fft: dtype not supported"),
    Bad(lambda: fft.fftfreq(0), ArgumentError, "fftfreq: needs at least one"),
    Bad(lambda: fft.stft(ruda.ones(4), 8), ShapeError, "stft: the signal is too short"),
    Bad(lambda: fft.stft(ruda.ones(4), 8, center=False), ShapeError, "stft: the signal is shorter"),
    Bad(
        lambda: fft.stft(ruda.ones(9), 8, pad_mode="wrap"), ArgumentError, "stft: unknown pad_mode"
    ),
    Bad(lambda: fft.istft(ruda.ones((4, 3)), 8), ShapeError, "istft: frequencies do not fit n_fft"),
    Bad(lambda: fft.dct(ruda.ones(4), type=5), ArgumentError, "dct: unknown type"),
    Bad(lambda: fft.dct(ruda.asarray([1j])), DTypeError, "dct: takes real values"),
    Bad(lambda: fft.kaiser(8, beta=-1.0), ArgumentError, "kaiser: beta is out of range"),
]
