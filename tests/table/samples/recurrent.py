"""Samples of recurrent layers: both directions, ended sequences, optional operands."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.ops.cells import gru_cell, gru_layer, lstm_cell, lstm_layer, rnn_cell, rnn_layer
from tests.table.sample import Bad, Composed, Sample

T, N, H = 4, 3, 2
STATE, STEPS = (N, H), (T, N, H)
ENDED = np.array([4, 1, 3])

# Three cells projected to two outputs.
WIDE, CELL, CELLS = (T, N, 12), (N, 3), (T, N, 3)

SAMPLES = {
    "rnn": [
        Sample((STEPS, STATE, (H, H), None), (False, False)),
        Sample((STEPS, STATE, (H, H), ENDED), (True, True)),
    ],
    "rnn_backward": [
        Sample((STEPS, STATE, STEPS, (H, H), None), (False, False)),
        Sample((STEPS, STATE, STEPS, (H, H), ENDED), (True, True)),
    ],
    "lstm": [
        Sample(((T, N, 8), STATE, STATE, (8, H), None, None), (False,)),
        Sample((WIDE, STATE, CELL, (12, H), (H, 3), ENDED), (True,)),
    ],
    "lstm_backward": [
        Sample((STEPS, STEPS, (T, N, 8), STATE, STATE, STEPS, STEPS, (8, H), None, None), (False,)),
        Sample((STEPS, CELLS, WIDE, STATE, CELL, STEPS, CELLS, (12, H), (H, 3), ENDED), (True,)),
        Sample((STEPS, None, (T, N, 8), STATE, STATE, STEPS, STEPS, (8, H), None, ENDED), (False,)),
        Sample((None, STEPS, (T, N, 8), STATE, STATE, STEPS, STEPS, (8, H), None, None), (True,)),
    ],
    "gru": [
        Sample(((T, N, 6), STATE, (6, H), (6,), None), (False,)),
        Sample(((T, N, 6), STATE, (6, H), None, ENDED), (True,)),
    ],
    "gru_backward": [
        Sample((STEPS, (T, N, 6), STATE, STEPS, (6, H), (6,), None), (False,)),
        Sample((STEPS, (T, N, 6), STATE, STEPS, (6, H), None, ENDED), (True,)),
    ],
}

X, ZERO = ruda.ones((T, N, 5)), ruda.zeros((N, H))
W, U = ruda.ones((H, 5)), ruda.ones((H, H))
W4, U4 = ruda.ones((8, 5)), ruda.ones((8, H))

BAD = [
    Bad(lambda: rnn_layer(X, ZERO[:2], W, U), ShapeError, "rnn: the state does not fit"),
    Bad(lambda: rnn_layer(X, ZERO, W, U[:1]), ShapeError, "rnn: w does not fit"),
    Bad(lambda: rnn_layer(X[:0], ZERO, W, U), ShapeError, "without steps"),
    Bad(lambda: rnn_layer(X, ZERO, W, U.astype("float64")), DTypeError, "one float dtype"),
    Bad(lambda: rnn_layer(X, ZERO, W, U, nonlinearity="exp"), ArgumentError, "nonlinearity"),
    Bad(lambda: rnn_layer(X, ZERO, W, U, lengths=ruda.ones(3)), DTypeError, "lengths are no"),
    Bad(lambda: lstm_layer(X, (ZERO, ZERO), W4[:7], U4[:7]), ShapeError, "ranks do not fit"),
    Bad(lambda: lstm_layer(X, (ZERO, ZERO[:, :1]), W4, U4), ShapeError, "the cell state"),
    Bad(lambda: gru_layer(X, ZERO, W4[:6], U4[:5]), ShapeError, "gru: w does not fit"),
]

COMPOSED = [
    Composed("rnn_layer", rnn_layer, ((T, N, 3), STATE, (H, 3), (H, H), (H,), (H,))),
    Composed(
        "lstm_layer",
        lambda x, h, c, *w: lstm_layer(x, (h, c), *w, reverse=True),
        ((T, N, 3), STATE, CELL, (12, 3), (12, H), (12,), (12,), (H, 3)),
    ),
    Composed("gru_layer", gru_layer, ((T, N, 3), STATE, (6, 3), (6, H), (6,), (6,))),
    Composed("rnn_cell", rnn_cell, ((N, 3), STATE, (H, 3), (H, H))),
    Composed(
        "lstm_cell",
        lambda x, h, c, *w: lstm_cell(x, (h, c), *w),
        ((N, 3), STATE, STATE, (8, 3), (8, H), (8,), (8,)),
    ),
    Composed("gru_cell", gru_cell, ((N, 3), STATE, (6, 3), (6, H), (6,), (6,))),
]
