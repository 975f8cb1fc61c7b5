"""Fourier transforms: the Array API extension ``fft``, with frames, windows and cosines.

All take float32, float64, complex64 and complex128 and keep the precision.
"""

from ruda.ops.cosine import dct, idct
from ruda.ops.fft import (
    fft,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfftn,
    rfft,
    rfftfreq,
    rfftn,
)
from ruda.ops.spectrum import istft, stft
from ruda.ops.tapers import bartlett, blackman, hamming, hann, kaiser

__all__ = [
    "fft",
    "ifft",
    "fftn",
    "ifftn",
    "rfft",
    "irfft",
    "rfftn",
    "irfftn",
    "hfft",
    "ihfft",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
    "dct",
    "idct",
    "stft",
    "istft",
    "bartlett",
    "blackman",
    "hamming",
    "hann",
    "kaiser",
]
