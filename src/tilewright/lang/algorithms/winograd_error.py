"""How exact Winograd's method is with given weights: measured on a sample of tiles, in f32 as in kernels.

The error depends on the weights: sums that cancel, or values near the ends of the range of f32, lose more
digits between the transforms than the direct method does.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.lang.algorithms.winograd import MATRICES, WinogradMatch, transform_weights

#: Tiles of the sample: half of normal numbers, half of their absolute values, as activations are.
TILES: Final = 8
#: Output channels of the sample: those with the largest weights, which decide both error and result.
CHANNELS: Final = 32


def winograd_error(match: WinogradMatch, m: int, array: npt.NDArray[np.generic]) -> float:
    """``max|error| / max|result|`` of F(m x m, 3x3) with the convolution's weights ``array``.

    Inputs are random, the same in each call; the reference is the direct method in f64. NaN or infinite
    where the method leaves the range of f32.
    """
    axis = match.weight_axes[-1]
    norms = np.array([np.linalg.norm(each.astype(np.float64)) for each in np.moveaxis(array, axis, 0)])
    some = np.take(array, np.argsort(-norms, kind="stable")[:CHANNELS], axis).astype(np.float64)
    taps = some.transpose(match.weight_axes)
    if match.kd is not None:
        taps = np.moveaxis(taps, 0, 2)
    taps = taps.reshape(3, 3, -1, taps.shape[-1])
    with np.errstate(all="ignore"):
        weights = transform_weights(match, m, some).reshape(m + 2, m + 2, *taps.shape[2:])
        x = np.random.default_rng(0).standard_normal((TILES, taps.shape[2], m + 2, m + 2), np.float32)
        x[TILES // 2 :] = np.abs(x[TILES // 2 :])
        into, back = (np.array(each, np.float32) for each in (MATRICES[m].input, MATRICES[m].output))
        points = (into @ x @ into.T).transpose(2, 3, 0, 1) @ weights
        found = back @ points.transpose(2, 3, 0, 1) @ back.T
        exact = np.zeros((m, m, TILES, taps.shape[-1]))
        for i in range(m):
            for j in range(m):
                window = x[:, :, i : i + 3, j : j + 3].transpose(2, 3, 0, 1).astype(np.float64)
                exact[i, j] = (window @ taps).sum(axis=(0, 1))
        error = np.abs(found.transpose(2, 3, 0, 1) - exact).max()
        return float(error / np.abs(exact).max()) if error != 0 else 0.0
